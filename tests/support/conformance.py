"""Conformance suite for transports: named checks that any test runner can call, `for check in CHECKS: check(make)`.

A check takes a maker: `make(p)` returns p connected transports of one new job. The check closes them. It returns None
if the law holds, and raises `AssertionError` if not. Checks drive all transports from one thread, except where they
say otherwise, and wait by `poll` only, so that they also run on a simulated clock.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from random import Random
from typing import TypeAlias

from ringcast.errors import LinkLost
from ringcast.transports.base import Arrival, Loan, LoanWithdrawn, Transport
from ringcast.wire.header import LARGEST_FRAME

Maker: TypeAlias = Callable[[int], Sequence[Transport]]
Check: TypeAlias = Callable[[Maker], None]

PATIENCE = 20.0  # seconds after which something that should happen at once counts as missing
HEADER = b"header"
LOOKS = 5  # jobs in which messages are looked at and polled in a mixture


@contextmanager
def _job(make: Maker, size: int) -> Iterator[Sequence[Transport]]:
    transports = make(size)
    try:
        yield transports
    finally:
        for transport in transports:
            transport.close()


def _next(transport: Transport) -> Arrival:
    """Return the next arrival; `poll` may return None before it, for at most `PATIENCE` seconds."""
    deadline = transport.clock() + PATIENCE
    while (arrival := transport.poll(deadline)) is None:
        assert transport.clock() < deadline, f"nothing arrived within {PATIENCE:g} s"
    return arrival


def _rest(arrival: Arrival) -> list[bytes]:
    frames = []
    while arrival.more:
        frames.append(bytes(arrival.read()))
    return frames


def _quiet(transport: Transport, seconds: float = 0.02) -> bool:
    """Return whether nothing arrives for a moment."""
    deadline = transport.clock() + seconds
    while transport.clock() < deadline:
        if transport.poll(deadline) is not None:
            return False
    return True


def order_is_kept_per_peer(make: Maker) -> None:
    """Messages of one sender arrive in the order in which they were sent; none is lost or repeated."""
    with _job(make, 3) as (a, b, c):
        for i in range(100):
            for name, sender in (b"a", a), (b"b", b):
                sender.send(2, [HEADER, name, str(i).encode()])
        got: dict[bytes, list[int]] = {b"a": [], b"b": []}
        for _ in range(200):
            name, number = _rest(_next(c))
            got[name].append(int(number))
        assert got == {b"a": list(range(100)), b"b": list(range(100))}
        assert _quiet(c)


def messages_are_whole(make: Maker) -> None:
    """Frames of messages from several senders do not mix."""
    with _job(make, 3) as (a, b, c):
        for i in range(50):
            for mark, sender in (b"a", a), (b"b", b):
                sender.send(2, [mark] * (1 + i % 7))
        for _ in range(100):
            arrival = _next(c)
            assert set(_rest(arrival)) <= {arrival.header}


def the_header_is_the_first_frame(make: Maker) -> None:
    """A message of one frame has a header and nothing more."""
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER])
        arrival = _next(b)
        assert arrival.header == HEADER
        assert not arrival.more


def looks_take_nothing_and_keep_the_order(make: Maker) -> None:
    """Messages of two senders, looked at by lanes or polled, in any mixture: all of them come, whole and in order."""
    for seed in range(LOOKS):
        random = Random(seed)
        sent = {peer: [_message(random, peer, number) for number in range(12)] for peer in (1, 2)}
        with _job(make, 3) as job:
            _mix(random, job, {peer: [*messages] for peer, messages in sent.items()}, sent)


def _message(random: Random, peer: int, number: int) -> list[bytes]:
    sizes = [random.choice((0, 1, 70, 3000)), *random.choices((9, 20_000, 400_000), k=random.choice((0, 0, 1, 4)))]
    return [bytes([peer, number]) + bytes(size) + b"." for size in sizes]


def _mix(
    random: Random, job: Sequence[Transport], left: dict[int, list[list[bytes]]], missing: dict[int, list[list[bytes]]]
) -> None:
    """Send the messages that are `left`, and take them, until none is `missing`."""
    reader, deadline = job[0], job[0].clock() + PATIENCE
    while any(missing.values()):
        assert reader.clock() < deadline, f"messages are missing: {missing}"
        peer = random.choice((1, 2))
        if left[peer] and random.random() < 0.5:
            job[peer].send(0, left[peer].pop(0))
        job[peer].poll(job[peer].clock())  # passes on what has not been sent
        lanes = reader.lanes
        if lanes is not None and random.random() < 0.7:
            frame = lanes.head(peer, random.choice((0.0, 1e-4)))
            if frame is not None:
                assert [bytes(frame)] == missing[peer].pop(0)
                lanes.release(peer)
        elif (arrival := reader.poll(reader.clock() + 1e-4)) is not None:
            expected = missing[arrival.header[0]].pop(0)
            got = [arrival.header, *(_rest(arrival) if random.random() < 0.7 else expected[1:])]
            assert got == expected


def any_size_is_read(make: Maker) -> None:
    """Frames of no, one and many bytes are read unchanged by `read`."""
    with _job(make, 2) as (a, b):
        for size in (0, 1, 63, 64, 65, 1 << 16, LARGEST_FRAME // 2):
            data = bytes(range(256)) * (size // 256 + 1)
            a.send(1, [HEADER, memoryview(data)[:size]])
            assert _rest(_next(b)) == [data[:size]], f"{size=}"


def any_size_is_read_into(make: Maker) -> None:
    """Frames of no, one and many bytes are put into the memory given to `read_into`, and nothing beside them."""
    with _job(make, 2) as (a, b):
        for size in (0, 1, 63, 64, 65, 1 << 16, LARGEST_FRAME // 2):
            data = bytes(range(256)) * (size // 256 + 1)
            a.send(1, [HEADER, memoryview(data)[:size]])
            arrival, room = _next(b), bytearray(b"." * (size + 5))
            assert arrival.read_into(memoryview(room)) == size
            assert bytes(room) == data[:size] + b".....", f"{size=}"
            assert not arrival.more


def an_empty_frame_fits_into_no_memory(make: Maker) -> None:
    """`read_into` a view of no bytes works for a frame of no bytes."""
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER, b"", b"x"])
        arrival = _next(b)
        assert arrival.read_into(memoryview(bytearray())) == 0
        assert _rest(arrival) == [b"x"]


def frames_are_kept_apart(make: Maker) -> None:
    """Frames are neither joined nor split, and empty ones are not left out."""
    frames = [b"", b"one", b"", b"", b"x" * 100_000, b""]
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER, *frames])
        assert _rest(_next(b)) == frames


def any_kind_of_frame_is_sent(make: Maker) -> None:
    """Bytes, bytearrays and memoryviews are all frames."""
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER, b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
        assert _rest(_next(b)) == [b"abc"] * 3


def read_and_read_into_may_alternate(make: Maker) -> None:
    """`read` and `read_into` each take the next frame."""
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER, b"1", b"22", b"333"])
        arrival, room = _next(b), bytearray(2)
        assert arrival.read() == b"1"
        assert arrival.read_into(memoryview(room)) == 2
        assert bytes(room) == b"22"
        assert arrival.read() == b"333"
        assert not arrival.more


def what_is_read_belongs_to_the_reader(make: Maker) -> None:
    """A frame from `read` stays as it is when the next messages come."""
    with _job(make, 2) as (a, b):
        for mark in (b"a", b"b"):
            a.send(1, [HEADER, mark * 100_000])
        first = _next(b).read()
        second = _next(b).read()
        assert bytes(first) == b"a" * 100_000
        assert bytes(second) == b"b" * 100_000


def a_longer_frame_is_cut_and_its_size_told(make: Maker) -> None:
    """`read_into` fills the view, writes nothing beyond it, returns the true size, and the next frame is intact."""
    for size in (5, 100_000):
        with _job(make, 2) as (a, b):
            a.send(1, [HEADER, b"x" * size, b"next"])
            arrival, room = _next(b), bytearray(b"......")
            assert arrival.read_into(memoryview(room)[:3]) == size
            assert bytes(room) == b"xxx..."
            assert _rest(arrival) == [b"next"]


def what_is_not_read_is_dropped(make: Maker) -> None:
    """The next `poll` returns the next message, however much of the last one was read."""
    with _job(make, 2) as (a, b):
        for i in range(4):
            a.send(1, [str(i).encode(), b"1", b"22", b"333"])
        for i in range(4):
            arrival = _next(b)
            assert arrival.header == str(i).encode()
            for _ in range(i):
                arrival.read()
        assert _quiet(b)


def a_past_deadline_looks_once(make: Maker) -> None:
    """`poll` with a deadline in the past does not wait, but takes what has arrived."""
    with _job(make, 1) as (b,):
        past = b.clock() - 1000
        before = b.clock()
        for _ in range(100):
            assert b.poll(past) is None
        assert b.clock() - before < 1.0
        for _ in range(2):  # injected: so that it has certainly arrived
            b.inject([HEADER])
        assert b.poll(past) is not None
        assert b.poll(past) is not None
        assert b.poll(past) is None


def a_deadline_ends_a_wait(make: Maker) -> None:
    """`poll` returns None at about the deadline, after at most a few interruptions before it."""
    with _job(make, 2) as (_, b):
        for wait in (0.0005, 0.03):
            start, early = b.clock(), 0
            deadline = start + wait
            while b.poll(deadline) is None and b.clock() < deadline:
                early += 1
            assert early < 5, "poll returns again and again before the deadline"
            assert b.clock() - deadline < 1.0, "poll returns long after the deadline"


def send_does_not_wait_for_a_reader(make: Maker) -> None:
    """A thousand messages are queued without a reader, and all arrive later; a sender of much has to poll as well."""
    with _job(make, 2) as (a, b):
        before = a.clock()
        for i in range(1000):
            a.send(1, [str(i).encode(), b"x" * 10_000])
        assert a.clock() - before < PATIENCE / 2
        got: list[int] = []
        while len(got) < 1000:
            assert a.poll(a.clock()) is None
            if (arrival := b.poll(b.clock() + 0.001)) is not None:
                got.append(int(arrival.header))
            assert a.clock() - before < PATIENCE, f"{len(got)} of 1000 messages have arrived"
        assert got == list(range(1000))


def a_megabyte_needs_no_help(make: Maker) -> None:
    """A megabyte, which a rank may send without a grant, arrives although the sender does not poll."""
    with _job(make, 2) as (a, b):
        for i in range(16):
            a.send(1, [str(i).encode(), b"x" * (1 << 16)])
        assert [int(_next(b).header) for i in range(16)] == list(range(16))


def both_directions_at_once(make: Maker) -> None:
    """Two ranks that send to each other before either reads do not hinder each other."""
    with _job(make, 2) as (a, b):
        for i in range(20):
            for name, sender, peer in (b"a", a, 1), (b"b", b, 0):
                sender.send(peer, [name, bytes([i]) * 200_000])
        for i in range(20):  # in turn, as a rank may keep what the kernel does not take until it polls
            for name, reader in (b"b", a), (b"a", b):
                arrival = _next(reader)
                assert arrival.header == name
                assert _rest(arrival) == [bytes([i]) * 200_000]


def a_message_to_oneself_is_injected(make: Maker) -> None:
    """`inject` puts a message into the own inbox, beside the peers' messages."""
    with _job(make, 2) as (a, b):
        b.inject([HEADER, b"control"])
        assert _rest(_next(b)) == [b"control"]
        a.send(1, [HEADER, b"data"])
        b.inject([HEADER, b"control"])
        assert sorted(_rest(_next(b))[0] for _ in range(2)) == [b"control", b"data"]


def inject_wakes_a_waiting_poll(make: Maker) -> None:
    """A message injected by another thread ends a wait without a limit."""
    with _job(make, 1) as (a,):
        started = threading.Event()

        def later() -> None:
            started.wait()
            a.inject([HEADER, b"wake up"])

        thread = threading.Thread(target=later)
        thread.start()
        started.set()
        while (arrival := a.poll(None)) is None:
            pass
        assert _rest(arrival) == [b"wake up"]
        thread.join()


def inject_may_come_from_many_threads(make: Maker) -> None:
    """Messages that several threads inject at once all arrive, whole, and in the order of each thread."""
    with _job(make, 1) as (a,):

        def talk(name: bytes) -> None:
            for i in range(100):
                a.inject([name, str(i).encode(), name])

        names = [b"a", b"b", b"c", b"d"]
        threads = [threading.Thread(target=talk, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        got: dict[bytes, list[int]] = {name: [] for name in names}
        for _ in range(100 * len(names)):
            arrival = _next(a)
            number, name = _rest(arrival)
            assert name == arrival.header
            got[name].append(int(number))
        for thread in threads:
            thread.join()
        assert got == {name: list(range(100)) for name in names}


def what_was_sent_before_close_is_delivered(make: Maker) -> None:
    """A rank may leave as soon as it has sent its last message, if the peer still listens."""
    with _job(make, 2) as (a, b):
        for i in range(20):
            a.send(1, [HEADER, str(i).encode(), b"x" * 100_000])
        closing = threading.Thread(target=a.close)  # it may wait until the peer has taken the message
        closing.start()
        got = [int(_rest(_next(b))[0]) for _ in range(20)]
        closing.join()
        assert got == list(range(20))


def close_may_be_called_twice(make: Maker) -> None:
    """Close is idempotent, also with unread messages."""
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER, b"unread"])
        _next(b)
        for transport in (b, b, a, a):
            transport.close()


def inject_after_close_is_ignored(make: Maker) -> None:
    """A message that the control plane injects after `close` is ignored."""
    with _job(make, 1) as (a,):
        a.close()
        a.inject([HEADER, b"too late"])


def a_closed_peer_is_a_lost_link(make: Maker) -> None:
    """Sending to a rank that has closed raises `LinkLost`, at once or after some messages; it never blocks.

    A message sent before a transport could notice is lost silently: the protocol above counts messages.
    """
    with _job(make, 2) as (a, b):
        a.send(1, [HEADER])
        _next(b)
        b.close()
        deadline = a.clock() + PATIENCE
        lost: int | None = None
        while lost is None and a.clock() < deadline:
            try:
                a.send(1, [HEADER])
            except LinkLost as error:
                lost = error.peer
            else:
                _quiet(a, 0.001)
        assert lost == 1, f"sending to a closed rank succeeds for {PATIENCE:g} s"


def the_descriptor_tells_of_arrivals(make: Maker) -> None:
    """A caller that polls until there is no message, and then waits for the descriptor, misses no message."""
    with _job(make, 2) as (a, b):
        try:
            descriptor = b.fileno()
        except OSError:
            return  # by its contract the transport has no descriptor

        def talk() -> None:
            for i in range(300):
                a.send(1, [HEADER, str(i).encode()])

        thread = threading.Thread(target=talk)
        thread.start()
        got: list[int] = []
        while len(got) < 300:
            while (arrival := b.poll(b.clock())) is not None:
                got.append(int(_rest(arrival)[0]))
            if len(got) < 300:
                readable, _, _ = select.select([descriptor], [], [], PATIENCE)
                assert readable, f"{len(got)} of 300 messages, and the descriptor does not become readable"
        thread.join()
        assert got == list(range(300))


def threads_may_take_turns(make: Maker) -> None:
    """Several threads that use a transport one at a time, under a lock, send and poll as one thread does."""
    with _job(make, 2) as (a, b):
        lock, got = threading.Lock(), dict[bytes, list[int]]()

        def take(arrival: Arrival | None) -> None:
            if arrival is not None:
                name, number = _rest(arrival)
                got.setdefault(name, []).append(int(number))

        def talk(name: bytes) -> None:
            for i in range(50):
                with lock:
                    a.send(1, [HEADER, name, str(i).encode()])
                with lock:
                    take(b.poll(b.clock()))

        names = [b"a", b"b", b"c", b"d"]
        threads = [threading.Thread(target=talk, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while sum(map(len, got.values())) < 50 * len(names):
            take(_next(b))
        assert got == {name: list(range(50)) for name in names}


def the_clock_never_goes_back(make: Maker) -> None:
    """`clock` is monotonic, in seconds."""
    with _job(make, 2) as (a, b):
        last = a.clock()
        for _ in range(50):
            b.send(0, [HEADER])
            _next(a)
            now = a.clock()
            assert now >= last
            last = now


def connect_may_be_repeated(make: Maker) -> None:
    """Connecting ahead of the first message, twice or not at all makes no difference."""
    with _job(make, 3) as (a, b, c):
        a.connect([1])
        a.connect([1, 2])
        a.connect([])
        for peer, transport in (1, b), (2, c):
            a.send(peer, [HEADER, b"x"])
            assert _rest(_next(transport)) == [b"x"]


def lending_is_mutual(make: Maker) -> None:
    """A rank lends to the ranks that lend to it, and to none where its transport copies all data that it sends."""
    with _job(make, 3) as ranks:
        for a, b in permutations(range(3), 2):
            assert (b in ranks[a].lenders) == (a in ranks[b].lenders)
            assert a not in ranks[a].lenders


def lent_memory_is_read_as_a_stream(make: Maker) -> None:
    """A loan is read from its beginning on, in other pieces than were lent; beyond its end is nothing."""
    pieces = [b"", b"1", b"22", b"", bytes(range(256)) * 300, b"4", b""]
    whole = b"".join(pieces)
    with _job(make, 2) as (a, b):
        if 1 not in a.lenders:
            return
        for size in (1, 7, 4096, len(whole) - 1, len(whole), len(whole) + 1):
            a.lend(1, [HEADER, b"sizes"], [memoryview(piece) for piece in pieces])
            arrival = _next(b)
            assert (arrival.header, _rest(arrival)) == (HEADER, [b"sizes"])
            got, step = bytearray(), size if size > 1 else 1000
            first = bytearray(1)
            assert _borrowed(arrival).read_into(memoryview(first)) == 1
            got += first
            while True:
                room = bytearray(b"." * (step + 5))
                count = _borrowed(arrival).read_into(memoryview(room)[:step])
                assert bytes(room[count:]) == b"." * (step + 5 - count)
                got += room[:count]
                if count < step:
                    break
            assert bytes(got) == whole, f"{size=}"
            assert _borrowed(arrival).read_into(memoryview(bytearray(3))) == 0


def a_loan_of_nothing_is_at_its_end(make: Maker) -> None:
    """Memory of no bytes may be lent, and a view of none be filled."""
    with _job(make, 2) as (a, b):
        if 1 not in a.lenders:
            return
        a.lend(1, [HEADER], [memoryview(b"")])
        loan = _borrowed(_next(b))
        assert loan.read_into(memoryview(bytearray())) == 0
        assert loan.read_into(memoryview(bytearray(3))) == 0


def lent_memory_is_not_copied(make: Maker) -> None:
    """A loan is not copied: a read after later messages gives the memory's content at the time of the read."""
    with _job(make, 2) as (a, b):
        if 1 not in a.lenders:
            return
        memory = bytearray(b"a" * 100_000)
        a.lend(1, [HEADER, b"first"], [memoryview(memory)])
        a.send(1, [HEADER, b"second"])
        arrival = _next(b)
        loan = _borrowed(arrival)
        assert _rest(arrival) == [b"first"]
        second = _next(b)
        assert second.loan is None
        assert _rest(second) == [b"second"]
        assert _quiet(b)
        memory[:] = b"b" * 100_000
        room = bytearray(100_000)
        assert loan.read_into(memoryview(room)) == 100_000
        assert room == memory


def memory_that_is_taken_back_is_no_loan(make: Maker) -> None:
    """A read of memory that was taken back is an error, also in the middle; a new loan of the memory is good."""
    with _job(make, 2) as (a, b):
        if 1 not in a.lenders:
            return
        memory, room = bytearray(b"a" * 1000), memoryview(bytearray(500))
        for _ in range(2):
            a.lend(1, [HEADER], [memoryview(memory)])
        early, late = (_borrowed(_next(b)) for _ in range(2))
        assert early.read_into(room) == 500
        a.take_back([memoryview(memory)])
        memory[:] = b"c" * 1000
        for loan in early, late:
            try:
                loan.read_into(room)
            except LoanWithdrawn:
                continue
            raise AssertionError("memory that was taken back is read")
        a.lend(1, [HEADER], [memoryview(memory)])
        assert _borrowed(_next(b)).read_into(room) == 500
        assert bytes(room) == b"c" * 500


def _borrowed(arrival: Arrival) -> Loan:
    assert arrival.loan is not None, "a message came without the memory that was lent with it"
    return arrival.loan


CHECKS: tuple[Check, ...] = (
    order_is_kept_per_peer,
    looks_take_nothing_and_keep_the_order,
    messages_are_whole,
    the_header_is_the_first_frame,
    any_size_is_read,
    any_size_is_read_into,
    an_empty_frame_fits_into_no_memory,
    frames_are_kept_apart,
    any_kind_of_frame_is_sent,
    read_and_read_into_may_alternate,
    what_is_read_belongs_to_the_reader,
    a_longer_frame_is_cut_and_its_size_told,
    what_is_not_read_is_dropped,
    a_past_deadline_looks_once,
    a_deadline_ends_a_wait,
    send_does_not_wait_for_a_reader,
    a_megabyte_needs_no_help,
    both_directions_at_once,
    a_message_to_oneself_is_injected,
    inject_wakes_a_waiting_poll,
    inject_may_come_from_many_threads,
    what_was_sent_before_close_is_delivered,
    close_may_be_called_twice,
    inject_after_close_is_ignored,
    a_closed_peer_is_a_lost_link,
    the_descriptor_tells_of_arrivals,
    threads_may_take_turns,
    the_clock_never_goes_back,
    connect_may_be_repeated,
    lending_is_mutual,
    lent_memory_is_read_as_a_stream,
    a_loan_of_nothing_is_at_its_end,
    lent_memory_is_not_copied,
    memory_that_is_taken_back_is_no_loan,
)
