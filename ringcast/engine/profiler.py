"""The profiler of a rank: a flight recorder that also sums the times of operations, by the program's call sites.

It keeps three things. Sums and a histogram of each call site, however often it calls. Moments at which operations have
begun and ended, of one call in `stride` on average: all ranks keep the same ones (`is_kept`), so that the moments of
one call can be compared between ranks; the stride doubles when there is no room for more. And the rounds of a few calls
whose messages are large. The memory of all of it is bounded. `ringcast.profiling` makes a report from it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf
from threading import get_native_id
from typing import Any

from ringcast.engine.recorder import Recorder
from ringcast.engine.tally import Tally, ends_of
from ringcast.events import Event, Observer
from ringcast.procs.portable import starved
from ringcast.protocol.operations import Operation
from ringcast.schedules.schedule import Step
from ringcast.wire.call import NOWHERE, Site
from ringcast.wire.flight import CALL, DONE, END, STATE_AT
from ringcast.wire.header import STAGES, call_of

MOMENTS = 1 << 18  # that all ranks together keep
MOST_MOMENTS, FEWEST_MOMENTS = 1 << 14, 1 << 7  # of a rank
TALLIES = 1 << 16  # of all ranks together: call sites with different arguments; further ones share a tally
MOST_TALLIES, FEWEST_TALLIES = 4096, 64  # of a rank
VARIANTS = 16  # tallies of a call site, and a 16th of the rank's, at most; further arguments or communicators share one
ENDS = 4  # of messages between two ranks: a 4th of the rank's tallies, as a rank may send to all others at one place
COMMUNICATORS = 256  # without a call so far, whose members are kept
CHANNELS = 4096  # pairs of a rank and a tag whose messages are counted
WORD = 1 << 32
MASK = WORD - 1
SPREAD = 2654435769  # WORD divided by the golden ratio: its multiples lie evenly among all words
FIRST, EVERY = 3, 256  # of a call with large messages: the first calls are observed, and then every 256th
ROUNDS = 512  # of a call that is observed, at most
WIDTH, NOTHING_MET = 8, (-1, 0)  # of a moment: how many values, and the last ones if no message was received
SAVE, SHARE = 1.0, 100.0  # seconds between two saves, at least, and in times of what a save takes
MESSAGES = frozenset({"send", "recv", "sendrecv", "probe"})  # operations between two ranks
STARTS = frozenset({"start", "Start", "Startall"})
WAITS = frozenset(
    {"wait", "wait_all", "wait_any", "wait_some", "test", "Wait", "Waitall", "Waitany", "Waitsome", "Test"}
)
_OTHERS: tuple[Site, bytes] = NOWHERE, b""  # all places without a tally of their own
_NO_NAMES = b"", b"", b"", b"", -1, 1  # of the arguments of calls that share a tally
_MESSAGES = frozenset(name.encode().ljust(32, b"\0") for name in MESSAGES)
_begin = Recorder.begin  # faster than by super
_end = END.pack_into
_HOME = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


class Profiler(Recorder):
    """The recorder of a rank, in place of another one, whose memory it takes over; `save` keeps what it has found."""

    def __init__(
        self, recorder: Recorder, size: int, clock: Callable[[], float], save: Callable[[Profiler], None] | None = None
    ) -> None:
        self._memory, self._last, self.payload = recorder._memory, recorder._last, recorder.payload
        self._clock = clock  # of the transport, which may be simulated
        self.tallies: list[Tally] = []
        # The moments, one behind the other: the garbage collector would visit tuples again and again.
        self._moments: list[Any] = []
        self._awaited: dict[Operation, float] = {}  # since when the program waits for operations of requests
        self.stride = 1
        self._limit = WORD  # the hashes of calls that are kept lie below it: see `is_kept`
        self.members: dict[int, tuple[int, ...]] = {}  # ranks of communicators, where they are not all; by number
        self.start, self.end = clock(), 0.0
        self.thread = get_native_id()
        self.starved = starved(self.thread)  # before the profile
        self.outside = 0.0  # seconds of the program in none of ringcast's calls, before the last one began
        self.has_block = False  # whether a block of the program has a profile of its own now
        self._room = WIDTH * min(MOST_MOMENTS, max(FEWEST_MOMENTS, MOMENTS // size))
        self._most = min(MOST_TALLIES, max(FEWEST_TALLIES, TALLIES // size))
        self._of: dict[tuple[Site, bytes, int], Tally] = {}
        self._variants: Counter[tuple[Site, bytes]] = Counter()  # tallies of a collective at a call site …
        self._shared: dict[tuple[Site, bytes], Tally] = {}  # … and the one of all others there
        self._crowd = COMMUNICATORS  # `members` of so many communicators are reduced to the ones that tallies need
        self._calls: dict[tuple[Site, bytes], tuple[str, Site]] = {}
        self._channels: dict[tuple[int, str, int, int], list[int]] = {}
        self._left = self.start  # when the program has left the last call
        self._entered = self.start  # when it has entered the call that it is in now
        self._inside = 0.0  # time of the operations of that call
        self._charged = 0.0  # of `outside`: what tallies have as the time before them
        self._tally: Tally | None = None  # of the last of them
        self._depth = 0  # of calls within calls
        self._sent, self._received = self.payload[-2], self.payload[-1]  # bytes that operations have counted
        self._before = self.payload.tolist()  # the profile
        self._at_end: list[int] = []  # the payload, whose memory is released then
        self._save, self._due = save, self.start  # the first time after the first call

    def begin(self, op: Operation, call: bytes) -> None:
        _begin(self, op, call)
        tally = self._of.get((op.site, call, op.context))
        if tally is None:
            if op.site is NOWHERE:  # ringcast's own, as between the runs of a cluster
                op.tally = None
                return
            tally = self._new(op.site, call, op.context)
        op.tally = self._tally = tally

    def done(self, op: Operation) -> float:
        rounds, now = op.rounds or 0, self._clock()
        # As `Recorder.done`, without the time of a call.
        _end(self._memory, op.record + STATE_AT, DONE, rounds, rounds, now)
        began, tally, number, payload = op.began, op.tally, op.number, self.payload
        sent, received = payload[-2], payload[-1]
        if tally is None or tally.owner is not self or began == inf:  # begun before the profile, or counted already
            self._sent, self._received = sent, received
            return now
        op.began = inf
        seconds = now - began
        if number % STAGES:
            tally.later += 1
        if sent != self._sent:
            tally.sent += sent - self._sent
            self._sent = sent
        if received != self._received:
            tally.received += received - self._received
            self._received = received
        tally.histogram[int(seconds * 1e9).bit_length()] += 1
        waits = began  # for the operation, since then
        if op.blocks:
            tally.blocking += seconds
            if self._depth and began >= self._entered:  # as `_is_over`, most often
                self._inside += seconds
                self._tally = tally
            else:
                self._is_over(tally, began, now)
        else:
            tally.requests += 1
            tally.under_way += seconds
            waits = self._waits_since(op, began, now)
        if seconds > tally.slowest[0]:
            tally.slowest = seconds, number, began
        if tally.ends is not None:
            self._keep_message(tally, op.met, began, now, waits)
        elif tally.shared:
            if op.met is not None:
                _next(self._channel(op.context, "from", *op.met))
        elif number and number // STAGES * SPREAD & MASK < self._limit:
            self._moments += (tally.number, number, 0, began, now, waits, *NOTHING_MET)
            if len(self._moments) > self._room:
                self._thin_out()
        if now > self._due and self._save is not None:
            self.save()
        return now

    def _is_over(self, tally: Tally, began: float, now: float) -> None:
        """Count an operation whose caller has waited for it."""
        if not self._depth:  # a call that has nothing else in it
            self.outside += began - self._left
            self._left = now
            tally.before += self.outside - self._charged
            self._charged = self.outside
            return
        self._inside += now - began
        self._tally = tally
        if began < self._entered:  # the call had begun by prediction
            self.outside -= self._entered - began
            self._entered = began

    def failed(self, op: Operation, peers: tuple[int, ...] | None = None) -> None:
        super().failed(op, peers)
        tally, began, now = op.tally, op.began, self._clock()
        if tally is None or tally.owner is not self:
            return
        tally.failed += 1
        if op.blocks:
            tally.lost += now - began
            tally.missed = op.waiting_for if peers is None else peers
            self._is_over(tally, began, now)
        op.began = now  # nothing is counted twice
        if not tally.shared and len(self._moments) < self._room:
            waits = began if op.blocks else now
            self._moments += (tally.number, op.number, 0, began, now, waits, *NOTHING_MET)

    def close(self) -> None:
        if not self.end:
            self.end = self._clock()
            self.save()
            self._at_end = self.payload.tolist()
        super().close()

    def plain(self) -> Recorder:
        """End the profile; return a recorder that goes on with the same memory."""
        self.end = self.end or self._clock()
        self.outside, self._left = self.outside_until(self.end), self.end
        recorder = Recorder.__new__(Recorder)
        recorder._memory, recorder._last, recorder.payload = self._memory, self._last, self.payload
        return recorder

    def save(self) -> None:
        """Keep what was found so far; the next time is far enough away that it takes a small part of the time."""
        began = self._clock()
        if self._save is not None:
            with contextlib.suppress(OSError):  # no room: the program goes on, and the report says what is missing
                self._save(self)
        ended = self._clock()
        self._due = ended + max(SAVE, SHARE * (ended - began))

    @property
    def moments(self) -> list[tuple[Any, ...]]:
        """Tally, number, another number, begin, end of each call that is kept, and since when the program waits for it.

        Of a message received also its source and tag.
        """
        return [row[:-2] if row[-2:] == NOTHING_MET else row for row in _rows(self._moments)]

    @property
    def sent_to(self) -> list[tuple[int, int]]:
        """The ranks to which this one has sent data since the profile began, and how many bytes."""
        payload = self._at_end or self.payload
        sent = zip(payload[:-2], self._before, strict=False)  # without the sums
        return [(rank, now - before) for rank, (now, before) in enumerate(sent) if now > before]

    def outside_until(self, now: float) -> float:
        """Return the seconds in which the program was in none of ringcast's calls."""
        return self.outside + (0.0 if self._depth else now - self._left)

    def enter(self) -> None:
        """Take note that the program has made a call."""
        self._depth += 1
        if self._depth == 1:
            self._entered, self._inside, self._tally = self._clock(), 0.0, None
            self.outside += self._entered - self._left

    def leave(self) -> None:
        """Take note that the call is over."""
        self._depth -= 1
        if not self._depth:
            self._left = self._clock()
            tally = self._tally
            if tally is not None:
                own = self._left - self._entered - self._inside
                if own > 0.0:
                    tally.python += own
                tally.before += self.outside - self._charged
                self._charged = self.outside

    def enter_wait(self, ops: Sequence[Operation]) -> tuple[float, Sequence[Operation]]:
        """Take note that the program waits for these, if any; return what `leave_wait` needs."""
        now = self._clock()
        for op in ops:
            self._awaited[op] = now
        if not self._depth:
            self.outside += now - self._left
            self._left = now
        return now, ops

    def leave_wait(self, wait: tuple[float, Sequence[Operation]], ops: Sequence[Operation]) -> None:
        """Take note that the `wait` is over; `ops` are the last stages of the requests by now."""
        began, now = wait[0], self._clock()
        for op in wait[1]:
            self._awaited.pop(op, None)
        if self._depth:
            return  # a call waits, whose time it is
        self._left = now
        for op in ops:
            if op.tally is not None:
                op.tally.awaited += (now - began) / len(ops)

    def took_object(self, op: Operation | None) -> None:
        """Take note that an operation has brought a Python object; None: the last one."""
        tally = self._tally if op is None else op.tally
        if tally is not None:
            tally.objects += 1

    def plans(self, op: Operation, stage: Any, members: tuple[int, ...], steps: Iterable[Step]) -> None:
        """Keep the plan of an operation that has begun, and the members of its communicator."""
        tally = op.tally
        if tally is None:
            return
        if op.context == tally.context:
            self.members.setdefault(op.context, members)
        if not tally.shared:
            if tally.plan is None and stage.call.topology:  # else the sources follow from the collective
                tally.sources = tuple(sorted({step.recv_from for step in steps if step.recv_from is not None}))
            tally.plan = stage

    def made(self, context: int, members: tuple[int, ...]) -> None:
        """Keep the members of a new communicator; forget earlier ones that have had no call, if there are many."""
        self.members[context] = members
        if len(self.members) >= self._crowd:
            used, known = {tally.context for tally in self.tallies}, [*self.members]
            last = {*known[-COMMUNICATORS // 2 :]}
            self.members = {each: self.members[each] for each in known if each in used or each in last}
            self._crowd = len(self.members) + COMMUNICATORS

    def observer(self, op: Operation) -> Observer | None:
        """Return the observer of an operation that begins now, if its rounds are to be kept."""
        if op.tally is None or op.tally.shared or not _is_due(op.tally.calls):
            return None
        return _Rounds(op.tally.traces, op.number)

    def begins_again(self, site: Site, stage: Any, context: int) -> Tally | None:
        """Take note that a call that was made before begins, and return its tally.

        None: the profiler needs to see the call's plan or rounds.
        """
        tally = self._of.get((site, stage.record, context))
        if tally is None and site is not NOWHERE:
            tally = self._shared_by(site, stage.record[:32])
        if tally is None or (not tally.shared and (tally.plan is None or (stage.granted and _is_due(tally.calls)))):
            return None
        self._tally = tally
        return tally

    def _new(self, site: Site, call: bytes, context: int) -> Tally:
        """Return a tally of these calls alone, or the one that they share with others."""
        if self._is_full(site, call[:32]):
            return self._sharing(site, call, context)
        self._variants[site, call[:32]] += 1
        self._of[site, call, context] = tally = self._add(site, call, context)
        if tally.ends is not None and tally.ends[0]:
            tally.to = self._channel(context, "to", int(tally.ends[0]), int(tally.ends[2]))
        return tally

    def _is_full(self, site: Site, collective: bytes) -> bool:
        """Return whether further calls at a place share a tally."""
        most = self._most // ENDS if collective in _MESSAGES else min(VARIANTS, max(1, self._most // VARIANTS))
        return len(self.tallies) >= self._most or self._variants[site, collective] >= most

    def _sharing(self, site: Site, call: bytes, context: int) -> Tally:
        """Return the tally of further calls of this place, or if there are too many tallies, of all further ones."""
        tally = self._shared_by(site, call[:32])
        if tally is None and len(self.tallies) < self._most:
            tally = self._add(site, CALL.pack(call[:32], *_NO_NAMES), context)
            self._shared[site, call[:32]] = tally
        elif tally is None:
            self._calls[_OTHERS] = "", NOWHERE
            self._shared[_OTHERS] = tally = self._add(*_OTHERS, 0)
        tally.shared = True
        ends = ends_of(call) if call[:32] in _MESSAGES else None
        if ends is not None and ends[0]:  # the other end counts it too
            _next(self._channel(context, "to", int(ends[0]), int(ends[2])))
        return tally

    def _shared_by(self, site: Site, collective: bytes) -> Tally | None:
        """Return the tally that calls of a place share, if there is one, or calls of all places."""
        return self._shared.get((site, collective)) or self._shared.get(_OTHERS)

    def _add(self, site: Site, call: bytes, context: int) -> Tally:
        name, place = self._call_of_program(site, call[:32])
        tally = Tally(self, len(self.tallies), place, name, call, context)
        self.tallies.append(tally)
        return tally

    def _call_of_program(self, site: Site, collective: bytes) -> tuple[str, Site]:
        """Return the function or method of ringcast that the program calls, by its first stage, and the place of that.

        The place is another one than the site of an operation that ringcast begins by itself, as a pool does.
        """
        known = self._calls.get((site, collective))
        if known is None:
            name, outside = _outermost()
            place = outside if site[0].startswith(_HOME) and outside is not None else site
            if name in WAITS:  # a later stage of a request
                name = next((name for (other, _), (name, _) in self._calls.items() if other == site), name)
            elif name in STARTS:
                name = collective.rstrip(b"\0").decode() + "_init"
            self._calls[site, collective] = known = name, place
        return known

    def _channel(self, context: int, way: str, rank: int, tag: int) -> list[int] | None:
        """Return the count of messages to a rank, or from it; None if there are too many counts."""
        key = context, way, rank, tag
        found = self._channels.get(key)
        if found is None and len(self._channels) < CHANNELS:
            found = self._channels[key] = [0]
        return found

    def _waits_since(self, op: Operation, began: float, now: float) -> float:
        """Return when the program has begun to wait for an operation of a request that is over now."""
        if self._awaited and op.number % STAGES:  # a later stage: the program waits for its call
            return max(began, next(reversed(self._awaited.values())))
        return self._awaited.get(op, now)

    def _keep_message(self, tally: Tally, met: tuple[int, int] | None, began: float, now: float, waits: float) -> None:
        """Count a message that was sent, and one that was received, and keep when."""
        sent, received = tally.to, None if met is None else self._channel(tally.context, "from", *met)
        numbers = _next(sent), _next(received)
        if self._keeps(*numbers):
            self._moments += (tally.number, *numbers, began, now, waits, *(met or NOTHING_MET))
            if len(self._moments) > self._room:
                self._thin_out()

    def _keeps(self, sent: int, received: int) -> bool:
        """Return whether the moments of a message with these counts are kept; 0: it was not sent, or not received."""
        return (sent > 0 and is_kept(sent, self.stride)) or (received > 0 and is_kept(received, self.stride))

    def _thin_out(self) -> None:
        """Make room: keep the moments of half of the calls that have some."""
        self.stride *= 2
        self._limit = WORD // self.stride
        self._moments = [*chain.from_iterable(row for row in _rows(self._moments) if self._stays(row))]

    def _stays(self, moment: tuple[Any, ...]) -> bool:
        tally, number, other = self.tallies[moment[0]], moment[1], moment[2]
        return is_kept(call_of(number), self.stride) if tally.ends is None else self._keeps(number, other)


class _Rounds:
    """Keeps the events of one operation, up to ROUNDS."""

    def __init__(self, traces: dict[int, list[Event]], number: int) -> None:
        while len(traces) > FIRST:
            del traces[sorted(traces)[1]]  # the first one stays, and the last ones
        self._events: list[Event] = traces.setdefault(number, [])

    def __call__(self, event: Event) -> None:
        if len(self._events) < 2 * ROUNDS:
            self._events.append(event)


def is_kept(number: int, stride: int) -> bool:
    """Return whether one kept call in `stride` is this one.

    The calls that are kept at twice the stride are among them. Of the calls of a loop, or of every k-th call, the same
    share is kept; of every `stride`-th number it would be all, or none.

    >>> [number for number in range(1, 30) if is_kept(number, 4)]
    [2, 5, 10, 13, 18, 23, 26]
    """
    return number * SPREAD % WORD * stride < WORD


def _rows(moments: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [*zip(*[iter(moments)] * WIDTH, strict=True)]


def _next(count: list[int] | None) -> int:
    """Count one more, and return how many there are; 0 where nothing is counted."""
    if count is None:
        return 0
    count[0] += 1
    return count[0]


def _is_due(calls: int) -> bool:
    return calls < FIRST or calls % EVERY == 0


def _outermost() -> tuple[str, Site | None]:
    """Return the function of ringcast that the program has called, and where; "" if another thread is at work."""
    frame, name = sys._getframe(1), ""
    while frame is not None and frame.f_code.co_filename.startswith((_HOME, contextlib.__file__)):
        if frame.f_code.co_filename != contextlib.__file__:  # which lies between a block of the program and ringcast
            name = frame.f_code.co_name
            if name.startswith("__") and "self" in frame.f_locals:
                name = type(frame.f_locals["self"]).__name__  # as of a pool that is made
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    if frame is None or frame.f_code.co_filename == threading.__file__:
        return "", None
    return name, (frame.f_code.co_filename, frame.f_lineno)
