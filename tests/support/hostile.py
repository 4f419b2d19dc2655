"""Objects and errors of a program that cannot be shown: their own methods raise, recurse, or return unusable texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DUNDERS = (
    *("repr", "str", "format", "bytes", "bool", "int", "float", "complex", "index", "len", "iter", "next", "contains"),
    *("getitem", "setitem", "delitem", "eq", "ne", "lt", "le", "gt", "ge", "hash", "getattr", "call", "enter", "exit"),
    *("add", "radd", "mul", "rmul", "and", "or", "neg", "array", "array_ufunc", "buffer", "dir", "sizeof", "reduce"),
    *("reduce_ex", "getstate", "copy", "deepcopy", "fspath", "trunc", "round", "instancecheck", "length_hint"),
)


class Refused(Exception):
    """An error of one of a hostile object's methods."""


def _refuse(*_: Any, **__: Any) -> Any:
    raise Refused("a method of a hostile object")


def _exit(*_: Any, **__: Any) -> Any:
    raise SystemExit(7)


def _interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def _recurse(self: Any) -> str:
    return str(self)


class Sullen:
    """An object that cannot be shown, and is an ordinary one otherwise."""

    __repr__ = __str__ = __format__ = _refuse


class _Text(str):
    """A text that is of no use: every method of it raises."""

    __slots__ = ()
    __str__ = __repr__ = __format__ = __len__ = __getitem__ = __iter__ = __add__ = __hash__ = _refuse
    __contains__ = encode = translate = partition = splitlines = format = join = _refuse


class Hostile:
    """An object whose methods all raise."""

    __class__ = property(_refuse)  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        raise Refused(name)


for _name in DUNDERS:
    setattr(Hostile, f"__{_name}__", _refuse)


# A metaclass whose classes do not tell their names.
_NAMELESS = type("_Nameless", (type,), {name: property(_refuse) for name in ("__name__", "__module__", "__doc__")})


def _class(name: str, **methods: Any) -> type[Exception]:
    return type(name, (Exception,), {f"__{name}__": method for name, method in methods.items()})


def _raising(kind: type[BaseException]) -> Callable[[], BaseException]:
    return lambda: kind("text")


def _with_notes(notes: Any) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = notes
    return error


def _caused() -> BaseException:
    error = ValueError("outer")
    error.__cause__ = BASIC()
    error.__context__ = KeyError(Hostile())
    return error


def _chain() -> BaseException:
    error: BaseException = ValueError("first")
    for _ in range(3000):
        following = ValueError("next")
        following.__cause__ = error
        error = following
    return error


def _deep() -> BaseException:
    error: Exception = ValueError("inmost")
    for _ in range(3000):
        error = ExceptionGroup("around", [error])
    return error


def _syntax_error() -> BaseException:
    error = SyntaxError("wrong")
    error.filename = error.text = error.lineno = error.offset = Hostile()  # type: ignore[assignment]
    return error


BASIC = _class("Basic", str=_refuse, repr=_refuse)
ERRORS: dict[str, Callable[[], BaseException]] = {  # by the name of its class, which must be shown, and a word
    "ValueError of an argument": lambda: ValueError("no cells in", Hostile()),
    "KeyError of a key": lambda: KeyError(Hostile()),
    "Basic that refuses": BASIC,
    "Exits in str": _raising(_class("Exits", str=_exit, repr=_exit)),
    "Interrupts in str": _raising(_class("Interrupts", str=_interrupt, repr=_interrupt)),
    "Recurses for ever": _raising(_class("Recurses", str=_recurse, repr=_recurse)),
    "NoText but a number": _raising(_class("NoText", str=lambda _: 5, repr=lambda _: None)),
    "OwnText that refuses": _raising(_class("OwnText", str=lambda _: _Text("own"), repr=lambda _: _Text("own"))),
    "Huge": _raising(_class("Huge", str=lambda _: "x" * 3_000_000, repr=lambda _: "x" * 3_000_000)),
    "Surrogates": _raising(_class("Surrogates", str=lambda _: "\udcff\ud800" * 50_000)),
    "Controls": _raising(_class("Controls", str=lambda _: "\x1b[2J\x1b]0;title\x07\r\x00\x9b1m" * 3)),
    "Attributes that refuse": _raising(_class("Attributes", getattribute=_refuse, str=_refuse)),
    "Disguised": _raising(_class("Disguised", **{"class": property(_refuse)})),
    "NotesRefuse": _raising(_class("NotesRefuse", notes=property(_refuse))),
    "CauseExits": _raising(_class("CauseExits", cause=property(_exit), context=property(_exit))),
    "Falsy": _raising(_class("Falsy", bool=lambda _: False, len=lambda _: 0, str=lambda _: "text")),
    "BoolRefuses": _raising(_class("BoolRefuses", bool=_refuse, eq=_refuse, hash=_refuse)),
    "Unnamed": lambda: _NAMELESS("Unnamed", (Exception,), {})("text"),
    "ValueError with hostile notes": lambda: _with_notes([Hostile(), "good", 5]),
    "ValueError with notes that are none": lambda: _with_notes(Hostile()),
    "ValueError from another": _caused,
    "ValueError at the end of a long chain": _chain,
    "ExceptionGroup of hostile ones": lambda: ExceptionGroup("both", [BASIC(), ValueError(Hostile())]),
    "ExceptionGroup in many others": _deep,
    "SyntaxError of hostile parts": _syntax_error,
    "AttributeError of a hostile object": lambda: AttributeError("no", name="a", obj=Hostile()),
    "NameError of a hostile name": lambda: NameError("no", name=Hostile()),
    "SystemExit of a hostile object": lambda: SystemExit(Hostile()),
}
