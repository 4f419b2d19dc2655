"""Move messages between processes of one host by shared memory: a ring from each rank to each other one.

Small messages are copied into the ring of their reader's segment. For a larger message the sender sends only its
address, and the receiver copies it once, out of the sender's memory into its own. A rank that has nothing to read looks
a few times, and then waits at a futex; where it waits for sockets too, at a pipe. Where ranks share processors, it lets
others run between two looks, so that a processor is not idle when the message comes: to wake an idle processor of a
virtual machine takes 35 to 80 us.

No wake-up is lost: a reader marks that it waits before it looks for the last time, a writer publishes its message
before it looks whether the reader waits, and between the two steps each takes a lock, which on x86 makes all earlier
writes visible to others.
"""

from __future__ import annotations

import os
import select
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count

import numpy as np

from ringcast.errors import LinkLost
from ringcast.procs.credentials import Credentials, own
from ringcast.procs.libc import ForeignMemory, Futex, address_of, let_family_read
from ringcast.procs.procfs import started
from ringcast.transports.base import LINGER, TURNS, CompiledLane, Frame, LoanWithdrawn, MemoryArrival
from ringcast.transports.memory import segment
from ringcast.transports.memory.ring import Loans, RingReader, RingWriter, pack_loans
from ringcast.transports.memory.segment import AT_FUTEX, AT_PIPE, AWAKE, BELL, RETURNS, Segment, SegmentCard

SLICE = 1.0  # seconds after which a wait looks at its deadline again
LOOK = 0.1  # seconds between two looks whether a peer that reads nothing still lives
FEWEST, MOST = 16, 8192  # looks before a wait; each takes 0.1 us, and all together SHORT at most …
MOST_YIELDS = 128  # … and most looks where others may run in between, which takes 0.5 us if none wants to
SHORT = 500e-6  # seconds; after a shorter wait a rank looks more often before the next one
# Seconds of a look after which another program has this processor; ranks that share one take turns in less.
TAKEN = 2e-3
CROWDED = 256  # waits without looks after that
_BELLS = (1 << 31) - 1  # the numbers beyond are those of compiled lanes


class ShmTransport:
    """One rank's segment, and its rings in the others' segments; fulfils `Transport`."""

    clock = staticmethod(time.monotonic)

    def __init__(self, rank: int, size: int, *, spin: bool = False) -> None:
        """Make the segment of this rank, one of `size`. Pass `spin` if each rank of the host has its own processor.

        Raises:
            OSError: the system gives no shared memory, or no descriptors.
        """
        self._rank, self._size, self._who = rank, size, own()
        self._own, self._descriptor = segment.make(size)
        try:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self._descriptor)
            raise
        self._pipe_waits = select.poll()  # select() knows no descriptors beyond 1023
        self._pipe_waits.register(self._pipe[0], select.POLLIN)
        let_family_read()
        self._futex = Futex(self._own.view[BELL : BELL + 4])
        self._bells = count(rank + size, size)  # numbers that no other rank rings with, and that no bell has at first
        self._readers = [RingReader(self._own.ring(source), self._own.heads, source) for source in range(size)]
        self.lenders = frozenset[int]()
        self._links: dict[int, _Link] = {}
        self._unmapped: dict[int, OSError] = {}
        self.unsent: dict[int, _Link] = {}  # links with messages that wait for room
        self._injected: deque[Sequence[bytes]] = deque()
        self._before = 0  # messages that were taken while the first of `_injected` waited
        # How many were ever put into `_injected`, and taken out: words that a compiled lane reads.
        self._put_in, self._taken_out = array("Q", [0]), array("Q", [0])
        self._compiled: CompiledLane | None = None
        self._fence, self._door = threading.Lock(), threading.RLock()
        self._unread = -1  # the rank whose message is still in its ring
        self._served = 0  # the rank to look at first for the next message
        self._crowded = 0  # waits that are to come without looks
        self._looks, self._most = FEWEST, MOST if spin else MOST_YIELDS
        self._yield = None if spin else os.sched_yield
        self._with_pipe = False  # whether the caller waits with the descriptor
        self._closed = False

    @property
    def card(self) -> SegmentCard:
        """The card by which other ranks of this host find the segment."""
        address = self._futex.address - BELL
        place = self._descriptor, self._pipe[1], self._own.token, address
        return SegmentCard(os.getpid(), started(os.getpid()), self._who, *place)

    def meet(self, cards: Mapping[int, SegmentCard]) -> Mapping[int, OSError]:
        """Map the segments of other ranks of this host, and return the errors by rank.

        FileNotFoundError among them means that the rank has left already.
        """
        for peer, card in cards.items():
            try:
                self._links[peer] = _Link(peer, card, self._who, self._rank, self._size, self._bells)
            except OSError as error:
                self._unmapped[peer] = error.with_traceback(None)  # a traceback would keep the mapped memory
        self.lenders = frozenset(self._links)
        return self._unmapped

    def connect(self, peers: Sequence[int]) -> None:
        """Do nothing: `meet` has mapped all segments."""

    def lend(self, peer: int, frames: Sequence[Frame], memory: Sequence[memoryview]) -> None:
        pieces = [_place(piece) for piece in memory]
        count = _count_of(pieces)
        self.send(peer, frames, pack_loans([(count, self._own.returns[count]), *pieces]))

    def take_back(self, memory: Sequence[memoryview]) -> None:
        self._own.returns[_count_of([_place(piece) for piece in memory])] += 1

    def send(self, peer: int, frames: Sequence[Frame], lent: bytes = b"") -> None:
        link = self._links.get(peer)
        if link is None:
            raise LinkLost(peer, f"its memory could not be mapped: {self._unmapped.get(peer, 'it has not been met')}")
        if link.gone():
            raise LinkLost(peer, f"its process {link.card.pid} has left, or has ended")
        if not link.queue and link.ring.put(frames, lent):
            with self._fence:
                pass
            if link.state[0] != AWAKE:
                link.wake()
        else:
            link.queue.append(([bytes(frame) for frame in frames], lent))
            self._push(peer, link)

    @property
    def lanes(self) -> ShmTransport | None:
        if self._with_pipe:
            return None
        if self._unread >= 0:
            self.drop_unread()
        return self

    def drop_unread(self) -> None:
        """Give the room of the last arrival back, whose frames are not read any more."""
        if self._unread >= 0:
            self._release(self._unread)

    def attach(self, compiled: CompiledLane) -> bool:
        own = self._own
        words = own.tails, own.heads, own.wanting, own.returns, own.rings, own.state, own.bell
        compiled.map(*words, self._put_in, self._taken_out)
        for peer, link in self._links.items():
            compiled.link(peer, *link.memory)
        self._compiled = compiled
        return True

    def put(self, peer: int, frame: Frame) -> bool:
        link = self._links.get(peer)
        if link is None or link.queue or link.gone() or not link.ring.put((frame,)):
            return False
        with self._fence:
            pass
        if link.state[0] != AWAKE:
            link.wake()
        return True

    def head(self, peer: int, patience: float) -> memoryview | None:
        if self._closed or self._injected:
            return None
        if not (self._own.tails[peer] != self._own.heads[peer] or self._await(peer, patience)):
            return None
        try:
            frames, lent = self._readers[peer].take(self._own.tails[peer])
        except ValueError:  # `poll` drops it
            return None
        return frames[0] if len(frames) == 1 and not lent else None

    def release(self, peer: int) -> None:
        self._release(peer)

    def _await(self, peer: int, seconds: float) -> bool:
        """Wait for a message of `peer`, at most so long; return whether there is one, and nothing else to do."""
        own, injected, clock = self._own, self._injected, self.clock
        tails, heads = own.tails, own.heads
        end = clock() + seconds
        while not self._look_for(lambda: tails[peer] != heads[peer] or bool(injected), end):
            began = clock()
            if began >= end:
                self._looks = max(self._looks // 2, FEWEST)
                return False
            own.state[0] = AT_FUTEX
            with self._fence:
                pass
            bell = own.bell[0]
            if tails[peer] == heads[peer] and not injected:
                self._futex.wait(bell, end - began)
            own.state[0] = AWAKE
            if clock() - began < SHORT:
                self._looks = min(2 * self._looks, self._most)
        return not injected

    def _push(self, peer: int, link: _Link) -> None:
        """Write queued messages as far as there is room; the reader wakes this rank when there is more room."""
        self.unsent[peer] = link
        link.put_queued(self._fence)
        while link.queue:
            link.want(True)
            with self._fence:
                pass
            if not link.put_queued(self._fence):
                return
        link.want(False)
        del self.unsent[peer]

    def poll(self, deadline: float | None) -> MemoryArrival | None:
        if self._unread >= 0:
            self._release(self._unread)
        unsent = bool(self.unsent)
        if unsent or self._with_pipe:
            self._come_to()
        if self._own.tails != self._own.heads or self._injected:
            return self._next()
        served = unsent and not self.unsent  # the caller may have waited for this
        left = 0 if served else SLICE if deadline is None else min(deadline - self.clock(), SLICE)
        if left <= 0 and not self._with_pipe:
            return None
        if self._look_again(left):
            return self._next()
        began = self.clock()
        if not self._wait(left):
            self._looks = max(self._looks // 2, FEWEST)
            return None
        if self.clock() - began < SHORT:
            self._looks = min(2 * self._looks, self._most)
        return self._next()

    def _come_to(self) -> None:
        """Begin again after a wait of this object, or of a caller with the descriptor: note it, and push messages."""
        if self._with_pipe:
            self._own.state[0] = AWAKE
            _drain(self._pipe[0])
        if self.unsent:
            self._push_all()

    def _push_all(self) -> None:
        for peer, link in list(self.unsent.items()):
            self._push(peer, link)

    def _news(self) -> bool:
        return self._own.tails != self._own.heads or bool(self._injected)

    def _look_again(self, seconds: float) -> bool:
        """Look for news a few times, more often if waits were short lately; return whether there are some."""
        if seconds <= 0:
            return False
        tails, heads, injected = self._own.tails, self._own.heads, self._injected
        return self._look_for(lambda: tails != heads or bool(injected), self.clock() + min(seconds, SHORT))

    def _look_for(self, news: Callable[[], bool], end: float) -> bool:
        """Look for news until `end`, and let others run in between, but not where another program keeps the processor.

        That one would keep it for all of its slice each time; the kernel interrupts it for a rank that sleeps.
        """
        clock, let_others_run = self.clock, self._yield
        if self._crowded:
            self._crowded -= 1
            return news()
        now = clock()
        for _ in range(self._looks):
            if news():
                return True
            if let_others_run is not None:
                let_others_run()
            before, now = now, clock()
            if now - before >= TAKEN:
                self._crowded = CROWDED
            if now >= end:
                break
        return False

    def _wait(self, seconds: float) -> bool:
        """Wait for news; return whether there are some."""
        own = self._own
        own.state[0] = AT_PIPE if self._with_pipe else AT_FUTEX
        with self._fence:
            pass
        bell = own.bell[0]  # before the last look: a later ring changes the number
        if self.unsent:  # a reader that has made room since the last look saw no waiting rank, and did not wake it
            self._push_all()
            seconds = seconds if self.unsent else 0.0  # the caller may wait until all is sent
        if self._news():
            own.state[0] = AWAKE
            return True
        if self._with_pipe:  # the state stays: the caller waits
            return seconds > 0 and bool(self._pipe_waits.poll(seconds * 1000)) and self._news()
        self._futex.wait(bell, seconds)
        own.state[0] = AWAKE
        return self._news()

    def _next(self) -> MemoryArrival | None:
        """Return the next message, or what was injected if there is none; None if there is nothing."""
        injected = bool(self._injected)  # before the look: a peer may have sent before that
        if not injected or self._before < TURNS:
            arrival = self._next_message()
            if arrival is not None or not injected:
                self._before += injected
                return arrival
        self._before = 0
        self._taken_out[0] += 1
        return MemoryArrival(self._injected.popleft())

    def _next_message(self) -> MemoryArrival | None:
        """Return the next message, from each rank in turn; None if there is none, as when a writer resets its tail."""
        tails, heads, size = self._own.tails, self._own.heads, self._size
        source = self._served
        for _ in range(size):
            following = source + 1 if source + 1 < size else 0
            if tails[source] != heads[source]:
                self._served = following
                if (arrival := self._take(source, tails[source])) is not None:
                    return arrival
            source = following
        return None

    def _take(self, source: int, tail: int) -> MemoryArrival | None:
        reader = self._readers[source]
        try:
            frames, lent = reader.take(tail)
        except ValueError:  # the peer wrote no message: the protocol's numbers will show the missing ones
            reader.skip(tail)
            self._release(source)
            return None
        if lent:
            link = self._links.get(source)  # None if the rank left before it was met; the answer to it will fail
            loan = link.loan(lent) if link is not None else None
            arrival = MemoryArrival([bytes(frame) for frame in frames], loan)
        elif len(frames) == 1:
            arrival = MemoryArrival([bytes(frames[0])])
        else:
            self._unread = source
            return MemoryArrival(frames)
        self._release(source)
        return arrival

    def _release(self, source: int) -> None:
        """Give the room of a message back, and wake the writer if it waits for room."""
        self._unread = -1
        self._readers[source].release()
        with self._fence:
            pass
        if self._own.wanting[source]:
            self._own.wanting[source] = 0
            link = self._links.get(source)
            if link is not None:
                link.wake()

    def inject(self, frames: Sequence[bytes]) -> None:
        with self._door:  # reentrant, for the handler of a signal
            if self._closed:
                return
            self._injected.append(frames)
            self._put_in[0] += 1
            with threading.Lock():  # a new lock as fence: the polling thread may hold its own
                pass
            _wake(self._own, self._futex, self._pipe[1], next(self._bells))

    @property
    def noticed(self) -> bool:
        return bool(self._injected)

    def fileno(self) -> int:
        if not self._with_pipe:
            self._with_pipe = True
            os.write(self._pipe[1], b"\0")  # makes the caller look once
        return self._pipe[0]

    def close(self, within: float | None = None) -> None:
        if self._closed:
            return
        self._own.mark_closed()
        end = self.clock() + (LINGER if within is None else within)
        try:
            while self.unsent and (left := end - self.clock()) > 0:
                self._deliver(min(left, LOOK))
        finally:
            self._give_back()

    def _deliver(self, seconds: float) -> None:
        """Write queued messages, and wait for room; messages that arrive meanwhile are dropped."""
        for peer in [peer for peer, link in self.unsent.items() if link.gone()]:
            del self.unsent[peer]
        self._come_to()
        self._own.heads[:] = self._own.tails
        self._injected.clear()
        if self.unsent:
            self._wait(seconds)

    def _give_back(self) -> None:
        """Close the descriptors, and unmap all memory, even if a reference to this object is kept."""
        with self._door:
            self._closed = True
            if self._compiled is not None:
                self._compiled.close()
            del self._own, self._futex
        for link in self._links.values():
            link.close()
        self._links.clear()
        self.unsent.clear()
        self._readers.clear()
        for descriptor in (self._descriptor, *self._pipe):
            os.close(descriptor)


class _Link:
    """The way to one other rank: its tables, this rank's ring there, and the means to wake it."""

    def __init__(
        self, peer: int, card: SegmentCard, who: Credentials, rank: int, size: int, bells: Iterator[int]
    ) -> None:
        self.card, self._peer, self._rank, self._bells = card, peer, rank, bells
        self._process = segment.watch(card)
        self._ends = select.poll()
        if self._process >= 0:
            self._ends.register(self._process, select.POLLIN)
        try:
            self._segment, self._ring, self._pipe = segment.open_at(card, who, rank, size)
        except BaseException:
            self._close_watch()
            raise
        self.ring = RingWriter(self._ring, self._segment.tails, self._segment.heads, rank)
        self.queue: deque[tuple[Sequence[bytes], bytes]] = deque()  # of messages that wait for room
        self.state = self._segment.state  # how its reader waits
        self._futex = Futex(self._segment.view[BELL : BELL + 4])
        self._memory = ForeignMemory(card.pid)
        self._looked = 0.0
        if self.ended():  # then the mapped memory may be another process's
            self.close()
            raise FileNotFoundError(f"process {card.pid} has ended")

    @property
    def memory(self) -> tuple[object, ...]:
        """The words, the ring, the pipe and the process, as a compiled lane takes them."""
        tables, here = self._segment, slice(self._rank, self._rank + 1)
        return (
            tables.tails[here],
            tables.heads[here],
            self._ring,
            tables.left,
            tables.returns,
            tables.state,
            tables.bell,
            self._pipe,
            self._process,
            self.card.pid,
        )

    def put_queued(self, fence: threading.Lock) -> bool:
        """Write queued messages as far as there is room; return whether any was written."""
        written = False
        while self.queue and self.ring.put(*self.queue[0]):
            self.queue.popleft()
            written = True
        if written:
            with fence:
                pass
            self.wake()
        return written

    def want(self, room: bool) -> None:
        """Let the reader know whether this rank waits for room."""
        self._segment.wanting[self._rank] = room

    def wake(self) -> None:
        """Wake the reader if it waits."""
        _wake(self._segment, self._futex, self._pipe, next(self._bells))

    def gone(self) -> bool:
        """Return whether the reader has left, or its process has ended."""
        if self._segment.left[0]:
            return True
        if self.ring.empty:
            return False
        now = time.monotonic()
        if now < self._looked + LOOK:
            return False
        self._looked = now
        return self.ended()

    def ended(self) -> bool:
        """Return whether the process is known to have ended."""
        return bool(self._ends.poll(0))

    def returned(self, count: int, before: int) -> bool:
        """Return whether the other rank may have taken back a loan with this count, or has left."""
        return self._segment.returns[count % RETURNS] != before or self._segment.closed

    def loan(self, pieces: Loans) -> ShmLoan:
        """Return the loan of these pieces of the other rank's memory."""
        return ShmLoan(self, self._peer, self._memory, pieces)

    def close(self) -> None:
        """Close the descriptors, and unmap the memory."""
        os.close(self._pipe)
        self._close_watch()
        del self._segment, self._ring, self.state, self.ring, self._futex

    def _close_watch(self) -> None:
        if self._process >= 0:
            os.close(self._process)


class ShmLoan:
    """Memory of another process, read from its beginning on; fulfils `Loan`."""

    __slots__ = ("_at", "_index", "_link", "_memory", "_peer", "_pieces", "_returns")

    def __init__(self, link: _Link, peer: int, memory: ForeignMemory, pieces: Loans) -> None:
        self._link, self._peer, self._memory = link, peer, memory
        self._returns, *self._pieces = pieces
        self._index = self._at = 0  # the next piece, and the next byte in it

    def read_into(self, view: memoryview) -> int:
        done = 0
        while done < len(view) and self._index < len(self._pieces):
            address, size = self._pieces[self._index]
            length = min(len(view) - done, size - self._at)
            try:
                self._memory.read(address + self._at, view[done : done + length])
            except ProcessLookupError:
                raise LinkLost(self._peer, "its process has ended") from None
            done, self._at = done + length, self._at + length
            if self._at == size:
                self._index, self._at = self._index + 1, 0
        if self._link.ended():  # the bytes may be from another process with the same number
            raise LinkLost(self._peer, "its process has ended")
        if self._link.returned(*self._returns):  # after the copy: a sender changes the count before the memory
            raise LoanWithdrawn(f"rank {self._peer} has given up the call in which it had lent this memory")
        return done


def _wake(own: Segment, futex: Futex, pipe: int, bell: int) -> None:
    """Wake the reader of a segment if it waits: by its pipe, or by `bell`, a number that no other rank rings with."""
    state = own.state[0]
    if state == AT_FUTEX:
        own.bell[0] = bell & _BELLS
        futex.wake()
    elif state == AT_PIPE:
        with suppress(BlockingIOError):  # the pipe is full, so the reader wakes anyway
            os.write(pipe, b"\0")


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        os.read(pipe, 4096)


def _count_of(pieces: Loans) -> int:
    """Return the index of the word that counts the returns of this memory; other memory may share the word."""
    return sum(address >> 4 for address, size in pieces if size) % RETURNS


def _place(piece: memoryview) -> tuple[int, int]:
    """Return address and size of bytes in memory, also of read-only ones."""
    if not piece.readonly and piece:
        return address_of(piece), len(piece)
    return np.frombuffer(piece, np.uint8).__array_interface__["data"][0], len(piece)
