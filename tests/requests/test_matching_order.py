"""The order in which messages are matched, as MPI has it, whatever is delivered first.

Every rank sends to others, and posts receives that leave the source, the tag, both or nothing open, on two
communicators; eager messages and granted ones are mixed. When all messages have come, of what is left the receives are
cancelled, and the messages received. The laws, for one rank and one communicator:

1. Of two messages of one source that both fit a receive, the first one has met that receive, or one before it.
2. Of two receives that both fit a message, the first one has met that message, or another one; and no later one of the
   same source.
3. There is no pair of a message and a receive that fit and have both met nothing.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcast
from ringcast import ANY_SOURCE, ANY_TAG, Communicator, Status
from support.any_order import SHRUNK, AnyOrder
from support.jobs import Job

SIZES = 1, 20_000, 8, 100_000  # bytes: two of them only after a grant


class Message(NamedTuple):
    comm: int
    dest: int
    tag: int
    size: int


class Receive(NamedTuple):
    comm: int
    source: Any
    tag: Any


class Met(NamedTuple):
    """A message as it was received: who has sent it, with which tag, and as which one of all that it has sent."""

    source: int
    tag: int
    place: int
    comm: int


Plan = list[list[Message | Receive]]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    p = draw(st.sampled_from([1, 2, 2, 3, 5]))
    ranks, tags, comms = st.integers(0, p - 1), st.integers(0, 1), st.integers(0, 1)
    sends = st.builds(Message, comms, ranks, tags, st.sampled_from(SIZES))
    receives = st.builds(Receive, comms, ranks | st.just(ANY_SOURCE), tags | st.just(ANY_TAG))
    return [draw(st.lists(sends | receives, max_size=12)) for _ in range(p)]


def body(message: Message, place: int) -> np.ndarray[Any, Any]:
    value = np.full(message.size, message.comm, np.uint8)
    value[0] = place
    return value


def work(world: Communicator, plan: Plan) -> tuple[list[list[tuple[Receive, Met | None]]], list[Met]]:
    """Return, by communicator, the receives in the order in which they were posted, with what they have met; and the
    messages that have met none of them.
    """
    comms = [world.dup(), world.dup()]
    posted: list[tuple[Receive, Status, Any]] = []
    requests = []
    for place, one in enumerate(plan[world.rank]):
        if isinstance(one, Message):
            requests.append(comms[one.comm].isend(body(one, place), one.dest, one.tag))
        else:
            status = Status()
            posted.append((one, status, comms[one.comm].irecv(one.source, one.tag, status=status)))
    # What goes the same way comes later: then all of them have come, or have been announced.
    passed = [world.isend(None, rank) for rank in range(world.size)]
    for rank in range(world.size):
        world.recv(rank)
    found: list[list[tuple[Receive, Met | None]]] = [[], []]
    for one, status, request in posted:
        met = None if request.cancel() else read(one.comm, status, request.wait())
        found[one.comm].append((one, met))
    left = [one for number, comm in enumerate(comms) for one in drained(number, comm)]
    ringcast.wait_all([*requests, *passed])
    return found, left


def drained(number: int, comm: Communicator) -> list[Met]:
    left = []
    while (status := comm.iprobe()) is not None:
        left.append(read(number, status, comm.recv(status.source, status.tag)))
    return left


def read(comm: int, status: Status, value: np.ndarray[Any, Any]) -> Met:
    assert status.count == value.size
    assert (value[1:] == comm).all()
    return Met(status.source, status.tag, int(value[0]), comm)


def fits(receive: Receive, message: Met) -> bool:
    return receive.source in (message.source, ANY_SOURCE) and receive.tag in (message.tag, ANY_TAG)


def judge(plan: Plan, results: list[tuple[list[list[tuple[Receive, Met | None]]], list[Met]]]) -> None:
    for rank, (found, left) in enumerate(results):
        sent = [
            Met(source, one.tag, place, one.comm)
            for source, ones in enumerate(plan)
            for place, one in enumerate(ones)
            if isinstance(one, Message) and one.dest == rank
        ]
        met = [one for pairs in found for _, one in pairs if one is not None]
        assert sorted([*met, *left]) == sorted(sent), "each message is received once"
        for number, pairs in enumerate(found):
            here = [one for one in sent if one.comm == number]
            assert all(fits(*pair) for pair in pairs if pair[1] is not None)
            check_order(here, pairs)
            waiting = [receive for receive, one in pairs if one is None]
            assert not [(r, one) for one in left if one.comm == number for r in waiting if fits(r, one)]


def check_order(sent: list[Met], pairs: list[tuple[Receive, Met | None]]) -> None:
    """Assert the first two laws; `sent` has the messages of each source in order, `pairs` the receives."""
    by = {met: place for place, (_, met) in enumerate(pairs) if met is not None}
    never = len(pairs)
    for first, second in combinations(sent, 2):
        if first.source == second.source and second in by and fits(pairs[by[second]][0], first):
            assert by.get(first, never) < by[second], f"{second} has overtaken {first}"
    for (early, met), (_, later) in combinations(pairs, 2):
        if later is not None and fits(early, later):
            assert met is not None, f"{later} has passed by {early}"
            assert met.source != later.source or met.place < later.place


@settings(SHRUNK, max_examples=50)
@given(plans(), st.integers(0, 2**32))
def test_messages_are_matched_in_order_whatever_is_delivered_first(plan: Plan, order: int) -> None:
    check(plan, order)


@pytest.mark.long
@settings(SHRUNK, max_examples=1000)
@given(plans(), st.integers(0, 2**32))
def test_many_messages_are_matched_in_order(plan: Plan, order: int) -> None:
    check(plan, order)


def check(plan: Plan, order: int) -> None:
    job = AnyOrder(len(plan), order)
    results = job.run(lambda comm: work(comm, plan))
    for error in results:
        if isinstance(error, BaseException):
            raise error
    judge(plan, results)
    assert not job.left_over()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
def test_messages_are_matched_in_order_on_real_transports(kind: str) -> None:
    random = np.random.default_rng(len(kind))
    job = Job(kind, 3)
    for _ in range(5):
        plan = [[drawn(random) for _ in range(20)] for _ in range(3)]
        judge(plan, job.ask(lambda comm, plan=plan: work(comm, plan)))
    assert not job.left_over()
    job.close()


def drawn(random: np.random.Generator) -> Message | Receive:
    comm, rank, tag, what = (int(random.integers(n)) for n in (2, 3, 2, 3))
    if what == 0:
        return Message(comm, rank, tag, SIZES[int(random.integers(len(SIZES)))])
    return Receive(comm, ANY_SOURCE if random.random() < 0.4 else rank, ANY_TAG if random.random() < 0.4 else tag)
