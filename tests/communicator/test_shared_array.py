"""A host has one array, which its ranks of the communicator see; an error on one host is an error on all."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, CollectiveMismatch, Communicator, PeerFailed, Revoked, SharedMemoryError
from ringcast.procs import host_memory
from support import needs
from support.any_order import AnyOrder, Died
from support.cases import each
from support.jobs import Job
from support.shared_arrays import HOST, color_of_host, go_to_host, mapped

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

SIZES = 1, 2, 3, 8, 33
NOBODY = 65534
RECORD = np.dtype([("a", "i4"), ("b", "f8", 2)])


@pytest.fixture(autouse=True)
def hosts_of_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.collectives.shared_memory.color_of_host", color_of_host)


@pytest.fixture
def nothing_mapped() -> Iterator[None]:
    """Fail a test that leaves memory of this process mapped."""
    yield
    assert mapped() == []


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize("size", SIZES)
@each("hosts", [1, 2, 5])
def test_the_ranks_of_a_host_see_one_array(size: int, hosts: int) -> None:
    def work(comm: Communicator) -> None:
        host = go_to_host(comm, hosts)
        array = comm.shared_array((comm.size, 2), np.int32)
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
            (comm.size, 2),
            np.int32,
            True,
            True,
        )
        assert not array.any()
        comm.barrier()
        array[comm.rank] = comm.rank + 1, host
        comm.barrier()
        here = np.arange(comm.size) % hosts == host
        assert (array[:, 0] == (np.arange(comm.size) + 1) * here).all()
        assert (array[:, 1] == host * here).all()

    ringcast.run(work, size, backend="threads")


@pytest.mark.live
@pytest.mark.usefixtures("nothing_mapped")
def test_processes_see_one_array() -> None:
    assert ringcast.run(marks, 3) == [[10, 11, 12]] * 3


def marks(comm: Communicator) -> list[int]:
    array = comm.shared_array(3, int, fill=10)
    array[comm.rank] += comm.rank  # no rank fills it any more
    comm.barrier()
    return array.tolist()


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize("size", [1, 3])
@each(
    "dtype, fill",
    [
        (bool, True),
        ("i1", -3),
        (">f8", 0.1),
        (complex, 1j),
        ("U3", "abcd"),
        ("S2", b"x"),
        ("M8[s]", "2026-01-02"),
        (RECORD, np.array((1, 2.5), RECORD)),
        (float, np.nan),
        (float, -0.0),
        (np.float32, 0),
    ],
)
@each("shape", [(), 0, 1, 7, (0, 3), (5, 4), (2, 0, 3), np.int64(2), [3, 2]])
def test_it_is_filled_as_numpy_does(size: int, dtype: Any, fill: Any, shape: Any) -> None:
    expected = np.full(shape, fill, dtype)

    def work(comm: Communicator) -> tuple[Any, ...]:
        array = comm.shared_array(shape, dtype, fill)
        return array.shape, array.dtype, array.tobytes()

    assert ringcast.run(work, size, backend="threads") == [(expected.shape, expected.dtype, expected.tobytes())] * size


def test_items_that_are_arrays_become_dimensions() -> None:
    def work(comm: Communicator) -> Any:
        return comm.shared_array(4, np.dtype(("i2", (3, 2)))).shape

    assert ringcast.run(work, 2, backend="threads") == [(4, 3, 2)] * 2


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize("size", [2, 5, 8])
def test_parts_of_the_ranks_share_arrays_of_their_own(size: int) -> None:
    def work(comm: Communicator) -> list[int]:
        go_to_host(comm, 2)
        part = comm.split(comm.rank // 2 % 2, key=-comm.rank)
        array = part.shared_array(size, int)
        part.barrier()
        array[part.rank] = comm.rank + 1
        part.barrier()
        return array.tolist()

    found = ringcast.run(work, size, backend="threads")
    for rank, seen in enumerate(found):
        part = [other for other in reversed(range(size)) if other // 2 % 2 == rank // 2 % 2]
        expected = [other + 1 if other % 2 == rank % 2 else 0 for other in part]
        assert seen == expected + [0] * (size - len(part))


def test_its_memory_lives_as_long_as_a_view_of_it() -> None:
    def work(comm: Communicator) -> tuple[int, ...]:
        descriptors = len(os.listdir("/proc/self/fd"))
        array = comm.shared_array((1000, 1000), fill=1)
        seen = [len(mapped())]
        view = array[5, ::7]
        del array
        seen.append(len(mapped()))
        assert view.sum() == len(view)
        del view
        return *seen, len(mapped()), len(os.listdir("/proc/self/fd")) - descriptors

    assert ringcast.run(work, 1, backend="threads") == [(1, 1, 0, 0)]


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("dtype", (3, object)),
        ("dtype", (3, [("a", object)])),
        ("dtype", (3, "no dtype")),
        ("dtype", (3, "V0")),
        ("shape", (-1,)),
        ("shape", ((2, -1),)),
        ("shape", (2.0,)),
        ("shape", ("3",)),
        ("shape", (None,)),
        ("shape", ([1] * 99,)),
        ("shape", (1 << 62,)),
        ("fill", (3, int, "x")),
        ("fill", (3, "u1", 256)),
        ("fill", (3, float, [1.0, 2.0])),
    ],
)
def test_arguments_that_no_array_can_have_are_refused_before_anything_is_sent(
    argument: str, arguments: tuple[Any, ...]
) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(ArgumentError) as caught:
            comm.shared_array(*arguments)
        comm.barrier()
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == [argument] * 2


@pytest.mark.parametrize(
    ("mine", "other", "words"),
    [
        ((3,), (4,), ("shape (3,)", "shape (4,)")),
        ((3, int), (3, float), ("dtype int64", "dtype float64")),
        ((3, int, 1), (3, int, 2), ("filled with 1", "filled with 2")),
        ((3, int, 1), (3, int), ("filled with 1", "dtype int64")),
    ],
)
def test_arguments_that_differ_are_a_mismatch(
    mine: tuple[Any, ...], other: tuple[Any, ...], words: tuple[str, str]
) -> None:
    job = Job("threads", 3)

    def work(comm: Communicator) -> None:
        comm.shared_array(*(other if comm.rank == 1 else mine))

    errors = job.run(work)
    job.close()
    assert {type(error) for error in errors} <= {CollectiveMismatch, Revoked}
    assert any(all(word in str(error) for word in ("shared_array", *words)) for error in errors), errors


@pytest.mark.usefixtures("nothing_mapped")
def test_more_than_a_host_has_is_an_error_on_all_ranks_and_nothing_else() -> None:
    def work(comm: Communicator) -> tuple[Any, ...]:
        with pytest.raises(SharedMemoryError) as caught:
            comm.shared_array(1 << 50)
        error = caught.value
        assert isinstance(error, MemoryError)
        assert "rank 0 cannot share 9.01 PB" in str(error)
        assert error.host in str(error)
        assert comm.shared_array(1).tolist() == [0.0]
        return error.rank, error.peer, error.host, error.nbytes

    host = os.uname().nodename
    expected = [(rank, 0, host, 1 << 53) for rank in range(3)]
    assert ringcast.run(work, 3, backend="threads") == expected


FAULTS = {
    "no room": ("", "free_memory", lambda: 100, "only 100 bytes of memory are free"),
    "allocation": ("os", "posix_fallocate", "No space left on device", "No space left on device"),
    "descriptor": ("os", "memfd_create", "Too many open files", "memfd_create: Too many open files"),
    "mapping": ("HostMemory", "mapped", "Cannot allocate memory", "Cannot allocate memory"),
}


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize("fault", FAULTS)
@each("victim", range(4))
def test_an_error_on_one_host_is_an_error_on_all(fault: str, victim: int) -> None:
    place, name, effect, cause = FAULTS[fault]
    module = getattr(host_memory, place) if place else host_memory
    healthy = getattr(module, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        if getattr(HOST, "broken", False):
            if callable(effect):
                return effect()
            raise OSError(errno.ENOMEM, effect)
        return healthy(*arguments, **options)

    def work(comm: Communicator) -> tuple[Any, ...]:
        go_to_host(comm, 2)
        HOST.broken = comm.rank == victim
        try:
            comm.shared_array(1000)
        except SharedMemoryError as error:
            return error.peer, error.cause
        finally:
            HOST.broken = False
        return ()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, broken)
        found = ringcast.run(work, 4, backend="threads")
    makes = victim < 2 or fault == "mapping"  # the first rank of each host makes the memory, and all map it
    assert found == [(victim, cause) if makes else ()] * 4


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize(("number", "words"), [(13, "protected"), (2, "PID namespaces")])
def test_memory_that_cannot_be_opened_is_an_error_that_says_why(
    number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc/") and "/fd/" in str(path):
            raise OSError(number, os.strerror(number))
        return healthy(path, *arguments, **options)

    def work(comm: Communicator) -> str:
        with pytest.raises(SharedMemoryError) as caught:
            comm.shared_array(5)
        assert caught.value.peer == 1
        return caught.value.cause

    healthy = os.open
    with monkeypatch.context() as patched:
        patched.setattr(host_memory.os, "open", refused)
        found = ringcast.run(work, 2, backend="threads")
    assert all(words in cause for cause in found), found


def test_another_file_in_the_place_of_the_memory_is_refused() -> None:
    with open(__file__) as file:
        place = host_memory.Place(os.getpid(), file.fileno(), 0, 0)
        with pytest.raises(OSError, match="PID namespaces"):
            host_memory.open_at(place, 1)


def test_no_other_user_can_open_it() -> None:
    needs.root()
    memory = host_memory.make(5, alone=False)
    path = f"/proc/{os.getpid()}/fd/{memory.place.descriptor}"
    ours = subprocess.run(["cat", path], capture_output=True, check=True)
    theirs = subprocess.run(["cat", path], capture_output=True, text=True, user=NOBODY, group=NOBODY, check=False)
    memory.close()
    assert ours.stdout == bytes(5)
    assert "Permission denied" in theirs.stderr


def test_its_size_cannot_be_changed() -> None:
    memory = host_memory.make(5, alone=False)
    for size in 0, 4, 6:
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{memory.place.descriptor}", size)
    memory.close()


def test_without_memfd_only_ranks_that_are_alone_on_their_host_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Communicator) -> Any:
        go_to_host(comm, comm.size)
        array = comm.shared_array((2, 2), "f4", 1.5)
        assert array.tolist() == [[1.5, 1.5]] * 2
        assert comm.bcast_shared(np.arange(3)).tolist() == [0, 1, 2]
        go_to_host(comm, 1)
        try:
            return comm.shared_array(3).shape
        except SharedMemoryError as error:
            return error.cause

    monkeypatch.delattr(os, "memfd_create")
    assert ringcast.run(work, 1, backend="threads") == [(3,)]
    causes = ringcast.run(work, 3, backend="threads")
    assert all("has no memfd_create; one rank on each host can" in cause for cause in causes)


@pytest.mark.usefixtures("nothing_mapped")
@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.long)])
@each("share", range(0, 8, 2))
def test_a_rank_that_dies_is_named_and_nobody_hangs(victim: int, first: int, share: int) -> None:
    size = 4

    def work(comm: Communicator) -> list[int]:
        return comm.shared_array(3, int, fill=comm.size).tolist()

    whole = AnyOrder(size)
    assert whole.run(work) == [[size] * 3] * size
    results = AnyOrder(size, victim=victim, place=1 + whole.ends[victim].places * (first + share) // 8).run(work)
    for rank, result in enumerate(results):
        if rank == victim:
            assert isinstance(result, Died)
        elif isinstance(result, PeerFailed):
            assert result.ranks == (victim,)
        else:
            assert result == [size] * 3 or isinstance(result, Revoked), result
    del results, result, whole
    gc.collect()  # errors have tracebacks, whose frames have arrays


def test_memory_is_a_mapping() -> None:
    memory = host_memory.make(3, alone=True)
    whole, seen = memory.mapped(), memory.mapped(writeable=False)
    memory.close()
    assert isinstance(whole, mmap.mmap)
    whole[1] = 7
    assert bytes(seen) == b"\0\7\0"
    with pytest.raises(TypeError):
        seen[0] = 1
    whole.close()
    seen.close()  # type: ignore[union-attr]
