"""Windows of memory that ranks of a host share: its parts, its locks, its errors; and the programs that use them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcast import MPI
from support import needs
from support.cases import each
from support.fleets import QUIET
from support.jobs import Job
from support.patience import patience
from support.shared_arrays import color_of_host, go_to_host, mapped

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left", "nothing_mapped")]

SIZES = 1, 2, 3, 8, 33
EACH = 300  # turns of a rank in a law of locks


@pytest.fixture
def nothing_mapped() -> Iterator[None]:
    """Fail a test that leaves memory of this process mapped."""
    yield
    assert mapped() == []


def ask(size: int, fn: Callable[[MPI.Intracomm], Any], timeout: float | None = None) -> list[Any]:
    """Return what ranks that are threads return."""
    job = Job("threads", size)
    try:
        return job.ask(lambda comm: fn(MPI.Intracomm._of(comm)), timeout)
    finally:
        job.close()
        del job
        gc.collect()  # errors have tracebacks, whose frames have windows


def code(call: Callable[..., Any], *args: Any) -> int:
    with pytest.raises(MPI.Exception) as caught:
        call(*args)
    return caught.value.Get_error_class()


# Memory.


@pytest.mark.parametrize("size", SIZES)
@each("sizes", [lambda rank: 0 if rank else 80, lambda rank: rank, lambda _: 0, lambda rank: 10_000 * (rank % 2)])
def test_every_rank_sees_the_memory_of_all(size: int, sizes: Callable[[int], int]) -> None:
    def work(comm: MPI.Intracomm) -> None:
        win = MPI.Win.Allocate_shared(sizes(comm.rank), 1 + comm.rank, comm=comm)
        assert not np.asarray(win.tomemory()).any()
        win.Fence()
        win.tomemory()[:] = comm.rank + 1
        win.Fence()
        end = None
        for rank in range(comm.size):
            memory, unit = win.Shared_query(rank)
            assert (len(memory), unit) == (sizes(rank), 1 + rank)
            assert (np.asarray(memory) == rank + 1).all()
            assert end in (None, memory.address)  # the parts follow each other
            end = memory.address + len(memory)
        first = next((rank for rank in range(comm.size) if sizes(rank)), 0)
        assert win.Shared_query(MPI.PROC_NULL)[0].address == win.Shared_query(first)[0].address
        win.Free()
        assert win == MPI.WIN_NULL

    ask(size, work)


def test_parts_may_lie_apart() -> None:
    def work(comm: MPI.Intracomm) -> list[int]:
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        win = MPI.Win.Allocate_shared(10, 1, info, comm)
        places = [win.Shared_query(rank)[0].address % 4096 for rank in range(comm.size)]
        win.Free()
        return places

    assert ask(3, work) == [[0] * 3] * 3


def test_memory_outlasts_the_window() -> None:
    def work(comm: MPI.Intracomm) -> int:
        win = MPI.Win.Allocate_shared(8, 8, comm=comm)
        array = np.ndarray(buffer=win.Shared_query(0)[0], dtype="i8", shape=(1,))
        win.Free()
        if comm.rank == 0:
            array[0] = 7
        comm.Barrier()
        return int(array[0])

    assert ask(2, work) == [7, 7]


def test_a_communicator_may_be_freed_before_its_window() -> None:
    def work(comm: MPI.Intracomm) -> None:
        part = comm.Split(comm.rank % 2)
        win = MPI.Win.Allocate_shared(8, comm=part)
        assert win.Get_group().Compare(part.Get_group()) == MPI.IDENT
        assert (win.group_size, win.group_rank) == (part.size, part.rank)
        part.Free()
        win.Fence()
        win.Free()

    ask(5, work)


# Locks.


@pytest.mark.parametrize("size", [2, 3, 8])
def test_only_one_rank_has_an_exclusive_lock(size: int) -> None:
    """Each takes a number, lets others run, and puts the next one back: without exclusion, numbers are lost."""

    def work(comm: MPI.Intracomm) -> list[int]:
        win = MPI.Win.Allocate_shared(8, 8, comm=comm)
        cells = [np.ndarray(buffer=win.Shared_query(rank)[0], dtype="i8", shape=(1,)) for rank in range(2)]
        for turn in range(EACH):
            place = turn % 2
            win.Lock(place)
            number = int(cells[place][0])
            if not turn % 16:
                comm.Iprobe()  # lets others run
            cells[place][0] = number + 1
            win.Unlock(place)
        win.Fence()
        found = [int(cell[0]) for cell in cells]
        win.Free()
        return found

    assert ask(size, work) == [[size * EACH // 2] * 2] * size


def test_shared_locks_are_had_at_a_time() -> None:
    def work(comm: MPI.Intracomm) -> None:
        win = MPI.Win.Allocate_shared(8, comm=comm)
        for lock, unlock in (
            (lambda: win.Lock(1, MPI.LOCK_SHARED), lambda: win.Unlock(1)),
            (win.Lock_all, win.Unlock_all),
            (lambda: win.Lock(comm.rank), lambda: win.Unlock(comm.rank)),  # of different ranks
        ):
            lock()
            comm.Barrier()  # which all ranks reach with the lock
            unlock()
            comm.Barrier()
        win.Free()

    ask(3, work)


@pytest.mark.parametrize("first", ["exclusive", "shared", "all"])
@pytest.mark.parametrize("second", ["exclusive", "shared", "all"])
def test_a_lock_waits_for_the_ones_that_it_excludes(first: str, second: str) -> None:
    if "exclusive" not in (first, second):
        return

    def take(win: MPI.Win, kind: str) -> Callable[[], None]:
        if kind == "all":
            win.Lock_all()
            return win.Unlock_all
        win.Lock(0, MPI.LOCK_EXCLUSIVE if kind == "exclusive" else MPI.LOCK_SHARED)
        return lambda: win.Unlock(0)

    def work(comm: MPI.Intracomm) -> int:
        win = MPI.Win.Allocate_shared(8, 8, comm=comm)
        cell = np.ndarray(buffer=win.Shared_query(0)[0], dtype="i8", shape=(1,))
        if comm.rank == 0:
            unlock = take(win, first)
            comm.Barrier()
            for number in range(100):
                comm.Iprobe()  # lets the other run
                cell[0] = number + 1
            unlock()
        else:
            comm.Barrier()
            unlock = take(win, second)
            assert cell[0] == 100
            unlock()
        win.Free()
        return 0

    ask(2, work)


def test_a_lock_that_is_not_given_back_is_an_error_after_the_timeout() -> None:
    def work(comm: MPI.Intracomm) -> int:
        win = MPI.Win.Allocate_shared(8, comm=comm)
        other = comm.Dup()
        other._caller.timeout = patience(60)
        found = MPI.SUCCESS
        if comm.rank == 0:
            win.Lock(0)
        other.Barrier()
        if comm.rank == 1:
            win._caller.timeout = 0.05
            found = code(win.Lock, 0)
            win._caller.timeout = patience(60)
        other.Barrier()
        if comm.rank == 0:
            win.Unlock(0)
        win.Free()
        return found

    assert ask(2, work) == [MPI.SUCCESS, MPI.ERR_OTHER]


def test_a_rank_that_waits_for_a_lock_hears_of_a_window_that_was_given_up() -> None:
    def work(comm: MPI.Intracomm) -> int:
        win = MPI.Win.Allocate_shared(8, comm=comm)
        if comm.rank == 0:
            win.Lock(0)
        comm.Barrier()
        found = 0
        if comm.rank == 1:
            found = code(win.Lock, 0)
        else:
            win._caller.revoke()
        comm.Barrier()  # until which rank 0 has the lock
        return found

    assert ask(2, work) == [0, MPI.ERR_REVOKED]


# Errors.


def test_wrong_arguments_have_mpis_classes() -> None:
    def work(comm: MPI.Intracomm) -> list[int]:
        win = MPI.Win.Allocate_shared(8, comm=comm)
        codes = [
            code(MPI.Win.Allocate_shared, -1, 1, MPI.INFO_NULL, comm),
            code(MPI.Win.Allocate_shared, 8, 0, MPI.INFO_NULL, comm),
            code(win.Shared_query, comm.size),
            code(win.Lock, comm.size),
            code(win.Lock, -7),
            code(win.Lock, 0, 5),
            code(win.Unlock, 0),
            code(win.Unlock_all),
        ]
        win.Lock(comm.rank)
        codes += [code(win.Lock, comm.rank), code(win.Lock_all), code(win.Free)]
        win.Unlock(comm.rank)
        comm.Barrier()
        win.Lock_all()
        codes += [code(win.Lock, 0), code(win.Unlock, 0), code(win.Lock_all), code(win.Free)]
        win.Unlock_all()
        win.Lock(MPI.PROC_NULL)
        win.Unlock(MPI.PROC_NULL)
        win.Sync()
        win.Flush(0)
        win.Flush_all()
        win.Free()
        return codes

    wanted = [MPI.ERR_SIZE, MPI.ERR_DISP, MPI.ERR_RANK, MPI.ERR_RANK, MPI.ERR_RANK, MPI.ERR_LOCKTYPE]
    wanted += [MPI.ERR_RMA_SYNC] * 9
    assert ask(2, work) == [wanted] * 2


def test_a_null_window_is_a_wrong_one() -> None:
    null = MPI.Win()
    calls = [null.Free, null.tomemory, null.Fence, null.Sync, null.Unlock_all, null.Get_info, null.Get_group]
    assert {code(call) for call in calls} == {MPI.ERR_WIN}
    assert code(lambda: null.flavor) == MPI.ERR_WIN
    with pytest.raises(MPI.Exception):
        MPI.Win.Allocate_shared(8, comm=MPI.Intracomm())
    with pytest.raises(TypeError):
        MPI.Win.Allocate_shared(8, comm=MPI.Intercomm())


def test_ranks_on_several_hosts_share_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: MPI.Intracomm) -> int:
        go_to_host(comm._caller, 2)
        found = code(MPI.Win.Allocate_shared, 8, 1, MPI.INFO_NULL, comm)
        near = comm.Split_type(MPI.COMM_TYPE_SHARED)
        win = MPI.Win.Allocate_shared(8, comm=near)
        win.Free()
        return found

    monkeypatch.setattr("ringcast.collectives.split.color_of_host", color_of_host)
    assert ask(4, work) == [MPI.ERR_RMA_SHARED] * 4


def test_too_much_memory_is_an_error_on_all_ranks() -> None:
    def work(comm: MPI.Intracomm) -> int:
        found = code(MPI.Win.Allocate_shared, 1 << 50 if comm.rank == 1 else 0, 1, MPI.INFO_NULL, comm)
        comm.Barrier()
        return found

    assert ask(3, work) == [MPI.ERR_NO_MEM] * 3


def test_one_sided_communication_is_refused() -> None:
    def work(comm: MPI.Intracomm) -> None:
        win = MPI.Win.Allocate_shared(8, comm=comm)
        for call in (
            lambda: win.Put(b"1", 0),
            lambda: win.Get(bytearray(1), 0),
            lambda: win.Accumulate(b"1", 0),
            lambda: win.Start(MPI.GROUP_EMPTY),
            win.Post,
            lambda: MPI.Win.Create(None),
        ):
            with pytest.raises(NotImplementedError, match="ringcast has no MPI windows of one-sided"):
                call()
        win.Free()

    ask(2, work)


# Programs.


PATTERN = """
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
n, itemsize = 1000, MPI.DOUBLE.Get_size()
win = MPI.Win.Allocate_shared(n * itemsize if node.rank == 0 else 0, itemsize, comm=node)
buf, itemsize = win.Shared_query(0)
a = np.ndarray(buffer=buf, dtype="d", shape=(n,))
if node.rank == 0:
    a[:] = np.arange(n)
node.Barrier()
assert a.sum() == n * (n - 1) / 2 and itemsize == 8
node.Barrier()
for _ in range(300):
    win.Lock(0)
    a[0] += 1
    win.Unlock(0)
win.Fence()
print(int(a[0]))
win.Free()
"""

DIES = """
import os
from ringcast import MPI

comm = MPI.COMM_WORLD
win = MPI.Win.Allocate_shared(8, comm=comm)
if comm.rank == 1:
    win.Lock(0)
comm.Barrier()
if comm.rank == 1:
    for other in 0, 2:
        comm.recv(source=other)
    os.kill(os.getpid(), 9)
try:
    comm.send("in no call of all", 1)
    win.Lock(0)
    win.Unlock(0)
except MPI.Exception as error:
    assert error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
alive = comm.Shrink()
fresh = MPI.Win.Allocate_shared(8, comm=alive)
for _ in range(100):
    fresh.Lock(0)
    fresh.Unlock(0)
fresh.Free()
print("right")
"""


def launch(folder: Path, program: str, *options: str) -> list[str]:
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "ringcast_launcher", "--output", "none", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.live
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_usual_pattern_of_programs_for_mpi4py_runs(size: int, tmp_path: Path) -> None:
    printed = launch(tmp_path, PATTERN, "-n", str(size), "--as-mpi4py")
    assert printed == [str(300 * size)] * size


@pytest.mark.live
def test_a_lock_ends_with_the_rank_that_has_it(tmp_path: Path) -> None:
    assert launch(tmp_path, DIES, "-n", "3", "--on-failure", "continue") == ["right"] * 2
