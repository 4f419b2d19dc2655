"""Reduction operators by themselves: what they do to arrays and to objects, and what may be assumed of them."""

from __future__ import annotations

import functools
import operator
import pickle
from typing import Any

import numpy as np
import pytest

from ringcast import BAND, BOR, BXOR, LAND, LOR, LXOR, MAX, MIN, PROD, SUM, ArgumentError, Op
from ringcast.engine.datatypes import check_op
from ringcast.ops import as_op

OPS = (SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR)
PLAIN = {
    SUM: operator.add,
    PROD: operator.mul,
    MIN: min,
    MAX: max,
    LAND: lambda a, b: bool(a and b),
    LOR: lambda a, b: bool(a or b),
    BAND: operator.and_,
    BOR: operator.or_,
    LXOR: lambda a, b: bool(a) != bool(b),
    BXOR: operator.xor,
}
SAME = {
    SUM: (np.add, np.sum, sum),
    PROD: (np.multiply, np.prod),
    MIN: (np.minimum, np.min, min),
    MAX: (np.maximum, np.max, max),
    LAND: (np.logical_and,),
    LOR: (np.logical_or,),
    LXOR: (np.logical_xor,),
    BAND: (np.bitwise_and,),
    BOR: (np.bitwise_or,),
    BXOR: (np.bitwise_xor,),
}


@pytest.mark.parametrize("op", OPS, ids=str)
def test_arrays_and_numbers_are_combined_alike(op: Op) -> None:
    left, right = np.arange(-8, 8), np.arange(16) % 5
    for out in np.zeros(16, int), left.copy(), right.copy():
        a, b = (out if np.array_equal(out, v) else v for v in (left, right))
        op.combine(a, b, out)
        assert out.tolist() == [PLAIN[op](int(x), int(y)) for x, y in zip(left, right, strict=True)]
    assert op.combine_objects(5, 6) == PLAIN[op](5, 6)
    assert op.commutative
    assert op.elementwise


@pytest.mark.parametrize("op", OPS, ids=str)
def test_only_whole_numbers_are_exact(op: Op) -> None:
    assert all(op.exact(np.dtype(kind)) for kind in ("?", "i1", "u8", ">i4"))
    assert not any(op.exact(np.dtype(kind)) for kind in ("f2", "f8", "g", "D", "m8[s]", "M8[s]"))
    assert not Op(lambda a, b: op.fn(a, b), commutative=True, elementwise=True).exact(np.dtype("i4"))


class Callable_:
    def __call__(self, a: object, b: object) -> object:
        return a


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (functools.partial(functools.partial(max), 1), "max"),
        (Callable_(), "Callable_"),
        (np.add, "add"),
        (operator.itemgetter(0), "itemgetter"),
    ],
)
def test_an_operator_is_called_the_same_on_all_ranks(fn: object, name: str) -> None:
    assert str(Op(fn)) == name


def test_a_function_is_taken_for_neither_commutative_nor_elementwise() -> None:
    op = as_op(operator.add)
    assert not op.commutative
    assert not op.elementwise
    assert as_op(SUM) is SUM


@pytest.mark.parametrize("op", OPS, ids=str)
def test_functions_of_the_same_meaning_are_the_operator_itself(op: Op) -> None:
    assert all(as_op(fn) is op for fn in SAME[op])


def test_operators_are_named_after_what_they_do() -> None:
    def weigh(a: Any, b: Any) -> Any:
        return a

    assert [str(op) for op in OPS] == ["SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"]
    assert "weigh" in str(Op(weigh))
    assert str(Op(weigh, name="scale")) == "scale"
    assert str(Op(np.add))


def test_operators_travel() -> None:
    for op in OPS[:4]:
        assert pickle.loads(pickle.dumps(op)) == op


def test_a_function_may_return_one_of_its_operands() -> None:
    for choose, want in ((lambda a, b: a, [1, 2]), (lambda a, b: b, [3, 4])):
        left, right = np.array([1, 2]), np.array([3, 4])
        Op(choose).combine(left, right, left)
        assert left.tolist() == want


def test_results_that_fit_are_converted_and_others_refused() -> None:
    out = np.zeros(2, "f4")
    Op(lambda a, b: (a + b).astype("f8")).combine(np.ones(2, "f4"), np.ones(2, "f4"), out)
    assert out.tolist() == [2, 2]
    with pytest.raises(ValueError, match=r"operator scale returned shape \(1,\) for operands of shape \(2,\)"):
        Op(lambda a, b: a[:1], name="scale").combine(out, out, out)
    with pytest.raises(TypeError, match="operator scale returned dtype complex128 for operands of dtype float32"):
        Op(lambda a, b: a * 1j + np.zeros(2, "D"), name="scale").combine(out, out, out)


def test_arrays_that_travel_as_objects_are_combined_as_arrays() -> None:
    left, right = np.array([1, 10**30], object), np.array([2, 5], object)
    assert MAX.combine_objects(left, right).tolist() == [2, 10**30]
    assert SUM.combine_objects(left, right).tolist() == [3, 10**30 + 5]
    masked = np.ma.masked_array([1, 2], [True, False])
    assert MIN.combine_objects(masked, np.ma.masked_array([0, 1])).mask.tolist() == [True, False]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(BAND, "f8"), (BOR, "D"), (SUM, "M8[s]"), (SUM, "U3"), (SUM, "S3"), (PROD, "m8[s]"), (LAND, "M8[s]"), (SUM, "V4")],
    ids=str,
)
def test_what_an_operator_cannot_do_is_refused(op: Op, dtype: str) -> None:
    with pytest.raises(ArgumentError, match=f"^rank 3: reduce: argument op: {op} does not work on dtype "):
        check_op(3, "reduce", op, np.dtype(dtype))


def test_a_ufunc_whose_results_do_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError):
        check_op(0, "reduce", Op(np.true_divide), np.dtype("i4"))
    with pytest.raises(ArgumentError):
        check_op(0, "reduce", Op(np.sqrt), np.dtype("f8"))
    check_op(0, "reduce", Op(np.true_divide), np.dtype("f8"))
    check_op(0, "reduce", Op(np.matmul), np.dtype("f8"))
