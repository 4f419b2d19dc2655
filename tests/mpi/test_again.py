"""Collectives of small buffers that are repeated give each time what numpy gives, or the error that the first one gave.

Each function below is the program of a rank of one job, as in test_collectives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import ringcast
from ringcast.collectives.again import UNMADE
from support.patience import patience

TIMES = 4


@contextmanager
def watched() -> Iterator[Counter[bool]]:
    """Count the calls that go by the short way, and those that are left to the general one."""
    from ringcast.mpi.requests import calls

    count, predicted = Counter[bool](), calls._predicted

    def counted(*given: Any) -> Any:
        result = predicted(*given)
        count[result is not UNMADE] += 1
        return result

    with patch.object(calls, "_predicted", counted):
        yield count


def buffers(values: np.ndarray[Any, Any], datatype: Any) -> Iterator[Any]:
    """Yield specifications of buffers of these values: an array of another shape too, and with its datatype."""
    yield values
    yield [values, datatype]
    yield values.reshape(2, -1)
    yield (values, len(values), datatype)  # which is not predicted


def results(_: Any) -> None:
    """All five calls, on all forms of buffers, by all roots, in place and not."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    for dtype, datatype in (("d", MPI.DOUBLE), ("i", MPI.INT), ("F", MPI.C_COMPLEX), ("b", MPI.SIGNED_CHAR)):
        for turn in range(TIMES):
            every = [(np.arange(4) % 3 + r + turn).astype(dtype) for r in range(p)]
            total, mine = sum(every[1:], every[0]), every[rank]
            for root in {0, p - 1}:
                for given in buffers(mine.copy(), datatype):
                    room = np.zeros(4, dtype)
                    comm.Reduce(given, room if rank == root else None, MPI.SUM, root)
                    np.testing.assert_array_equal(room, total if rank == root else 0)
                room = mine.copy()
                comm.Reduce(MPI.IN_PLACE if rank == root else room, room if rank == root else None, root=root)
                np.testing.assert_array_equal(room, total if rank == root else mine)
                room = every[root].copy() if rank == root else np.zeros(4, dtype)
                comm.Bcast([room, datatype] if turn % 2 else room, root)
                np.testing.assert_array_equal(room, every[root])
            for given in buffers(mine.copy(), datatype):
                room = np.zeros((2, 2), dtype)
                comm.Allreduce(given, room)
                np.testing.assert_array_equal(room.reshape(-1), total)
                rows = np.zeros((p, 4), dtype)
                comm.Allgather(given, rows)
                np.testing.assert_array_equal(rows, every)
                for root in {0, p - 1}:
                    rows = np.zeros((p, 4), dtype)
                    comm.Gather(given, rows if rank == root else None, root)
                    np.testing.assert_array_equal(rows, every if rank == root else 0)
                comm.Scan(given, room)
                np.testing.assert_array_equal(room.reshape(-1), sum(every[1 : rank + 1], every[0]))
                comm.Exscan(given, room)
                before = sum(every[1:rank], every[0]) if rank else mine  # rank 0 has its own from the call before
                np.testing.assert_array_equal(room.reshape(-1), before)
            for given in [*buffers(np.concatenate(every), datatype)][
                :3
            ]:  # the last one has a count, which is a block's
                rows = np.zeros((p, 4), dtype)
                comm.Alltoall(given, rows)
                np.testing.assert_array_equal(rows, [every[rank]] * p)
            comm.Alltoall(MPI.IN_PLACE, rows)
            np.testing.assert_array_equal(rows, every)
            room, rows = mine.copy(), np.zeros((p, 4), dtype)
            comm.Allreduce(MPI.IN_PLACE, room, op=MPI.PROD)
            np.testing.assert_array_equal(room, np.prod(every, 0, dtype=dtype))
            rows[rank] = mine
            comm.Allgather(MPI.IN_PLACE, rows)
            np.testing.assert_array_equal(rows, every)
            rows = np.zeros((p, 4), dtype)
            rows[rank] = mine
            comm.Gather(MPI.IN_PLACE if rank == 0 else mine, rows if rank == 0 else None)
            if rank == 0:
                np.testing.assert_array_equal(rows, every)
            comm.Barrier()
            comm.barrier()


def mistakes(_: Any) -> None:
    """What is wrong in the first call is wrong in each, on this rank alone, and the ranks go on."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    ones, same = np.ones(2), np.zeros(2)
    read_only = np.frombuffer(bytes(16))
    wrong: list[Callable[[], Any]] = [
        lambda: comm.Allreduce(np.ones(2, "l"), np.ones(2, "q")),  # of one dtype in numpy, of two datatypes in MPI
        lambda: comm.Allreduce(np.ones(2, "?"), np.ones(2, "?")),
        lambda: comm.Allreduce(ones, np.ones(3)),
        lambda: comm.Allreduce(ones, read_only),
        lambda: comm.Allreduce(ones, same, MPI.OP_NULL),
        lambda: comm.Allreduce([ones, MPI.INT], same),
        lambda: comm.Allreduce(ones),
        lambda: comm.Allreduce(ones, same, MPI.SUM, 0),
        lambda: comm.Allgather(ones, np.ones(2 * comm.size + 1)),
        lambda: comm.Alltoall(np.ones(2 * comm.size), np.ones(comm.size)),
        lambda: comm.Scan(ones, np.ones(2, "l")),
        lambda: comm.Exscan(ones, read_only),
        lambda: comm.Reduce(ones, same, root=comm.size),
        lambda: comm.Gather(ones, np.ones(2 * comm.size + 1), comm.rank),
        lambda: comm.Gather(ones, same, comm.size),
        lambda: comm.Bcast(ones, "root"),
        lambda: comm.Bcast(read_only if comm.rank else 5),
        lambda: MPI.COMM_NULL.Barrier(),
        lambda: MPI.COMM_NULL.Allreduce(ones, same),
    ]
    told: list[set[str]] = [set() for _ in wrong]
    for _ in range(TIMES):
        for call, words in zip(wrong, told, strict=True):
            with pytest.raises((MPI.Exception, ValueError, TypeError, BufferError)) as caught:
                call()
            words.add(str(caught.value))
        for dtype in "lq":
            comm.Allreduce(np.ones(2, dtype), np.ones(2, dtype))
        comm.Allreduce(np.ones(2, "?"), np.ones(2, "?"), MPI.LAND)
        comm._caller.allreduce(np.ones(2, "?"), ringcast.MAX)  # of which MPI has none
        with pytest.raises(MPI.Exception, match="can combine"):
            comm.Allreduce(np.ones(2, "?"), np.ones(2, "?"), MPI.MAX)
        comm.Allreduce(ones, same)
        comm.Allgather(ones, np.ones(2 * comm.size))
        comm.Alltoall(np.ones(2 * comm.size), np.ones(2 * comm.size))
        comm.Scan(ones, same)
        comm.Exscan(ones, same)
        comm.Reduce(ones, same)
        comm.Bcast(ones)
    assert all(len(words) == 1 for words in told), told


def between_sides(_: Any) -> None:
    """The same calls across an intercommunicator have another meaning."""
    from ringcast import MPI

    world = MPI.COMM_WORLD
    low = world.rank < 1
    side = world.Split(int(low))
    comm = side.Create_intercomm(0, world, 1 if low else 0)
    for turn in range(TIMES):
        total, given = np.zeros(1), np.full(1, (10.0 if low else 1.0) + turn)
        side.Allreduce(given, total)
        assert total[0] == given[0] * side.size
        comm.Allreduce(given, total)
        assert total[0] == ((1.0 if low else 10.0) + turn) * comm.remote_size
        comm.Barrier()


def own_operators(_: Any) -> None:
    """Operators of a program are made anew, and may get the number of one that was freed."""
    from ringcast import MPI

    comm = MPI.COMM_WORLD
    for turn in range(TIMES):

        def last(_left: Any, right: Any, _: Any, add: int = turn) -> None:
            np.frombuffer(right, np.int64)[:] += add

        op, room = MPI.Op.Create(last), np.zeros(2, np.int64)
        comm.Allreduce(np.full(2, comm.rank), room, op)
        assert room.tolist() == [comm.size - 1 + turn * (comm.size > 1)] * 2 or comm.size > 2
        op.Free()


@pytest.mark.parametrize(
    ("p", "direct"),
    [
        (1, "1"),
        pytest.param(2, "1", marks=pytest.mark.live),
        (2, "0"),
        (3, "1"),
        pytest.param(4, "1", marks=pytest.mark.live),
    ],
)
def test_repeated_collectives_give_what_numpy_gives(p: int, direct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_DIRECT", direct)

    def program(comm: ringcast.Communicator) -> Counter[bool]:
        with watched() as count:
            results(comm)
        mistakes(comm)
        own_operators(comm)
        if comm.size > 1:
            between_sides(comm)
        return count

    for count in ringcast.run(program, p, timeout=patience(60)):
        assert (count[True] > count[False]) == (direct == "1"), count
