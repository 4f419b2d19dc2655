"""Values behave as users expect: operators by numpy's names, lists in rows, results in `out`; numpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import LXOR, MAX, SUM, ArgumentError, Communicator, Revoked
from support.jobs import Job, Jobs

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


def frame_like(package: str, name: str, *items: Any) -> Any:
    """Return a value with these items whose type has the name of one of another package."""
    return type(name, (), {"__module__": f"{package}.core.{name.lower()}", "__iter__": lambda _: iter(items)})()


TEXTS = r"(np.array\(value.tolist\(\)\)|value.tolist\(\))"  # only some calls take lists
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
    "Series": (frame_like("pandas", "Series", 1.5), r"Series; pass value.to_numpy\(\)$"),
    "Series of texts": (frame_like("pandas", "Series", None, np.nan, "a"), rf"Series; pass {TEXTS}$"),
    "texts": (np.array([None, "a"]), rf"array of Python objects \(dtype object\); pass {TEXTS}$"),
    "Categorical": (frame_like("pandas", "Categorical", "a"), r"Categorical; pass value.codes$"),
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


class Frame:
    """Has no truth, as a frame of pandas, which `max` asks for."""

    __module__ = "pandas.core.frame"

    def __gt__(self, other: Frame) -> Frame:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value of a DataFrame is ambiguous")


Frame.__name__ = "DataFrame"


@pytest.mark.parametrize(
    ("value", "op", "words", "cause"),
    [
        (np.array([1, None]), MAX, "array of Python objects", TypeError),
        (np.rec.array([(1, 2.0)], names="a,b"), SUM, "recarray; pass np.asarray", TypeError),
        (Frame(), MAX, "DataFrame; pass its columns", ValueError),
    ],
)
def test_what_cannot_be_combined_is_named_with_what_to_pass_instead(
    value: Any, op: Any, words: str, cause: type[Exception]
) -> None:
    calls: list[Callable[[Communicator], Any]] = [
        lambda c: c.allreduce(value, op),
        lambda c: c.scan(value, op),
        lambda c: c.reduce_scatter([value] * c.size, op),
    ]
    for call in calls:
        job = Job("threads", 2)
        errors = job.run(call)
        job.close()
        found = [error for error in errors if isinstance(error, ArgumentError)]
        assert found, errors
        assert words in str(found[0])
        assert isinstance(found[0].__cause__, cause)


def test_errors_of_an_operator_on_other_values_are_left_as_they_are() -> None:
    operators: list[Any] = [SUM, lambda a, b: a + b]
    for op in operators:
        job = Job("threads", 2)
        errors = job.run(lambda c, op=op: c.allreduce(1 if c.rank else "a", op))
        job.close()
        assert any(type(error) is TypeError for error in errors), errors


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
            with pytest.raises(ArgumentError, match=r"expected 2 at \[\d\], the rows of this rank's value, got 1; if"):
                call(np.zeros(2), [1, 1, 1])
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3


# Lists in rows.


@pytest.mark.parametrize("p", SIZES)
def test_lists_are_gathered_and_divided_like_rows(jobs: Jobs, p: int) -> None:
    """scatterv of a list is undone by gatherv, with counts and without, from a root and to a root that is not 0."""
    root = p // 2
    everything = [{"item": n, "rows": np.arange(n)} for n in range(2 * p + 1)]
    counts = [2] * (p - 1) + [3]

    def work(c: Communicator) -> Any:
        whole = everything if c.rank == root else None
        even, told = c.scatterv(whole, root=root), c.scatterv(whole, counts, root)
        return even, told, c.gatherv(even, root=root), c.gatherv(tuple(told), np.array(counts), root)

    results = jobs("threads", p).ask(work)
    ends = np.cumsum([0, *counts])
    for rank, (even, told, first, second) in enumerate(results):
        assert [item["item"] for item in told] == list(range(ends[rank], ends[rank + 1]))
        assert type(even) is type(told) is list
        if rank != root:
            assert first is second is None
            continue
        for gathered in first, second:
            assert [item["item"] for item in gathered] == list(range(2 * p + 1))
            assert all(np.array_equal(item["rows"], np.arange(item["item"])) for item in gathered)
    assert [item["item"] for even, *_ in results for item in even] == list(range(2 * p + 1))


def test_lists_may_be_empty(jobs: Jobs) -> None:
    assert jobs("threads", 3).ask(lambda c: c.gatherv([], root=1)) == [None, [], None]
    assert jobs("threads", 3).ask(lambda c: c.scatterv([] if c.rank == 1 else None, root=1)) == [[], [], []]
    assert jobs("threads", 3).ask(lambda c: c.gatherv([c.rank] * c.rank, [0, 1, 2])) == [[1, 2, 2], None, None]


def test_pieces_of_any_shape_are_scattered_as_a_list(jobs: Jobs) -> None:
    pieces = [np.arange(3.0), np.zeros((0, 2)), np.float32(1)]
    results = jobs("threads", 3).ask(lambda c: c.scatter(pieces if c.rank == 0 else None))
    for piece, result in zip(pieces, results, strict=True):
        assert np.array_equal(piece, result)


def test_wrong_lists_are_refused_before_anything_is_sent(jobs: Jobs) -> None:
    def work(c: Communicator) -> int:
        with pytest.raises(ArgumentError, match=r"expected 2 at \[\d\], the rows of this rank's value, got 1"):
            c.gatherv([1, 2], [1, 1, 1])
        with pytest.raises(ArgumentError, match="expected numbers that add up to the 2 values, got 3"):
            c.scatterv([1, 2], [1, 1, 1], c.rank)
        with pytest.raises(ArgumentError, match="argument out: expected None, as the value is a Python object"):
            c.gatherv([1, 2], root=c.rank, out=np.zeros(6))
        with pytest.raises(ArgumentError, match="argument out: expected None, as the value is a Python object"):
            c.scatterv([1, 2], root=c.rank, out=np.zeros(6))
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3


@pytest.mark.parametrize("counts", [(0, 1, 2), np.array([0, 1, 2], np.uint8), range(3), np.arange(3.0)], ids=str)
def test_counts_are_any_whole_numbers(jobs: Jobs, counts: Any) -> None:
    def work(c: Communicator) -> Any:
        rows = np.full(c.rank, c.rank)
        table = np.array([1, 2, 2]) if c.rank == 1 else None
        return c.allgatherv(rows, counts), c.scatterv(table, counts, 1), c.alltoallv(np.arange(3), counts)

    for rank, (joined, part, swapped) in enumerate(jobs("threads", 3).ask(work)):
        assert joined.tolist() == [1, 2, 2]
        assert part.tolist() == [rank] * rank
        assert swapped.tolist() == [[], [0, 0, 0], [1, 2] * 3][rank]


# Results in `out`.

SHAPES = [(), (0,), (1,), (3, 2), (3000,)]


@pytest.mark.parametrize("p", SIZES)
def test_scatter_and_scatterv_fill_out(jobs: Jobs, p: int) -> None:
    root = p - 1
    for shape in SHAPES:
        table = np.random.default_rng(1).integers(0, 256, (p, *shape)).astype(np.uint8)
        counts = [2 * p if rank == p // 2 else 0 for rank in range(p)]
        rows = np.concatenate([table, table])

        def work(c: Communicator, table: Any = table, rows: Any = rows, counts: Any = counts) -> Any:
            one, some = np.zeros(table.shape[1:], np.uint8), np.zeros((counts[c.rank], *table.shape[1:]), np.uint8)
            assert c.scatter(table if c.rank == root else None, root, out=one) is one
            assert c.scatterv(rows if c.rank == root else None, counts, root, out=some) is some
            some_more = c.scatter(table if c.rank == root else None, root, out=one if c.rank % 2 else None)
            return one, some, some_more

        for rank, (one, some, again) in enumerate(jobs("threads", p).ask(work)):
            assert np.array_equal(one, table[rank])
            assert np.array_equal(again, table[rank])
            assert np.array_equal(some, rows if rank == p // 2 else rows[:0])


@pytest.mark.parametrize("p", SIZES)
def test_shift_fills_out_which_may_be_the_value(jobs: Jobs, p: int) -> None:
    for shape in SHAPES:
        for distance in 0, 1, -1, p + 2:
            table = np.random.default_rng(1).integers(0, 256, (p, *shape)).astype(np.uint8)

            def work(c: Communicator, table: Any = table, distance: int = distance) -> Any:
                mine, out = table[c.rank, ...].copy(), np.zeros(table.shape[1:], np.uint8)
                assert c.shift(mine, distance, out=out) is out
                assert np.array_equal(mine, table[c.rank])
                assert c.shift(mine, distance, out=mine) is mine
                return out, mine

            for rank, results in enumerate(jobs("threads", p).ask(work)):
                assert all(np.array_equal(result, table[(rank - distance) % p]) for result in results)


@pytest.mark.parametrize("p", SIZES)
def test_merge_sorted_fills_out(jobs: Jobs, p: int) -> None:
    runs = [np.sort(np.random.default_rng(rank).integers(0, 99, 7 * rank % 5)) for rank in range(p)]
    expected = np.sort(np.concatenate(runs))

    def work(c: Communicator) -> Any:
        out = np.zeros(len(expected), int)
        assert c.merge_sorted(runs[c.rank], out=out) is out
        return out

    assert all(np.array_equal(out, expected) for out in jobs("threads", p).ask(work))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.scatter(np.zeros((3, 2)), c.rank, out=np.zeros(3)), r"expected shape \(2,\) and dtype float64"),
        (lambda c: c.scatter(np.zeros((3, 2)), c.rank, out=np.zeros(2, int)), "got .* and int64"),
        (lambda c: c.scatter([1, 2, 3], c.rank, out=np.zeros(2)), "expected None, as the value is a Python object"),
        (lambda c: c.scatter(None, (c.rank + 1) % 3, out=np.zeros((2, 2))[:, 0]), "expected a C-contiguous array"),
        (lambda c: c.scatterv(np.zeros(6), None, c.rank, out=np.zeros(3)), r"expected shape \(2,\)"),
        (lambda c: c.shift(np.zeros(2), 1, out=np.zeros(3)), r"expected shape \(2,\)"),
        (lambda c: c.shift("a", 1, out=np.zeros(3)), "expected None, as the value is a Python object"),
        (lambda c: c.merge_sorted(np.zeros(2), out=np.zeros(6, int)), "and dtype float64, got .*int64"),
    ],
)
def test_an_out_that_does_not_fit_is_refused_before_anything_is_sent(jobs: Jobs, call: Any, words: str) -> None:
    def work(c: Communicator) -> int:
        with pytest.raises(ArgumentError, match=f"argument out: .*{words}"):
            call(c)
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3] * 3


def test_an_out_that_does_not_fit_what_others_send_is_an_error_of_all(jobs: Jobs) -> None:
    for call in (
        lambda c: c.scatter(np.zeros(3) if c.rank == 0 else None, out=np.zeros(2 if c.rank else ())),
        lambda c: c.scatterv(np.zeros(3) if c.rank == 0 else None, out=np.zeros(1 + c.rank)),
        lambda c: c.merge_sorted(np.zeros(2), out=np.zeros(5)),
    ):
        errors = jobs("threads", 3).run(lambda c, call=call: (call(c), c.barrier()))
        assert all(isinstance(error, ArgumentError | Revoked) for error in errors), errors
        assert any(isinstance(error, ArgumentError) for error in errors)


# A message that is received where another one is sent from.


@pytest.mark.parametrize("size", [0, 1, 100, 3_000_000])
def test_sendrecv_in_place_swaps_what_was_there(jobs: Jobs, size: int) -> None:
    def work(c: Communicator) -> Any:
        mine = np.full(size, 1 + c.rank, np.uint8)
        part = np.full(size + 3, 1 + c.rank, np.uint8)
        inside = np.full(size, 1 + c.rank, np.uint8)
        c.sendrecv(mine, 1 - c.rank, 1 - c.rank, out=mine)
        c.sendrecv(part[3:], 1 - c.rank, 1 - c.rank, out=part[:size])  # both have memory in common
        if c.rank == 0:
            c.sendrecv(["in a list", inside], 1, 1, out=inside)
        else:
            inside = c.sendrecv(inside, 0, 0)[1]
        return mine, part[:size], inside

    for kind in "threads", "shm":
        for rank, results in enumerate(jobs(kind, 2).ask(work)):
            for result in results:
                assert len(result) == size
                assert (result == 2 - rank).all()


# Texts of other widths, and times of other units.

TOGETHER = {
    "texts": lambda rank: np.array(["ä" * rank, "b"] * rank, f"U{rank + 1}"),
    "bytes": lambda rank: np.array([b"ab" * rank] * (rank % 2), f"S{2 * rank + 1}"),
    "times": lambda rank: np.arange(rank).astype(f"M8[{('D', 's', '25s', 'ms')[rank % 4]}]"),
    "durations": lambda rank: np.arange(2, dtype=f"m8[{('h', 'm', 'ns')[rank % 3]}]"),
    "the same": lambda rank: np.array(["c"] * rank, ">U3"),
}


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("kind", TOGETHER)
def test_texts_and_times_get_what_they_have_in_common(jobs: Jobs, kind: str, p: int) -> None:
    columns = [TOGETHER[kind](rank) for rank in range(p)]
    expected = np.concatenate(columns)
    if kind == "the same":
        expected = expected.astype(">U3")  # which numpy turns round

    def work(c: Communicator) -> Any:
        mine, out = columns[c.rank], np.zeros(expected.shape, expected.dtype)
        assert c.allgatherv(mine, out=out) is out
        return out, c.allgatherv(mine), c.gatherv(mine, root=c.size - 1), c.merge_sorted(np.sort(mine))

    results = jobs("threads", p).ask(work)
    for out, everywhere, at_root, merged in results:
        assert out.dtype == everywhere.dtype == merged.dtype == expected.dtype
        assert np.array_equal(out, expected)
        assert np.array_equal(everywhere, expected)
        assert np.array_equal(merged, np.sort(expected))
        assert (at_root is None) == (at_root is not results[-1][2])
    assert np.array_equal(results[-1][2], expected)


def test_times_that_have_no_unit_in_common_are_an_error_of_all(jobs: Jobs) -> None:
    errors = jobs("threads", 2).run(lambda c: c.allgatherv(np.zeros(1, "m8[Y]" if c.rank else "m8[s]")))
    for error in errors:
        assert isinstance(error, ArgumentError)
        assert "dtypes that numpy converts to a common one, got timedelta64[Y], timedelta64[s]" in str(error)
