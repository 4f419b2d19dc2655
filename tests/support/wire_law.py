"""What ranks send in a collective, and how their counters go on, as text: the law that every way to run one must keep.

`tests/golden/wire_law.txt` has digests of these texts. A line names an algorithm and a number of ranks, with `+` for
messages too large to be eager, and has three digests:

* of the messages from each rank to each other: all fields of the header but version, nonce and credit, and the
  payload. They do not depend on the order in which messages of several ranks arrive, unless grants are among them.
* of the counters of each rank when it begins a round, and when its call is over. They do not depend on that either;
  rounds that overlap, or are granted, are left out.
* of all that does depend on it, on a wire where it is always the same: credits, messages seen, and the rounds left out.

`python -m support.wire_law --write` in `tests/` writes the file again, and `python -m support.wire_law NAME` prints
the texts of a line, as of `allreduce-ring 5`: where a digest differs, compare them with those of an older commit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import Any, NamedTuple

from ringcast.algorithms import Algorithm
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import drive_together, endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.drive import drive
from ringcast.engine.endpoint import Endpoint, Exchange
from ringcast.engine.execute import Steps
from ringcast.transports.base import Frame, MemoryArrival
from ringcast.transports.simulated import SimulatedWire
from ringcast.wire.header import CREDIT_RETURN, CTS, EAGER, RTS, SIZE, Kind, unpack
from support import wire_calls
from support.any_order import PLANE, AnyOrder, Link
from support.places import GOLDEN
from support.wire_calls import BIG_RANKS, ENTRIES, RANKS, WireCall

FILE = GOLDEN / "wire_law.txt"
CONTEXT = 3
LARGE = "+"  # ends the name of a line about messages that are too large to be eager


class Texts(NamedTuple):
    """All that was noted in some calls."""

    messages: str
    counters: str
    order: str

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(sha256(text.encode()).hexdigest()[:12] for text in self)


class Moment(NamedTuple):
    """The counters of a rank at some time."""

    over: str  # the call that is just over; "" in the middle of one
    sums: str


class Notes:
    """Takes notes of the messages and counters of all ranks."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int], list[str]] = defaultdict(list)
        self._counters: dict[int, list[str]] = defaultdict(list)
        self._order: dict[int, list[str]] = defaultdict(list)
        self._begun: set[tuple[int, int, int]] = set()  # rank, operation, round
        self.awaited: dict[int, list[Moment]] = defaultdict(list)  # by rank: those of the law
        self.moments: dict[int, list[Moment]] = defaultdict(list)  # by rank: all, also between the rounds' begins

    def message(self, source: int, peer: int, frames: Sequence[Frame]) -> None:
        """Note a message that a rank sends."""
        h, body = unpack(frames[0]), b"".join([bytes(frames[0][SIZE:]), *map(bytes, frames[1:])])
        if h.kind == Kind.NOTICE:
            return
        credit = h.kind in (EAGER, RTS) or (h.kind == CTS and h.flags & CREDIT_RETURN)
        left_out = ("version", "nonce", "word") if credit else ("version", "nonce")
        fields = " ".join(f"{name} {value}" for name, value in h._asdict().items() if name not in left_out)
        payload = f"{len(body)} bytes {body[:16].hex()} {sha256(body).hexdigest()[:16]}"
        self._messages[source, peer].append(f"rank {source} to {peer}: {fields}, {payload}")
        if credit:
            self._order[source].append(f"rank {source} to {peer}, message {h.pair}: credit {h.word}")

    def round(self, endpoint: Endpoint) -> None:
        """Note the counters of a rank that is about to begin a round, unless it has begun it already."""
        op = None if endpoint.running is None else endpoint.running.operation
        if op is None or op.round is None or (endpoint.rank, op.number, op.round) in self._begun:
            return
        self._begun.add((endpoint.rank, op.number, op.round))
        self.moment(endpoint)
        place = f"rank {endpoint.rank}, operation {op.number}, round {op.round}"
        self._note(endpoint, place, in_order=not (op.concurrent or op.granted))

    def end(self, endpoint: Endpoint, call: str) -> None:
        """Note the counters of a rank whose call is over."""
        self.moment(endpoint, call)
        self._note(endpoint, f"rank {endpoint.rank}, after {call}", in_order=True, over=call)

    def moment(self, endpoint: Endpoint, over: str = "") -> None:
        """Note the counters of a rank now, where it is not known which round it is in, or where a call is `over`."""
        self.moments[endpoint.rank].append(Moment(over, _sums(endpoint)))

    def _note(self, endpoint: Endpoint, place: str, *, in_order: bool, over: str = "") -> None:
        sums = _sums(endpoint)
        notes = self._counters if in_order else self._order
        notes[endpoint.rank].append(f"{place}: {sums}")
        if in_order:
            self.awaited[endpoint.rank].append(Moment(over, sums))
        self._order[endpoint.rank].append(f"{place}: seen {[*endpoint.protocol.seen]}")

    def credits(self, endpoint: Endpoint) -> None:
        """Note the credits of a rank when all messages have arrived."""
        all_of = endpoint.protocol._eager_credits
        credit = f"spent {[*all_of.spent]} held {[*all_of.held]} owed {[*all_of.owed]}"
        self._order[endpoint.rank].append(f"rank {endpoint.rank}: {credit}")

    @property
    def texts(self) -> Texts:
        return Texts(*map(_joined, (self._messages, self._counters, self._order)))


def _sums(endpoint: Endpoint) -> str:
    protocol = endpoint.protocol
    counts = f"sent {[*protocol.sent]} posted {[*protocol.posted]} matched {[*protocol.matched]}"
    return f"{counts} payload {[*protocol.payload]}"


def _joined(notes: dict[Any, list[str]]) -> str:
    return "\n".join(line for key in sorted(notes) for line in notes[key])


class NotedWire(SimulatedWire):
    """A simulated wire of whose messages notes are taken."""

    def __init__(self, size: int, notes: Notes) -> None:
        super().__init__(size)
        self._notes = notes

    def carry(self, source: int, peer: int, frames: list[bytes]) -> None:
        self._notes.message(source, peer, frames)
        super().carry(source, peer, frames)


def noted(notes: Notes, endpoint: Endpoint, steps: Steps[Any], call: str) -> Generator[Exchange, None, Any]:
    """Run the steps of a call of one rank, and note its counters before each round and in the end."""
    while True:
        try:
            exchange = next(steps)
        except StopIteration as stop:
            notes.end(endpoint, call)
            return stop.value
        notes.round(endpoint)
        yield exchange


def group(endpoint: Endpoint, entry: Algorithm) -> Group:
    return Group(endpoint, CONTEXT, NETWORKS["threads"], hosts=wire_calls.hosts(entry, endpoint.size))


def played(entry: Algorithm, p: int, calls: Iterable[WireCall]) -> Notes:
    """Make the calls one after the other on a simulated wire; return what was noted."""
    notes = Notes()
    wire = NotedWire(p, notes)
    made = endpoints(wire.ends)
    groups = [group(endpoint, entry) for endpoint in made]
    for words, begin in calls:
        steps = [noted(notes, endpoint, begin(each), words) for endpoint, each in zip(made, groups, strict=True)]
        drive_together(wire, made, steps)
        while (rank := wire.deliver()) is not None:
            made[rank].catch_up()
        assert_credits(made)
        for endpoint in made:
            notes.credits(endpoint)
    return notes


class NotedJob(AnyOrder):
    """Ranks on a wire that delivers in any order, of whose messages and counters notes are taken; see `AnyOrder`."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size, seed)
        self.notes = Notes()

    def put(self, link: Link, what: Any) -> None:
        if isinstance(what, MemoryArrival) and PLANE not in link:
            self.notes.message(*link, [what.header, *what._frames[1:]])
        super().put(link, what)

    def arrived_at(self, rank: int, place: int) -> None:
        """Note the counters at each act on the wire: the first one of a round is there also in a lane."""
        self.notes.moment(self.endpoints[rank])
        super().arrived_at(rank, place)


def played_in_any_order(entry: Algorithm, p: int, calls: Sequence[WireCall], seed: int) -> Notes:
    """Make the calls one after the other, as fast as each rank can; return what was noted."""
    job = NotedJob(p, seed)

    def work(comm: Communicator) -> None:
        endpoint = job.endpoints[comm.rank]
        mine = group(endpoint, entry)
        for words, begin in calls:
            drive(endpoint, noted(job.notes, endpoint, begin(mine), words))

    errors = [error for error in job.run(work) if error is not None]
    assert not errors, errors
    job.settle()
    assert_credits(job.endpoints)
    return job.notes


def assert_credits(made: Sequence[Endpoint]) -> None:
    """Assert what is true of all credits when no message is under way.

    What a rank has spent at another one lies there: held, or owed to it.
    """
    for a in made:
        for b in made:
            spent, credits = a.protocol._eager_credits.spent[b.rank], b.protocol._eager_credits
            held, owed = credits.held[a.rank], credits.owed[a.rank]
            pair = f"rank {a.rank} to rank {b.rank}"
            assert spent == held + owed, f"{pair}: {spent} spent, but {held} held and {owed} owed"
            assert a.protocol.sent[b.rank] == b.protocol.seen[a.rank], f"{pair}: not all messages were seen"
            assert a.protocol.posted[b.rank] == b.protocol.matched[a.rank], f"{pair}: not all transfers were matched"


def name_of(entry: Algorithm, p: int, *, large: bool = False) -> str:
    return f"{entry.collective}-{entry.name} {p}{LARGE if large else ''}"


def names() -> list[str]:
    """Return the names of all lines."""
    every = [(entry, p) for entry in ENTRIES.values() for p in RANKS if wire_calls.fits(entry, p)]
    small = [name_of(entry, p) for entry, p in every]
    return small + [name_of(entry, p, large=True) for entry, p in every if p in BIG_RANKS]


def texts(name: str) -> Texts:
    """Return what is noted in the calls of a line."""
    algorithm, ranks = name.split()
    entry, p = ENTRIES[algorithm], int(ranks.removesuffix(LARGE))
    calls = wire_calls.big if ranks.endswith(LARGE) else wire_calls.small
    return played(entry, p, calls(entry, p)).texts


def first_difference(got: str, want: str) -> str:
    """Return the first lines that differ, each with the number of its line; "" if there are none."""
    for number, (mine, theirs) in enumerate(zip_longest(got.splitlines(), want.splitlines()), 1):
        if mine != theirs:
            return f"line {number} is\n  {mine}\nnot\n  {theirs}"
    return ""


def first_missed(got: Notes, want: Notes) -> str:
    """Return the first moment of the law through which a rank has not come, in the order of the law; "" if none."""
    for rank, awaited in want.awaited.items():
        moments = iter(got.moments[rank])
        for number, moment in enumerate(awaited):
            if moment not in moments:  # takes all moments before it
                return f"rank {rank} has not come through moment {number}, {moment}"
        ends = [moment for moment in got.moments[rank] if moment.over]
        assert ends == [moment for moment in awaited if moment.over]
    return ""


def golden() -> dict[str, tuple[str, ...]]:
    """Return the digests of the file, by the names of its lines."""
    lines = (line.rsplit(" ", 3) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {name: tuple(digests) for name, *digests in lines}


def write() -> None:
    """Write the file again."""
    lines = (f"{name} {' '.join(texts(name).digests)}\n" for name in names())
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        print("\n\n".join(texts(" ".join(sys.argv[1:]))))
