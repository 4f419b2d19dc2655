"""Our dataclasses behave as the standard library's do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, field, replace
from typing import Any

import pytest

from ringcast._util.dataclass import dataclass

Make = Callable[..., Any]
OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for kw_only in (False, True)
]


def point(decorate: Make, options: dict[str, bool]) -> Any:
    @decorate(**options)
    class Point:
        """A point."""

        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False, compare=False)
        name: str = field(default="n", kw_only=True)

        def norm(self) -> int:
            return abs(self.x) + abs(self.y)

    return Point


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (TypeError, AttributeError) as error:
        return type(error)


def behaviour(cls: Any) -> list[Any]:
    a, b = cls(x=1), cls(x=1, y=2, secret="t")
    a.tags.append("t")
    b.tags.append("t")
    return [
        str(inspect.signature(cls)),
        cls.__match_args__,
        cls.__doc__,
        (repr(a), a == b, a != b, a == cls(x=2), a == 1, a.norm(), hasattr(a, "__dict__")),
        outcome(lambda: hash(cls(x=1, tags=())) == hash(cls(x=1, tags=(), secret="t"))),
        outcome(lambda: cls(1, 2, ["u"], "v", name="w").secret),
        outcome(cls),
        outcome(lambda: cls(x=1, z=1)),
        outcome(lambda: setattr(a, "x", 3)),
        outcome(lambda: delattr(a, "x")),
        outcome(lambda: setattr(b, "other", 3)) is None,  # which error it is differs between versions of Python
        outcome(lambda: (replace(b, x=7).x, asdict(b), astuple(b))),
        outcome(lambda: repr(copy.copy(b))),
        outcome(lambda: repr(copy.deepcopy(b))),
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(k for k, v in options.items() if v) or "none")
def test_classes_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    assert behaviour(point(dataclass, options)) == behaviour(point(dataclasses.dataclass, options))


@dataclass(frozen=True, slots=True)
class Sent:
    """Defined at module level, as pickle looks classes up by name."""

    text: str
    more: Sent | None = None


def test_it_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent("a", Sent("b")))) == Sent("a", Sent("b"))


def test_methods_of_the_class_stand() -> None:
    @dataclass(frozen=True)
    class Own:
        """With its own text, comparison and hash."""

        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 7)


@pytest.mark.parametrize("decorate", [dataclass, dataclasses.dataclass])
def test_a_frozen_class_with_its_own_comparison_is_hashed_by_its_fields(decorate: Make) -> None:
    class Own:
        """With its own comparison."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

    made = decorate(frozen=True)(Own)
    assert (made(1) == made(2), hash(made(1)) == hash(made(1)), hash(made(1)) == hash(made(2))) == (True, True, False)
    never = decorate(frozen=True)(type("Never", (), {"__annotations__": {"x": "int"}, "__hash__": None}))
    loose = decorate()(type("Loose", (), {"__annotations__": {"x": "int"}, "__eq__": Own.__eq__}))
    for unhashable in (never, loose):
        with pytest.raises(TypeError, match="unhashable"):
            hash(unhashable(1))


def test_what_is_derived_after_the_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class Square:
        """A field that is not given."""

        side: int
        area: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.side**2)

    square: Any = Square(3)
    assert repr(square).endswith("Square(side=3, area=9)")
    assert str(inspect.signature(Square)) == "(side: 'int') -> None"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'side'"):
        square.side = 4


def test_a_class_may_have_no_fields_and_those_of_another_are_inherited() -> None:
    @dataclass(frozen=True)
    class Empty:
        """Without fields."""

    @dataclass(frozen=True)
    class Child(Sent):
        """With one more."""

        last: int = 0

    assert (Empty(), hash(Empty()), repr(Empty())[-7:]) == (Empty(), hash(()), "Empty()")
    assert Child("a", last=3) == Child("a", None, 3) != Sent("a")


def test_those_of_the_standard_library_may_be_derived() -> None:
    @dataclasses.dataclass(frozen=True)
    class Child(Sent):
        """With one more."""

        last: int = 0

    @dataclass(frozen=True)
    class Grandchild(Child):
        """With none more."""

    grandchild: Any = Grandchild("a", last=3)
    assert grandchild == Grandchild("a", None, 3) != Child("a", None, 3)
    with pytest.raises(FrozenInstanceError):
        grandchild.last = 4
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Loose", (Sent,), {}))


def test_bare() -> None:
    @dataclass
    class Plain:
        x: int

    plain = Plain(1)
    plain.x = 2
    assert plain == Plain(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(plain)
    assert Plain.__doc__
