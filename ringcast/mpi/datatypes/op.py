"""Operators of reductions: MPI's own, and the ones that a program makes of a function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from ringcast import ops
from ringcast._util.safe_text import safe_text
from ringcast.engine.objects import copied, decode, encode
from ringcast.mpi.base.exceptions import ERR_INTERN, ERR_OP, Exception
from ringcast.mpi.data.memory import buffer
from ringcast.mpi.datatypes.buffers import Part, message
from ringcast.mpi.handles.handle import Handle, forget, predefined
from ringcast.ops import Array

__all__ = [
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "NO_OP",
    "OP_NULL",
    "PROD",
    "REPLACE",
    "SUM",
    "Op",
]

MOST = 32  # operators that a program has at the same time, as in mpi4py
_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None)})

Function = Callable[[Any, Any], Any]


class Predefined:
    """An operator of MPI: for arrays of some kinds of numpy dtypes, and for Python objects."""

    def __init__(self, name: str, on_arrays: ops.Op, kinds: str, on_objects: Function) -> None:
        self.name, self.commutes, self.on_objects = name, on_arrays.commutative, on_objects
        self.on_arrays, self.kinds = on_arrays, kinds
        # Not commutative: the order matters where lists or texts are joined, and saves little with objects.
        self.of_objects = ops.Op(on_objects, name=name)

    def of_buffers(self, part: Part) -> tuple[ops.Op, Array]:
        """Return the operator for the items of a buffer, and the items."""
        items = part.values()
        if items.dtype.kind not in self.kinds:
            raise Exception(ERR_OP, f"expected a datatype that {self.name} can combine, got {part.definition.name}")
        return self.on_arrays, items


class UserDefined:
    """An operator that the program has made of a function of two memories and their datatype."""

    def __init__(self, function: Callable[..., Any], commutes: bool) -> None:
        self.function, self.commutes = function, commutes
        self.name = ops.name_of(function)
        self.of_objects = ops.Op(on_copies(self.on_objects), name=self.name)

    def on_objects(self, left: Any, right: Any) -> Any:
        """Return the combination of two Python objects."""
        return self.function(left, right, None)

    def of_buffers(self, part: Part) -> tuple[ops.Op, Array]:
        """Return the operator for the memory of a buffer, and the memory without gaps."""

        def combine(left: Array, right: Array) -> Array:
            lower, (higher, elements) = _laid_out(left, part), _laid_out(right, part)
            self.function(lower[0], higher, part.datatype)
            return elements.packed().view(right.dtype)

        return ops.Op(combine, commutative=self.commutes, name=self.name), part.elements()


class Op(Handle):
    """An operator. Called with two objects, the first one of lower ranks, it returns their combination."""

    _state: Predefined | UserDefined | None
    _function: Callable[..., Any] | None = None  # of the program; handles that are made of numbers do not have it

    def __new__(cls, op: Op | None = None) -> Self:
        """Return OP_NULL, or another handle of an operator."""
        self = super().__new__(cls, op)
        if op is not None:
            self._function = op._function
        return self

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], Any], commute: bool = False) -> Self:
        """Return an operator that applies `function(left, right, datatype)`, which puts the result into `right`.

        For Python objects `datatype` is None, and the function returns the result.

        Raises:
            Exception: the program has as many operators as it may have.
        """
        if len(_CREATED) >= MOST:
            raise Exception(ERR_INTERN, f"expected at most {MOST} operators at a time; free unused ones")
        state = UserDefined(function, commute)
        _CREATED.add(state)
        self = cls._of_state(state)
        self._function = function
        return self

    def Free(self) -> None:
        """Free an operator of the program."""
        state = _operator(self)
        if isinstance(state, Predefined):
            raise Exception(ERR_OP, f"expected an operator of the program, got {state.name}")
        _CREATED.discard(state)
        forget(state)
        self._state = self._function = None

    def __call__(self, x: Any, y: Any) -> Any:
        if self._state is None:
            raise ValueError("expected an operator, got OP_NULL")
        return self._state.on_objects(x, y)

    def __reduce__(self) -> Any:
        if self._function is None or self._state is None:
            return super().__reduce__()
        return type(self).Create, (self._function, self._state.commutes)

    def Is_commutative(self) -> bool:
        """Return whether the order of ranks does not matter."""
        return _operator(self).commutes

    is_commutative = property(Is_commutative)

    @property
    def is_predefined(self) -> bool:
        """Whether MPI defines it; true of OP_NULL, too."""
        return not isinstance(self._state, UserDefined)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers of this rank; the result goes into the second one."""
        left, right = message(inbuf, writes=False), message(inoutbuf, writes=True)
        check_alike(left, right)
        combine, items = of_buffers(self, left)
        _, result = of_buffers(self, right)
        combine.combine(items, result, result)
        right.store(result.view(np.uint8))


def of_buffers(op: Any, part: Part) -> tuple[ops.Op, Array]:
    """Return ringcast's operator for a buffer, and its items.

    Raises:
        Exception: it is no operator, or does not combine such items.
    """
    return _operator(op).of_buffers(part)


def of_objects(op: Any) -> ops.Op:
    """Return ringcast's operator for Python objects; a function of two objects is one.

    Raises:
        Exception: it is neither.
    """
    if not isinstance(op, Op) and callable(op):
        return ops.Op(on_copies(op), name=ops.name_of(op))
    return _operator(op).of_objects


def check_alike(sent: Part, received: Part, blocks: int = 1) -> None:
    """Check that the buffers of a reduction have elements of the same type, and so many blocks of as many elements.

    Raises:
        ValueError: they have not, as mpi4py says it.
    """
    check_datatypes(sent, received)
    if sent.count != received.count * blocks:
        raise ValueError(f"mismatch in send count {sent.count} and receive count {received.count}")


def check_datatypes(sent: Part, received: Part) -> None:
    """Check that the buffers of a reduction have elements of the same type.

    Raises:
        ValueError: they have not, as mpi4py says it.
    """
    if sent.definition is not received.definition:
        raise ValueError(
            f"mismatch in send and receive MPI datatypes: {sent.definition.name} and {received.definition.name}"
        )


def on_copies(function: Function) -> Function:
    """Return `function` on copies of its operands: it may write into one that the program or a later step uses."""
    return lambda left, right: function(own(left), own(right))


def own(value: Any) -> Any:
    """Return a copy of an object, as it would arrive at another rank."""
    return value if unchangeable(value) else decode(copied(encode(value)))


def unchangeable(value: Any) -> bool:
    """Return whether an object needs no copy, as the program cannot change it."""
    return type(value) in _IMMUTABLE


def _operator(op: Any) -> Predefined | UserDefined:
    state = op._state if isinstance(op, Op) else None
    if state is None:
        raise Exception(ERR_OP, f"expected an operator, got {'OP_NULL' if isinstance(op, Op) else safe_text(op)}")
    return state


def _pairs(name: str, better: np.ufunc) -> ops.Op:
    """Return the operator that takes the better values of pairs; of equal ones the pair with the lower place.

    NaN is taken before every other value, as np.argmin does.
    """

    def combine(left: Array, right: Array) -> Array:
        value, place = left.dtype.names or ()
        nan, other_nan = np.isnan(left[value]), np.isnan(right[value])
        equal = (left[value] == right[value]) | (nan & other_nan)
        take = better(left[value], right[value]) | (nan & ~other_nan) | (equal & (left[place] < right[place]))
        return np.where(take, left, right)

    return ops.Op(combine, commutative=True, elementwise=True, name=name)


def _better_loc(before: Function, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the pair of objects that `_pairs` takes."""
    order = ops.compare(before, x[0], y[0])
    value, place = y if order > 0 or (order == 0 and y[1] < x[1]) else x
    return value, place


def _laid_out(items: Array, like: Part) -> tuple[buffer, Part]:
    """Return a copy of elements with the gaps of their datatype, as functions of programs expect them.

    The memory begins at the origin of the first element, and reaches beyond all extents together if the data do.
    """
    layout, count = like.definition.layout, len(items)
    last = (count - 1) * layout.extent
    before = max(0, -layout.true_lb - min(0, last))
    after = max(count * layout.extent, max(0, last) + layout.true_ub)
    memory = np.zeros(before + after, np.uint8)
    elements = Part.placed(memory, before, count, like.definition)
    elements.store(items.view(np.uint8))
    return buffer.frombuffer(memory[before:]), elements


_CREATED: set[UserDefined] = set()
_ANY = "biufcV"


def _defined(name: str, on_arrays: ops.Op, kinds: str, on_objects: Function) -> Op:
    op: Op = predefined(Op._of_state(Predefined(name, on_arrays, kinds, on_objects)), name)
    return op


OP_NULL: Op = predefined(Op(), "OP_NULL")
MAX = _defined("MAX", ops.MAX, "iuf", ops.largest)
MIN = _defined("MIN", ops.MIN, "iuf", ops.least)
SUM = _defined("SUM", ops.SUM, "iufc", operator.add)
PROD = _defined("PROD", ops.PROD, "iufc", operator.mul)
LAND = _defined("LAND", ops.LAND, "iub", lambda x, y: bool(x) & bool(y))
BAND = _defined("BAND", ops.BAND, "iu", operator.and_)
LOR = _defined("LOR", ops.LOR, "iub", lambda x, y: bool(x) | bool(y))
BOR = _defined("BOR", ops.BOR, "iu", operator.or_)
LXOR = _defined("LXOR", ops.LXOR, "iub", lambda x, y: bool(x) ^ bool(y))
BXOR = _defined("BXOR", ops.BXOR, "iu", operator.xor)
MAXLOC = _defined("MAXLOC", _pairs("MAXLOC", np.greater), "V", partial(_better_loc, operator.gt))
MINLOC = _defined("MINLOC", _pairs("MINLOC", np.less), "V", partial(_better_loc, operator.lt))
REPLACE = _defined(
    "REPLACE", ops.Op(lambda _, y: y, elementwise=True, name="REPLACE", exact_always=True), _ANY, lambda _, y: y
)
NO_OP = _defined(
    "NO_OP", ops.Op(lambda x, _: x, elementwise=True, name="NO_OP", exact_always=True), _ANY, lambda x, _: x
)
