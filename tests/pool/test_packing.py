"""Functions, arguments and outcomes as bytes, and what the master keeps of them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.pool.packing import LARGE, Packer, function_content, load, load_function, pack_outcome, refusal, unpack
from ringcast.pool.shelf import Shelf


class Odd(Exception):
    """Its constructor takes other arguments than it keeps."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def test_a_function_has_the_name_of_its_closure() -> None:
    array = np.arange(1000)

    def make(number: int):
        return lambda: number + array[3]

    one, other = make(1), make(2)
    assert function_content(one).digest == function_content(one).digest != function_content(other).digest
    before = function_content(one).digest
    array[3] = 7
    assert function_content(one).digest != before
    assert load_function(function_content(other).data)() == 9


def test_large_arrays_of_a_function_are_read_only_and_use_the_content() -> None:
    array = np.zeros(LARGE)
    loaded = load_function(function_content(lambda: array).data)()
    assert not loaded.flags.writeable
    assert not loaded.flags.owndata


def test_a_large_array_is_content_from_its_second_time() -> None:
    packer, array = Packer(), np.arange(LARGE, dtype=np.uint8)
    first, second = packer.pack(([array, 5], {})), packer.pack(([array, 6], {}))
    assert (len(first.frames), first.content) == (2, ())
    assert (len(second.frames), len(second.content)) == (1, 1)
    kept = {each.digest: each.data for each in second.content}
    for packed, number in (first, 5), (second, 6):
        (got, also), _ = unpack(packed.frames, packed.digests, kept.__getitem__)
        assert also == number
        assert np.array_equal(got, array)
        assert not got.flags.writeable


def test_a_task_has_its_arguments_as_they_were_when_it_was_made() -> None:
    array = np.zeros(LARGE)
    packed = Packer().pack(array)
    array[:] = 1
    assert not unpack(packed.frames, packed.digests, dict.__getitem__).any()


def test_results_and_exceptions_come_back() -> None:
    frames = pack_outcome([1, np.arange(100_000)], ValueError("bad"))
    (one, array), error = load(frames[0], frames[1:])
    assert (one, array[-1], repr(error)) == (1, 99_999, "ValueError('bad')")


class Hidden(ValueError):
    """It is made anew as another class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueError, self.args


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError(1), ""),
        (
            Odd(1, 2),
            "when made anew of its `args`: TypeError: Odd.__init__() missing 1 required positional argument: 'b'",
        ),
        (ValueError(threading.Lock()), "when pickled: TypeError: cannot pickle '_thread.lock' object"),
        (Hidden(), "when made anew of its `args` it is of ValueError"),
    ],
)
def test_exceptions_that_do_not_travel_are_known(error: Exception, reason: str) -> None:
    assert refusal(error) == reason


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=60))
def test_the_shelf_never_lacks_what_a_task_needs_and_keeps_little_else(tasks: list[list[int]]) -> None:
    shelf, kept, running = Shelf(most=2, most_bytes=250), dict[bytes, int](), list[list[bytes]]()
    for needs in tasks:
        digests = [b"%d" % number for number in dict.fromkeys(needs)]
        for digest in digests:
            assert shelf.use(digest, 100) == (digest not in kept)
            kept[digest] = 100
        running.append(digests)
        if len(running) > 2:
            for gone in shelf.release(running.pop(0)):
                del kept[gone]
        used = {digest for each in running for digest in each}
        assert used <= {*kept}
        assert len({*kept} - used) <= 2
