"""Decide which reader reads which part of a file: pure decisions, which all readers make alike.

The readers, one on each host, exchange a `Report` each, and then each of them computes the same `Turn`: the bytes that
each passes on to all others now, and the segments that each reads next. So no reader asks another one.

A reader that is faster has room for more sooner, and gets longer segments, by the bytes that it has read so far.
Segments become shorter towards the end, so that all readers end at the same time (guided self-scheduling:
Polychronopoulos and Kuck 1987). A reader without work takes segments over from the one that needs the longest for its
own. What a reader had that cannot go on is read by others. Where a server asks for fewer requests, all readers pause,
and half as many requests are under way from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from ringcast._util.dataclass import dataclass
from ringcast.transfer.ranges import Range, Ranges

SHORTEST, LONGEST = 1 << 16, 8 << 20  # bytes of a segment; the last one may be shorter
_SEGMENTS = 16  # for each connection, by which the shortest ones are longer where the file is
_AHEAD = 2  # segments that a reader holds for each connection: one is read, one is next
_FIRST = 4  # times shorter are the first segments, as the speeds are not known then
_FASTER = 3  # times faster must a reader be that reads once more what another one reads
_STALLED = 1000  # ms without a byte, after which another one reads it in any case
_REFUSALS = 8  # pauses without a byte between them, after which the read ends


@dataclass(slots=True)
class Requests:
    """How many requests may be under way: `each` of a reader; `all` of all readers, once a server has refused some.

    `all` is 0 before that. It is kept from one read to the next, and when readers are lost.
    """

    each: int
    all: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The news of a reader.

    Attributes:
        ready: bytes that it has read, and would pass on.
        stalled: ms since its last byte, while it has segments.
        pause: ms for which a server wants no request; 0: no server has said so.
        epoch: the number of pauses that it knew when the request began that the server refused.
        gone: whether it reads no more.
    """

    ready: tuple[Range, ...] = ()
    stalled: int = 0
    pause: int = 0
    epoch: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The decisions that follow from the reports, by reader.

    Attributes:
        sent: bytes that each passes on now, each byte by one reader only.
        given: segments that each reads from now on, beside those that it has.
        taken: bytes that it need not read any more: ends of segments, or whole ones.
        requests: how many may be under way at each.
        pause: ms before any reader makes another request.
        epoch: the number of pauses so far.
    """

    sent: tuple[tuple[Range, ...], ...]
    given: tuple[tuple[Range, ...], ...]
    taken: tuple[tuple[Range, ...], ...]
    requests: tuple[int, ...]
    pause: int
    epoch: int


@dataclass(slots=True)
class _Held:
    """A segment that a reader has: its bytes that have not arrived; `begun` if it was longer at first."""

    start: int
    stop: int
    begun: bool = False


@dataclass(slots=True)
class _Reader:
    """A reader as all know it: its segments, and the bytes that it was the first to read."""

    requests: int
    held: list[_Held] = field(default_factory=list)
    read: int = 0
    gone: bool = False

    @property
    def left(self) -> int:
        return sum(each.stop - each.start for each in self.held)


class Shares:
    """The state of a read, alike at all readers.

    Args:
        size: bytes of the file.
        readers: how many there are.
        connections: requests of each that may be under way.
        there: by reader, the bytes that it has already, while others lack them: it passes them on.
        everywhere: bytes that all have.
        most: requests of all that may be under way, as earlier reads have learnt; 0: no server has refused any.
    """

    def __init__(
        self,
        size: int,
        readers: int,
        connections: int,
        there: Sequence[Iterable[Range]] = (),
        everywhere: Iterable[Range] = (),
        most: int = 0,
        *,
        shortest: int = SHORTEST,
        longest: int = LONGEST,
    ) -> None:
        self._shortest = min(max(shortest, size // (connections * readers * _SEGMENTS)), longest)
        self._longest = longest
        self._readers = [_Reader(connections) for _ in range(readers)]
        self.requests = connections * readers  # of all
        if most:
            self._share_out(min(self.requests, most))
        self._lacking = Ranges([(0, size)])
        for each in everywhere:
            self._lacking.remove(each)
        self._free = Ranges(self._lacking)
        for reader, ranges in zip(self._readers, there, strict=False):
            for each in ranges:
                for start, stop in self._free.common(each):
                    reader.held.append(_Held(start, stop, begun=True))
                    self._free.remove((start, stop))
        self.epoch = 0
        self._refusals = 0  # pauses since the last byte

    @property
    def done(self) -> bool:
        """Whether all have every byte."""
        return not self._lacking

    @property
    def active(self) -> int:
        """How many readers still read."""
        return sum(not reader.gone for reader in self._readers)

    @property
    def refused(self) -> bool:
        """Whether servers have only refused, again and again."""
        return self._refusals >= _REFUSALS

    def turn(self, reports: Sequence[Report]) -> Turn:
        """Return what follows from the reports of all readers."""
        sent = [self._pass_on(reader, report) for reader, report in zip(self._readers, reports, strict=True)]
        self._forget(Ranges(each for report in reports for each in report.ready))
        if any(sent):
            self._refusals = 0
        pause = self._pause(reports)
        taken: list[list[Range]] = [[] for _ in reports]
        for number, (reader, report) in enumerate(zip(self._readers, reports, strict=True)):
            reader.gone = reader.gone or report.gone
            if reader.gone or not reader.requests:
                taken[number] = self._give_up(reader)
        given: list[list[Range]] = [[] for _ in reports]
        stalled = [report.stalled >= _STALLED for report in reports]
        for _ in range(_AHEAD * max(reader.requests for reader in self._readers)):
            if not self._hand_out_once(given, taken, stalled):
                break
        requests = tuple(reader.requests for reader in self._readers)
        return Turn(_frozen(sent), _frozen(given), _frozen(taken), requests, pause, self.epoch)

    def _pass_on(self, reader: _Reader, report: Report) -> list[Range]:
        """Return the bytes of a report that others lack, which they have after this turn."""
        fresh = [part for each in report.ready for part in self._lacking.common(each)]
        for part in fresh:
            self._lacking.remove(part)
            self._free.remove(part)
            reader.read += part[1] - part[0]
        return fresh

    def _forget(self, arrived: Ranges) -> None:
        """Take bytes that are there out of the segments of all readers."""
        for reader in self._readers:
            reader.held = [rest for held in reader.held for rest in _without(held, arrived)]

    def _pause(self, reports: Sequence[Report]) -> int:
        """Halve the requests where one was refused that had begun after the last pause; return ms of a pause."""
        asked = [report.pause for report in reports if report.pause and report.epoch == self.epoch]
        if not asked:
            return 0
        self.epoch += 1
        self._refusals += 1
        self._share_out(max(1, self.requests // 2))
        return max(asked)

    def _share_out(self, requests: int) -> None:
        """Give each reader its part of the requests of all."""
        self.requests = requests
        readers = [reader for reader in self._readers if not reader.gone]
        for number, reader in enumerate(readers):
            reader.requests = requests // len(readers) + (number < requests % len(readers))

    def _give_up(self, reader: _Reader) -> list[Range]:
        """Let others read what a reader has; return it."""
        left = [(held.start, held.stop) for held in reader.held]
        reader.held = []
        if reader.gone and reader.requests:
            self._inherit(reader)
        for each in left:
            self._release(each)
        return left

    def _inherit(self, gone: _Reader) -> None:
        """Give the requests of a reader that is gone to the others, if they have fewer than they would like."""
        spare, gone.requests = gone.requests, 0
        idle = [reader for reader in self._readers if not reader.gone and not reader.requests]
        for reader in idle[:spare]:
            reader.requests = 1

    def _release(self, part: Range) -> None:
        """Let a part be read, as far as it is lacking and no other reader reads it."""
        rest = Ranges(self._lacking.common(part))
        for reader in self._readers:
            for held in reader.held:
                rest.remove((held.start, held.stop))
        for each in rest:
            self._free.add(each)

    def _hand_out_once(self, given: list[list[Range]], taken: list[list[Range]], stalled: Sequence[bool]) -> bool:
        """Give one more segment to each reader that has room; return whether there was any."""
        some = False
        for number, reader in sorted(enumerate(self._readers), key=lambda each: len(each[1].held)):
            if reader.gone or len(reader.held) >= _AHEAD * reader.requests:
                continue
            if (segment := self._free.first(self._length(reader))) is not None:
                self._free.remove(segment)
                reader.held.append(_Held(*segment))
            elif (
                len(reader.held) < reader.requests
                and not stalled[number]
                and (found := self._take_over(reader, taken, stalled)) is not None
            ):
                segment = found
            else:
                continue
            given[number].append(segment)
            some = True
        return some

    def _length(self, reader: _Reader) -> int:
        """Return the length of the next segment: a part of the reader's fair share of the rest."""
        rest, all_read = self._free.total, sum(each.read for each in self._readers if not each.gone)
        if all_read:
            fair = rest * reader.read / all_read / (_AHEAD * reader.requests)
        else:
            fair = rest / self.active / (_AHEAD * reader.requests) / _FIRST
        return max(self._shortest, min(self._longest, int(fair)))

    def _take_over(self, thief: _Reader, taken: list[list[Range]], stalled: Sequence[bool]) -> Range | None:
        """Give an idle reader a part of what the slowest one has; return it, None if all goes well without.

        An owner with more segments than requests loses the last one of which nothing has come. Else each segment is
        under way: half of a long one is taken; a short one is read by both.
        """
        owners = [(number, each) for number, each in enumerate(self._readers) if each is not thief and each.held]
        for number, owner in sorted(owners, key=lambda each: -each[1].left / (each[1].read + 1)):
            slow = stalled[number] or thief.read > _FASTER * owner.read
            waiting = [held for held in owner.held if not held.begun] if len(owner.held) > owner.requests else []
            if waiting:
                part = waiting[-1].start, waiting[-1].stop
            elif slow and (found := self._slow_part(thief, owner, stalled)) is not None:
                part = found
            else:
                continue
            if waiting or all(part != (held.start, held.stop) for held in owner.held):
                owner.held = [rest for held in owner.held for rest in _without(held, Ranges([part]))]
                taken[number].append(part)
            thief.held.append(_Held(*part))
            return part
        return None

    def _slow_part(self, thief: _Reader, owner: _Reader, stalled: Sequence[bool]) -> Range | None:
        """Return half of the longest segment of a slow reader, or all of one that is too short to be cut.

        The latter is read twice: not by a third reader, unless the other two have stalled.
        """
        others = [each for each, stall in zip(self._readers, stalled, strict=True) if each is not owner and not stall]
        twice = Ranges((held.start, held.stop) for each in (thief, *others) for held in each.held)
        once = [held for held in owner.held if not twice.common((held.start, held.stop))]
        if not once:
            return None
        longest = max(once, key=lambda held: held.stop - held.start)
        length = longest.stop - longest.start
        return longest.start + (length // 2 if length >= 2 * self._shortest else 0), longest.stop


def _frozen(ranges: Sequence[Sequence[Range]]) -> tuple[tuple[Range, ...], ...]:
    return tuple(tuple(each) for each in ranges)


def _without(held: _Held, gone: Ranges) -> list[_Held]:
    """Return what is left of a segment without some bytes."""
    common = gone.common((held.start, held.stop))
    if not common:
        return [held]
    rest = Ranges([(held.start, held.stop)])
    for each in common:
        rest.remove(each)
    return [_Held(start, stop, begun=True) for start, stop in rest]
