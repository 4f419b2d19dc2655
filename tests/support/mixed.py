"""Random programs of all kinds of calls, that are legal by construction, and what they must come to.

A program is drawn for all ranks at once, as a list of `Item`s. Each of the `ACTIONS` turns one into events of single
ranks at a place in one common order; the program of a rank are its events in that order. It is legal: whatever a rank
waits for at a place, all others have begun before that place, as far as they have to, and no call waits for what comes
later. So the first place at which a rank still waits can always go on. Three rules see to that:

1. A collective has the same place on all its ranks.
2. Who waits for a message (a blocking send or receive, a wait for a request) has its place after both the send and the
   receive: the n-th receive of a `key` belongs to its n-th send.
3. Receives that leave the source open may take a message from a rank that is ahead. Their senders never wait for single
   messages, but for all of them at the end.

The model: collectives are compared with numpy (`soak.calls`); the receives of a rank, in the order in which they were
posted, must get the messages of each source in the order in which they were sent, as far as they fit.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any, NamedTuple

import numpy as np

import ringcast
from ringcast import ANY_SOURCE, ANY_TAG, Communicator, Status
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.wire.header import EAGER_LIMIT
from soak.calls import MAKERS, Call, agree, random_call, same, sendrecv
from soak.draw import Draw

NEVER = 77  # a tag that no message has
COMMUNICATORS = 6  # a program has at most
OPEN = "exact", "any tag", "any source", "any"  # what the receives of a communicator leave open
WAITS = "wait", "test", "all", "any", "some"
BETWEEN_NEIGHBORS = [maker for maker in MAKERS if maker.__name__.startswith("neighbor_")]
COLLECTIVES = [maker for maker in MAKERS if maker not in (agree, sendrecv, *BETWEEN_NEIGHBORS)]


class Item(NamedTuple):
    """One thing that happens in a program. Its numbers are taken modulo what there is."""

    action: str
    comm: int = 0
    a: int = 0
    b: int = 0
    size: int = 0
    tag: int = 0
    way: int = 0
    lag: int = 0  # how many items later, or earlier, one side comes to it
    late: int = 0  # how many items later ranks wait for it


class At(NamedTuple):
    """A place in the common order: the number of an item; within it, what begins comes before what waits."""

    item: int
    phase: int = 0
    number: int = 0


STARTS, ANSWERS, LATER, ENDS, FREES = range(5)


class Event(NamedTuple):
    at: At
    rank: int
    text: str
    do: Callable[[Rank], None]


@dataclass
class Part:
    """A communicator: its ranks in the job, and what its receives leave open."""

    members: tuple[int, ...]
    open: str
    made: int = 0  # in which item
    last: int = 0  # the last item in which something happens on it
    early: bool = False  # freed as soon as it may be


class Sent(NamedTuple):
    at: At
    comm: int
    source: int
    dest: int
    tag: int
    size: int
    blocks: bool
    late: int
    wait: str


class Posted(NamedTuple):
    at: At
    comm: int
    source: int
    dest: int
    tag: int
    how: str
    late: int
    wait: str


class Program:
    """The program of every rank, from the items of all of them.

    Args:
        size: number of ranks.
        items: what happens, in the common order.
        open_: what the receives of the first communicator leave open, by number.
    """

    def __init__(self, size: int, items: Sequence[Item], open_: int = 0) -> None:
        self.size, self.items = size, items
        self.parts = [Part((*range(size),), OPEN[open_ % len(OPEN)])]
        self.sent: list[Sent] = []
        self.posted: list[Posted] = []
        self.events: list[Event] = []
        self.end = len(items) + 1  # of which the place is behind all others
        for number, item in enumerate(items):
            ACTIONS[item.action](self, number, item)
        self._messages()
        for comm, part in enumerate(self.parts[1:], start=1):
            at = At(part.last if part.early else self.end, FREES, -comm)
            self._for_members(part, at, f"free {comm}", lambda rank, comm=comm: rank.comms.pop(comm).free())
        self.events.sort(key=lambda event: event.at)

    def __repr__(self) -> str:
        return f"Program({self.size}, {self.items}, {OPEN.index(self.parts[0].open)})"

    def of(self, rank: int) -> list[Event]:
        return [event for event in self.events if event.rank == rank]

    def run(self, comm: Communicator) -> None:
        """Run the program of one rank.

        Raises:
            AssertionError: a result differs from the model's.
        """
        rank = Rank(comm)
        for event in self.of(comm.rank):
            rank.at = event.at
            event.do(rank)
        rank.check(self)

    # What actions use.

    def alive(self, number: int) -> tuple[int, Part]:
        """Return a communicator."""
        comm = number % len(self.parts)
        return comm, self.parts[comm]

    def used(self, part: Part, item: int) -> None:
        part.last = max(part.last, item)

    def add(self, at: At, rank: int, text: str, do: Callable[[Rank], None]) -> None:
        self.events.append(Event(at, rank, text, do))

    def _for_members(self, part: Part, at: At, text: str, do: Callable[[Rank], None]) -> None:
        for rank in part.members:
            self.add(at, rank, text, do)

    def later(self, at: At, rank: int, comm: int, ident: Any, late: int, wait: str) -> None:
        """Let a rank wait for a request, so many items after the place from which on it may be done."""
        item = min(at.item + late, self.end)
        self.used(self.parts[comm], item)
        self.add(At(item, ENDS, len(self.events)), rank, f"{wait} {ident}", lambda r: r.finish(ident, wait))

    # Messages.

    def _messages(self) -> None:
        """Add the events of all messages, of which each is begun where both sides have said, and waited for later."""
        sends, receives = defaultdict(list), defaultdict(list)
        for sent in sorted(self.sent, key=operator.attrgetter("at")):
            sends[self._key(sent)].append(sent)
        for posted in sorted(self.posted, key=operator.attrgetter("at")):
            receives[self._key(posted)].append(posted)
        for key, group in sends.items():
            for one, other in zip(group, receives[key], strict=True):
                self._send(one, other)
                self._receive(other, one)

    def _key(self, one: Sent | Posted) -> tuple[Any, ...]:
        """Return what a message and the receives that it fits have in common."""
        given = self.parts[one.comm].open
        source = one.source if given in ("exact", "any tag") else None
        return one.comm, one.dest, source, one.tag if given in ("exact", "any source") else None

    def _send(self, sent: Sent, posted: Posted) -> None:
        part, ident = self.parts[sent.comm], ("send", self.sent.index(sent))
        itself = sent.source == sent.dest  # which never waits
        at_once = posted.at < sent.at or posted.at == At(sent.at.item, ANSWERS)
        exact = part.open in ("exact", "any tag")
        blocks = sent.blocks and (itself or (exact and at_once))
        value, text = content(ident[1], sent.size), f"send {ident[1]} to {sent.dest}, tag {sent.tag}, size {sent.size}"

        def send(rank: Rank) -> None:
            mine = private(value)
            if blocks:
                rank.comms[sent.comm].send(mine, sent.dest, sent.tag)
                spoil(mine)
            else:
                request = rank.comms[sent.comm].isend(mine, sent.dest, sent.tag)
                rank.begun(ident, request, lambda _: spoil(mine), ready)

        ready = sent.at if itself else max(sent.at, posted.at) if exact else At(self.end)
        self.used(part, sent.at.item)
        self.add(sent.at, part.members[sent.source], text if blocks else f"i{text}", send)
        if not blocks:
            self.later(ready, part.members[sent.source], sent.comm, ident, sent.late, sent.wait)

    def _receive(self, posted: Posted, sent: Sent) -> None:
        part, ident = self.parts[posted.comm], ("recv", self.posted.index(posted))
        source = posted.source if part.open in ("exact", "any tag") else ANY_SOURCE
        tag = posted.tag if part.open in ("exact", "any source") else ANY_TAG
        how = posted.how if sent.at < posted.at else "irecv"
        ready = max(sent.at, posted.at)

        def receive(rank: Rank) -> None:
            comm, status = rank.comms[posted.comm], Status()
            note = rank.expect(posted.comm, source, tag, status)
            if how == "irecv":
                rank.begun(ident, comm.irecv(source, tag, status=status), note, ready)
            else:
                note(RECEIVES[how](comm, source, tag, status))

        self.used(part, posted.at.item)
        self.add(posted.at, part.members[posted.dest], f"{how} {ident[1]} from {source}, tag {tag}", receive)
        if how == "irecv":
            self.later(ready, part.members[posted.dest], posted.comm, ident, posted.late, posted.wait)


@dataclass
class Open:
    """A request that is under way, and from which place on it may be waited for."""

    request: ringcast.Request[Any]
    done: Callable[[Any], object]
    ready: At


@dataclass
class Got:
    """A receive, in the order in which they were posted, and what it got."""

    comm: int
    source: Any
    tag: Any
    status: Status
    value: Any = None


@dataclass
class Rank:
    """One rank while it runs: its communicators, its requests, and what it has received."""

    world: Communicator
    at: At = field(default_factory=lambda: At(0))
    comms: dict[int, Communicator] = field(init=False)
    open: dict[Any, Open] = field(default_factory=dict)
    received: list[Got] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.comms = {0: self.world}

    def begun(self, ident: Any, request: ringcast.Request[Any], done: Callable[[Any], object], ready: At) -> None:
        self.open[ident] = Open(request, done, ready)

    def expect(self, comm: int, source: Any, tag: Any, status: Status) -> Callable[[Any], None]:
        """Note a receive that is posted now; return what takes its value."""
        got = Got(comm, source, tag, status)
        self.received.append(got)
        return lambda value: setattr(got, "value", value)

    def finish(self, ident: Any, wait: str) -> None:
        """Wait for a request, if that has not been done together with another one."""
        while ident in self.open:
            idents = [*self.open] if wait in ("any", "some") else [ident]
            if wait == "all":
                idents = [other for other, one in self.open.items() if one.ready <= self.at]
            for place, value in FINISHES[wait]([self.open[one].request for one in idents]):
                self.open.pop(idents[place]).done(value)

    def check(self, program: Program) -> None:
        """Compare what was received with what was sent, in order."""
        me = self.world.rank
        assert not self.open, self.open
        left = [
            (i, sent)
            for i, sent in sorted(enumerate(program.sent), key=lambda one: one[1].at)
            if program.parts[sent.comm].members[sent.dest] == me
        ]
        for got in self.received:
            source, tag = got.status.source, got.status.tag
            assert got.source in (source, ANY_SOURCE)
            assert got.tag in (tag, ANY_TAG)
            first = next(
                one
                for one in left
                if (got.comm, source) == (one[1].comm, one[1].source) and got.tag in (ANY_TAG, one[1].tag)
            )
            left.remove(first)
            number, sent = first
            assert sent.tag == tag, f"rank {me} got tag {tag} before message {number}, {sent}"
            assert alike(got.value, content(number, sent.size)), f"rank {me} got something else than {number}, {sent}"
            assert got.status.count == count(content(number, sent.size))
        assert not left, f"rank {me} did not get {left}"


# What is sent.


def _limit() -> int:
    """Return how many bytes in an array go eagerly at most."""
    record = SelfDescribing.frames(np.zeros(EAGER_LIMIT - 1, np.uint8), lambda: None)[0]
    return EAGER_LIMIT - len(record)


SIZES = (1, 0, _limit() - 1, _limit(), _limit() + 1, 100_000, "object", "buffer")


def content(number: int, size: int) -> Any:
    """Return what a message says, of which only its number is known."""
    what = SIZES[size % len(SIZES)]
    if what == "object":
        return {"message": number, "text": "ä" * (number % 5)}
    if what == "buffer":
        return [number, np.full(50_000, number % 251, np.uint8)]
    assert isinstance(what, int)
    return (np.arange(what) + number).astype(np.uint8)


def private(value: Any) -> Any:
    """Return a value whose arrays belong to the caller."""
    if isinstance(value, list):
        return [private(one) for one in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def spoil(value: Any) -> None:
    """Change the arrays of a value: its call is over."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, np.ndarray):
            one += 1


def alike(got: Any, want: Any) -> bool:
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    return same(got, want)


def count(value: Any) -> int:
    """Return the bytes of a value as they travel."""
    return sum(map(len, SelfDescribing.frames(value, lambda: None)[1:]))


# How ranks receive, and wait.


def _receive(comm: Communicator, source: Any, tag: Any, status: Status) -> Any:
    return comm.recv(source, tag, status=status)


def _probe(comm: Communicator, source: Any, tag: Any, status: Status) -> Any:
    return _after(comm, comm.probe(source, tag), status)


def _iprobe(comm: Communicator, source: Any, tag: Any, status: Status) -> Any:
    while (found := comm.iprobe(source, tag)) is None:
        pass
    return _after(comm, found, status)


def _after(comm: Communicator, found: Status, status: Status) -> Any:
    got = comm.recv(found.source, found.tag, status=status)
    assert repr(found) == repr(status)
    return got


RECEIVES: dict[str, Callable[..., Any]] = {"recv": _receive, "irecv": _receive, "probe": _probe, "iprobe": _iprobe}


def _tested(requests: Sequence[Any]) -> list[tuple[int, Any]]:
    while not requests[0].test():
        pass
    return [(0, requests[0].wait())]


FINISHES: dict[str, Callable[[Sequence[Any]], Sequence[tuple[int, Any]]]] = {
    "wait": lambda requests: [(0, requests[0].wait())],
    "test": _tested,
    "all": lambda requests: [*enumerate(ringcast.wait_all(requests))],
    "any": lambda requests: [ringcast.wait_any(requests)],
    "some": ringcast.wait_some,
}


# What happens. An action is a function of the program, the number of the item, and the item.


def message(program: Program, number: int, item: Item) -> None:
    """One rank sends to another one, or to itself; the receive comes some items later, or was posted before."""
    comm, part = program.alive(item.comm)
    source, dest = item.a % len(part.members), item.b % len(part.members)
    how = [*RECEIVES][item.way % len(RECEIVES)]
    there = min(max(number + item.lag, part.made), program.end - 1)
    at = At(number, ANSWERS) if there == number else At(there, LATER, number)
    wait = WAITS[item.way % len(WAITS)]
    facts = comm, source, dest, item.tag
    program.sent.append(Sent(At(number), *facts, item.size, item.way % 3 == 0, item.late, wait))
    program.posted.append(Posted(at, *facts, how, item.late, wait))


def collective(program: Program, number: int, item: Item) -> None:
    """All ranks of a communicator make one call; some of them block, and some go on."""
    comm, part = program.alive(item.comm)
    maker = COLLECTIVES[item.a % len(COLLECTIVES)]
    call = random_call(Draw(f"{item.b} {item.size}", len(part.members)), [maker])
    program.used(part, number)
    for place, rank in enumerate(part.members):
        form = [*FORMS][(item.way + place) % len(FORMS)]
        ident = number, place
        do = FORMS[form](comm, call, place, ident)
        program.add(At(number), rank, f"{form} {call} on {comm}", do)
        if form != "now":
            program.later(At(number), rank, comm, ident, item.late, WAITS[item.way % len(WAITS)])


def neighbors(program: Program, number: int, item: Item) -> None:
    """All ranks of a communicator make a graph, and a call between the neighbours in it; some wait for a request."""
    comm, part = program.alive(item.comm)
    maker = BETWEEN_NEIGHBORS[item.a % len(BETWEEN_NEIGHBORS)]
    call = random_call(Draw(f"{item.b} {item.size}", len(part.members)), [maker])
    program.used(part, number)
    for place, rank in enumerate(part.members):

        def do(rank: Rank, place: int = place) -> None:
            topology = rank.comms[comm].graph(call.graph[place])
            how, blocks = _how(call, place), (item.way + place) % 2
            if blocks:
                got = getattr(topology, call.name)(*call.given[place], **how)
            else:
                got = getattr(topology, f"i{call.name}")(*call.given[place], **how).wait()
            _check(call, place, how, got)
            topology.comm.free()

        program.add(At(number), rank, f"{call} on {comm}", do)


def part(program: Program, number: int, item: Item) -> None:
    """A communicator is divided, or copied."""
    comm, parent = program.alive(item.comm)
    if len(program.parts) + 2 > COMMUNICATORS:
        return
    program.used(parent, number)
    size, random = len(parent.members), Random(item.b)
    made = MAKES[[*MAKES][item.a % len(MAKES)]](size, random)
    places: dict[tuple[int, ...], int] = {}
    for ranks in dict.fromkeys(ranks for ranks, _ in made if ranks is not None):
        places[ranks] = len(program.parts)
        members = tuple(parent.members[rank] for rank in ranks)
        early = item.way % 2 == 1
        program.parts.append(Part(members, OPEN[item.tag % len(OPEN)], number, number, early))
    for rank, (ranks, do) in zip(parent.members, made, strict=True):

        def make(rank: Rank, ranks: Any = ranks, do: Any = do) -> None:
            got = do(rank.comms[comm])
            assert (got is None) == (ranks is None)
            if got is not None:
                assert got.members == program.parts[places[ranks]].members
                rank.comms[places[ranks]] = got

        program.add(At(number), rank, f"part of {comm}", make)


def exchange(program: Program, number: int, item: Item) -> None:
    """All ranks of a communicator send around a ring, by sendrecv, where no receive is open."""
    comm, part = program.alive(item.comm)
    if part.open != "exact":
        return
    program.used(part, number)
    size = len(part.members)
    for place, rank in enumerate(part.members):
        dest, source = (place + item.a) % size, (place - item.a) % size

        def do(rank: Rank, place: int = place, dest: int = dest, source: int = source) -> None:
            mine = content(10_000 * number + place, item.size)
            got = rank.comms[comm].sendrecv(private(mine), dest, source, 50)
            assert alike(got, content(10_000 * number + source, item.size))

        program.add(At(number), rank, f"sendrecv on {comm}", do)


def never(program: Program, number: int, item: Item) -> None:
    """A rank posts a receive to which no message comes, and takes it back later."""
    comm, part = program.alive(item.comm)
    rank, later = part.members[item.a % len(part.members)], min(number + item.late, program.end)
    held: list[Any] = []

    def look(rank: Rank) -> None:
        assert rank.comms[comm].iprobe(tag=NEVER) is None
        held.append(rank.comms[comm].irecv(tag=NEVER))

    def cancel(rank: Rank) -> None:
        assert held.pop().cancel()

    program.used(part, later)
    program.add(At(number, LATER, number), rank, f"irecv of nothing on {comm}", look)
    program.add(At(later, ENDS, number), rank, f"cancel on {comm}", cancel)


ACTIONS: dict[str, Callable[[Program, int, Item], None]] = {
    action.__name__: action for action in (message, collective, neighbors, part, exchange, never)
}


# How a rank makes a collective call: at once, or by a request.


def now(comm: int, call: Call, place: int, _: Any) -> Callable[[Rank], None]:
    def do(rank: Rank) -> None:
        how = _how(call, place)
        _check(call, place, how, getattr(rank.comms[comm], call.name)(*call.given[place], **how))

    return do


def later(comm: int, call: Call, place: int, ident: Any) -> Callable[[Rank], None]:
    def do(rank: Rank) -> None:
        how = {key: value for key, value in _how(call, place).items() if key != "timeout"}
        request = getattr(rank.comms[comm], f"i{call.name}")(*call.given[place], **how)
        rank.begun(ident, request, lambda value: _check(call, place, how, value), rank.at)

    return do


def prepared(comm: int, call: Call, place: int, ident: Any) -> Callable[[Rank], None]:
    def do(rank: Rank) -> None:
        how = {key: value for key, value in _how(call, place).items() if key != "timeout"}
        request = getattr(rank.comms[comm], f"{call.name}_init")(*call.given[place], **how)
        request.start()
        rank.begun(ident, request, lambda value: _check(call, place, how, value), rank.at)

    return do


FORMS: dict[str, Callable[[int, Call, int, Any], Callable[[Rank], None]]] = {
    form.__name__: form for form in (later, now, prepared)
}


def _how(call: Call, place: int) -> dict[str, Any]:
    want = call.expected[place]
    into = call.into and type(want) is np.ndarray
    return {**call.how, "out": np.empty_like(want, order="C")} if into else {**call.how}


def _check(call: Call, place: int, how: dict[str, Any], got: Any) -> None:
    assert same(got, call.expected[place]), f"rank {place}: {call}: got {got!r}, not {call.expected[place]!r}"
    assert "out" not in how or got is how["out"]


# How a communicator is made: by rank, the ranks of its part, and the call.

Made = list[tuple[tuple[int, ...] | None, Callable[[Communicator], Any]]]


def split(size: int, random: Random) -> Made:
    colors = [random.choice([None, 0, 0, 1]) for _ in range(size)]
    keys = [random.randrange(3) for _ in range(size)]
    ranks = {
        color: tuple(sorted((r for r in range(size) if colors[r] == color), key=lambda r: (keys[r], r)))
        for color in (0, 1)
    }
    return [
        (None if color is None else ranks[color], lambda comm, color=color, key=key: comm.split(color, key))
        for color, key in zip(colors, keys, strict=True)
    ]


def dup(size: int, _: Random) -> Made:
    return [((*range(size),), lambda comm: comm.dup())] * size


def create(size: int, random: Random) -> Made:
    ranks = tuple(random.sample(range(size), random.randint(1, size)))
    return [(ranks if rank in ranks else None, lambda comm: comm.create(ranks)) for rank in range(size)]


def cart(size: int, random: Random) -> Made:
    """Of a line or a plane; its ranks tell their neighbours who they are."""
    rows = random.randint(1, size)
    dims = random.choice([(rows,), (rows, random.randint(1, size // rows))])
    periods = tuple(random.choice([False, True]) for _ in dims)

    def make(comm: Communicator) -> Communicator | None:
        grid = comm.cart(dims, periods)
        if grid is None:
            return None
        beside = beside_in_grid(comm.rank, dims, periods)
        assert grid.neighbor_allgather(f"rank {comm.rank}") == [None if r is None else f"rank {r}" for r in beside]
        return grid.comm

    ranks = (*range(prod(dims)),)
    return [(ranks if rank in ranks else None, make) for rank in range(size)]


def beside_in_grid(rank: int, dims: tuple[int, ...], periods: tuple[bool, ...]) -> list[int | None]:
    """Return who is before and behind a rank along each axis of a grid."""
    found: list[int | None] = []
    for axis, dim in enumerate(dims):
        step = prod(dims[axis + 1 :])
        at = rank // step % dim
        for n in at - 1, at + 1:
            there = rank + (n % dim - at) * step
            found.append(there if periods[axis] or 0 <= n < dim else None)
    return found


MAKES: dict[str, Callable[[int, Random], Made]] = {"dup": dup, "split": split, "create": create, "cart": cart}


def random_items(
    random: Random, count: int, actions: Sequence[str] = (*ACTIONS, "message", "collective")
) -> list[Item]:
    """Return so many items, drawn at random."""
    return [
        Item(
            random.choice(actions), random.randrange(8), random.randrange(64), random.randrange(64),
            random.randrange(len(SIZES)), random.randrange(4), random.getrandbits(8), random.randint(-3, 4),
            random.randrange(6),
        )
        for _ in range(count)
    ]  # fmt: skip
