"""Collectives with mpi4py's names give what numpy gives that has the data of all ranks, in all their forms.

Each function below is the program of a rank of one job, which makes many checks: to start a job takes longer.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate, product
from typing import Any

import numpy as np
import pytest

import ringcast
from support.patience import patience

UNTOUCHED = -9.0


def forms(comm: Any, name: str) -> Iterator[Callable[..., None]]:
    """Return the three forms of a call, each as one that blocks."""

    def prepared(*args: Any) -> None:
        request = getattr(comm, f"{name}_init")(*args)
        for _ in range(2):
            request.Start()
            request.Wait()
        request.Free()

    yield getattr(comm, name)
    yield lambda *args: getattr(comm, f"I{name[0].lower()}{name[1:]}")(*args).Wait()
    yield prepared


def equal(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(got, expected)


def blocks(_: Any) -> None:
    """Calls whose parts have one length."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    for n in (0, 3, 5000):
        table = np.arange(p * p * n, dtype=float).reshape(p, p, n)  # of each rank, for each rank
        for root in {0, p - 1}:
            for call in forms(comm, "Bcast"):
                buffer = table[root].copy() if rank == root else np.zeros((p, n))
                call(buffer, root)
                equal(buffer, table[root])
            for call in forms(comm, "Gather"):
                room = np.zeros((p, n)) if rank == root else None
                call(table[rank, 0].copy(), room, root)
                if rank == root:
                    equal(room, table[:, 0])
                    call(MPI.IN_PLACE, room, root)
                    equal(room, table[:, 0])
                else:
                    call(table[rank, 0].copy(), None, root)
            for call in forms(comm, "Scatter"):
                row = np.zeros(n)
                call(table[root].copy() if rank == root else None, row, root)
                equal(row, table[root, rank])
        for call in forms(comm, "Allgather"):
            room = np.zeros((p, n))
            call(table[rank, 0].copy(), room)
            equal(room, table[:, 0])
        room = np.zeros((p, n))
        room[rank] = table[rank, 0]
        comm.Allgather(MPI.IN_PLACE, room)
        equal(room, table[:, 0])
        for call in forms(comm, "Alltoall"):
            room = np.zeros((p, n))
            call(table[rank].copy(), room)
            equal(room, table[:, rank])
        room = table[rank].copy()
        comm.Alltoall(MPI.IN_PLACE, room)
        equal(room, table[:, rank])


def parts(_: Any) -> None:
    """Calls whose parts have any lengths, and lie apart from each other, the last one first."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    counts = np.random.default_rng(p).integers(0, 4, (p, p)).tolist()  # of each rank, for each rank
    counts[0][p - 1] = 0

    def made(source: int, dest: int) -> Any:
        return 100.0 * source + 10.0 * dest + np.arange(counts[source][dest])

    def spread(lengths: list[int], values: list[Any] | None) -> tuple[Any, list[int]]:
        places = [5 * (p - 1 - k) for k in range(p)]
        line = np.full(5 * p, UNTOUCHED)
        for place, value in zip(places, values or [], strict=False):
            line[place : place + len(value)] = value
        return line, places

    incoming = [counts[k][rank] for k in range(p)]
    expected, places = spread(incoming, [made(k, rank) for k in range(p)])
    for call in forms(comm, "Alltoallv"):
        sent, there = spread(counts[rank], [made(rank, k) for k in range(p)])
        room, _ = spread(incoming, None)
        call([sent, counts[rank], there, MPI.DOUBLE], [room, incoming, places, MPI.DOUBLE])
        equal(room, expected)
    for call in forms(comm, "Alltoallw"):
        sent, there = spread(counts[rank], [made(rank, k) for k in range(p)])
        room, _ = spread(incoming, None)
        types = [MPI.DOUBLE] * p
        sides = [(sent, counts[rank], there), (room, incoming, places)]
        call(*([line, (many, [8 * at for at in where]), types] for line, many, where in sides))
        equal(room, expected)
    row = [counts[k][0] for k in range(p)]  # what each rank gives, or gets
    expected, places = spread(row, [made(k, 0) for k in range(p)])
    for root in {0, p - 1}:
        for call in forms(comm, "Gatherv"):
            room, _ = spread(row, None)
            call(made(rank, 0), [room, row, places, MPI.DOUBLE] if rank == root else None, root)
            equal(room, expected if rank == root else np.full(5 * p, UNTOUCHED))
        for call in forms(comm, "Scatterv"):
            mine = np.zeros(row[rank])
            call([expected, row, places, MPI.DOUBLE] if rank == root else None, mine, root)
            equal(mine, made(rank, 0))
    for call in forms(comm, "Allgatherv"):
        room, _ = spread(row, None)
        call(made(rank, 0), [room, row, places, MPI.DOUBLE])
        equal(room, expected)
        line = np.zeros(sum(row))
        call(made(rank, 0), [line, row])
        equal(line, np.concatenate([made(k, 0) for k in range(p)]))


def combined(_: Any) -> None:
    """Reductions, also in place, and of operators that do not commute."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size

    def after(left: Any, right: Any, datatype: Any) -> None:
        """Compose the functions x -> a x + b; the one of the lower rank comes first."""
        one, two = (np.frombuffer(memory, float).reshape(-1, 2) for memory in (left, right))
        two[:] = np.stack([one[:, 0] * two[:, 0], one[:, 1] * two[:, 0] + two[:, 1]], axis=1)

    pair = MPI.DOUBLE.Create_contiguous(2).Commit()
    composition = MPI.Op.Create(after)
    for n in (1, 300):
        table = np.random.default_rng(n).integers(1, 4, (p, p * n, 2)).astype(float)
        composed = list(
            accumulate(table, lambda f, g: np.stack([f[:, 0] * g[:, 0], f[:, 1] * g[:, 0] + g[:, 1]], axis=1))
        )
        summed = list(np.cumsum(table, axis=0))
        for op, datatype, prefix in ((MPI.SUM, MPI.DOUBLE, summed), (composition, pair, composed)):
            each = 2 * n if datatype == MPI.DOUBLE else n
            for name, rows, expected in (
                ("Reduce", slice(None), prefix[-1] if rank == p - 1 else None),
                ("Allreduce", slice(None), prefix[-1]),
                ("Scan", slice(None), prefix[rank]),
                ("Exscan", slice(None), prefix[rank - 1] if rank else None),
                ("Reduce_scatter_block", slice(rank * n, rank * n + n), prefix[-1]),
                ("Reduce_scatter", slice(rank * n, rank * n + n), prefix[-1]),
            ):
                more = {"Reduce": (op, p - 1), "Reduce_scatter": ([each] * p, op)}.get(name, (op,))
                for call in forms(comm, name):
                    room = np.full(table[0, rows].shape, UNTOUCHED)
                    call([table[rank].copy(), datatype], [room, datatype], *more)
                    equal(room, UNTOUCHED if expected is None else expected[rows])
                if name != "Reduce":
                    room = table[rank].copy()
                    getattr(comm, name)(MPI.IN_PLACE, [room, datatype], *more)
                    if expected is not None:
                        part = slice(0, n) if "scatter" in name else slice(None)
                        equal(room[part], expected[rows])
                        equal(room[part.stop :] if part.stop else [], table[rank][part.stop :] if part.stop else [])
    composition.Free()
    pair.Free()

    aligned = np.zeros(4, np.dtype([("value", "f8"), ("place", "i4")], align=True))
    aligned["value"], aligned["place"] = [rank, -rank, 7, rank % 2], rank
    low, high = np.zeros_like(aligned), np.zeros_like(aligned)
    comm.Allreduce([aligned, 4, MPI.DOUBLE_INT], [low, 4, MPI.DOUBLE_INT], MPI.MINLOC)
    comm.Allreduce([aligned, 4, MPI.DOUBLE_INT], [high, 4, MPI.DOUBLE_INT], MPI.MAXLOC)

    def sums(left: Any, right: Any, datatype: Any) -> None:
        one, two = (np.frombuffer(memory, aligned.dtype) for memory in (left, right))
        for field in ("value", "place"):
            two[field] += one[field]

    added, own = np.zeros_like(aligned), MPI.Op.Create(sums, commute=True)
    comm.Allreduce([aligned, 4, MPI.DOUBLE_INT], [added, 4, MPI.DOUBLE_INT], own)
    own.Free()

    def added_ints(left: Any, right: Any, datatype: Any) -> None:
        one, two = (np.frombuffer(memory, "i4") for memory in (left, right))
        two += one

    late = MPI.INT.Create_indexed([1, 2], [1, 4]).Commit()  # the data begin, and end, behind the bounds of an extent
    places, integers = [1, 4, 5, 6, 9, 10], np.full(12, -1, "i4")
    own = MPI.Op.Create(added_ints, commute=True)
    comm.Allreduce([np.arange(12, dtype="i4"), 2, late], [integers, 2, late], own)
    own.Free()
    late.Free()
    equal(integers, np.where(np.isin(np.arange(12), places), np.arange(12) * p, -1))

    ranks = p * (p - 1) // 2
    assert added.tolist() == [(ranks, ranks), (-ranks, ranks), (7 * p, ranks), (p // 2, ranks)]
    assert low.tolist() == [(0, 0), (1 - p, p - 1), (7, 0), (0, 0)]
    assert high.tolist() == [(p - 1, p - 1), (0, 0), (7, 0), (float(p > 1), int(p > 1))]


def with_gaps(_: Any) -> None:
    """Columns of matrices; what lies beside them stays as it is."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    column = MPI.DOUBLE.Create_vector(4, 1, p).Create_resized(0, 8).Commit()
    matrix = np.arange(4.0 * p).reshape(4, p) + 100 * rank

    def untouched() -> Any:
        return np.full((4, p), UNTOUCHED)

    got = matrix.copy() if rank == 0 else untouched()
    comm.Bcast([got, 1, column])
    expected = got.copy() if rank == 0 else untouched()
    expected[:, 0] = np.arange(0, 4 * p, p)
    equal(got, expected)
    got = untouched()
    comm.Alltoall([matrix, 1, column], [got, 1, column])
    equal(got, np.stack([np.arange(rank, 4 * p, p) + 100 * k for k in range(p)], axis=1))
    got = untouched()
    comm.Allreduce([matrix[:, 0].copy(), 4, MPI.DOUBLE], [(total := np.zeros(4)), 4, MPI.DOUBLE])
    equal(total, sum(np.arange(0, 4 * p, p) + 100 * k for k in range(p)))
    comm.Exscan([matrix[:, 0].copy(), MPI.DOUBLE], [(kept := np.full(4, UNTOUCHED)), MPI.DOUBLE])
    equal(kept, UNTOUCHED if rank == 0 else sum(np.arange(0, 4 * p, p) + 100 * k for k in range(rank)))


def in_one_memory(_: Any) -> None:
    """Results are right where the send and the receive buffer overlap, which MPI does not allow."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    for n in (3, 100_000):
        memory = np.full(n, rank + 1.0)
        comm.Allreduce(memory, memory)
        equal(memory, p * (p + 1) / 2)
        expected = np.repeat(10.0 * rank + np.arange(p), n)
        counts, types = [n] * p, [MPI.DOUBLE] * p
        for call in (
            comm.Alltoall,
            lambda one, other, counts=counts: comm.Alltoallv([one, counts], [other, counts]),
            lambda *both, n=n, counts=counts, types=types: comm.Alltoallw(
                *([memory, counts, [8 * n * k for k in range(p)], types] for memory in both)
            ),
        ):
            memory = np.repeat(10.0 * np.arange(p) + rank, n)
            call(memory, memory)
            equal(memory, expected)
        ring = comm.Create_cart([p], [True])
        memory = np.repeat([10.0 * rank, 10.0 * rank + 1], n)
        ring.Neighbor_alltoall(memory, memory)
        equal(memory, np.repeat([10.0 * ((rank - 1) % p) + 1, 10.0 * ((rank + 1) % p)], n))
        ring.Free()


def prepared(_: Any) -> None:
    """A prepared call keeps its arguments when the program frees or changes them."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    every_second = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    row, total, counts = np.full(3, float(rank)), np.zeros(1), [1] * p
    gathered, last = np.zeros(p), MPI.Op.Create(lambda left, right, datatype: None)
    requests = [
        comm.Bcast_init([row, 1, every_second], p - 1),
        comm.Allreduce_init(np.full(1, float(rank)), total, last),
        comm.Allgatherv_init(row[:1], [gathered, counts]),
    ]
    every_second.Free()
    last.Free()
    counts[:] = [0] * p
    for request in requests * 2:
        request.Start()
        request.Wait()
    equal(row, [p - 1, rank, p - 1])
    equal(total, p - 1)
    equal(gathered, p - 1)


def objects(_: Any) -> None:
    """Objects come as copies, in rank order, whatever an operator does with its operands."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size

    def extended(left: list[int], right: list[int]) -> list[int]:
        left.extend(right)
        return left

    mine = [rank]
    everyone = [[k] for k in range(p)]
    results = [comm.allgather(mine), comm.alltoall([mine] * p), comm.gather(mine, root=p - 1) or everyone]
    results.append([comm.scatter([[k] for k in range(p)] if rank == 0 else None)] * p)
    assert results[:3] == [everyone] * 3
    assert results[3] == [mine] * p
    mine.append(-1)
    assert results[:3] == [everyone] * 3
    mine.pop()
    for op in (MPI.SUM, extended, MPI.Op.Create(lambda a, b, datatype: extended(a, b), commute=True)):
        assert comm.allreduce(mine, op) == list(range(p))
        assert comm.reduce(mine, op, root=p - 1) == (list(range(p)) if rank == p - 1 else None)
        assert comm.scan(mine, op) == list(range(rank + 1))
        assert comm.exscan(mine, op) == (list(range(rank)) if rank else None)
        assert mine == [rank]
    assert comm.allreduce((rank % 2, rank), MPI.MAXLOC) == (int(p > 1), int(p > 1))
    # Arrays are objects, too: of different shapes, and combined as `+` does.
    assert [len(one) for one in comm.allgather(np.zeros(rank))] == list(range(p))
    equal(comm.allreduce(np.ones(3) if rank else 1.0), np.full(3, p) if p > 1 else 1.0)
    # Errors are objects like others.
    assert isinstance(comm.bcast(MPI.Exception(MPI.ERR_ARG)), MPI.Exception)
    # Large buffers within objects travel by themselves, in whichever order.
    sent = {
        "a": np.arange(200_000.0),
        "b": [b"x" * (1 << 20), np.arange(300_000).reshape(2, -1)],
        "c": bytearray(1 << 21),
    }
    got = comm.bcast(sent if rank == 0 else None)
    equal(got["a"], sent["a"])
    equal(got["b"][1], sent["b"][1])
    assert got["b"][0] == sent["b"][0]
    assert got["c"] == sent["c"]
    got["a"] += 1


def between_neighbours(_: Any) -> None:
    """A line of ranks; the first and the last have one neighbour only."""
    from ringcast import MPI

    world = MPI.COMM_WORLD
    line = world.Create_cart([world.size])
    rank, p = line.rank, line.size
    there = [k if 0 <= k < p else None for k in (rank - 1, rank + 1)]
    assert line.neighbor_allgather(rank) == there
    assert line.neighbor_alltoall([-rank, rank]) == [k if k is None else k * (1 - 2 * i) for i, k in enumerate(there)]
    for call in forms(line, "Neighbor_allgather"):
        room = np.full((2, 3), UNTOUCHED)
        call(np.full(3, float(rank)), room)
        equal(room[:, 0], [UNTOUCHED if k is None else k for k in there])
    for call in forms(line, "Neighbor_alltoallv"):
        room = np.full(5, UNTOUCHED)
        call([np.array([1.0, 2.0, 3.0]) + 10 * rank, [1, 2]], [room, [2, 1], [3, 0], MPI.DOUBLE])
        before, behind = (
            [UNTOUCHED] * n if k is None else [10 * k + i for i in what]
            for k, n, what in zip(there, (2, 1), ((2, 3), (1,)), strict=True)
        )
        equal(room, [*behind, UNTOUCHED, UNTOUCHED, *before])
    line.Free()


class Unreadable:
    """An object whose pickle raises ValueError when it is read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def mistakes(_: Any) -> None:
    """Errors have mpi4py's types, or MPI's classes, and the communicator lives on."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    two, three, texts = np.zeros(2), np.zeros(3), np.zeros(2, complex)

    def class_of(call: Callable[[], Any]) -> Any:
        try:
            call()
        except MPI.Exception as error:
            return error.Get_error_class()
        except (ValueError, TypeError) as error:
            return type(error)
        return None

    assert class_of(lambda: comm.Bcast(two, root=p)) == MPI.ERR_ROOT
    assert class_of(lambda: comm.bcast(1, root=-1)) == MPI.ERR_ROOT
    assert class_of(lambda: comm.Gatherv(two, None, root=p)) == MPI.ERR_ROOT
    assert class_of(lambda: comm.Scatterv(None, two, root="0")) is TypeError
    assert class_of(lambda: comm.reduce(1, root=None)) is TypeError
    assert comm.bcast(rank, root=0.0) == 0  # as mpi4py takes it
    assert comm.sendrecv(rank, (rank + 1) % p / 1, source=(rank - 1) % p / 1) == (rank - 1) % p
    assert class_of(lambda: comm.Allreduce(two, two.copy(), None)) == MPI.ERR_OP
    assert class_of(lambda: comm.Allreduce(two, two.copy(), MPI.OP_NULL)) == MPI.ERR_OP
    assert class_of(lambda: comm.Allreduce(two, two.copy(), MPI.BAND)) == MPI.ERR_OP
    assert class_of(lambda: comm.Allreduce(texts, texts.copy(), MPI.MAX)) == MPI.ERR_OP
    assert class_of(lambda: comm.allreduce(1, None)) == MPI.ERR_OP
    assert class_of(lambda: comm.Allreduce(two, three)) is ValueError
    assert class_of(lambda: comm.Allreduce(two, texts)) is ValueError
    assert class_of(lambda: comm.Allgather(three, np.zeros(2 * p))) == MPI.ERR_TRUNCATE
    assert class_of(lambda: comm.Reduce_scatter(np.zeros(p), np.zeros(1), [2] * p)) is ValueError
    assert class_of(lambda: comm.alltoall([1] * (p + 1))) is ValueError
    # Those of prepared calls show when they are prepared.
    assert class_of(lambda: comm.Bcast_init(two, root=p)) == MPI.ERR_ROOT
    assert class_of(lambda: comm.Allreduce_init(two, two.copy(), MPI.BAND)) == MPI.ERR_OP
    assert class_of(lambda: comm.Gatherv_init("no buffer", None, p - 1)) is TypeError
    assert class_of(lambda: comm.Allgather_init(three, np.zeros(2 * p))) == MPI.ERR_TRUNCATE
    assert class_of(lambda: comm.Alltoallv_init([three, [1] * p], [np.zeros(2 * p), [2] * p])) is not None
    # Where the ranks tell each other what they have room for, it is not for all.
    assert class_of(lambda: comm.Reduce_scatter(np.zeros(p), np.zeros(1), op=MPI.BAND)) == MPI.ERR_OP
    assert class_of(lambda: comm.Reduce_scatter(np.zeros(p + (rank == 0)), np.zeros(1))) is ValueError
    assert comm.allreduce(1) == p
    # An object that cannot be unpickled concerns the ranks that get it.
    assert class_of(lambda: comm.gather(Unreadable() if rank == p - 1 else 1)) is (ValueError if rank == 0 else None)
    assert class_of(lambda: comm.scatter([*range(p - 1), Unreadable()])) is (ValueError if rank == p - 1 else None)
    for call in comm.allgather, comm.bcast, lambda obj: comm.alltoall([obj] * p):
        assert class_of(lambda call=call: call(Unreadable())) in (ValueError, None)
    assert comm.allreduce(1) == p
    with pytest.raises(TypeError, match="pickle"):
        comm.allgather(threading.Lock())
    assert comm.allreduce(1) == p
    assert class_of(lambda: MPI.Request.waitall(request for request in [MPI.REQUEST_NULL])) is TypeError
    assert class_of(lambda: MPI.Request.Waitany([None])) is TypeError
    # Calls that do not match end the communicator.
    for expected, call in (
        (MPI.ERR_NOT_SAME, lambda used: used.Allreduce(two, two.copy(), MPI.MAX if rank else MPI.SUM)),
        (MPI.ERR_NOT_SAME, lambda used: used.Allreduce(two, two.copy()) if rank else used.allreduce(2)),
        (MPI.ERR_TRUNCATE, lambda used: used.Allreduce(*((two, two.copy()) if rank else (three, three.copy())))),
    ):
        used = comm.Dup()
        found = comm.allgather(class_of(lambda call=call, used=used: call(used)))
        assert {expected} <= {*found} <= {expected, MPI.ERR_REVOKED} or p == 1
        used.Free()
    # Only the root can know that there is no room, and only when the data have come.
    found = class_of(lambda: comm.Gatherv(three, [np.zeros(2 * p), [2] * p] if rank == 0 else None))
    assert found == (MPI.ERR_TRUNCATE if rank == 0 else None)
    given = [np.zeros(3 * p), [3] * p] if rank == 0 else None
    found = class_of(lambda: comm.Scatterv(given, two if rank else three))
    assert found == (MPI.ERR_TRUNCATE if rank else None)
    assert comm.allreduce(1) == p


def across(_: Any) -> None:
    """Collectives of two sides, several at a time."""
    from ringcast import MPI

    world = MPI.COMM_WORLD
    low = world.rank < world.size // 2
    side = world.Split(int(low))
    comm = side.Create_intercomm(0, world, world.size // 2 if low else 0)
    there, here = comm.remote_size, comm.size
    total, data = np.zeros(1), np.full(1, 10.0 if low else 1.0) + comm.rank
    expected = sum((1.0 if low else 10.0) + k for k in range(there))
    shared = np.full(3, 5.0) if low and comm.rank == 0 else np.zeros(3)
    root = 0 if not low else MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL
    requests = [comm.Iallreduce(data, total), comm.Ibcast(shared, root), comm.Ibarrier()]
    MPI.Request.Waitall(requests[::-1])
    assert total[0] == expected
    if not low:
        equal(shared, 5.0)
    with pytest.raises(TypeError):  # no rank counts a call that it has not begun
        comm.Gather("no buffer", None, 0)
    with pytest.raises(MPI.Exception, match="in place"):
        comm.Alltoallv(MPI.IN_PLACE, [np.zeros(there), [1] * there])
    if comm.rank == 0:
        with pytest.raises(TypeError):
            comm.Bcast("no buffer", MPI.ROOT)
    # What is too long is found by the ranks that get it.
    if low:
        comm.Bcast(np.zeros(4), root)
        comm.Allreduce(np.zeros(4), np.zeros(4))
    else:
        for call in (lambda: comm.Bcast(np.zeros(3), root), lambda: comm.Allreduce(np.zeros(3), np.zeros(3))):
            with pytest.raises(MPI.Exception, match="at most 24 bytes") as caught:
                call()
            assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE
    shared = np.full(3, 6.0) if low and comm.rank == 0 else np.zeros(3)
    comm.Bcast(shared, root)
    if not low:
        equal(shared, 6.0)
    room = np.zeros(there)
    comm.Reduce_scatter(np.repeat(data, here * there), room, [there] * here)
    equal(room, expected)
    with pytest.raises(ValueError, match="no number"):  # which concerns the ranks that get it
        comm.allgather(Unreadable())
    for call in comm.bcast, comm.gather, lambda obj, root: comm.scatter([obj] * there, root):
        with suppress(ValueError):
            call(Unreadable(), root)
    assert comm.allreduce([comm.rank]) == list(range(there))
    comm.Allgatherv(data, [room, [1] * there])
    equal(room, (1.0 if low else 10.0) + np.arange(there))
    comm.Free()
    side.Free()


def with_nan(_: Any) -> None:
    """NaN is the least and the largest, at the lowest place that has it, as with np.argmin; booleans are not added."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    choices = (
        list(product([np.nan, 0.0, 5.0], repeat=p))
        if p < 4
        else [np.roll([np.nan, 1, 2, np.nan, 0], k) for k in range(p)]
    )
    pair = np.dtype("f8,i4", align=True)
    for values in choices:
        mine = values[rank]
        for located, best, places in (MPI.MINLOC, MPI.MIN, np.argmin), (MPI.MAXLOC, MPI.MAX, np.argmax):
            at = int(places(values))
            expected = (values[at], at)
            room, one = np.zeros(1, pair), np.zeros(1)
            for call in forms(comm, "Allreduce"):
                call([np.array([(mine, rank)], pair), MPI.DOUBLE_INT], [room, MPI.DOUBLE_INT], located)
                equal(room[0].tolist(), expected)
                call(np.array([mine]), one, best)
                equal(one, values[at])
            equal(comm.allreduce((mine, rank), located), expected)
            equal(comm.allreduce(mine, best), values[at])
            upto = int(places(values[: rank + 1]))
            equal(comm.scan((mine, rank), located), (values[upto], upto))
            comm.Scan([np.array([(mine, rank)], pair), MPI.DOUBLE_INT], [room, MPI.DOUBLE_INT], located)
            equal(room[0].tolist(), (values[upto], upto))
    for op in MPI.SUM, MPI.PROD:  # as in MPICH; of objects they make what Python makes of them
        with pytest.raises(MPI.Exception) as refused:
            comm.Allreduce(np.ones(2, bool), np.ones(2, bool), op)
        assert refused.value.Get_error_class() == MPI.ERR_OP
    assert comm.allreduce(True) == p
    assert bool(comm.allreduce(np.bool_(True))) is True


def copies(_: Any) -> None:
    """Object calls return copies on all ranks, as those of mpi4py; test_against_mpich.py asks that for the same."""
    from ringcast import MPI
    from support.programs.mpi_aliases import table

    found = table(MPI)
    assert len(found) > 80
    assert not [call for call, aliased in found.items() if aliased]
    comm = MPI.COMM_WORLD
    large = {"table": np.zeros(1 << 18), "small": np.zeros(3)}
    got = comm.bcast(large)
    assert not any(np.shares_memory(got[key], large[key]) for key in large)
    got["table"] += 1
    assert not large["table"].any()
    many = comm.bcast([np.full(1 << 18, i) for i in range(20)])  # more than a call has stages
    assert [array[-1] for array in many] == [*range(20)]
    assert comm.bcast("text" if comm.rank == 0 else None) == "text"


def without_copies(_: Any) -> None:
    """Calls on memory without gaps take no more of it than ringcast's own, which are given the room for the result."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    own, n = comm._caller, 1 << 20
    given, room, rooms = np.ones(n), np.zeros(n), np.zeros((comm.size, n))

    def peak(call: Callable[[], Any]) -> int:
        comm.Barrier()
        tracemalloc.start()
        call()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for mine, theirs in (
        (lambda: comm.Bcast(given), lambda: own.bcast(given)),
        (lambda: comm.Allreduce(given, room), lambda: own.allreduce(given, out=room)),
        (lambda: comm.Allgather(given, rooms), lambda: own.allgather(given, out=rooms)),
    ):
        mine(), theirs()
        assert peak(mine) < peak(theirs) + given.nbytes // 4


@pytest.mark.parametrize("p", [1, 2, 3, pytest.param(5, marks=pytest.mark.live)])
def test_collectives_give_what_numpy_gives(p: int) -> None:
    of_size = {1: (), 2: (across, without_copies)}.get(p, (across,))

    def all_of_them(comm: ringcast.Communicator) -> None:
        for checks in (
            blocks,
            parts,
            combined,
            with_gaps,
            in_one_memory,
            prepared,
            objects,
            with_nan,
            copies,
            mistakes,
            between_neighbours,
            *of_size,
        ):
            checks(comm)

    ringcast.run(all_of_them, p, timeout=patience(60))
