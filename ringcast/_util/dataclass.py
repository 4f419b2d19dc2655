"""Define dataclasses as the standard library's `dataclass` does, in a tenth of its time.

A rank defines some 70 when it starts. The standard library compiles six methods for each, which takes a millisecond
(CPython 3.11), more than all else in the module. Here `__init__` alone is compiled, and not before the first object is
made; the other methods are closures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
    ) -> Any:
        """Make a dataclass, with the options and the result of `dataclasses.dataclass`."""
        if cls is None:
            return partial(dataclass, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library derives it from the signature
        with _thawed(cls) if frozen else nullcontext():
            made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        made.__dataclass_params__.frozen = frozen  # the standard library reads it in classes derived from this one
        methods: dict[str, Any] = {"__init__": _Init(made, frozen), "__repr__": _repr(made)}
        methods |= (_comparison(made, frozen) if eq else {}) | (_FROZEN if frozen else {})
        methods |= _STATE if frozen and slots else {}
        own = dict(cls.__dict__)
        if "__eq__" in own and own["__hash__"] is None:  # set by Python, as the class defines `__eq__` only
            del own["__hash__"]
        for name in methods.keys() - own.keys():
            setattr(made, name, methods[name])
        return made


@contextmanager
def _thawed(cls: type) -> Iterator[None]:
    """Let the bases of a frozen class seem not frozen: else two methods are compiled that we replace."""
    bases = [vars(base)["__dataclass_params__"] for base in cls.__mro__ if "__dataclass_params__" in vars(base)]
    frozen = [base for base in bases if base.frozen]
    if len(frozen) < len(bases):
        raise TypeError("cannot inherit frozen dataclass from a non-frozen one")
    for base in frozen:
        base.frozen = False
    try:
        yield
    finally:
        for base in frozen:
            base.frozen = True


Method = Callable[..., Any]


class _Absent:
    """Stands for an argument whose default is made anew for each call."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


class _Init:
    """Compiles a class's `__init__` when the first object is made: most classes have no object on a rank."""

    def __init__(self, cls: type, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, instance: object, owner: type | None = None) -> Method:
        init = _init(self._cls, self._frozen)
        type.__setattr__(self._cls, "__init__", init)
        bound: Method = init.__get__(instance, owner)
        return bound


def _init(cls: type, frozen: bool) -> Method:
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"set_": object.__setattr__, "absent_": _ABSENT}
    parameters: list[str] = []
    lines: list[str] = []
    for field in sorted((field for field in fields if field.init), key=attrgetter("kw_only")):
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        name = value = field.name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"make_{name}"], scope[f"default_{name}"] = field.default_factory, _ABSENT
            value = f"make_{name}() if {name} is absent_ else {name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}" if f"default_{name}" in scope else name)
        lines.append(f"set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    lines += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    exec(f"def __init__(self, {', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), scope)
    init: Method = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return init


def _repr(cls: type) -> Method:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _comparison(cls: type, frozen: bool) -> dict[str, Method | None]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    key: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


class _Frozen:
    """Has the methods of all frozen classes."""

    def __setattr__(self, name: str, _: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)


_FROZEN: dict[str, Method] = {name: vars(_Frozen)[name] for name in ("__setattr__", "__delattr__")}
# Without these a copy, made slot by slot, would be refused.
_STATE: dict[str, Method] = {name: vars(_Frozen)[name] for name in ("__getstate__", "__setstate__")}
