"""One random call of every collective: what each rank gives, and what numpy says that it gets."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from .draw import MOVED, SORTED, Array, Draw


@dataclass(frozen=True)
class Call:
    """A call of the communicator by all ranks: method, arguments and results, by rank."""

    name: str
    given: Sequence[tuple[Any, ...]]
    expected: Sequence[Any]
    how: dict[str, Any] = field(default_factory=dict)  # the same on all ranks
    into: bool = False  # every rank that gets an array says where it goes, by `out`
    graph: Sequence[Sequence[int]] = ()  # the destinations of each rank, for a call between neighbours

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.how.items())})"


Maker: TypeAlias = Callable[[Draw], Call]


def random_call(draw: Draw, makers: Sequence[Maker]) -> Call:
    call: Call = draw.of(makers)(draw)
    return call


def same(got: Any, want: Any) -> bool:
    """Return whether two values are the same to the bit."""
    if type(got) is not type(want):
        return False
    if isinstance(want, np.ndarray | np.generic):
        return (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
    return bool(got == want)


def like(value: Any, result: Any) -> Any:
    """Return the result as a numpy scalar if the value is one."""
    return result[()] if isinstance(value, np.generic) else result


def fold(op: Any, values: Sequence[Any]) -> Any:
    """Return the combination in rank order."""
    result = functools.reduce(lambda a, b: np.asarray(op.fn(a, b)).astype(values[0].dtype), map(np.asarray, values))
    return like(values[0], np.array(result))


def joined(arrays: Sequence[Array]) -> Array:
    """Return arrays one behind the other; numpy by itself would make the byte order native."""
    return np.concatenate(arrays).astype(arrays[0].dtype)


def stacked(values: Sequence[Any]) -> Array:
    return joined([np.asarray(value)[None] for value in values])


def runs(array: Any, counts: Sequence[int]) -> list[Any]:
    return [array[a:b] for a, b in pairwise(accumulate(counts, initial=0))]


def only(root: int, value: Any, size: int) -> list[Any]:
    """Return what ranks get, or give, of which only the root has something."""
    return [value if rank == root else None for rank in range(size)]


# One maker for each collective.


def bcast(draw: Draw) -> Call:
    root, p = draw.rank(), draw.size
    if draw.coin(0.3):
        value = draw.thing()
        return Call("bcast", [(give, root) for give in only(root, value, p)], [value] * p)
    value = draw.array(draw.of(MOVED), draw.shape())
    given = [(value if rank == root else np.empty_like(value) if draw.coin() else None, root) for rank in range(p)]
    return Call("bcast", given, [value] * p, draw.how("bcast", blocks=True, root=root))


def reduce(draw: Draw) -> Call:
    root, (op, values) = draw.rank(), draw.operands()
    how = draw.how_to_combine("reduce", op, values[0], blocks=True, root=root)
    expected = only(root, fold(op, values), draw.size)
    return Call("reduce", [(value, op, root) for value in values], expected, how, draw.coin())


def allreduce(draw: Draw) -> Call:
    op, values = draw.operands()
    how = draw.how_to_combine("allreduce", op, values[0], blocks=True)
    return Call("allreduce", [(value, op) for value in values], [fold(op, values)] * draw.size, how, draw.coin())


def allreduce_texts(draw: Draw) -> Call:
    texts = [chr(97 + rank) * draw.random.randint(0, 9) for rank in range(draw.size)]
    return Call("allreduce", [(text, operator.add) for text in texts], ["".join(texts)] * draw.size)


def allgather(draw: Draw) -> Call:
    if draw.coin(0.3):
        things = [draw.thing() for _ in range(draw.size)]
        return Call("allgather", [(thing,) for thing in things], [things] * draw.size)
    values = same_shape(draw)
    how = draw.how("allgather", blocks=True)
    return Call("allgather", [(value,) for value in values], [stacked(values)] * draw.size, how, draw.coin())


def allgatherv(draw: Draw) -> Call:
    if draw.coin(0.2):
        things = [[draw.thing() for _ in range(draw.random.randrange(4))] for _ in range(draw.size)]
        return Call("allgatherv", [(each,) for each in things], [[one for each in things for one in each]] * draw.size)
    counts, arrays, told = uneven(draw)
    how = draw.how("allgatherv", blocks=True, counts=tuple(counts))
    return Call("allgatherv", [(each, told) for each in arrays], [joined(arrays)] * draw.size, how, draw.coin())


def gather(draw: Draw) -> Call:
    root, p = draw.rank(), draw.size
    if draw.coin(0.3):
        things = [draw.thing() for _ in range(p)]
        return Call("gather", [(thing, root) for thing in things], only(root, things, p))
    values = same_shape(draw)
    expected = only(root, stacked(values), p)
    return Call("gather", [(value, root) for value in values], expected, draw.how("gather", root=root), draw.coin())


def gatherv(draw: Draw) -> Call:
    root, (_, arrays, told) = draw.rank(), uneven(draw)
    expected = only(root, joined(arrays), draw.size)
    given = [(each, told, root) for each in arrays]
    return Call("gatherv", given, expected, draw.how("gather", root=root), draw.coin())


def scatter(draw: Draw) -> Call:
    root, p = draw.rank(), draw.size
    objects = draw.coin(0.3)
    whole = [draw.thing() for _ in range(p)] if objects else draw.array(draw.of(MOVED), (p, *draw.row()))
    how = draw.how("scatter", root=root)
    return Call("scatter", [(give, root) for give in only(root, whole, p)], [whole[rank] for rank in range(p)], how)


def scatterv(draw: Draw) -> Call:
    root, p = draw.rank(), draw.size
    counts = draw.counts()
    whole = draw.array(draw.of(MOVED), (sum(counts), *draw.row()))
    told = None if draw.coin() else counts
    rows = counts if told else even(len(whole), p)
    given = [(give, told, root) for give in only(root, whole, p)]
    return Call("scatterv", given, runs(whole, rows), draw.how("scatter", root=root))


def reduce_scatter(draw: Draw) -> Call:
    counts = draw.counts()
    op, values = draw.operands(sum(counts))
    told = None if draw.coin() else counts
    rows = counts if told else even(sum(counts), draw.size)
    items = tuple(n * int(np.prod(values[0].shape[1:])) for n in rows)
    how = draw.how_to_combine("reduce_scatter", op, values[0], blocks=True, counts=items)
    given = [(value, op, told) for value in values]
    return Call("reduce_scatter", given, runs(fold(op, values), rows), how, draw.coin())


def alltoall(draw: Draw) -> Call:
    ranks = range(draw.size)
    if draw.coin(0.3):
        things = [[draw.thing() for _ in ranks] for _ in ranks]
        return Call("alltoall", [(each,) for each in things], [[each[rank] for each in things] for rank in ranks])
    dtype, row = draw.of(MOVED), (*draw.row(), draw.random.randint(0, 300))
    arrays = [draw.array(dtype, (draw.size, *row)) for _ in ranks]
    expected = [stacked([each[rank] for each in arrays]) for rank in ranks]
    return Call("alltoall", [(each,) for each in arrays], expected, draw.how("alltoall"), draw.coin())


def alltoallv(draw: Draw) -> Call:
    ranks, dtype, row, objects = range(draw.size), draw.of(MOVED), draw.row(), draw.coin(0.2)
    counts = [[draw.of([0, 1, draw.random.randint(0, 40)]) for _ in ranks] for _ in ranks]
    whole = [
        [draw.thing() for _ in range(sum(own))] if objects else draw.array(dtype, (sum(own), *row)) for own in counts
    ]
    parts = [runs(each, own) for each, own in zip(whole, counts, strict=True)]
    told = draw.coin()
    given = [(whole[r], counts[r], [own[r] for own in counts] if told else None) for r in ranks]
    if objects:
        return Call("alltoallv", given, [[one for each in parts for one in each[rank]] for rank in ranks])
    expected = [joined([each[rank] for each in parts]) for rank in ranks]
    return Call("alltoallv", given, expected, draw.how("alltoallv"), draw.coin())


def merge_sorted(draw: Draw) -> Call:
    dtype = draw.of(SORTED)
    arrays = [np.sort(draw.rng().integers(0, 99, n)).astype(dtype) for n in draw.counts()]
    expected = np.sort(joined(arrays)).astype(dtype)
    return Call("merge_sorted", [(each,) for each in arrays], [expected] * draw.size, draw.how("merge_sorted"))


def scan(draw: Draw) -> Call:
    op, values = draw.operands()
    how = draw.how_to_combine("scan", op, values[0])
    expected = [fold(op, values[: rank + 1]) for rank in range(draw.size)]
    return Call("scan", [(value, op) for value in values], expected, how, draw.coin())


def exscan(draw: Draw) -> Call:
    op, values = draw.operands()
    how = draw.how_to_combine("exscan", op, values[0])
    expected = [None, *(fold(op, values[:rank]) for rank in range(1, draw.size))]
    return Call("exscan", [(value, op) for value in values], expected, how, draw.coin())


def shift(draw: Draw) -> Call:
    distance = draw.random.randint(-2 * draw.size, 2 * draw.size)
    values = same_shape(draw) if draw.coin(0.7) else [draw.thing() for _ in range(draw.size)]
    expected = [values[(rank - distance) % draw.size] for rank in range(draw.size)]
    how = draw.how("shift", distance=distance % draw.size)
    return Call("shift", [(value, distance) for value in values], expected, how)


def barrier(draw: Draw) -> Call:
    return Call("barrier", [()] * draw.size, [None] * draw.size, {"timeout": draw.of([None, 100])})


def sendrecv(draw: Draw) -> Call:
    """Ranks send to each other in a random order; some send nothing."""
    ranks, tag = range(draw.size), draw.of([0, 1, 2**32 - 1])
    dest = draw.random.sample(ranks, draw.size)
    values = [draw.array(draw.of(MOVED), draw.shape()) if draw.coin(0.7) else draw.thing() for _ in ranks]
    sends = [draw.coin(0.8) for _ in ranks]
    source = [dest.index(rank) for rank in ranks]
    given = [(values[r], dest[r] if sends[r] else None, source[r] if sends[source[r]] else None, tag) for r in ranks]
    return Call("sendrecv", given, [values[source[r]] if sends[source[r]] else None for r in ranks])


def neighbor_allgather(draw: Draw) -> Call:
    graph, arrivals = edges(draw)
    if draw.coin(0.3):
        things = [draw.thing() for _ in range(draw.size)]
        expected = [[things[source] for source, _ in each] for each in arrivals]
        return Call("neighbor_allgather", [(thing,) for thing in things], expected, graph=graph)
    values = same_shape(draw)
    stacks = [stacked([values[source] for source, _ in each]) if each else none(values[0][None]) for each in arrivals]
    return Call("neighbor_allgather", [(value,) for value in values], stacks, into=draw.coin(), graph=graph)


def neighbor_allgatherv(draw: Draw) -> Call:
    (graph, arrivals), (counts, arrays, _) = edges(draw), uneven(draw)
    told = draw.coin()
    given = [(arrays[r], [counts[source] for source, _ in arrivals[r]] if told else None) for r in range(draw.size)]
    expected = [joined([none(arrays[0]), *(arrays[source] for source, _ in each)]) for each in arrivals]
    return Call("neighbor_allgatherv", given, expected, into=draw.coin(), graph=graph)


def neighbor_alltoall(draw: Draw) -> Call:
    graph, arrivals = edges(draw)
    if draw.coin(0.3):
        things = [[draw.thing() for _ in each] for each in graph]
        expected = [[things[source][place] for source, place in each] for each in arrivals]
        return Call("neighbor_alltoall", [(each,) for each in things], expected, graph=graph)
    dtype, row = draw.of(MOVED), (*draw.row(), draw.random.randint(0, 300))
    arrays = [draw.array(dtype, (len(each), *row)) for each in graph]
    stacks = [joined([none(arrays[0]), *(arrays[r][place][None] for r, place in each)]) for each in arrivals]
    return Call("neighbor_alltoall", [(each,) for each in arrays], stacks, into=draw.coin(), graph=graph)


def neighbor_alltoallv(draw: Draw) -> Call:
    (graph, arrivals), dtype, row = edges(draw), draw.of(MOVED), draw.row()
    counts = [[draw.of([0, 1, draw.random.randint(0, 40)]) for _ in each] for each in graph]
    arrays = [draw.array(dtype, (sum(own), *row)) for own in counts]
    parts = [runs(each, own) for each, own in zip(arrays, counts, strict=True)]
    told = draw.coin()
    given = [
        (arrays[r], counts[r], [counts[source][place] for source, place in arrivals[r]] if told else None)
        for r in range(draw.size)
    ]
    expected = [joined([none(arrays[0]), *(parts[source][place] for source, place in each)]) for each in arrivals]
    return Call("neighbor_alltoallv", given, expected, into=draw.coin(), graph=graph)


def agree(draw: Draw) -> Call:
    flags = [draw.random.getrandbits(62) | 1 for _ in range(draw.size)]
    return Call("agree", [(flag,) for flag in flags], [functools.reduce(operator.and_, flags)] * draw.size)


def same_shape(draw: Draw) -> list[Array]:
    """Return an array for each rank, of one shape and dtype."""
    dtype, shape = draw.of(MOVED), draw.shape()
    return [draw.array(dtype, shape) for _ in range(draw.size)]


def uneven(draw: Draw) -> tuple[list[int], list[Array], list[int] | None]:
    """Return numbers of rows, arrays with so many rows, and the numbers again, or None if nobody shall tell them."""
    counts, dtype, row = draw.counts(), draw.of(MOVED), draw.row()
    return counts, [draw.array(dtype, (n, *row)) for n in counts], draw.of([counts, None])


def edges(draw: Draw) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Return the destinations of each rank in a random graph, and from where what comes, with its place there."""
    graph = [[draw.rank() for _ in range(draw.random.randrange(5))] for _ in range(draw.size)]
    ranks = range(draw.size)
    return graph, [[(s, i) for s in ranks for i, dest in enumerate(graph[s]) if dest == rank] for rank in ranks]


def none(array: Array) -> Array:
    """Return an array like this one, without rows."""
    return np.ascontiguousarray(array)[:0]


def even(rows: int, size: int) -> list[int]:
    return [rows // size + (rank < rows % size) for rank in range(size)]


MAKERS: tuple[Maker, ...] = (
    bcast, reduce, allreduce, allreduce_texts, allgather, allgatherv, gather, gatherv, scatter, scatterv,
    reduce_scatter, alltoall, alltoallv, merge_sorted, scan, exscan, shift, barrier, sendrecv, agree,
    neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv,
)  # fmt: skip
