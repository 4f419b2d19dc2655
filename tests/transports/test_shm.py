"""Shared memory between ranks: what it promises beyond the laws of all transports (`test_transports`)."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringcast.errors import LinkLost
from ringcast.net.fd_limits import allow_files
from ringcast.procs import libc
from ringcast.transports.base import HURRIED, Arrival, Transport
from ringcast.transports.memory import transport as shm
from ringcast.transports.memory.segment import AT_FUTEX, AT_PIPE, AWAKE, RING, SegmentCard, parse
from ringcast.transports.memory.transport import ShmTransport
from support import needs
from support.jobs import shared
from support.patience import patience
from support.places import SUPPORT

pytestmark = [
    needs.shared_memory,
    pytest.mark.usefixtures("nothing_left"),
]

ENOUGH = 20.0  # seconds after which something that should happen at once counts as missing
HEADER = b"header"
MATE = [sys.executable, str(SUPPORT / "programs" / "shm_mate.py")]


@pytest.fixture
def pair() -> Iterator[tuple[ShmTransport, ShmTransport]]:
    a, b = shared(2)
    yield a, b
    a.close()
    b.close()


def next_of(transport: Transport, seconds: float = ENOUGH) -> Arrival:
    deadline = transport.clock() + seconds
    while (arrival := transport.poll(deadline)) is None:
        assert transport.clock() < deadline, f"nothing arrived within {seconds:g} s"
    return arrival


def mapped() -> int:
    """Return how many segments this process has mapped, in parts."""
    return sum("memfd:ringcast" in line for line in Path("/proc/self/maps").read_text().splitlines())


class Mate:
    """A process with rank 1 of two, which does what the name in its command line says."""

    def __init__(self, does: str, *arguments: str) -> None:
        self.transport = ShmTransport(0, 2)
        self._process = subprocess.Popen(
            [*MATE, str(self.transport.card), does, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        card = parse(self._process.stdout.readline())
        assert card is not None
        self.card, self.pid = card, self._process.pid
        self.signal, self._out = self._process.send_signal, self._process.stdout

    def meet(self) -> ShmTransport:
        assert not self.transport.meet({1: self.card})
        return self.transport

    def line(self) -> str:
        return self._out.readline().strip()

    def go_on(self) -> None:
        """Let it go on to the next thing that it does."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(patience(ENOUGH))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self.transport.close(HURRIED)


@pytest.fixture
def mate() -> Iterator[Callable[..., Mate]]:
    with contextlib.ExitStack() as stack:
        yield lambda *words: stack.enter_context(contextlib.closing(Mate(*words)))


# What is given back.


def test_close_gives_back_descriptors_and_memory_also_if_the_object_is_kept() -> None:
    before = mapped(), len(os.listdir("/proc/self/fd")), threading.active_count()
    made = shared(3)
    for rank, transport in enumerate(made):
        transport.fileno()
        for peer in {0, 1, 2} - {rank}:
            transport.send(peer, [HEADER, bytes(100_000)])
            transport.lend(peer, [HEADER], [memoryview(bytes(100_000))])
    for transport in made:
        for _ in range(4):
            next_of(transport)
    for transport in made:
        transport.close()
    assert (mapped(), len(os.listdir("/proc/self/fd")), threading.active_count()) == before
    for transport in made:
        transport.close()
        transport.inject([HEADER])


@pytest.mark.parametrize("size", [16, 33])
def test_many_ranks_in_one_process(size: int) -> None:
    allow_files(3 * size * size)
    before = mapped()
    made = shared(size)
    for rank, transport in enumerate(made):
        for peer in range(size):
            if peer != rank:
                transport.send(peer, [HEADER, bytes([rank])])
    for rank, transport in enumerate(made):
        got = {bytes(next_of(transport).read())[0] for _ in range(size - 1)}
        assert got == set(range(size)) - {rank}
    for transport in made:
        transport.close()
    assert mapped() == before


@pytest.mark.parametrize("left", range(12))
def test_without_descriptors_there_is_an_error_and_nothing_stays(left: int) -> None:
    """`left` of them are free: too few for a segment, for its pipe, or for what is opened of another rank."""
    other = ShmTransport(1, 2)
    before = set(os.listdir("/proc/self/fd"))
    kept, limits = mapped(), resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 200), limits[1]))
    failed, made = 0, None
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(left):
            os.close(taken.pop())
        try:
            made = ShmTransport(0, 2)
            errors = made.meet({1: other.card})
            failed = errors[1].errno if errors else 0
        except OSError as error:
            failed = error.errno
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    if made is not None:
        made.close()
    # 4 for the own segment, its mapping and its pipe; then 4 at a time for the other's.
    assert failed == (errno.EMFILE if left < 8 else 0)
    assert set(os.listdir("/proc/self/fd")) == before
    assert mapped() == kept
    other.close()


def test_close_that_is_interrupted_gives_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = mapped(), len(os.listdir("/proc/self/fd"))
    a, b = shared(2)
    for _ in range(3 * RING >> 20):
        a.send(1, [bytes(1 << 20)])

    def interrupted(self: ShmTransport, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(ShmTransport, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        a.close()
    a.close()
    b.close()
    del a, b
    gc.collect()
    assert (mapped(), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.parametrize("with_pipe", [False, True])
def test_close_waits_for_a_reader_that_reads_nothing_within_its_bounds(
    with_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps meanwhile, and what the reader has made room for is written."""
    a, b = shared(2)
    if with_pipe:
        a.fileno()
    monkeypatch.setattr(shm, "LINGER", 0.5)
    for _ in range(2 * RING >> 20):
        a.send(1, [bytes(1 << 20)])
    began, used = time.monotonic(), time.process_time()
    a.close()
    assert 0.4 < time.monotonic() - began < patience(5)
    assert time.process_time() - used < 0.3
    b.close()


# Peers that come to an end.


def test_a_closed_peer_is_lost_at_once(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    b.close()
    with pytest.raises(LinkLost, match="has left") as lost:
        a.send(1, [HEADER])
    assert lost.value.peer == 1


def test_a_killed_peer_is_lost_within_a_second_of_sending(mate: Callable[..., Mate]) -> None:
    other = mate("sleep")
    a = other.meet()
    a.send(1, [HEADER])
    other.signal(signal.SIGKILL)
    other.end()
    began = a.clock()
    with pytest.raises(LinkLost, match="has ended"):  # noqa: PT012 (one of these)
        while a.clock() < began + patience(ENOUGH):
            a.send(1, [HEADER])
            a.poll(a.clock() + 0.01)
    assert a.clock() < began + patience(1)


def test_a_peer_killed_with_a_full_ring_keeps_nobody_from_leaving(mate: Callable[..., Mate]) -> None:
    other = mate("sleep")
    a = other.meet()
    for _ in range(3 * RING >> 20):
        a.send(1, [bytes(1 << 20)])
    other.signal(signal.SIGKILL)
    other.end()
    began = time.monotonic()
    a.close()
    assert time.monotonic() < began + patience(1)


@pytest.mark.parametrize("end", ["leave", "die"])
def test_a_rank_that_has_gone_before_it_is_mapped_has_still_sent_what_it_sent(
    end: str, mate: Callable[..., Mate]
) -> None:
    """Its messages are read; what it lent cannot be, and what is sent to it is lost."""
    other = mate("send and lend", end)
    other.end()
    a = other.transport
    assert isinstance(a.meet({1: other.card})[1], FileNotFoundError)
    assert a.lenders == frozenset()
    arrival = next_of(a)
    assert (arrival.header, arrival.read()) == (b"sent", b"by the mate")
    arrival = next_of(a)
    assert (arrival.header, arrival.loan) == (b"lent", None)
    with pytest.raises(LinkLost, match="could not be mapped"):
        a.send(1, [HEADER])


def test_what_a_killed_rank_has_lent_cannot_be_read(mate: Callable[..., Mate]) -> None:
    other = mate("send and lend", "wait")
    a = other.meet()
    loans = [loan for loan in (next_of(a).loan, next_of(a).loan) if loan is not None]
    room = memoryview(bytearray(1000))
    assert loans[0].read_into(room[:500]) == 500
    assert bytes(room[:500]) == b"m" * 500
    other.signal(signal.SIGKILL)
    other.end()
    with pytest.raises(LinkLost, match="its process has ended"):
        loans[0].read_into(room[500:])


def test_memory_of_another_process_with_the_same_number_is_no_loan(mate: Callable[..., Mate]) -> None:
    """Where a number is used again, the read succeeds: that the process has ended is looked at after it."""
    other = mate("send and lend", "wait")
    a = other.meet()
    next_of(a)
    loan = next_of(a).loan
    assert loan is not None
    other.signal(signal.SIGKILL)
    other.end()
    mine = bytearray(b"not lent")
    loan._memory = libc.ForeignMemory(os.getpid())  # as if this process had got the number
    loan._pieces = [(libc.address_of(memoryview(mine)), len(mine))]
    with pytest.raises(LinkLost):
        loan.read_into(memoryview(bytearray(4)))


# Segments that are refused.


def test_only_the_segment_of_the_card_is_mapped() -> None:
    other, a = ShmTransport(1, 2), ShmTransport(0, 2)
    card, larger = other.card, ShmTransport(1, 3)
    before = mapped()
    wrong: dict[SegmentCard, type[OSError]] = {
        replace(card, token=card.token ^ 1): FileNotFoundError,
        larger.card: FileNotFoundError,
        replace(card, memory=card.pipe): FileNotFoundError,
        replace(card, memory=987_654): FileNotFoundError,
        replace(card, pipe=987_654): FileNotFoundError,
        replace(card, pid=(1 << 22) + 5): FileNotFoundError,
        replace(card, who=card.who._replace(uid=card.who.uid + 1)): PermissionError,
    }
    for bad, kind in wrong.items():
        assert isinstance(a.meet({1: bad})[1], kind), bad
        assert mapped() == before, bad
        assert 1 not in a.lenders
    for transport in (a, other, larger):
        transport.close()


@pytest.mark.parametrize(
    "text", ["", "1", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:-6", "a:2:3:4:5:6", "1:2:3:4:5:6.0"]
)
def test_what_is_no_card(text: str) -> None:
    assert parse(text) is None


def test_another_user_maps_nothing() -> None:
    """The kernel refuses it, also with a card that says that it is the same one."""
    needs.root()
    other = ShmTransport(1, 2)
    card = other.card
    done = subprocess.run(
        [*MATE, str(card), "map as another user"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert done.stdout.startswith("PermissionError: "), done.stderr
    other.close()


def test_a_descriptor_that_is_something_else_by_now_means_that_the_rank_has_left(tmp_path: Path) -> None:
    """Its process lives on, and has given the number to another file; opening that for writing fails in many ways."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    a, other = ShmTransport(0, 2), ShmTransport(1, 2)
    with contextlib.ExitStack() as stack:
        left, right = socket.socketpair()
        others = [
            stack.enter_context(left).fileno(),
            stack.enter_context(right).fileno(),
            stack.enter_context(select.epoll()).fileno(),
            os.open(tmp_path, os.O_RDONLY),
            os.open(file, os.O_RDONLY),
            os.open(os.path.realpath(sys.executable), os.O_RDONLY),
            os.open("/proc/self/stat", os.O_RDONLY),
            os.open("/dev/null", os.O_RDWR),
            os.memfd_create("other"),
        ]
        for descriptor in others[3:]:
            stack.callback(os.close, descriptor)
        for descriptor in others:
            assert isinstance(a.meet({1: replace(other.card, memory=descriptor)})[1], FileNotFoundError), descriptor
    a.close()
    other.close()


@pytest.mark.parametrize("end", ["zombie", "thread"])
def test_a_process_that_has_ended_has_left(end: str) -> None:
    """Nobody has waited for it yet; or its number is that of another process's thread."""
    a, other = ShmTransport(0, 2), ShmTransport(1, 2)
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    over, numbers = threading.Event(), [child.pid]

    def tell() -> None:
        numbers.append(threading.get_native_id())
        begun.set()
        over.wait(patience(ENOUGH))

    thread, begun = threading.Thread(target=tell), threading.Event()
    thread.start()
    assert begun.wait(patience(ENOUGH))
    assert isinstance(a.meet({1: replace(other.card, pid=numbers[end == "thread"])})[1], FileNotFoundError)
    over.set()
    thread.join()
    child.communicate()
    a.close()
    other.close()


def test_a_process_of_an_ordinary_user_that_has_ended_has_left() -> None:
    """Its files are root's in /proc until it has been waited for: it is not taken for one that is protected."""
    needs.root()
    a = ShmTransport(0, 2)
    done = subprocess.run(
        [*MATE, str(a.card), "map what has ended"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    a.close()
    assert done.stdout == "FileNotFoundError: its segment has been closed\n", done.stderr


def test_a_protected_process_is_named_and_no_other_is_taken_for_it() -> None:
    """One of the same user, which the kernel protects from it; and then, as if it had ended, others with its number."""
    needs.root()
    a = ShmTransport(0, 2)
    done = subprocess.run(
        [*MATE, str(a.card), "map what is protected"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    a.close()
    protected, *others = done.stdout.splitlines()
    assert re.fullmatch(r"PermissionError: process \d+ does not let others .*: it is protected.*", protected)
    assert others == ["FileNotFoundError: its segment has been closed"] * 2


# Garbage.


def test_garbage_in_a_ring_is_dropped_and_others_are_heard() -> None:
    a, b, c = shared(3)
    rng = random.Random(1)
    link = a._links[2]  # as a rank that has gone mad writes there
    tail, words = 0, link.ring._words
    for turn in range(300):
        for at in range(tail % RING >> 3, min((tail % RING >> 3) + 40, RING >> 3)):
            words[at] = rng.choice(
                (rng.getrandbits(64), rng.randrange(200), rng.randrange(1, 9) << 40 | rng.randrange(300))
            )
        tail = rng.choice((tail + 8 * rng.randrange(1, 30), tail + 8 * rng.randrange(1, 30), rng.getrandbits(64) & -8))
        link._segment.tails[0] = tail
        b.send(2, [HEADER, bytes([turn % 256])])
        for _ in range(200):
            arrival = c.poll(c.clock())
            if arrival is not None and arrival.header == HEADER and arrival.more:
                assert arrival.read() == bytes([turn % 256])
                break
        else:
            pytest.fail("a message of another rank is not found")
    for transport in (a, b, c):
        transport.close(HURRIED)


def test_garbage_in_a_ring_hides_nothing_that_comes_behind_it() -> None:
    a, b, c = shared(3)
    link = a._links[2]
    link.ring._words[0] = 1 << 63
    link._segment.tails[0] = 8
    b.send(2, [HEADER, b"message"])
    c.inject([HEADER, b"notice"])
    for expected in b"message", b"notice":
        arrival = c.poll(c.clock())
        assert arrival is not None
        assert arrival.read() == expected
    for transport in (a, b, c):
        transport.close(HURRIED)


def test_a_tail_that_is_taken_back_ends_the_look(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    a.send(1, [HEADER])
    b._own.tails[0] = 0
    b._news = lambda: True  # type: ignore[method-assign]  # there was something when it looked
    assert b.poll(b.clock()) is None


# Wake-ups. A wait that misses one lasts a second (SLICE), or until its deadline: here a minute.


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up that is missed is not made good by the next look."""
    monkeypatch.setattr(shm, "SLICE", 1000.0)


class Between:
    """Has `does` done once, at the last moment before a rank waits at its futex."""

    def __init__(self, transport: ShmTransport, does: Callable[[], object]) -> None:
        self._futex, self._does, self.address = transport._futex, does, 0
        transport._futex = self  # type: ignore[assignment]
        self.wake = self._futex.wake

    def wait(self, value: int, seconds: float) -> None:
        does, self._does = self._does, lambda: None
        does()
        self._futex.wait(value, min(seconds, 5.0))


@pytest.mark.parametrize("sender", [0, 1])
def test_a_message_between_the_last_look_and_the_wait_ends_that(sender: int) -> None:
    """Also the very first one: no number with which a rank rings is the one that the bell has then."""
    made = shared(2)
    reader = made[1 - sender]
    Between(reader, lambda: made[sender].send(1 - sender, [HEADER]))
    began = reader.clock()
    assert reader.poll(began + 60) is not None
    assert reader.clock() < began + 2
    for transport in made:
        transport.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_injected_between_the_last_look_and_the_wait_ends_that(rank: int) -> None:
    made = shared(2)
    Between(made[rank], lambda: made[rank].inject([HEADER]))
    began = made[rank].clock()
    assert made[rank].poll(began + 60) is not None
    assert made[rank].clock() < began + 2
    for transport in made:
        transport.close()


@pytest.mark.parametrize("seconds", [1e-6, 10.0])
def test_a_rank_looks_no_more_when_others_have_run_for_long(
    pair: tuple[ShmTransport, ShmTransport], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    a, _ = pair
    now, waits = [0.0], list[float]()

    def others_run() -> None:
        now[0] += 2 * min(seconds, shm.SHORT)

    monkeypatch.setattr(a, "_looks", 100)
    monkeypatch.setattr(a, "_yield", others_run)
    monkeypatch.setattr(a, "clock", lambda: now[0])
    monkeypatch.setattr(a, "_wait", waits.append)
    assert a.poll(seconds) is None
    assert len(waits) == 1
    assert now[0] == 2 * min(seconds, shm.SHORT)


def test_there_are_more_looks_after_short_waits_and_fewer_after_those_in_vain(
    pair: tuple[ShmTransport, ShmTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr(shm, "SHORT", 100.0)
    futex = a._futex
    for _ in range(10):
        a._futex = futex
        Between(a, lambda: b.send(0, [b"at the last moment"]))
        assert a.poll(None) is not None
    assert a._looks == shm.MOST_YIELDS
    a._futex = futex
    monkeypatch.setattr(a, "clock", lambda: 0.0)  # else the time may be over before the first look
    for _ in range(10):
        assert a.poll(1e-6) is None
    assert a._looks == shm.FEWEST


def test_a_rank_without_a_processor_of_its_own_lets_others_run_before_it_waits(
    pair: tuple[ShmTransport, ShmTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair

    def others_run() -> None:
        assert a._own.state[0] == AWAKE
        b.send(0, [b"meanwhile"])

    monkeypatch.setattr(a, "_yield", others_run)
    monkeypatch.setattr(a, "_wait", pytest.fail)
    arrival = a.poll(None)
    assert arrival is not None
    assert arrival.header == b"meanwhile"


@pytest.mark.parametrize("with_pipe", [False, True])
def test_room_that_is_made_just_before_a_wait_is_used(
    with_pipe: bool, pair: tuple[ShmTransport, ShmTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader makes room when the writer has looked for some and does not wait yet, so that it wakes nobody."""
    a, b = pair
    descriptor = a.fileno() if with_pipe else -1
    while not a.unsent:
        a.send(1, [bytes(1 << 20)])
    look_again = ShmTransport._look_again

    def read_all(self: ShmTransport, seconds: float) -> bool:
        assert self is a  # after its look for room, before it waits
        monkeypatch.setattr(ShmTransport, "_look_again", look_again)
        while b.poll(b.clock()) is not None:
            pass
        return look_again(self, seconds)

    monkeypatch.setattr(ShmTransport, "_look_again", read_all)
    began = a.clock()
    a.poll(began if with_pipe else began + 0.2)
    if with_pipe:
        select.select([descriptor], [], [], 0.2)
    assert not a.unsent
    assert next_of(b).header == bytes(1 << 20)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("with_pipe", [False, True])
def test_a_reader_wakes_a_writer_that_waits_for_room(with_pipe: bool, pair: tuple[ShmTransport, ShmTransport]) -> None:
    """The writer sleeps without a limit, and goes on as the reader reads; no timer helps."""
    a, b = pair
    total, got = 4 * RING >> 20, list[int]()
    descriptor = a.fileno() if with_pipe else -1
    for i in range(total):
        a.send(1, [struct.pack("<I", i) + bytes(1 << 20)])

    def write() -> None:
        while a.poll(a.clock() if with_pipe else None) is None:
            if with_pipe:
                assert select.select([descriptor], [], [], patience(ENOUGH))[0]

    writer = threading.Thread(target=write)
    writer.start()
    began = time.monotonic()
    while len(got) < total:
        got.append(*struct.unpack("<I", next_of(b).header[:4]))
    b.send(0, [b"enough"])
    writer.join()
    assert got == list(range(total))
    assert time.monotonic() < began + patience(ENOUGH)


class Visible:
    """A fence at which becomes visible, once, what another processor has written: `does` writes it."""

    def __init__(self, does: Callable[[], object]) -> None:
        self._does = does

    def __enter__(self) -> None:
        does, self._does = self._does, lambda: None
        does()

    def __exit__(self, *_: object) -> None:
        pass


def behind_fence(transport: ShmTransport, does: Callable[[], object]) -> None:
    transport._fence = Visible(does)  # type: ignore[assignment]


def test_a_writer_sees_behind_its_fence_that_the_reader_waits(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    own = b._own

    def begin_to_wait() -> None:
        assert own.tails[0], "the message is published before the fence"
        own.state[0] = AT_FUTEX

    bell = own.bell[0]
    behind_fence(a, begin_to_wait)
    a.send(1, [HEADER])
    assert own.bell[0] != bell


@pytest.mark.usefixtures("patient")
def test_a_reader_that_begins_to_wait_sees_behind_its_fence_what_was_written(
    pair: tuple[ShmTransport, ShmTransport],
) -> None:
    a, b = pair

    def publish() -> None:
        assert b._own.state[0] == AT_FUTEX, "it says that it waits before the fence"
        a._links[1].ring.put([HEADER])  # and did not see that

    behind_fence(b, publish)
    assert b.poll(b.clock() + 0.5) is not None


def test_a_writer_that_wants_room_sees_behind_its_fence_what_has_been_made(
    pair: tuple[ShmTransport, ShmTransport],
) -> None:
    a, b = pair
    while not a.unsent:
        a.send(1, [bytes(1 << 20)])
    reader = b._readers[0]

    def make_room() -> None:
        assert b._own.wanting[0], "it says that it wants room before the fence"
        reader.take(b._own.tails[0])
        reader.release()

    b._own.wanting[0] = 0
    behind_fence(a, make_room)
    a._push_all()
    assert not a.unsent
    b.close(HURRIED)


def test_a_reader_sees_behind_its_fence_that_the_writer_wants_room(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    a.send(1, [HEADER])
    wanted: list[bool] = []

    def want_room() -> None:
        wanted.append(True)
        b._own.wanting[0] = 1

    behind_fence(b, want_room)
    assert next_of(b).header == HEADER
    assert wanted
    assert not b._own.wanting[0]


def test_who_injects_sees_behind_the_fence_that_the_rank_waits(
    pair: tuple[ShmTransport, ShmTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pair
    own = b._own
    bell = own.bell[0]

    fence = Visible(lambda: own.state.__setitem__(0, AT_FUTEX))
    monkeypatch.setattr(shm, "threading", SimpleNamespace(Lock=lambda: fence))
    b.inject([HEADER])
    assert own.bell[0] != bell


def test_state_and_bell_tell_how_a_rank_waits(pair: tuple[ShmTransport, ShmTransport]) -> None:
    """The writer makes no system call for a reader that looks itself, and else the one that wakes it."""
    a, b = pair
    words = b._own
    bell = words.bell[0]
    a.send(1, [HEADER])
    assert (words.state[0], words.bell[0]) == (AWAKE, bell)
    words.state[0] = AT_FUTEX
    a.send(1, [HEADER])
    assert words.bell[0] != bell
    bell, descriptor = words.bell[0], b.fileno()
    while b.poll(b.clock()) is not None:
        pass
    assert words.state[0] == AT_PIPE
    a.send(1, [HEADER])
    assert words.bell[0] == bell
    assert select.select([descriptor], [], [], 0)[0]
    assert b.poll(b.clock()) is not None


def test_descriptors_beyond_those_of_select_do(pair: tuple[ShmTransport, ShmTransport]) -> None:
    for transport in pair:
        transport.close()
    needs.files(2000)
    allow_files(2000)
    files = [os.dup(0) for _ in range(1030)]
    try:
        a, b = shared(2)
        a.fileno()
        a._links[1]._looked = -1.0
        for _ in range(2):
            a.send(1, [HEADER])
        assert a.poll(a.clock() + 0.01) is None
        a.close()
        b.close()
    finally:
        for file in files:
            os.close(file)


# Signals.


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], object], float], None]]:
    """Have something done in the handler of a signal again and again: `alarm(does, seconds)`."""
    before = signal.getsignal(signal.SIGALRM)

    def start(does: Callable[[], object], seconds: float) -> None:
        signal.signal(signal.SIGALRM, lambda *_: does())
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("with_pipe", [False, True])
def test_a_handler_may_inject_in_the_middle_of_anything(
    with_pipe: bool,
    pair: tuple[ShmTransport, ShmTransport],
    alarm: Callable[[Callable[[], object], float], None],
) -> None:
    a, b = pair
    if with_pipe:
        b.fileno()
    numbers, heard, got = itertools.count(), list[int](), 0  # one handler may interrupt another one

    def inject() -> None:
        b.inject([b"inside", str(next(numbers)).encode()])

    alarm(inject, 0.0003)
    end = time.monotonic() + 0.4
    sent = 0
    while time.monotonic() < end or got < sent:
        if time.monotonic() < end:
            a.send(1, [b"data", str(sent).encode(), bytes(1000)])
            sent += 1
        b.send(0, [HEADER])
        a.poll(a.clock())
        arrival = b.poll(b.clock() + 0.001 * (sent % 2))
        if arrival is not None and arrival.header == b"data":
            assert arrival.read() == str(got).encode()
            got += 1
        elif arrival is not None:
            heard.append(int(arrival.read()))
    signal.setitimer(signal.ITIMER_REAL, 0)
    said = next(numbers)
    while len(heard) < said:
        heard.append(int(next_of(b).read()))
    assert sorted(heard) == list(range(said))
    assert said > 20


def test_an_interrupt_ends_a_wait_without_a_limit(
    pair: tuple[ShmTransport, ShmTransport], alarm: Callable[[Callable[[], object], float], None]
) -> None:
    """At the futex, and where the caller waits with the descriptor; and the transport goes on after it."""
    a, b = pair

    def interrupt() -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        alarm(interrupt, 0.05)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (poll may come back early)
            while True:
                b.poll(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        a.send(1, [HEADER])
        assert next_of(b).header == HEADER
        b.fileno()


# Two processes.


def exchange(other: Mate, count: int, waits: str, seed: int) -> None:
    """Send numbered messages to a process that returns them, with pauses of any length, waiting in this way."""
    rng, a = random.Random(seed), other.meet()
    descriptor = a.fileno() if waits == "descriptor" else -1
    sent = got = 0
    while got < count:
        if sent < count and (sent - got < 50 or rng.random() < 0.1) and sent - got < 2000:
            a.send(1, [struct.pack("<I", sent), bytes(rng.choice((0, 1, 100, 3000)))])
            sent += 1
            if rng.random() < 0.02:
                time.sleep(rng.random() * 2e-4)
            if rng.random() < 0.5:
                continue
        if waits == "descriptor":
            arrival = a.poll(a.clock())
            if arrival is None:
                assert select.select([descriptor], [], [], patience(ENOUGH))[0], f"{got} of {count}, {sent} sent"
        else:
            arrival = a.poll(a.clock() + patience(ENOUGH))
        if arrival is not None:
            assert struct.unpack("<I", arrival.header) == (got,)
            got += 1
    other.go_on()
    assert other.end() == 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("theirs", ["futex", "descriptor"])
@pytest.mark.parametrize("ours", ["futex", "descriptor"])
@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.long)])
def test_no_wake_up_is_lost(ours: str, theirs: str, count: int, mate: Callable[..., Mate]) -> None:
    began = time.monotonic()
    exchange(mate("echo", theirs, str(count)), count, ours, seed=1)
    assert time.monotonic() < began + patience(ENOUGH) + count / 1000


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("waits", ["futex", "descriptor"])
def test_a_million_messages_to_a_process_that_is_stopped_again_and_again(waits: str, mate: Callable[..., Mate]) -> None:
    other, over = mate("echo", waits, str(1_000_000)), threading.Event()

    def stop_and_go() -> None:
        rng = random.Random(2)
        while not over.wait(rng.random() * 0.05):
            other.signal(signal.SIGSTOP)
            over.wait(rng.random() * 0.01)
            other.signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        exchange(other, 1_000_000, waits, seed=3)
    finally:
        over.set()
        thread.join()


def test_a_forked_child_that_ends_harms_nobody(pair: tuple[ShmTransport, ShmTransport]) -> None:
    """It has the memory and the descriptors as well, until its end, and does not speak for the rank."""
    a, b = pair
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for sender, reader, peer in (a, b, 1), (b, a, 0):
        sender.send(peer, [HEADER])
        assert next_of(reader).header == HEADER


# Rights and limits.


def test_a_segment_cannot_be_truncated() -> None:
    """Else whoever does it could end its readers by a bus error."""
    transport = ShmTransport(0, 2)
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(transport.card.memory, size)
    transport.close()


def test_only_pages_that_are_used_take_memory() -> None:
    made: Sequence[Transport] = shared(3)
    for transport in made:
        assert isinstance(transport, ShmTransport)
        assert os.fstat(transport.card.memory).st_blocks * 512 <= 16 << 10
        assert os.fstat(transport.card.memory).st_size > 3 * RING
        transport.close()


def test_memory_that_may_not_be_read_is_an_error_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, *_: object) -> int:
            libc.ctypes.set_errno(self.number)
            return -1

    blocked = dict.fromkeys((errno.EPERM, errno.ENOSYS, errno.EACCES), PermissionError)
    for number, kind in {**blocked, errno.ESRCH: ProcessLookupError, errno.EFAULT: OSError}.items():
        memory = libc.ForeignMemory(os.getpid())
        monkeypatch.setattr(memory, "_read", Refuses(number))
        with pytest.raises(kind):
            memory.read(0, memoryview(bytearray(1)))


def test_memory_that_is_not_there_cannot_be_read() -> None:
    memory = libc.ForeignMemory(os.getpid())
    with pytest.raises(OSError, match="Bad address") as error:
        memory.read(8, memoryview(bytearray(1)))
    assert error.value.errno == errno.EFAULT
    memory.read(8, memoryview(bytearray()))


def test_the_probe_tells_what_forbids_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert libc.reason_not_read() == ""
    strict = tmp_path / "ptrace_scope"
    strict.write_text("2\n")
    monkeypatch.setattr(libc, "_YAMA", strict)
    assert "administrators" in libc.reason_not_read()


def test_a_megabyte_at_any_place_of_an_empty_ring_needs_no_help(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    for _ in range(8):
        for _ in range(16):
            a.send(1, [b"x" * (1 << 16)])
        assert not a.unsent
        for _ in range(16):
            next_of(b)


def test_a_poll_ends_when_the_last_message_that_waited_has_found_room(pair: tuple[ShmTransport, ShmTransport]) -> None:
    a, b = pair
    while not a.unsent:
        a.send(1, [b"x" * (1 << 16)])
    while b.poll(b.clock()) is not None:
        pass
    began = a.clock()
    assert a.poll(began + ENOUGH) is None
    assert not a.unsent
    assert a.clock() < began + patience(ENOUGH)
