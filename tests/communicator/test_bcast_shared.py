"""A broadcast into one array on each host: every rank sees the root's, and each host gets it once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, CollectiveMismatch, Communicator, PeerFailed, Revoked, SharedMemoryError, UsageError
from support import needs
from support.any_order import AnyOrder, Died
from support.cases import each
from support.jobs import Job
from support.shared_arrays import color_of_host, go_to_host, mapped

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left", "nothing_mapped")]

SIZES = 1, 2, 3, 8, 33
RECORD = np.dtype([("a", "i4"), ("b", "f8", 2)])
VALUES: dict[str, Any] = {
    "plain": np.arange(12.0).reshape(3, 4),
    "large": np.arange(200_000),
    "Fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "strided": np.arange(24).reshape(4, 6)[::2, ::3],
    "big-endian": np.arange(5, dtype=">i2"),
    "texts": np.array(["a", "bcd"]),
    "records": np.ones(3, RECORD),
    "times": np.array(["2026-01-02"], "M8[D]"),
    "empty": np.empty((0, 3)),
    "no dimension": np.array(5),
    "scalar": np.float32(0.5),
}


@pytest.fixture(autouse=True)
def hosts_of_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.collectives.shared_memory.color_of_host", color_of_host)


@pytest.fixture
def nothing_mapped() -> Iterator[None]:
    """Fail a test that leaves memory of this process mapped."""
    yield
    assert mapped() == []


@pytest.mark.parametrize("size", SIZES)
@each("hosts", [1, 2, 5, 33])
def test_every_rank_sees_the_array_of_the_root(size: int, hosts: int) -> None:
    def work(comm: Communicator) -> None:
        go_to_host(comm, hosts)
        for root in {0, size // 2, size - 1}:
            value = np.arange(5000) + root
            assert (comm.bcast_shared(value if comm.rank == root else None, root) == value).all()

    ringcast.run(work, size, backend="threads")


@pytest.mark.parametrize("kind", VALUES)
def test_all_kinds_of_arrays_arrive_as_they_are(kind: str) -> None:
    value = VALUES[kind]
    expected = np.asarray(value)

    def work(comm: Communicator) -> None:
        go_to_host(comm, 2)
        found = comm.bcast_shared(value if comm.rank == 2 else "ignored", 2)  # type: ignore[arg-type]
        assert type(found) is np.ndarray
        assert (found.shape, found.dtype, found.tobytes()) == (expected.shape, expected.dtype, expected.tobytes())
        assert found.flags.f_contiguous if kind == "Fortran" else found.flags.c_contiguous

    ringcast.run(work, 4, backend="threads")


@pytest.mark.parametrize(("size", "hosts"), [(4, 1), (6, 2), (8, 4), (9, 5)])
def test_each_host_receives_the_data_once(size: int, hosts: int) -> None:
    value = np.zeros(1_000_000, np.uint8)

    def work(comm: Communicator) -> int:
        go_to_host(comm, hosts)
        payload = comm._group.endpoint.recorder.payload
        before = payload[-2]
        comm.bcast_shared(value if comm.rank == 0 else None)
        return int(payload[-2] - before)

    total = sum(ringcast.run(work, size, backend="threads"))
    assert 0 <= total - (hosts - 1) * len(value) < 1000 * size**2


def test_the_ranks_of_a_host_see_one_array() -> None:
    def work(comm: Communicator) -> list[int]:
        host = go_to_host(comm, 2)
        array = comm.bcast_shared(np.zeros(comm.size, int) if comm.rank == 0 else None, writeable=comm.rank != 3)
        assert array.flags.writeable == (comm.rank != 3)
        if comm.rank != 3:
            array[comm.rank] = 1 + host
        comm.barrier()
        return array.tolist()

    even, odd = [1, 0, 1, 0, 1], [0, 2, 0, 0, 0]
    assert ringcast.run(work, 5, backend="threads") == [even, odd, even, odd, even]


def test_an_array_that_is_read_only_stays_so() -> None:
    def work(comm: Communicator) -> None:
        array = comm.bcast_shared(np.arange(3))
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        assert memoryview(array).readonly
        assert memoryview(array.base).readonly

    for size in 1, 3:
        ringcast.run(work, size, backend="threads")


@pytest.mark.live
def test_processes_see_it() -> None:
    assert ringcast.run(total_of_part, 3) == [[499500, 499500]] * 3


def total_of_part(comm: Communicator) -> list[int]:
    part = comm.split(0, key=-comm.rank)
    return [
        int(part.bcast_shared(np.arange(1000) if comm.rank == 0 else None, 2).sum()),
        int(comm.bcast_shared(np.arange(1000) if comm.rank == 0 else None).sum()),
    ]


@pytest.mark.parametrize("value", [None, [1, 2], "text", np.array([None]), np.ma.masked_array([1, 2])])
def test_what_is_no_plain_array_is_refused_before_anything_is_sent(value: Any) -> None:
    def work(comm: Communicator) -> str:
        argument = ""
        if comm.rank == 0:
            with pytest.raises(ArgumentError) as caught:
                comm.bcast_shared(value)
            argument = caught.value.argument
        comm.bcast_shared(np.arange(3))
        return argument

    assert ringcast.run(work, 2, backend="threads") == ["value", ""]


@pytest.mark.parametrize("root", [-1, 2, "0"])
def test_there_is_no_such_root(root: Any) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(ArgumentError) as caught:
            comm.bcast_shared(np.arange(3), root)
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == ["root"] * 2


def test_other_roots_are_a_mismatch() -> None:
    job = Job("threads", 3)
    errors = job.run(lambda comm: comm.bcast_shared(np.arange(3), comm.rank // 2))
    job.close()
    assert {type(error) for error in errors} <= {CollectiveMismatch, Revoked}
    assert any("bcast_shared" in str(error) for error in errors)


def test_no_room_is_an_error_on_all_ranks_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Communicator) -> tuple[int, int]:
        go_to_host(comm, 2)
        with pytest.raises(SharedMemoryError) as caught:
            comm.bcast_shared(np.zeros(1000))
        comm.barrier()
        return caught.value.peer, caught.value.nbytes

    monkeypatch.setattr("ringcast.procs.host_memory.free_memory", lambda: 7999 if color_of_host() else None)
    assert ringcast.run(work, 4, backend="threads") == [(1, 8000)] * 4


def test_an_array_that_another_call_uses_is_refused() -> None:
    def work(comm: Communicator) -> None:
        value = np.zeros(8)
        request = comm.iallreduce(value, out=value)
        with pytest.raises(UsageError, match="bcast_shared"):
            comm.bcast_shared(value, root=comm.rank)
        request.wait()

    ringcast.run(work, 2, backend="threads")


def among_others(comm: Communicator, seed: int) -> None:
    """Make shared arrays among other calls, some of them under way, on the communicator and on parts of it."""
    random, size = Random(seed), comm.size
    go_to_host(comm, 1 + random.randrange(size))
    for number in range(6):
        root, items = random.randrange(size), random.choice([3, 30_000])
        value = np.full(items, number)
        request = comm.iallreduce(np.ones(random.choice([1, 5000])))
        array = comm.bcast_shared(value if comm.rank == root else None, root)
        assert (array == number).all()
        own = comm.split(random.randrange(2) ^ comm.rank % 2).shared_array(items, int, fill=number)
        assert comm.allgather(int(own[-1])) == [number] * size
        assert (request.wait() == size).all()


def in_any_order(size: int, seed: int) -> None:
    for result in AnyOrder(size, seed).run(lambda comm: among_others(comm, seed)):
        if isinstance(result, BaseException):
            raise result
    gc.collect()  # the ends of the wire keep the memory that they have lent


@pytest.mark.parametrize("size", [2, 5])
@each("seed", range(2))
def test_it_goes_well_with_other_calls_in_any_order(size: int, seed: int) -> None:
    in_any_order(size, seed)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 5, 8])
@each("seed", range(2, 20))
def test_it_goes_well_with_other_calls_in_many_orders(size: int, seed: int) -> None:
    in_any_order(size, seed)


@pytest.mark.parametrize("kind", ["shm", "sockets", "routed"])
def test_it_works_over_other_transports(kind: str) -> None:
    job = Job(kind, 4)
    job.ask(lambda comm: among_others(comm, 1))
    assert not job.left_over()
    job.close()


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in (1, 2))])
@each("share", range(0, 12, 3))
def test_a_rank_that_dies_is_named_and_nobody_hangs(victim: int, first: int, share: int) -> None:
    size = 4

    def work(comm: Communicator) -> int:
        go_to_host(comm, 2)
        return int(comm.bcast_shared(np.arange(50_000) if comm.rank == 1 else None, 1)[-1])

    whole = AnyOrder(size)
    assert whole.run(work) == [49_999] * size
    results = AnyOrder(size, victim=victim, place=1 + whole.ends[victim].places * (first + share) // 12).run(work)
    for rank, result in enumerate(results):
        if rank == victim:
            assert isinstance(result, Died)
        elif isinstance(result, PeerFailed):
            assert result.ranks == (victim,)
        else:
            assert result == 49_999 or isinstance(result, Revoked), result
    del results, result, whole
    gc.collect()  # errors have tracebacks, whose frames have arrays
