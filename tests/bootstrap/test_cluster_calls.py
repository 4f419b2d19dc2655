"""Calls of a cluster as they travel: names and lines of sources, arrays that all ranks map, and what stays private."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.bootstrap.cluster.call import SHARED, Call, packed, unpacked
from ringcast.errors import RunFailed

pytestmark = pytest.mark.usefixtures("nothing_left")

CELL = "def divide(comm, by):\n    return 1 // by\n"


@pytest.fixture
def divide() -> Iterator[Any]:
    """A function whose source lies in no file, as of a cell or an interpreter's prompt."""
    name = "<cell 7>"
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), space)
    linecache.cache[name] = len(CELL), None, CELL.splitlines(keepends=True), name
    yield space["divide"]
    linecache.cache.pop(name, None)


def there_and_back(call: Call) -> tuple[Any, Any]:
    with call.memory() as memory:
        return unpacked(call.body, memory if memory is None else os.dup(memory))


def test_a_traceback_has_file_line_and_source_of_a_function_that_lies_in_no_file(divide: Any) -> None:
    call = packed(divide, (0,))
    linecache.cache.clear()
    fn, args = there_and_back(call)
    with pytest.raises(ZeroDivisionError) as caught:
        fn(None, *args)
    told = "".join(traceback.format_exception(caught.value))
    assert 'File "<cell 7>", line 2, in divide\n    return 1 // by' in told


def test_the_error_of_a_run_has_the_source_line(divide: Any) -> None:
    with ringcast.cluster(2) as ranks, pytest.raises(RunFailed) as caught:
        ranks.run(divide, 0)
    assert 'File "<cell 7>", line 2, in divide\n    return 1 // by' in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, SHARED - 1, SHARED, SHARED + 1, 3 * SHARED + 5])
def test_arrays_arrive_writable_and_large_ones_are_not_in_the_message(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    fortran = np.asfortranarray(np.arange(2 * size).reshape(2, size))
    strided = np.arange(4 * size)[::2]
    call = packed(len, (array, [fortran, strided], bytearray(array)))
    for _ in range(2):  # ranks
        _, (one, (two, three), four) = there_and_back(call)
        assert np.array_equal(one, array)
        assert np.array_equal(two, fortran)
        assert np.array_equal(three, strided)
        assert four == bytearray(array)
        one[:] = 7
        two[:] = 7
    assert bool(call.buffers) == (16 * size >= SHARED)
    assert len(call.body) < 2000 + 8 * 2 * size + 3 * min(size, SHARED)


def test_ranks_map_a_large_argument_and_what_one_changes_is_its_own() -> None:
    def work(comm: ringcast.Communicator, array: Any) -> tuple[int, bool]:
        with open("/proc/self/maps") as maps:
            mapped = any("ringcast-call" in line for line in maps)
        array += comm.rank
        comm.barrier()
        return int(array[0]), mapped

    files = len(os.listdir("/proc/self/fd"))
    with ringcast.cluster(3) as ranks:
        open_files = len(os.listdir("/proc/self/fd"))
        large = np.full(1 << 20, 5)
        for _ in range(2):
            assert ranks.run(work, large) == [(5 + rank, True) for rank in range(3)]
        assert len(os.listdir("/proc/self/fd")) == open_files
    assert large[0] == 5
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_call_that_is_refused_leaves_no_memory_open() -> None:
    ranks = ringcast.cluster(1)
    ranks.close()
    files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ringcast.UsageError):
        ranks.run(lambda comm, _: None, np.zeros(SHARED))
    assert len(os.listdir("/proc/self/fd")) == files
