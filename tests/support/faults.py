"""One fault at one place of one rank, on the simulated wire: all ranks in one thread, a virtual clock, no chance.

A rank waits, asks and gives up as in `drive`, whose decisions it shares. A failing case tells how to see all its
messages: `PYTHONPATH=tests python -m support.faults bcast:circulant:5:1000:leave:dies:2:0:0`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, product
from typing import Any
from zlib import crc32

import numpy as np

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.control.dead_link import STALL
from ringcast.control.deadlocks import DeadlockDetector
from ringcast.control.suspicions import SETTLE, Accusations
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Steps
from ringcast.errors import PeerFailed, Revoked, RingcastError
from ringcast.transports.base import Frame
from ringcast.transports.simulated import SimulatedWire
from ringcast.wire import header as wire
from ringcast.wire.control_messages import (
    Bye,
    Failed,
    Failing,
    Finished,
    FromMember,
    Moving,
    Notice,
    Revoke,
    Waiting,
    notice_frames,
)
from ringcast.wire.failure import Failure
from ringcast.wire.reports import StallReport
from support.driven import driven
from support.fault_cases import ENDS, OF_LINKS, OF_MESSAGES, OF_RANKS, SIZES, Case, call, expected
from support.under_way import holding

CONTEXT, NONCE = 3, 5
PLANE = 1e-3  # seconds that a notice of the control plane is under way
KNOWN = {"dies": 1.0, "died": 1.0, "stops": 10.0}  # seconds until the control plane declares the rank failed …
KNOWN |= {"cut": PLANE, "half": PLANE}  # … or counted from when one of two ranks with a dead link is given up
LATE = 2.5  # seconds that a message is held up: longer than it takes a rank to ask what is the matter
LIMIT = {"none": 5.0, "dies": 2.0, "died": 2.0, "stops": 12.0, "raises": 0.1, "quits": 2.0}  # seconds until all end …
LIMIT |= {"lost": 15.0, "late": 10.0, "twice": 5.0, "cut": 15.0, "half": 15.0}  # … counted from the fault
BUDGET = {1_000: 1_100}  # eager bytes per peer, by size of the values: here nearly each message has to be asked for
ENDLESS = 100_000  # messages


class Died(BaseException):
    """Ends the program of a rank that is gone; nothing of what it still says is heard."""


class Raised(Exception):
    """An error of a rank's own, as that of a user's operator."""


class FaultyWire(SimulatedWire):
    """A wire whose messages may get lost, come late, or come twice."""

    def __init__(self, size: int, fate: Callable[[int, int, Sequence[Frame]], str]) -> None:
        super().__init__(size)
        self._fate = fate

    def carry(self, source: int, peer: int, frames: list[bytes]) -> None:
        fate = self._fate(source, peer, frames)
        if fate == "late":  # and so is everything that goes the same way after it
            self._last[source, peer] = self.now + LATE
        for _ in range({"lost": 0, "twice": 2}.get(fate, 1)):
            super().carry(source, peer, frames)


class Plane:
    """One rank's line to the control plane; fulfils `Control`."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank

    def send(self, message: FromMember) -> None:
        match message:
            case Revoke():
                for peer in range(self._world.case.size):
                    self._world.notify(peer, message)
            case Finished():
                self._world.left.add(self._rank)
                for peer in range(self._world.case.size):
                    self._world.notify(peer, Bye(self._rank, message.sent.get(peer, 0)))
            case Failing():
                raise AssertionError(f"rank {self._rank} leaves with {message.failure.cause}")
            case Waiting() if self._rank not in self._world.silent:
                self._world.compare(message.report)
            case Moving() if self._rank not in self._world.silent:
                self._world.deadlocks.moved(self._rank)

    def close(self) -> None:
        """Nothing to give back."""


class World:
    """The ranks of a case, from `run` on until each has come to its end; or not, when the time is over."""

    def __init__(self, case: Case, log: Callable[[str], None] | None = None) -> None:
        self.case, self._log, p = case, log, case.size
        self.wire = FaultyWire(p, self._fate)
        continues = bool(lot(str(case)) % 2)  # of all others the job ends with the rank that fails
        self.ends = [
            Endpoint(rank, p, NONCE, self.wire.ends[rank], Plane(self, rank), continues=continues) for rank in range(p)
        ]
        for end in self.ends:
            end.protocol._eager_credits.each = BUDGET.get(case.nbytes, end.protocol._eager_credits.each)
        self.when: float | None = None  # of the fault
        self.link: tuple[int, int] | None = None  # of the message that it is about
        self.silent: set[int] = set()  # dead or stopped
        self.left: set[int] = set()
        self._accusations = Accusations(settle=STALL + SETTLE)
        self.results: dict[int, Any] = {}  # of the call
        self.errors: dict[int, Exception] = {}
        self.ended: dict[int, float] = {}  # when a rank's program was over
        self.deadlocks = DeadlockDetector()
        self.sent: Counter[tuple[int, int]] = Counter()  # messages, by rank and place
        self._places = [-1] * p
        self._number = count()
        self._notices: list[tuple[float, int, int, Notice]] = []  # (due, number, for whom, notice)
        self._until: dict[int, float] = {}  # when a rank that waits wakes up
        self._programs = [self._program(rank) for rank in range(p)]

    def run(self) -> None:
        """Let time pass until the programs of all ranks are over, or should have been."""
        for rank in range(self.case.size):
            self._go(rank, None)
        while self._until and self.wire.now <= (self.when or 0.0) + LIMIT[self.case.fault]:
            dues = [end.wakes(self._until[end.rank]) or 0.0 for end in self.ends if end.rank in self._until]
            dues += [] if self._accusations.due is None else [self._accusations.due]
            rank = self.wire.deliver(min([*dues, *(due for due, *_ in self._notices[:1])]))
            if rank is not None:
                self._wake(rank)
            else:
                self._tick()

    def settle(self) -> None:
        """Let all that is under way arrive, as in the next call of a rank."""
        while self._notices:
            self._inject()
        for _ in range(ENDLESS):
            while self.wire.deliver() is not None:
                pass
            came = [end.progress(self.wire.now) for end in self.survivors() if end.rank not in self.left]
            if not any(came):
                return
        raise AssertionError("there is no end of messages")

    def survivors(self) -> list[Endpoint]:
        return [end for end in self.ends if end.rank not in self.silent]

    def notify(self, peer: int, notice: Bye | Failed | Revoke, *, after: float = PLANE) -> None:
        """Let the control plane tell `peer` something about another rank."""
        if peer != notice.rank and (notice.rank not in self.silent or isinstance(notice, Failed)):
            self._send_notice(peer, notice, after)

    def compare(self, report: StallReport) -> None:
        """Let the control plane learn what a rank waits for, and tell what follows."""
        for found in self.deadlocks.report(report, self.wire.now):
            self._send_notice(found.rank, found, PLANE)

    def _send_notice(self, rank: int, notice: Notice, after: float) -> None:
        heappush(self._notices, (self.wire.now + after, next(self._number), rank, notice))

    # What a rank does.

    def _program(self, rank: int) -> Generator[float, bool, None]:
        end = self.ends[rank]
        group = Group(end, CONTEXT, NETWORKS["threads"])
        try:
            if self.case.fault == "quits" and rank == self.case.rank:
                self.when = self.wire.now
                end.leave()
            else:
                self.results[rank] = yield from driven(end, self._placed(rank, call(self.case, group)))
                self._places[rank] = -1
                yield from self._afterwards(group)
        except Died:
            return
        except (RingcastError, Raised) as error:
            self.errors[rank] = error
        self.ended[rank] = self.wire.now
        self._note(f"rank {rank}: {self.errors.get(rank, 'done')}")

    def _afterwards(self, group: Group) -> Generator[float, bool, None]:
        if self.case.after == "barrier":
            yield from driven(group.endpoint, collectives.reduce.barrier(group))
        else:
            group.endpoint.leave()

    def _placed(self, rank: int, steps: Steps[Any]) -> Steps[Any]:
        """Count the exchanges of a rank, which dies at its place before it sends."""
        place = -1
        while True:
            try:
                exchange = next(steps)
            except StopIteration as stop:
                return stop.value
            if exchange.send_to is not None or exchange.recv_from is not None:
                place += 1
                if self._doomed(rank, place):
                    self._end_at(rank)
                self._places[rank] = place
                self.sent[rank, place] += 0  # a place also where nothing is sent
            yield exchange
            if self._doomed(rank, place) and self.case.fault == "died":
                self._fall(rank)
                raise Died

    def _end_at(self, rank: int) -> None:
        """A rank has come to the place where it may have to end, before it sends."""
        if self.case.fault == "raises":
            self.when = self.wire.now
            raise Raised
        if self.case.fault in ("dies", "stops"):
            self._fall(rank)
            raise Died

    def _doomed(self, rank: int, place: int) -> bool:
        return (rank, place) == (self.case.rank, self.case.place)

    def _go(self, rank: int, came: bool | None) -> None:
        """Let a rank go on until it waits or ends."""
        program = self._programs[rank]
        self._until.pop(rank, None)
        try:
            self._until[rank] = next(program) if came is None else program.send(came)
        except StopIteration:
            return
        if self.case.fault == "died" and self._doomed(rank, self._places[rank]):
            self._fall(rank)
            del self._until[rank]
            program.close()

    def _progress(self, rank: int) -> None:
        """Let a waiting rank make progress, in which it may die, and go on."""
        try:
            came = self.ends[rank].progress(self.wire.now)
        except Died:
            del self._until[rank]
            self._programs[rank].close()
        else:
            self._go(rank, came)

    def _fall(self, rank: int) -> None:
        """From now on nothing is heard of a rank, and after a while the others are told."""
        fault, self.when = self.case.fault, self.wire.now
        self._note(f"rank {rank} {fault}")
        self.silent.add(rank)
        for peer in range(self.case.size):
            why = Failure(f"it {fault}", host="node1", pid=7)
            self.notify(peer, Failed(rank, why), after=KNOWN[fault])
        if fault != "stops":
            self.ends[rank].transport.close()

    # What comes.

    def _fate(self, source: int, peer: int, frames: Sequence[Frame]) -> str:
        if source in self.silent:
            return "lost"
        at, fate = (source, self._places[source]), "sent"
        if self.case.fault in (*OF_MESSAGES, *OF_LINKS) and self._doomed(*at) and self.sent[at] == self.case.message:
            fate, self.when, self.link = self.case.fault, self.wire.now, (source, peer)
            if fate in OF_LINKS:  # the kernel's acknowledgements are missing from now on
                self._accusations.accuse(source, peer, fate, self.wire.now)
        if self._is_cut(source, peer):
            fate = "lost"
        self.sent[at] += 1
        if self._log is not None:
            self._note(f"{source} -> {peer} {fate:5} {describe(frames)}")
        return fate

    def _is_cut(self, source: int, peer: int) -> bool:
        if self.case.fault not in OF_LINKS or self.link is None:
            return False
        return self.link == (source, peer) or (self.case.fault == "cut" and self.link == (peer, source))

    def _give_up(self) -> None:
        """Let the control plane give up one of two ranks with a dead link, if it is time and both are there."""

        def here(rank: int) -> bool:
            return rank not in self.left

        for found in self._accusations.decide(here, lambda _: False, self.wire.now):
            since, rank = self.when, found.given_up
            self._fall(rank)
            self.when = since
            if rank in self._until:
                del self._until[rank]
                self._programs[rank].close()

    def _tick(self) -> None:
        """Do what is due now."""
        self._give_up()
        while self._notices and self._notices[0][0] <= self.wire.now:
            self._wake(self._inject())
        for rank in list(self._until):
            if rank in self._until and (self.ends[rank].wakes(self._until[rank]) or 0.0) <= self.wire.now:
                self._progress(rank)

    def _inject(self) -> int:
        """Put the next notice into its inbox; return whose."""
        _, _, rank, notice = heappop(self._notices)
        self._note(f"plane -> {rank} {notice}")
        self.ends[rank].transport.inject(notice_frames(notice, NONCE))
        return rank

    def _wake(self, rank: int) -> None:
        """Let a rank take what is in its inbox, while it waits."""
        while rank in self._until and self.wire.ends[rank].inbox:
            self._progress(rank)

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.wire.now:9.6f} {text}")


def describe(frames: Sequence[Frame]) -> str:
    """Return a message in words."""
    h = wire.unpack(frames[0])
    flags = f" flags {h.flags}" if h.flags else ""
    what = f"operation {h.operation}, ordinal {h.ordinal}, pair {h.pair}, transfer {h.transfer}"
    return f"{wire.Kind(h.kind).name:6} {what}, length {h.length}, word {h.word}{flags} (from rank {h.source})"


# What must be true in the end.


def check(case: Case) -> None:
    """Run a case.

    Raises:
        AssertionError: it ended in another way than it should have.
    """
    world = World(case)
    try:
        world.run()
        judge(world)
    except Exception as error:
        error.add_note(f"to see it again: PYTHONPATH=tests python -m support.faults {case}")
        raise


def judge(world: World) -> None:
    """Assert that everybody came to the right end, in time, and that nothing is left."""
    case, wanted = world.case, expected(world.case)
    assert (world.when is not None) == (case.fault != "none"), "the fault did not happen"
    for end in world.survivors():
        rank = end.rank
        assert rank in world.ended, f"rank {rank} hangs since {world.when} s, now {world.wire.now} s"
        late = world.ended[rank] - (world.when or 0.0)
        assert late <= LIMIT[case.fault], f"rank {rank} ended {late} s after the fault"
        if rank in world.results:
            assert np.array_equal(world.results[rank], wanted[rank]), f"rank {rank} has wrong data"
        if isinstance(world.errors.get(rank), Raised):
            assert rank == case.rank
        elif rank in world.errors:
            assert names(world.errors[rank], culprits(world)), f"rank {rank}: {world.errors[rank]!r}"
        else:
            assert not of_rank(case) or rank in world.left, f"rank {rank} did without the one that failed"
    world.settle()
    for end in world.survivors():
        assert not (left := left_over(end)), f"rank {end.rank} keeps {left}"
        if end.rank in world.errors:
            assert_revoked(end)


def of_rank(case: Case) -> bool:
    return case.fault in (*OF_RANKS, "quits")


def culprits(world: World) -> set[int]:
    """Return the ranks that an error may name."""
    if of_rank(world.case):
        return {world.case.rank}
    return set(world.link or ()) if world.case.fault in ("lost", *OF_LINKS) else set()


def names(error: Exception, ranks: set[int]) -> bool:
    """Whether an error says that one of these ranks failed, or that its link did."""
    if isinstance(error, PeerFailed):
        return error.peer in ranks
    told = re.match(r"rank \d+: peer rank (\d+)|rank (\d+): Raised", getattr(error, "cause", ""))
    return isinstance(error, Revoked) and told is not None and int(told[1] or told[2]) in ranks


def left_over(end: Endpoint) -> list[str]:
    """Return what a rank still holds of the call."""
    protocol = end.protocol
    state = protocol._contexts[CONTEXT]
    return holding(protocol, "outbox") + [
        name for name in ("active", "exchanges", "mail", "grants") if getattr(state, name)
    ]


def assert_revoked(end: Endpoint) -> None:
    """Assert that a call of a communicator that was given up raises at once, and sends nothing."""
    sent = sum(end.protocol.sent)
    try:
        next(driven(end, collectives.reduce.barrier(Group(end, CONTEXT, NETWORKS["threads"]))))
    except Revoked:
        assert sum(end.protocol.sent) == sent, f"rank {end.rank} sends on a communicator that was given up"
        return
    raise AssertionError(f"rank {end.rank} goes on with a communicator that was given up")


# Which cases there are.

GROUPS = (5, 8)  # ranks
CALLS = tuple(product(SIZES, ENDS))


def cases(collective: str, algorithm: str, groups: Sequence[int] = GROUPS) -> Iterator[Case]:
    """Yield every fault at every place, each in one of the calls: with one of the sizes, and one of the ends.

    Of the larger group, which has four times as many, every twenty-fourth.
    """
    for p, (turn, (nbytes, after)) in product(groups, enumerate(CALLS)):
        case, turns = Case(collective, algorithm, p, nbytes, after), len(CALLS) * (1 if p == GROUPS[0] else 24)
        for fault in _faults(case) if case.fits else ():
            if lot(p, *fault) % turns == turn:
                yield Case(collective, algorithm, p, nbytes, after, *fault)


def _faults(case: Case) -> Iterator[tuple[str, int, int, int]]:
    """Yield all faults of a call, which has none so far: what, the rank, the place, the message."""
    world = World(case)
    world.run()
    judge(world)
    for (rank, place), messages in sorted(world.sent.items()):
        if place >= 0:
            yield from ((fault, rank, place, 0) for fault in OF_RANKS)
            yield from ((fault, rank, place, n) for fault in OF_MESSAGES for n in range(messages))
            yield from ((OF_LINKS[lot(rank, place, n) % 2], rank, place, n) for n in range(messages))
    yield from (("quits", rank, 0, 0) for rank in range(case.size))


def lot(*facts: object) -> int:
    """Return a number that looks like chance, and is always the same for the same facts."""
    return crc32(repr(facts).encode())


def main() -> None:
    """Show the messages of a case, and how it ends."""
    world = World(Case.parse(sys.argv[1]), print)
    world.run()
    judge(world)


if __name__ == "__main__":
    main()
