"""What people expect of values: operators by numpy's names, lists in rows, results in `out`; numpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import LXOR, MAX, SUM, ArgumentError, Communicator
from support.jobs import Jobs

SIZES = [1, 2, 3, 5, 33]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize(("op", "ufunc"), [(SUM, np.add), (MAX, np.maximum), (LXOR, np.logical_xor)], ids=str)
def test_ranks_may_mix_an_operator_and_the_function_of_the_same_meaning(
    jobs: Jobs, op: Any, ufunc: np.ufunc, p: int
) -> None:
    for size in 0, 1, 3000:
        values = [(np.arange(size) + rank) % 5 for rank in range(p)]

        def work(c: Communicator, values: Any = values) -> Any:
            mine = op if c.rank % 2 else ufunc
            return c.allreduce(values[c.rank], mine), c.reduce(values[c.rank], mine, c.size - 1)

        results = jobs("threads", p).ask(work)
        expected = ufunc.reduce(values).astype(int) if p > 1 else values[0]
        assert all(np.array_equal(everywhere, expected) for everywhere, _ in results)
        assert np.array_equal(results[-1][1], expected)


def frame_like(package: str, name: str) -> Any:
    """Return a value whose type has the name of one of another package."""
    return type(name, (), {"__module__": f"{package}.core.{name.lower()}"})()


NOT_ARRAYS = {
    "of objects": (np.array([1, None]), r"array of Python objects \(dtype object\); pass value.astype\(float\)"),
    "StringDType": (np.array(["a"], np.dtypes.StringDType()), r"StringDType\(\); pass np.array\(value.tolist\(\)\)$"),
    "recarray": (np.rec.array([(1, 2.0)]), r"recarray; pass np.asarray\(value\)$"),
    "masked": (np.ma.zeros(3), r"MaskedArray; pass value.filled\(\), or value.data and value.mask"),
    "matrix": (np.zeros((1, 2)).view(np.matrix), r"matrix; pass np.asarray\(value\)$"),
    "fields in another order": (
        np.zeros(2, "i4,f8")[["f1", "f0"]],
        r"numpy.lib.recfunctions.repack_fields\(value\)",
    ),
    "DataFrame": (
        frame_like("pandas", "DataFrame"),
        r"DataFrame; pass its columns, as value\['name'\].to_numpy\(\), or",
    ),
    "Series": (frame_like("pandas", "Series"), r"Series; pass value.to_numpy\(\), and of a categorical its codes$"),
    "Index": (frame_like("pandas", "Index"), r"Index; pass value.to_numpy\(\)"),
    "Table": (frame_like("pyarrow", "Table"), r"Table; pass its bytes, as np.frombuffer does"),
    "Tensor": (frame_like("torch", "Tensor"), r"Tensor; pass value.cpu\(\).numpy\(\)$"),
    "int": (1, r"int; pass np.array\(\[value\]\)$"),
    "numpy scalar": (np.float64(1), r"float64; pass np.atleast_1d\(value\)$"),
    "dict": ({}, "dict$"),
}
CALLS_OF_ROWS: list[Callable[[Communicator, Any], Any]] = [
    lambda c, x: c.allgatherv(x),
    lambda c, x: c.gatherv(x),
    lambda c, x: c.scatterv(x, root=c.rank),
    lambda c, x: c.merge_sorted(x),
    lambda c, x: c.alltoallv(x, [1] * c.size),
]


@pytest.mark.parametrize("name", NOT_ARRAYS)
def test_what_is_no_array_is_named_with_what_to_pass_instead(jobs: Jobs, name: str) -> None:
    value, words = NOT_ARRAYS[name]

    def work(c: Communicator) -> int:
        for call in CALLS_OF_ROWS:
            with pytest.raises(ArgumentError, match=f"expected an array of 1 dimension.*, got .*{words}"):
                call(c, value)
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3


def test_what_is_advised_travels(jobs: Jobs) -> None:
    record = np.rec.array([(1, 2.0)])
    texts = np.array(["a", "bcd"], np.dtypes.StringDType())
    for value in np.asarray(record), np.array(texts.tolist()), np.array([1, 2], object).astype(float):
        (result,) = jobs("threads", 1).ask(lambda c, value=value: c.allgatherv(value))
        assert np.array_equal(result, value)


@pytest.mark.parametrize(("call", "other"), [("scatter", "scatterv divides"), ("alltoall", "alltoallv takes")])
def test_another_number_of_rows_than_ranks_names_the_form_for_it(jobs: Jobs, call: str, other: str) -> None:
    def work(c: Communicator) -> int:
        for value in np.zeros(10), [None] * 10:
            with pytest.raises(ArgumentError, match=f"with 3 rows, .*, got 10 of them; {other} any number"):
                getattr(c, call)(value, **{"root": c.rank} if call == "scatter" else {})
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3


def test_a_wrong_count_says_whose_and_that_counts_may_be_left_out(jobs: Jobs) -> None:
    def work(c: Communicator) -> int:
        for call in c.gatherv, c.allgatherv:
            with pytest.raises(
                ArgumentError, match=r"expected 2 at \[\d\], the rows of this rank's value, got 1; where"
            ):
                call(np.zeros(2), [1, 1, 1])
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3
