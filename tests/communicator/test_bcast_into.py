"""A broadcast into memory: every rank has the root's bytes in place, whatever exports the memory, and nothing else."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, CollectiveMismatch, Communicator, PeerFailed, Revoked, UsageError
from support.any_order import AnyOrder, Died
from support.cases import each
from support.jobs import Job

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZES = 1, 2, 3, 5
LENGTHS = 0, 1, 100, 1_000_003


def exporters(folder: Path, rank: int, length: int) -> list[Any]:
    """Return memory of so many bytes, of every kind; none can be mapped where there is none."""
    items = [np.empty((length, 1), "S1"), np.empty(length, [("Only", "u1")])]
    plain = [bytearray(length), memoryview(bytearray(length + 2))[1:-1], *items]
    if not length:
        return [*plain, np.empty((3, 0))]
    file = folder / f"mapped-{rank}"
    return [*plain, mmap.mmap(-1, length), np.memmap(file, np.uint8, "w+", shape=(length,))]


@pytest.mark.parametrize("size", SIZES)
@each("length", LENGTHS)
def test_every_kind_of_memory_gets_the_bytes_of_the_root(tmp_path: Path, size: int, length: int) -> None:
    data, root = random.Random(length).randbytes(length), size - 1

    def work(comm: Communicator) -> list[bytes]:
        found = []
        for kind in range(5):
            memory = exporters(tmp_path, comm.rank, length)
            mine = data if comm.rank == root else memory[(kind + comm.rank) % len(memory)]
            assert comm.bcast_into(mine, root) is None
            found.append(bytes(mine))
            if isinstance(mine, mmap.mmap):
                mine.close()  # which nothing holds any more
        return found

    assert ringcast.run(work, size, backend="threads") == [[data] * 5] * size


def test_a_mapped_file_is_filled(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(100_000)

    def work(comm: Communicator) -> None:
        path = tmp_path / str(comm.rank)
        path.write_bytes(data if comm.rank == 1 else bytes(len(data)))
        with path.open("r+b") as file:
            access = mmap.ACCESS_READ if comm.rank == 1 else mmap.ACCESS_WRITE
            with mmap.mmap(file.fileno(), 0, access=access) as mapped:
                comm.bcast_into(mapped, 1)

    ringcast.run(work, 3, backend="threads")
    assert [(tmp_path / str(rank)).read_bytes() for rank in range(3)] == [data] * 3


WRONG: dict[str, Callable[[], Any]] = {
    "read-only": lambda: bytes(8),
    "not contiguous": lambda: np.zeros((4, 4), np.uint8)[:, :2],
    "Fortran order": lambda: np.zeros((2, 2), np.uint16, order="F"),
    "objects": lambda: np.array([None]),
    "objects in fields": lambda: np.zeros(1, [("name", object)]),
    "no memory": lambda: [1, 2, 3, 4, 5, 6, 7, 8],
    "None": lambda: None,
}


@pytest.mark.parametrize("wrong", list(WRONG))
def test_memory_that_cannot_be_filled_is_refused_before_anything_is_sent(wrong: str) -> None:
    def work(comm: Communicator) -> str:
        right = bytearray(8)
        with pytest.raises(ArgumentError) as caught:
            comm.bcast_into(WRONG[wrong](), 1 - comm.rank)
        comm.bcast_into(right if comm.rank else b"12345678")
        assert comm.rank == 0 or right == b"12345678"
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == ["buffer"] * 2


@pytest.mark.parametrize("root", [-1, 2, "0"])
def test_there_is_no_such_root(root: Any) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(ArgumentError) as caught:
            comm.bcast_into(bytearray(8), root)
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == ["root"] * 2


@pytest.mark.parametrize(("mine", "other"), [(8, 9), (0, 1), (1, 0), (1_000_000, 999_999), (10, 1_000_000)])
def test_other_numbers_of_bytes_are_a_mismatch_on_all_ranks(mine: int, other: int) -> None:
    job = Job("threads", 3)

    def work(comm: Communicator) -> None:
        comm.bcast_into(bytearray(other if comm.rank == 2 else mine))
        comm.barrier()  # for a rank that is done before another one looks

    errors = job.run(work)
    job.close()
    assert {type(error) for error in errors} <= {CollectiveMismatch, Revoked}
    shapes = f"shape ({mine},)", f"shape ({other},)"
    assert any(all(shape in str(error) for shape in ("bcast_into", *shapes)) for error in errors), errors


def test_memory_that_another_call_uses_is_refused() -> None:
    def work(comm: Communicator) -> None:
        memory = np.zeros(8, np.uint8)
        request = comm.iallreduce(memory, out=memory)
        with pytest.raises(UsageError, match="bcast_into"):
            comm.bcast_into(memory.data)
        request.wait()

    ringcast.run(work, 2, backend="threads")


def deaths(size: int, victim: int, share: int, of: int) -> None:
    """Kill a rank at one of `of` places: the others have the bytes, or an error."""
    data, root = random.Random(3).randbytes(500_000), 1

    def work(comm: Communicator) -> bytes:
        memory = data if comm.rank == root else bytearray(len(data))
        comm.bcast_into(memory, root)
        return bytes(memory)

    whole = AnyOrder(size)
    assert whole.run(work) == [data] * size
    results = AnyOrder(size, victim=victim, place=1 + whole.ends[victim].places * share // of).run(work)
    for rank, result in enumerate(results):
        if rank == victim:
            assert isinstance(result, Died)
        elif isinstance(result, PeerFailed):
            assert result.ranks == (victim,)
        else:
            assert result == data or isinstance(result, Revoked), result


@pytest.mark.parametrize("victim", [0, 1, 3])
@each("share", range(8))
def test_a_rank_that_dies_is_named_and_nobody_hangs(victim: int, share: int) -> None:
    deaths(4, victim, share, 8)


@pytest.mark.live
def test_no_rank_needs_more_memory_than_the_mapping() -> None:
    grown = ringcast.run(growth, 3)
    assert max(grown) < 16 << 10


def growth(comm: Communicator) -> int:
    """Return by how many kB the memory of this process grows that is not mapped."""
    with mmap.mmap(-1, 256 << 20, flags=mmap.MAP_SHARED) as mapped:
        comm.bcast_into(bytearray(100_000))  # so that all connections have their buffers
        before = anonymous()
        comm.bcast_into(mapped)
        return anonymous() - before


def anonymous() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")))
