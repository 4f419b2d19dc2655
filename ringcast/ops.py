"""Reduction operators, and the properties that an algorithm may assume of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass

Array: TypeAlias = NDArray[Any]
LONGEST_NAME = 300  # characters of an operator's name


@dataclass(frozen=True)
class Op:
    """An associative operator: `fn(left, right)`, where left comes from lower ranks.

    The built-in ones are SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR and BXOR, which are commutative and
    elementwise; numpy's functions of the same meaning, as np.add, stand for them. Whatever the operator, an allreduce
    gives all ranks the same bits.

    Args:
        fn: a numpy ufunc or any function of two values. Functions get whole values in rank order and return the
            combined value, of the same shape and dtype for arrays; they must not change their arguments.
        commutative: the order of ranks does not matter; permits faster algorithms.
        elementwise: `fn` may be applied to pieces of an array (1-D, contiguous); permits pipelining.
        name: its name in error messages, which must be equal on all ranks; by default the name of `fn`.
        exact_always: every way of associating gives the same bits, as joining texts does, or multiplying matrices of
            whole numbers; permits faster algorithms, in which ranks associate differently.
        on_objects: the function for Python objects other than arrays; `fn` if not given.

    >>> hypot = Op(np.hypot, commutative=True, elementwise=True)
    >>> comm.allreduce(np.array([3.0, 4.0]), hypot), hypot
    (array([3., 4.]), <Op hypot>)
    """

    fn: Callable[[Any, Any], Any]
    commutative: bool = False
    elementwise: bool = False
    name: str = ""
    on_objects: Callable[[Any, Any], Any] | None = None
    exact_always: bool = False

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        """The same text on all ranks: no addresses."""
        name = str(self.name or name_of(self.fn))[:LONGEST_NAME]
        return name if name.isprintable() else ascii(name)[1:-1]

    def __repr__(self) -> str:
        return f"<Op {self}>"

    def exact(self, dtype: np.dtype[Any] | None = None) -> bool:
        """Whether every order of combining arrays of this dtype, or Python objects, gives the same bits.

        Args:
            dtype: of the arrays; None for Python objects.

        Returns:
            True for the built-in operators on integers and booleans; else `exact_always`.

        >>> SUM.exact(np.dtype(int)), SUM.exact(np.dtype(float))
        (True, False)
        """
        known = dtype is not None and dtype.kind in "iub" and any(self.fn is op.fn for op in BUILT_IN)
        return self.exact_always or known

    def combine(self, left: Array, right: Array, out: Array) -> None:
        """Put `fn(left, right)` into `out`.

        Args:
            left: an array, from lower ranks.
            right: an array of the same shape and dtype.
            out: an array of the same shape and dtype, which may be one of the two.

        Raises:
            ValueError: a function returned another shape.
            TypeError: a function returned a dtype that cannot be stored.

        >>> out = np.zeros(2)
        >>> SUM.combine(np.ones(2), np.ones(2), out); out
        array([2., 2.])
        """
        if isinstance(self.fn, np.ufunc):
            if self.fn is np.multiply and out.dtype.kind == "c":
                # In place, numpy multiplies some numbers of a piece by other instructions: how it is cut would show.
                out[...] = self.fn(left, right)
            else:
                self.fn(left, right, out=out)
            return
        result = np.asarray(self.fn(left, right))
        if result.shape != out.shape:
            raise ValueError(f"operator {self} returned shape {result.shape} for operands of shape {out.shape}")
        try:
            np.copyto(out, result, casting="same_kind")
        except TypeError:
            text = f"operator {self} returned dtype {result.dtype} for operands of dtype {out.dtype}"
            raise TypeError(text) from None

    def combine_objects(self, left: Any, right: Any) -> Any:
        """Return the combination of two Python objects.

        Args:
            left: from lower ranks.
            right: from higher ranks.

        >>> SUM.combine_objects([1], [2])
        [1, 2]
        """
        if self.on_objects is None:
            return self.fn(left, right)
        arrays = [value for value in (left, right) if isinstance(value, np.ndarray)]  # of objects, masked, and the like
        if not arrays:
            return self.on_objects(left, right)
        of_objects = any(array.dtype == object for array in arrays)  # then np.minimum of two gives either if one is NaN
        return (np.frompyfunc(self.on_objects, 2, 1) if of_objects else self.fn)(left, right)


def compare(before: Callable[[Any, Any], Any], left: Any, right: Any) -> int:
    """Return -1, 0 or 1: `left` comes before `right`, beside it, or after it.

    NaN comes before every other value, so that the first of several does not depend on the order of comparisons. Lists
    and tuples are compared by their first items that differ.

    Raises:
        TypeError: `before` compares values to something that is neither true nor false.
        ValueError: the same, if its type says so.
    """
    if type(left) is type(right) and isinstance(left, list | tuple):
        items = (compare(before, one, other) for one, other in zip(left, right, strict=False))
        return next(filter(None, items), 0) or compare(before, len(left), len(right))
    nan, other_nan = _true(left != left), _true(right != right)  # nothing else differs from itself
    if nan or other_nan:
        return other_nan - nan
    return _true(before(right, left)) - _true(before(left, right))


def _true(answer: Any) -> bool:
    """Return the truth of a comparison; refuse other objects, whose truth says nothing about the compared values."""
    if isinstance(answer, Mapping) or not hasattr(type(answer), "__bool__"):
        raise TypeError(f"expected values that compare to True or False, not to {type(answer).__name__}")
    return bool(answer)


def least(left: Any, right: Any) -> Any:
    """Return the lesser one of two Python objects, NaN if one is NaN, and `left` if they are equal."""
    return right if compare(operator.lt, left, right) > 0 else left


def largest(left: Any, right: Any) -> Any:
    """Return the larger one of two Python objects, NaN if one is NaN, and `left` if they are equal."""
    return right if compare(operator.gt, left, right) > 0 else left


def _built_in(name: str, fn: np.ufunc, on_objects: Callable[[Any, Any], Any]) -> Op:
    return Op(fn, commutative=True, elementwise=True, name=name, on_objects=on_objects)


SUM = _built_in("SUM", np.add, operator.add)
"""The sum; booleans are counted, as by np.sum, other objects added by `+`."""
PROD = _built_in("PROD", np.multiply, operator.mul)
"""The product; of booleans 1 or 0, as by np.prod; other objects are multiplied by `*`."""
MIN = _built_in("MIN", np.minimum, least)
"""The least value, in arrays item by item; NaN if any value is NaN; any of several equal ones, as 0.0 and -0.0."""
MAX = _built_in("MAX", np.maximum, largest)
"""The largest value, in arrays item by item; NaN if any value is NaN; any of several equal ones, as 0.0 and -0.0."""
LAND = _built_in("LAND", np.logical_and, lambda a, b: bool(a and b))
"""Whether all values are true: 1 or 0 of the values' dtype in arrays; True or False for other objects."""
LOR = _built_in("LOR", np.logical_or, lambda a, b: bool(a or b))
"""Whether any value is true: 1 or 0 of the values' dtype in arrays; True or False for other objects."""
LXOR = _built_in("LXOR", np.logical_xor, lambda a, b: bool(a) != bool(b))
"""Whether an odd number of values is true: 1 or 0 of the values' dtype in arrays; True or False for other objects."""
BAND = _built_in("BAND", np.bitwise_and, operator.and_)
"""The bits that all values have; for whole numbers and booleans only."""
BOR = _built_in("BOR", np.bitwise_or, operator.or_)
"""The bits that any value has; for whole numbers and booleans only."""
BXOR = _built_in("BXOR", np.bitwise_xor, operator.xor)
"""The bits that an odd number of values has; for whole numbers and booleans only."""
BUILT_IN = SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR
# Python's operator.add and the like are not among them: they also join texts, which is not commutative.
_SAME = {id(op.fn): op for op in BUILT_IN} | {
    id(fn): op
    for op, functions in ((SUM, (sum, np.sum)), (PROD, (np.prod,)), (MIN, (min, np.min)), (MAX, (max, np.max)))
    for fn in functions
}
_identities = set(map(id, BUILT_IN))


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function, or the name of its class.

    >>> name_of(len), name_of(functools.partial(max, 1))
    ('len', 'max')
    """
    while type(fn) is functools.partial:
        fn = fn.func
    names = (_attribute(fn, "__qualname__"), _attribute(fn, "__name__"), _attribute(type(fn), "__qualname__"))
    return next(filter(None, names), "function")


def _attribute(value: object, name: str) -> str:
    """Return a text that is an attribute, "" if there is none: a callable object of a program may raise anything."""
    try:
        text = getattr(value, name)
    except Exception:  # a property of the program's object may raise anything
        return ""
    return text if type(text) is str else ""


def built_in(op: Op) -> bool:
    """Return whether an operator is one of the built-in ones, under whatever name."""
    return id(op) in _identities


@functools.cache
def renamed(op: Op, name: str) -> Op:
    """Return a built-in operator under another name, by which it does not match itself; the same object each time.

    >>> renamed(SUM, "AVG")
    <Op AVG>
    """
    other = replace(op, name=name)
    _identities.add(id(other))
    return other


def as_op(op: Op | Callable[[Any, Any], Any]) -> Op:
    """Return `op` as an Op: a plain function becomes one that is applied to whole values in rank order.

    Args:
        op: an Op, or a function of two values; these stand for built-in operators: the ufuncs
            np.add, np.multiply, np.minimum, np.maximum, np.logical_and, np.bitwise_or and the like, the functions
            np.sum, np.prod, np.min and np.max, and Python's own sum, min and max.

    >>> as_op(np.add), as_op(max), as_op(np.hypot)
    (<Op SUM>, <Op MAX>, <Op hypot>)
    """
    return op if isinstance(op, Op) else _SAME.get(id(op)) or Op(op)


def counts_booleans(op: Op) -> bool:
    """Return whether an operator takes booleans as 1 and 0: numpy's own sum of two is again a boolean."""
    return op.fn is np.add or op.fn is np.multiply


def counted(op: Op, value: Any) -> Any:
    """Return `value`; booleans to be added or multiplied as integers, as np.sum and np.prod take them.

    >>> counted(SUM, True), counted(SUM, np.array([True, False])), counted(MAX, True)
    (1, array([1, 0]), True)
    """
    if not counts_booleans(op):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return value.astype(np.int_) if value.dtype.kind == "b" else value
    return int(value) if isinstance(value, bool) else value
