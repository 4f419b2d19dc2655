"""Reductions of values that combine in surprising ways: booleans that are added, NaN, and objects that do not compare.

numpy is the oracle: np.sum and np.prod of booleans count, np.min and np.max are NaN where any value is.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ringcast import LAND, MAX, MIN, PROD, SUM, ArgumentError, Communicator, Op
from ringcast.algorithms import ALGORITHMS, Params
from ringcast.engine.unsendable import of_booleans
from support.jobs import KINDS, Job, Jobs

SIZES = [1, 2, 3, 5, 8]
NAN = math.nan


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def forms(comm: Communicator, name: str) -> Iterator[Callable[..., Any]]:
    """Return the three forms of a call, each as one that blocks."""

    def prepared(*args: Any, **how: Any) -> Any:
        request = getattr(comm, f"{name}_init")(*args, **how)
        results = []
        for _ in range(2):
            request.start()
            results.append(request.wait())
        assert str(results[0]) == str(results[1])
        return results[0]

    yield getattr(comm, name)
    yield lambda *args, **how: getattr(comm, f"i{name}")(*args, **how).wait()
    yield prepared


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want), (got, want)
    assert np.array_equal(got, want), (got, want)
    assert not isinstance(want, np.ndarray | np.generic) or got.dtype == want.dtype


# Booleans.

COUNTS = [(SUM, np.sum), (np.add, np.sum), (np.prod, np.prod)]
OWN_ADD = Op(np.add, commutative=True, elementwise=True)


@pytest.mark.parametrize(("op", "oracle"), [*COUNTS, (OWN_ADD, np.sum)], ids=["SUM", "np.add", "np.prod", "Op"])
@pytest.mark.parametrize("p", SIZES)
def test_booleans_are_counted_as_numpy_counts_them(jobs: Jobs, p: int, op: Any, oracle: Any) -> None:
    for shape in (), (0,), (1,), (3, 5000):
        every = np.random.default_rng(p).random((p, *shape)) < 0.7

        def work(c: Communicator, every: Any = every) -> None:
            mine = every[c.rank]  # of the shape () a numpy scalar
            upto = oracle(every[: c.rank + 1], axis=0)
            before = oracle(every[: c.rank], axis=0) if c.rank else None
            for call in forms(c, "allreduce"):
                same(call(mine, op), oracle(every, axis=0))
            for call in forms(c, "reduce"):
                same(call(mine, op, c.size - 1), oracle(every, axis=0) if c.rank == c.size - 1 else None)
            for call in forms(c, "scan"):
                same(call(mine, op), upto)
            for call in forms(c, "exscan"):
                same(call(mine, op), before)
            if isinstance(mine, np.ndarray) and mine.ndim:
                for call in forms(c, "reduce_scatter"):
                    counts = [0] * (c.size - 1) + [len(mine)]
                    same(call(mine, op, counts), oracle(every, axis=0)[len(mine) if c.rank < c.size - 1 else 0 :])

        jobs("threads", p).ask(work)


@pytest.mark.parametrize("kind", KINDS)
def test_booleans_are_counted_on_every_transport_by_every_algorithm(jobs: Jobs, kind: str) -> None:
    mask = np.arange(3000) % 3 == 0

    def work(c: Communicator) -> None:
        for algorithm, entry in ALGORITHMS["allreduce"].items():
            if not entry.shared and not (entry.fits(Params(c.size))):
                same(c.allreduce(mask, algorithm=algorithm), mask * c.size)

    jobs(kind, 3).ask(work)


@pytest.mark.parametrize("p", SIZES)
def test_python_booleans_are_counted_also_on_one_rank(jobs: Jobs, p: int) -> None:
    def work(c: Communicator) -> None:
        for op in SUM, sum, np.add:
            for call in forms(c, "allreduce"):
                same(call(True, op), c.size)
            same(c.scan(True, op), c.rank + 1)
            same(c.exscan(True, op), c.rank or None)
            same(c.reduce(True, op, c.size - 1), c.size if c.rank == c.size - 1 else None)
            same(c.reduce_scatter([True] * c.size, op), c.size)
            same(c.reduce_scatter([np.array([True, False])] * c.size, op), np.array([c.size, 0]))
        same(c.allreduce(True, PROD), 1)
        same(c.allreduce(c.rank == 0, MAX), True)
        same(c.allreduce(np.bool_(c.rank != 0), LAND), np.bool_(c.size == 0))
        assert c.allreduce([True]) == [True] * c.size  # lists are joined
        assert c.allreduce(np.ma.masked_array([True, True], [False, True])).tolist() == [c.size, None]
        assert c.allreduce(c.rank < 1) == 1

    jobs("threads", p).ask(work)


def test_booleans_and_integers_of_other_ranks_are_added(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        mine = np.array([True, False]) if c.rank else np.array([5, 7])
        same(c.allreduce(mine), np.array([5 + c.size - 1, 7]))

    jobs("threads", 3).ask(work)


@pytest.mark.parametrize("p", [1, 3])
def test_a_result_of_booleans_is_refused_with_the_dtype_to_pass(p: int) -> None:
    calls: list[Callable[[Communicator, Any, Any], Any]] = [
        lambda c, x, out: c.allreduce(x, out=out),
        lambda c, x, out: c.reduce(x, out=out, root=c.rank),
        lambda c, x, out: c.scan(x, out=out),
        lambda c, x, out: c.exscan(x, out=out),
        lambda c, x, out: c.reduce_scatter(x, out=out[: len(x) // c.size]),
    ]
    for call in calls:
        job = Job("threads", p)
        x = np.ones(6, bool)
        errors = job.run(lambda c, x=x, call=call: call(c, x, np.ones(6, bool)))
        job.close()
        assert all(isinstance(error, ArgumentError) and "dtype int64, got" in str(error) for error in errors), errors
        assert not any("bool" not in str(error) for error in errors)


def test_an_explanation_is_of_the_integers_that_are_added(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        mask = np.ones(1000, bool)
        assert c.explain("allreduce", mask).nbytes == c.explain("allreduce", nbytes=1000, dtype=bool).nbytes == 8000
        assert c.explain("allreduce", mask, op=LAND).nbytes == c.explain("allgather", mask).nbytes // c.size == 1000

    jobs("threads", 3).ask(work)


class Nullable:
    """A dtype of pandas for booleans, some of them missing."""

    def __str__(self) -> str:
        return "boolean"


def column(dtype: Any) -> Any:
    """Return a value as a column of pandas, whose `+` joins booleans by "or"."""
    made = type("Series", (), {"__module__": "pandas.core.series", "dtype": dtype, "__add__": lambda self, _: self})
    return made()


def table(dtypes: Any) -> Any:
    made = type("DataFrame", (), {"__module__": "pandas.core.frame", "dtypes": dtypes, "__add__": lambda self, _: self})
    return made()


@pytest.mark.parametrize(
    "value",
    [column(np.dtype(bool)), column(Nullable()), table(["int64", Nullable()]), table({"a": np.dtype(bool)})],
    ids=["column", "nullable", "table", "variables"],
)
def test_booleans_of_other_packages_are_refused_with_what_to_pass(value: Any) -> None:
    for p in 1, 2:
        job = Job("threads", p)
        errors = job.run(lambda c: c.allreduce(value))
        job.close()
        assert all("expected integers for SUM, got booleans in a " in str(error) for error in errors), errors


class HalfBuilt:
    """An object of a program whose attributes fail, as before its `__init__` has run."""

    @property
    def dtype(self) -> str:
        raise KeyError("not there yet")

    dtypes = dtype

    def __add__(self, other: object) -> int:
        return 5


def test_columns_of_numbers_are_added(jobs: Jobs) -> None:
    generator = table(str(1 / 0) for _ in "a")  # which is the program's to look into
    for value in column(np.dtype(int)), table(["f8"]), table({"a": "f8"}), Decimal(2), "text":
        jobs("threads", 2).ask(lambda c, value=value: c.allreduce(value))
    assert not of_booleans(generator)
    assert jobs("threads", 2).ask(lambda c: c.allreduce(HalfBuilt())) == [5, 5]


# NaN.


@pytest.mark.parametrize("p", SIZES)
def test_the_least_and_largest_are_nan_where_any_value_is(jobs: Jobs, p: int) -> None:
    choices = itertools.product([NAN, 0.0, 1], repeat=p) if p <= 3 else _with_one_nan(p)
    for values in choices:

        def work(c: Communicator, values: Any = values) -> None:
            mine = values[c.rank]
            for op, oracle in ((MIN, np.min), (max, np.max)):
                want = float(oracle(values))
                names = [None, *(n for n, e in ALGORITHMS["allreduce"].items() if not (e.elementwise or e.exact))]
                for algorithm in names:
                    if algorithm is None or not ALGORITHMS["allreduce"][algorithm].fits(Params(c.size)):
                        alike(c.allreduce(mine, op, algorithm=algorithm), want)
                alike(c.allreduce(np.float64(mine), op), want)
                alike(c.allreduce((mine, "x"), op)[0], want)
                alike(c.allreduce([[mine]], op)[0][0], want)
                alike(c.allreduce(np.array([mine, None], object)[:1], op)[0], want)
                alike(c.reduce(mine, op, c.size - 1), want) if c.rank == c.size - 1 else c.reduce(mine, op, c.size - 1)
                alike(c.scan(mine, op), float(oracle(values[: c.rank + 1])))
                before = c.exscan(mine, op)
                assert (before is None) == (c.rank == 0)
                if c.rank:
                    alike(before, float(oracle(values[: c.rank])))
                alike(c.reduce_scatter([mine] * c.size, op), want)

        jobs("threads", p).ask(work)


def _with_one_nan(p: int) -> Iterator[list[float]]:
    for place in range(p):
        yield [NAN if r == place else float(r * 7 % 5) for r in range(p)]


def alike(got: Any, want: float) -> None:
    assert got == want or (got != got and want != want), (got, want)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_the_order_of_comparisons_does_not_matter(order: tuple[int, ...]) -> None:
    values = [(NAN, 2), (0.0, 9), (NAN, 1), (-1.0, 0)]
    for op, want in (MIN, 1), (MAX, 2):
        left, *others = (values[i] for i in order)
        for other in others:
            left = op.combine_objects(left, other)
        assert math.isnan(left[0])
        assert left[1] == want
    lists = [[1, NAN, 5], [1, 2], [1, NAN, 4], [0, NAN]]
    for op, best in (MIN, [0, NAN]), (MAX, [1, NAN, 5]):
        first, *rest = (lists[i] for i in order)
        for one in rest:
            first = op.combine_objects(first, one)
        assert str(first) == str(best)


def test_values_without_nan_are_those_of_min_and_max() -> None:
    pairs = [
        (3, 3.0),
        (True, 1),
        ("a", "ab"),
        ([1, 2], [1]),
        ((0, "b"), (0, "a")),
        (Decimal(1), 2),
        (b"x", b"y"),
        ([], []),
    ]
    for a, b in [*pairs, *((b, a) for a, b in pairs)]:
        assert MIN.combine_objects(a, b) is min(a, b)
        assert MAX.combine_objects(a, b) is max(a, b)
    assert MIN.combine_objects(Decimal("nan"), Decimal(1)).is_nan()
    assert MIN.combine_objects(Decimal(1), Decimal("nan")).is_nan()
    with pytest.raises(TypeError, match="not supported between instances"):
        MIN.combine_objects(None, 1)


# Objects that compare to objects.


class Dataset(Mapping[str, int]):
    """Compares item by item, as a Dataset of xarray; its truth is whether it has items."""

    __module__ = "xarray.core.dataset"

    def __init__(self, **items: int) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> int:
        return self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def __bool__(self) -> bool:
        return bool(self.items_)

    def _compared(self, _: object) -> Dataset:
        return self

    __lt__ = __gt__ = __eq__ = __ne__ = _compared  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Vector:
    """Compares to a list of booleans, whose truth is whether there are any."""

    def __lt__(self, other: Vector) -> list[bool]:
        return [True]

    __gt__ = __lt__


class Mystery(Vector):
    def __lt__(self, other: Vector) -> Any:
        return operator.attrgetter("x")  # an object that is true as every object is

    __gt__ = __lt__


@pytest.mark.parametrize("value", [Dataset(v=1), Vector(), Mystery()], ids=lambda v: type(v).__name__)
def test_values_that_compare_to_something_without_truth_are_refused(value: Any) -> None:
    calls: list[Callable[[Communicator, Any], Any]] = [
        lambda c, op: c.allreduce(value, op),
        lambda c, op: c.reduce(value, op),
        lambda c, op: c.scan(value, op),
        lambda c, op: c.allreduce((value, c.rank), op),
        lambda c, op: c.reduce_scatter([value] * c.size, op),
    ]
    for call, op in itertools.product(calls, (MIN, max)):
        job = Job("threads", 2)
        errors = job.run(lambda c, call=call, op=op: call(c, op))
        job.close()
        texts = [str(error) for error in errors if isinstance(error, TypeError | ArgumentError)]
        assert texts
        assert "compare to True or False" in texts[0] or "pass its variables, as value['name'].to_numpy()" in texts[0]
