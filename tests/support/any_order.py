"""A job whose ranks are threads that run one at a time, on a wire that delivers in any order.

What is under way between two ranks, or between a rank and the control plane, keeps its order; which of these links
delivers next is drawn from a seed, and so is nothing else: a run can be had again. Time is virtual: where nothing is
under way, or all of that is slow, it goes on to the first deadline of a rank that waits. A rank can be killed at any
place.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Any

from hypothesis import Phase, settings

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import SharedControl
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import LinkLost
from ringcast.transports.base import CompiledLane, Frame, MemoryArrival
from ringcast.wire.control_messages import Failing, FromMember
from ringcast.wire.failure import Failure
from ringcast.wire.header import Kind, unpack
from support.loans import MemoryLoan
from support.under_way import holding

PLANE = -1  # the control plane, where others have a rank
NONCE, CONTEXT = 5, 3
ENDLESS = 20_000  # events in a row in which nothing is delivered
TICK = 1e-5  # virtual seconds of an event
REFUSED = 0.1  # share of the looks of lanes that fail for no reason
LONG = 1000.0  # virtual seconds after which ranks hang

SHRUNK = settings(phases=[phase for phase in Phase if phase is not Phase.explain])  # hangs are dear to explain

Link = tuple[int, int]


class Died(BaseException):
    """Ends the program of a rank that was killed, or of every rank when a run is given up."""


class End:
    """One rank's end of the wire: its transport, and its line to the control plane."""

    def __init__(self, job: AnyOrder, rank: int) -> None:
        self._job, self._rank = job, rank
        self.inbox: deque[MemoryArrival] = deque()
        self.unsent: Sequence[int] = ()
        host = range(rank - rank % job.host, min(rank - rank % job.host + job.host, job.size))
        self.lenders = frozenset(host) - {rank}
        self.loans: list[MemoryLoan] = []
        self.places = 0  # how often this rank has sent something, or looked for something
        self.closed = False

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        self._place()
        if self._job.ends[peer].closed:
            raise LinkLost(peer, "that rank has closed its inbox")
        self._job.put((self._rank, peer), MemoryArrival([bytes(frame) for frame in frames]))

    def lend(self, peer: int, frames: Sequence[Frame], memory: Sequence[memoryview]) -> None:
        self._place()
        if self._job.ends[peer].closed:
            raise LinkLost(peer, "that rank has closed its inbox")
        loan = MemoryLoan(memory, lambda: self._rank not in self._job.dead)
        self.loans.append(loan)
        self._job.put((self._rank, peer), MemoryArrival([bytes(frame) for frame in frames], loan))

    @property
    def lanes(self) -> End | None:
        return self if self._job.lanes else None

    def attach(self, compiled: CompiledLane) -> bool:
        return False

    def put(self, peer: int, frame: Frame) -> bool:
        self._place()
        if self._job.refuses() or self._job.ends[peer].closed:
            return False
        self._job.put((self._rank, peer), MemoryArrival([bytes(frame)]))
        return True

    def head(self, peer: int, patience: float) -> memoryview | None:
        self._place()
        until = self._job.now + patience
        while not (self._job.refuses() or self.noticed):
            arrival = self._first(peer)
            if arrival is not None:
                return memoryview(arrival.header) if not arrival.more and arrival.loan is None else None
            if self._job.now >= until:
                return None
            self._job.hand_over(self._rank, until)
        return None

    def release(self, peer: int) -> None:
        first = self._first(peer)
        assert first is not None, "head has returned it"
        self.inbox.remove(first)

    def _first(self, peer: int) -> MemoryArrival | None:
        """Return the first message of a peer that is here."""
        return next((arrival for arrival in self.inbox if unpack(arrival.header).source == peer), None)

    def take_back(self, memory: Sequence[memoryview]) -> None:
        for loan in self.loans:
            loan.withdraw(memory)

    def connect(self, peers: Sequence[int]) -> None:
        """Nothing to open."""

    def poll(self, deadline: float | None) -> MemoryArrival | None:
        self._place()
        if not self.inbox:
            self._job.hand_over(self._rank, inf if deadline is None else deadline)
        return self.inbox.popleft() if self.inbox else None

    def inject(self, frames: Sequence[bytes]) -> None:
        self._job.put((PLANE, self._rank), MemoryArrival(frames))

    @property
    def noticed(self) -> bool:
        return any(unpack(arrival.header).kind in (Kind.NOTICE, Kind.WAKE) for arrival in self.inbox)

    def clock(self) -> float:
        return self._job.now

    def fileno(self) -> int:
        raise OSError("this wire has no file descriptor")

    def close(self, within: float | None = None) -> None:
        self.closed = True
        self.inbox.clear()

    def _place(self) -> None:
        self.places += 1
        self._job.arrived_at(self._rank, self.places)


class Line:
    """One rank's line to the control plane; fulfils `Control`."""

    def __init__(self, job: AnyOrder, rank: int) -> None:
        self._job, self._rank = job, rank

    def send(self, message: FromMember) -> None:
        self._job.put((self._rank, PLANE), message)

    def close(self) -> None:
        """Nothing to give back."""


class AnyOrder:
    """p ranks, as `support.jobs.Job` has them: `run` calls a function on all of them, once in the life of this.

    Args:
        size: number of ranks.
        seed: of the order of deliveries; 0: in the order of sending. With odd ones, ranks lend their memory: with 1, 5,
            9, ... to all others, with 3, 7, ... to one, as where two of them share a host. Where `seed // 4` is even,
            messages can be looked at before they are taken, and one look in ten fails for no reason.
        slow: how often time goes on though something is under way; 0: never, 1: as often as a message is delivered.
        victim: rank that is killed when it comes to its `place`; see `End.places`.
        place: 0: no rank is killed.
        silent: seconds for which it is as if the victim were stopped: nothing is heard of it, and only then it is
            declared failed. 0: that is declared at once, and its connections are closed.
    """

    def __init__(
        self, size: int, seed: int = 0, *, slow: float = 0.0, victim: int = 0, place: int = 0, silent: float = 0.0
    ) -> None:
        self.size, self.now = size, 0.0
        self.host = {1: size, 3: 2}.get(seed % 4, 1)  # so many ranks, which lend to each other
        self.lanes = seed // 4 % 2 == 0
        self.victim, self.place, self._silent = victim, place, silent
        self._declared = inf  # when the victim is declared failed
        self.dead: set[int] = set()
        self.ends = [End(self, rank) for rank in range(size)]
        self.shared = SharedControl(NONCE, self.ends)
        self.endpoints = [Endpoint(r, size, NONCE, end, Line(self, r)) for r, end in enumerate(self.ends)]
        self._slow, self._random = slow, Random(seed) if seed else None
        self._changes = 0.1 if self._random is None else self._random.choice([0.1, 0.01])
        self._links: dict[Link, deque[Any]] = {}  # those with something under way, in the order of its oldest
        self._weights: dict[Link, float] = {}
        self._until: dict[int, float] = {}  # when a rank that waits wakes up
        self._deaf: set[int] = set()  # ranks that compute
        self._turn = threading.Lock()  # of the scheduler
        self._go = [threading.Lock() for _ in range(size)]
        for lock in (self._turn, *self._go):
            lock.acquire()
        self._running: int | None = None
        self._delivered = False  # something, by the last event
        self._over = False

    # What ranks do.

    def put(self, link: Link, what: Any) -> None:
        """Put something onto a link; what a dead rank says, or is told, is lost."""
        if self.dead.isdisjoint(link):
            self._links.setdefault(link, deque()).append(what)

    def hand_over(self, rank: int, until: float) -> None:
        """Let others run until something has come for this rank, or it is time; returns at once where nobody runs."""
        if self._running != rank:
            return
        self._until[rank], self._running = until, None
        self._turn.release()
        self._go[rank].acquire()
        if self._over:
            raise Died

    def refuses(self) -> bool:
        """Return whether a lane is to fail now, so that the engine goes on."""
        return self._random is not None and self._random.random() < REFUSED

    def compute(self, rank: int, seconds: float) -> None:
        """Let a rank do something else for so long."""
        self._deaf.add(rank)
        self.hand_over(rank, self.now + seconds)
        self._deaf.discard(rank)

    def arrived_at(self, rank: int, place: int) -> None:
        if (rank, place) == (self.victim, self.place) and rank == self._running:
            self.dead.add(rank)
            for link in [link for link in self._links if rank in link]:
                if link[1] == rank or self._random is None or self._random.random() < 0.5:
                    del self._links[link]  # else what it has sent still comes
            self._declared = self.now + self._silent
            if not self._silent:
                self.ends[rank].close()
                self._declare()
            raise Died

    def _declare(self) -> None:
        """Let the control plane declare that the victim has failed."""
        self._declared = inf
        self.shared.take(Failing(self.victim, Failure("killed")))

    # What happens.

    def run(self, fn: Callable[[Communicator], Any], timeout: float | None = None) -> list[Any]:
        """Return fn's results, with an exception in the place of the result of a rank that raised one.

        Raises:
            AssertionError: ranks hang: they wait without a deadline, and nothing is under way.
        """
        results: list[Any] = [None] * self.size
        threads = [threading.Thread(target=self._work, args=(r, fn, timeout, results)) for r in range(self.size)]
        processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(processors)})  # to pass the interpreter's lock to another one takes long
        try:
            for thread in threads:
                thread.start()
            self._until = dict.fromkeys(range(self.size), 0.0)
            self._events()
        finally:
            self._over = True
            for rank, thread in enumerate(threads):
                with suppress(RuntimeError):  # it has come to its end
                    self._go[rank].release()
                thread.join()
            os.sched_setaffinity(0, processors)
        return results

    def _work(self, rank: int, fn: Callable[[Communicator], Any], timeout: float | None, results: list[Any]) -> None:
        self._go[rank].acquire()
        try:
            if not self._over:
                group = Group(self.endpoints[rank], CONTEXT, NETWORKS["threads"])
                results[rank] = fn(Communicator(group, timeout))
        except BaseException as error:
            results[rank] = error
        finally:
            if not self._over:
                self._running = None
                self._turn.release()

    def _events(self) -> None:
        idle = 0
        while self._until:
            rank, idle = self._next(), idle + 1
            self.now += TICK
            idle = 0 if self._delivered else idle
            assert idle < ENDLESS, f"ranks {sorted(self._until)} poll at {self.now:g} s, and nothing is under way"
            assert self.now < LONG, f"ranks {sorted(self._until)} hang"
            if rank is not None:
                self._until.pop(rank)
                self._running = rank
                self._go[rank].release()
                self._turn.acquire()

    def _next(self) -> int | None:
        """Let one thing happen; return the rank that can go on now."""
        links, first = [*self._links], min(self._until, key=lambda rank: self._until[rank])
        if self._declared <= (self.now if links else self._until[first]):
            self.now = max(self.now, self._declared)
            self._declare()
            return None
        due = [rank for rank, until in self._until.items() if until <= self.now]
        assert due or links or self._until[first] < inf, f"ranks {sorted(self._until)} hang at {self.now:g} s"
        choice = self._choose(due, links, first)
        self._delivered = not isinstance(choice, int)
        if not isinstance(choice, int):
            return self._deliver(choice)
        self.now = max(self.now, self._until[choice])
        return choice

    def _choose(self, due: Sequence[int], links: Sequence[Link], first: int) -> int | Link:
        """Return a rank that can go on, be it that time goes on for that, or a link that delivers."""
        if not due and not links:
            return first
        if self._random is None:
            return links[0] if links else due[0]
        if self._random.random() < self._changes:  # some links are slow, for a while
            self._weights.clear()
        weights = [self._weights.setdefault(link, self._random.random() ** 4 + 1e-3) for link in links]
        later = self._slow * max(weights, default=0.0) if not due and self._until[first] < inf else 0.0
        return self._random.choices([*due, *links, first], [*[0.5] * len(due), *weights, later])[0]

    def _deliver(self, link: Link) -> int | None:
        queue = self._links[link]
        what = queue.popleft()
        if queue and self._random is None:
            self._links[link] = self._links.pop(link)  # the others have older ones, more or less
        elif not queue:
            del self._links[link]
        if link[1] == PLANE:
            self.shared.take(what)
            return None
        if self.ends[link[1]].closed:
            return None
        self.ends[link[1]].inbox.append(what)
        return link[1] if link[1] in self._until and link[1] not in self._deaf else None

    # What must be true in the end.

    def settle(self) -> None:
        """Let all that is under way arrive, as in the next call of a rank."""
        living = [e for e in self.endpoints if e.rank not in self.dead and not e.closed]
        while self._links or any(self.ends[endpoint.rank].inbox for endpoint in living):
            while self._links:
                self._deliver(next(iter(self._links)))
            for endpoint in living:
                endpoint.catch_up()

    def left_over(self) -> dict[int, list[str]]:
        """Return, by rank, the tables of the protocol that still hold transfers; there must be none between calls."""
        self.settle()
        found = {e.rank: holding(e.protocol, "outbox") for e in self.endpoints if e.rank not in self.dead}
        return {rank: names for rank, names in found.items() if names}
