"""A rank dies, or is stopped, at any place while two calls are under way: the others end in time, each call with the
right result or the right error, and go on without it.

The two are collectives on one communicator; collectives on two, of which the members overlap; or a collective and a
receive. See `support.any_order`: what the victim has sent last may be lost or not, and all comes in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from ringcast import ANY_SOURCE, Communicator, PeerFailed, Request, Revoked
from soak.calls import Call, random_call, same
from soak.draw import Draw
from support.any_order import AnyOrder
from support.cases import each
from support.faults import lot
from support.mixed import COLLECTIVES

NAMES = [maker.__name__ for maker in COLLECTIVES]
WAYS = "one", "two", "receive"  # what is under way: see above
SIZES = 5, 8
SAMPLE = 8  # of so many places of one rank the short tests take one
SOON = 2.0  # virtual seconds in which everything is over …
SILENT = 10.0  # … when a victim of which nothing was heard has been declared failed
LETTER = b"x" * 40_000  # what the victim sends: it is granted


class Long(Draw):
    """Draws values, some of them long enough to be granted."""

    def length(self) -> int:
        return self.of([1, 50, 5000, 30_000])


def call(name: str, size: int) -> Call:
    return random_call(Long(f"{name} {size}", size), [COLLECTIVES[NAMES.index(name)]])


class Begun(NamedTuple):
    """A call under way, on which communicator, and whether a result is the right one."""

    request: Request[Any]
    comm: Communicator
    right: Callable[[Any], bool]


class Case:
    """The calls under way, and the outcome that the survivors must reach.

    Args:
        way: one of WAYS.
        name: of the first collective; the second one is the next one in the list.
        size: number of ranks.
        victim: who dies.
    """

    def __init__(self, way: str, name: str, size: int, victim: int) -> None:
        self.way, self.size, self.victim = way, size, victim
        self.text = f"{way} {name} {size} {victim}"
        second = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
        self.calls = call(name, size), call(second, size - 1 if way == "two" else size)
        self.start = 0  # the place of the victim from which on it may die

    def places(self) -> range:
        """Return the places at which the victim can die."""
        job = AnyOrder(self.size, self.order)
        for error in job.run(lambda comm: self._make_calls(comm)):
            if error is not None:
                raise error
        return range(self.start + 1, job.ends[self.victim].places + 1)

    @property
    def order(self) -> int:
        return lot(self.text)

    def check(self, place: int) -> None:
        """Let the victim die at a place, and assert that everybody else comes to the right end."""
        silent = SILENT if lot(self.text, place) % 3 == 0 else 0.0
        job = AnyOrder(self.size, self.order, victim=self.victim, place=place, silent=silent)
        for rank, end in enumerate(job.run(self.survive)):
            if rank != self.victim and isinstance(end, BaseException):
                raise end
        assert job.dead == {self.victim}
        assert job.now < silent + SOON
        assert not job.left_over()

    def survive(self, comm: Communicator) -> None:
        """Make the calls; then none works any more, and the others go on without the victim."""
        self._make_calls(comm)
        with pytest.raises((PeerFailed, Revoked)) as raised:
            comm.barrier()
        self._blames(raised.value)
        for again in comm.iallreduce, comm.allreduce, comm.bcast:
            with pytest.raises(Revoked):
                again(1)
        rest = comm.shrink()
        assert rest.members == tuple(rank for rank in range(self.size) if rank != self.victim)
        assert rest.iallreduce(rest.rank).wait() == sum(range(rest.size))

    def _make_calls(self, comm: Communicator) -> None:
        comms: list[Communicator | None] = [comm, comm]
        if self.way == "two":
            comms[1] = comm.create(range(self.size - 1, 0, -1))
        with suppress(PeerFailed, Revoked):  # of a rank that is still in it when the victim dies
            comm.barrier()
        if comm.rank == self.victim:
            self.start = comm._group.endpoint.transport.places
        begun = [one for n, where in enumerate(comms) if where is not None for one in self._begin(where, n)]
        for one in begun if comm.rank % 2 else reversed(begun):
            self._finish(one)
        if self.way == "two" and self.victim == 0 and comms[1] is not None:
            assert comms[1].allreduce(1) == comms[1].size  # it is none of its members

    def _begin(self, comm: Communicator, n: int) -> list[Begun]:
        try:
            if n == 1 and self.way == "receive":
                return self._letters(comm)
            how = {key: value for key, value in self.calls[n].how.items() if key != "timeout"}
            want = self.calls[n].expected[comm.rank]
            request = getattr(comm, f"i{self.calls[n].name}")(*self.calls[n].given[comm.rank], **how)
            return [Begun(request, comm, lambda got: same(got, want))]
        except (PeerFailed, Revoked) as error:
            self._blames(error)
            return []

    def _letters(self, comm: Communicator) -> list[Begun]:
        """The victim sends something to everybody else, who are open for it or not."""
        if comm.rank != self.victim:
            source = ANY_SOURCE if comm.rank % 2 else self.victim
            return [Begun(comm.irecv(source, 7), comm, lambda got: bool(got == LETTER))]
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        return [Begun(comm.isend(LETTER, rank, 7), comm, lambda got: got is None) for rank in others]

    def _finish(self, one: Begun) -> None:
        try:
            got = one.request.wait()
        except (PeerFailed, Revoked) as error:
            assert self.victim in one.comm.members, "the victim was not in it"
            self._blames(error)
        else:
            assert one.right(got), f"{one.request} has got {got!r}"

    def _blames(self, error: PeerFailed | Revoked) -> None:
        """Assert that an error names the victim."""
        assert f"rank {self.victim}" in str(error), repr(error)
        assert isinstance(error, Revoked) or error.peer == self.victim


def cases(way: str, name: str, sizes: tuple[int, ...] = SIZES) -> Iterator[tuple[Case, int]]:
    """Yield every place of every rank; of the larger group of some of its ranks."""
    for size in sizes:
        for victim in range(size) if size == SIZES[0] else (0, size - 1):
            case = Case(way, name, size, victim)
            yield from ((case, place) for place in case.places())


def check(case: Case, place: int) -> None:
    try:
        case.check(place)
    except BaseException as error:
        error.add_note(f"place {place} of {case.text}")
        raise


@pytest.mark.parametrize("way", WAYS)
@each("name", NAMES)
def test_a_sample_of_all_deaths_while_two_calls_are_under_way(way: str, name: str) -> None:
    victim = lot(way, name) % (2 if way == "two" else SIZES[0])  # rank 0 is in one of the two communicators only
    case = Case(way, name, SIZES[0], victim)
    for place in case.places():
        if lot(case.text, place) % SAMPLE == 0:
            check(case, place)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_every_death_while_two_calls_are_under_way(way: str, name: str) -> None:
    for case, place in cases(way, name):
        check(case, place)


def test_a_rank_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.protocol.aborting.Aborter.lose", lambda *_: None)
    monkeypatch.setattr("support.any_order.LONG", 10.0)
    case = Case("one", "allreduce", 3, 1)
    with pytest.raises(AssertionError, match="hang"):
        case.check(case.places()[0])
