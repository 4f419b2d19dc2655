"""One of two or three ranks dies at any moment: in every order of messages all ranks end as they should.

Every order of deliveries that a rank can tell from another is tried. No time passes: what is found here needs no clock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import RingcastError
from ringcast.transports.base import Frame, MemoryArrival, NoLoans
from ringcast.wire.control_messages import Bye, Failed, Finished, FromMember, Revoke, notice_frames
from ringcast.wire.failure import Failure
from support.driven import driven
from support.fault_cases import ENDS, EVERY, Case, call, expected
from support.faults import CONTEXT, NONCE, assert_revoked, left_over, names
from support.protocol_net import interleavings

Link = tuple[int, int]  # (from, to); notices come from PLANE + the rank of which they tell
PLANE = 100


class Line:
    """One rank's connection to the control plane; fulfils `Control`."""

    def __init__(self, ends: Ends) -> None:
        self.send = ends.say

    def close(self) -> None:
        """Nothing to give back."""


class Ends(NoLoans):
    """One rank's transport and control: what it says lies on a link until it is chosen to arrive."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank
        self.inbox: deque[Sequence[Frame]] = deque()

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        self._world.put((self._rank, peer), [bytes(frame) for frame in frames])

    def poll(self, _: float | None) -> MemoryArrival | None:
        return MemoryArrival(self.inbox.popleft()) if self.inbox else None

    def clock(self) -> float:
        return 0.0

    def say(self, message: FromMember) -> None:
        match message:
            case Revoke():
                self._world.notify(message)
            case Finished():
                for peer in range(self._world.case.size):
                    bye = Bye(self._rank, message.sent.get(peer, 0))
                    self._world.put((PLANE + self._rank, peer), notice_frames(bye, NONCE))
            case _:
                raise AssertionError(f"no time passes, and nothing is wrong with this rank, but {message}")

    def close(self, **_: object) -> None:
        """Nothing to give back."""


class World:
    """The ranks of a case; what is on its way between them; and a death, which is one of the things that may happen."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.links: dict[Link, deque[list[bytes]]] = defaultdict(deque)
        self.dead = False
        self.results: dict[int, Any] = {}
        self.errors: dict[int, RingcastError] = {}
        self._own = [Ends(self, rank) for rank in range(case.size)]
        self.ends = [Endpoint(rank, case.size, NONCE, own, Line(own)) for rank, own in enumerate(self._own)]
        self._running = {rank: self._program(rank) for rank in range(case.size)}
        for rank in list(self._running):
            self._go(rank, None)

    def _program(self, rank: int) -> Generator[float, bool, None]:
        group = Group(self.ends[rank], CONTEXT, NETWORKS["threads"])
        try:
            self.results[rank] = yield from driven(group.endpoint, call(self.case, group))
            if self.case.after == "barrier":
                yield from driven(group.endpoint, collectives.reduce.barrier(group))
            else:
                group.endpoint.leave()
        except RingcastError as error:
            self.errors[rank] = error

    def _go(self, rank: int, came: bool | None) -> None:
        try:
            next(self._running[rank]) if came is None else self._running[rank].send(came)
        except StopIteration:
            del self._running[rank]

    def put(self, link: Link, frames: list[bytes]) -> None:
        if link[0] % PLANE != link[1] and not (self.dead and link[0] == self.case.rank):
            self.links[link].append(frames)

    def notify(self, notice: Failed | Revoke) -> None:
        if self.dead and notice.rank == self.case.rank and not isinstance(notice, Failed):
            return
        for peer in range(self.case.size):
            self.put((PLANE + notice.rank, peer), notice_frames(notice, NONCE))

    def choices(self) -> list[Link]:
        """Return what may happen next: the first message of a link arrives, or the victim dies."""
        found = [link for link, queue in self.links.items() if queue and link[1] in self._running]
        return found if self.dead else [*found, (self.case.rank, self.case.rank)]

    def step(self, link: Link) -> None:
        """Let it happen."""
        source, rank = link
        if source == rank:
            self._die()
            return
        self.deliver(link)
        self._go(rank, self.ends[rank].progress(0.0))

    def _die(self) -> None:
        rank = self.case.rank
        self.dead = True
        program = self._running.pop(rank, None)
        if program is not None:
            program.close()
        self.notify(Failed(rank, Failure("it died")))

    def deliver(self, link: Link) -> None:
        self._own[link[1]].inbox.append(self.links[link].popleft())

    def judge(self) -> None:
        """Assert that all others came to their ends, the right ones, and keep nothing."""
        wanted, victim = expected(self.case), self.case.rank
        others = [end for end in self.ends if end.rank != victim]
        for end in others:
            rank = end.rank
            assert rank not in self._running, f"rank {rank} hangs"
            assert rank not in self.results or np.array_equal(self.results[rank], wanted[rank])
            assert rank not in self.errors or names(self.errors[rank], {victim}), repr(self.errors[rank])
        while links := [link for link, queue in self.links.items() if queue]:
            for link in links:
                self.deliver(link)
                self.ends[link[1]].progress(0.0)
        for end in others:
            assert not (left := left_over(end)), f"rank {end.rank} keeps {left}"
            if end.rank in self.errors:
                assert_revoked(end)


def explore(case: Case) -> int:
    """Try all orders; return how many states there were."""

    def run(choose: Callable[[list[Link]], Link]) -> None:
        world = World(case)
        while links := world.choices():
            world.step(choose(links))
        world.judge()

    return interleavings(run)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [pytest.param(*one, marks=pytest.mark.long if i % 4 else ()) for i, one in enumerate(EVERY)],
)
@pytest.mark.parametrize("nbytes", [1, pytest.param(100_000, marks=pytest.mark.long)])
def test_two_ranks_of_which_one_dies_whenever_that_is(collective: str, algorithm: str, nbytes: int) -> None:
    for after, victim in product(ENDS, range(2)):
        case = Case(collective, algorithm, 2, nbytes, after, "dies", victim)
        if case.fits:
            assert explore(case) >= 4


@pytest.mark.long
@pytest.mark.parametrize(("victim", "after"), list(product(range(3), ENDS)))
@pytest.mark.parametrize("named", ["barrier:census", "bcast:linear", "allreduce:census", "gather:linear", "shift:ring"])
def test_three_ranks_of_which_one_dies_whenever_that_is(named: str, victim: int, after: str) -> None:
    collective, algorithm = named.split(":")
    assert explore(Case(collective, algorithm, 3, 1, after, "dies", victim)) > 20
