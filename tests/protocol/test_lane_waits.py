"""How lanes wait and wake: no wake-up is lost, whatever lane or transport is at the other end; each wait has an end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ringcast.protocol.lane import Move
from ringcast.transports.memory.segment import AT_FUTEX, AT_PIPE, AWAKE, RING
from support import needs
from support.lane_ends import BUILDS, LaneEnds, Make, makes
from support.patience import patience

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

ENOUGH = 20.0  # seconds after which something that should happen at once counts as missing …
LONG = 100.0  # … and of a wait that something should end
TIMES = 25
FULL = 72  # bytes of a message that take 80 in a ring with their header's word


make = pytest.fixture(makes)


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """A thread beside the test's."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def until(there: Callable[[], bool]) -> None:
    """Let other threads run until something is true."""
    deadline = time.monotonic() + patience(ENOUGH)
    while not there():
        assert time.monotonic() < deadline, "it does not come"
        os.sched_yield()


def asleep(ends: LaneEnds, rank: int) -> bool:
    return bool(ends.segment(rank).state[0] == AT_FUTEX)


either = pytest.mark.parametrize("build", BUILDS)


@pytest.mark.parametrize("writer", BUILDS)
@pytest.mark.parametrize("reader", BUILDS)
def test_a_reader_that_waits_is_woken(make: Make, aside: ThreadPoolExecutor, writer: str, reader: str) -> None:
    """Be it asleep, or about to look for the last time."""
    ends = make(writer, reader)
    for number in range(TIMES):
        text = number.to_bytes(2, "little")
        taken = aside.submit(ends.take, 1, 0, 2, patience(LONG))
        if number % 2:
            until(lambda: asleep(ends, 1))
        assert ends.put(0, 1, text)
        assert taken.result(patience(ENOUGH)) == text
        assert ends.segment(1).state[0] == AWAKE


@either
def test_a_reader_that_waits_for_a_lane_is_woken_by_the_engine(
    make: Make, aside: ThreadPoolExecutor, build: str
) -> None:
    ends = make("python", build)
    for number in range(TIMES):
        text = number.to_bytes(2, "little")
        taken = aside.submit(ends.take, 1, 0, 2, patience(LONG))
        if number % 2:
            until(lambda: asleep(ends, 1))
        ends.send(0, 1, text)
        assert taken.result(patience(ENOUGH)) == text


@either
def test_a_reader_that_waits_in_the_engine_is_woken_by_a_lane(
    make: Make, aside: ThreadPoolExecutor, build: str
) -> None:
    ends = make(build, "python")
    transport = ends.transports[1]
    for number in range(TIMES):
        come = aside.submit(lambda: transport.poll(transport.clock() + patience(LONG)))
        if number % 2:
            until(lambda: asleep(ends, 1))
        assert ends.put(0, 1, b"x")
        while (arrival := come.result(patience(ENOUGH))) is None:  # it looks at its deadline each second
            come = aside.submit(lambda: transport.poll(transport.clock() + patience(LONG)))
        assert arrival.header.endswith(b"x")


@either
def test_a_reader_that_waits_at_its_pipe_is_woken(make: Make, build: str) -> None:
    ends = make(build, "python")
    transport = ends.transports[1]
    transport.fileno()
    assert transport.poll(0.0) is None
    assert ends.segment(1).state[0] == AT_PIPE
    assert ends.put(0, 1, b"x")
    assert os.read(transport.fileno(), 9)


@either
def test_a_message_of_another_rank_does_not_end_a_wait(make: Make, aside: ThreadPoolExecutor, build: str) -> None:
    ends = make(build, build, build)
    for _ in range(TIMES):
        taken = aside.submit(ends.take, 1, 0, 1, patience(LONG))
        until(lambda: asleep(ends, 1))
        assert ends.put(2, 1, b"b")
        until(lambda: asleep(ends, 1))
        assert not taken.done()
        assert ends.put(0, 1, b"a")
        assert taken.result(patience(ENOUGH)) == b"a"
        assert ends.take(1, 2, 1) == b"b"


@either
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_wait_takes_as_long_as_it_may(make: Make, build: str, seconds: float) -> None:
    ends = make(build, build)
    before, began = ends.words(), time.monotonic()
    assert ends.take(1, 0, 1, seconds) is None
    assert seconds <= time.monotonic() - began < seconds + patience(ENOUGH)
    assert ends.words() == before
    assert ends.segment(1).state[0] == AWAKE
    assert ends.put(0, 1, b"x")
    assert ends.take(1, 0, 1, seconds) == b"x"


@either
def test_a_notice_leaves_a_message_to_the_transport(make: Make, build: str) -> None:
    """It hands over the messages that have come, and then the notice."""
    ends = make(build, build)
    for _ in range(3):
        assert ends.put(0, 1, b"x")
        ends.transports[1].inject([b"notice"])
        assert ends.take(1, 0, 1, patience(LONG)) is None
        assert ends.transports[1].poll(0.0).header.endswith(b"x")
        assert ends.transports[1].poll(0.0).header == b"notice"


@either
def test_what_the_control_plane_says_ends_a_wait(make: Make, aside: ThreadPoolExecutor, build: str) -> None:
    ends = make(build, build)
    transport = ends.transports[1]
    for number in range(TIMES):
        taken = aside.submit(ends.take, 1, 0, 1, patience(LONG))
        if number % 2:
            until(lambda: asleep(ends, 1))
        transport.inject([b"notice"])
        assert taken.result(patience(ENOUGH)) is None
        assert transport.poll(0.0).header == b"notice"
        assert transport.poll(0.0) is None


@either
def test_a_writer_that_waits_for_room_is_woken(make: Make, aside: ThreadPoolExecutor, build: str) -> None:
    ends = make("python", build)
    transport, words = ends.transports[0], ends.segment(1)

    def write() -> None:
        transport.send(1, [bytes(FULL)])
        assert transport.unsent
        while transport.unsent:
            transport.poll(transport.clock() + patience(LONG))

    for number in range(TIMES):
        ends.start(0, 1, 0)
        assert ends.put(0, 1, b"12345678")
        words.tails[0] = RING  # as if the rest were full
        writing = aside.submit(write)
        until(lambda: bool(words.wanting[0]))
        if number % 2:
            until(lambda: asleep(ends, 0))
        assert ends.take(1, 0, 8) == b"12345678"
        writing.result(patience(ENOUGH))
        assert (words.heads[0], words.tails[0], words.wanting[0]) == (80, RING + 80, 0)


@either
def test_nothing_comes_or_goes_when_it_is_closed(make: Make, build: str) -> None:
    before = mapped()
    ends = make(build, build)
    program = ends.lanes[0].prepare([Move((), 1, 0, ((0, 1),), -1, 0, (), ())], bytearray(8))
    assert ends.put(0, 1, b"x")
    ends.transports[1].close()
    assert ends.take(1, 0, 1, patience(LONG)) is None
    assert not ends.put(0, 1, b"x")
    assert not ends.put(1, 0, b"x")
    ends.transports[0].close()
    assert not ends.put(0, 1, b"x")
    assert ends.lanes[0].run(program, 0, 0, 0, 0.0) == 0
    assert mapped() == before, "an object that is kept keeps no memory"


def mapped() -> int:
    """Return how many segments this process has mapped, in parts."""
    return sum("memfd:ringcast" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_wait_in_a_compiled_lane_ends_when_another_thread_closes_it(make: Make, aside: ThreadPoolExecutor) -> None:
    """As where a program ends, and a thread of it is in a call: the memory is not unmapped under the eyes of that."""
    before = mapped()
    for number in range(TIMES):
        ends = make("compiled", "compiled")
        began = threading.Event()

        def wait(ends: LaneEnds = ends, began: threading.Event = began) -> bytes | None:
            began.set()
            return ends.take(1, 0, 1, patience(LONG))

        taken = aside.submit(wait)
        assert began.wait(patience(ENOUGH))
        if number % 2:
            until(lambda ends=ends: asleep(ends, 1))
        ends.close()
        assert taken.result(patience(ENOUGH)) is None
        assert mapped() == before
