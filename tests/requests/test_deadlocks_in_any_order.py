"""Deadlocks of programs with requests: each is named with its ranks and calls, and no other rank is ever accused.

Time is virtual (`support.any_order`), and what ranks report comes late, in any order with the messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ANY_SOURCE, CollectiveTimeout, Communicator, PeerFailed, Revoked
from support.any_order import AnyOrder
from support.cases import each

ORDERS = range(2)
MORE = pytest.param(range(2, 12), marks=pytest.mark.long, id="more")
LARGE = np.zeros(100_000)  # goes only after a grant
HERE = r"test_deadlocks_in_any_order\.py:\d+"

Program = Callable[[Communicator], Any]


def ring_of_receives(comm: Communicator) -> None:
    comm.recv((comm.rank + 1) % comm.size, 5)


def ring_of_sends(comm: Communicator) -> None:
    """No rank receives before it has sent what does not go at once."""
    comm.send(LARGE, (comm.rank + 1) % comm.size, 5)
    comm.recv((comm.rank - 1) % comm.size, 5)


def ring_of_probes(comm: Communicator) -> None:
    comm.probe((comm.rank + 1) % comm.size, 5)


def ring_of_open_receives(comm: Communicator) -> None:
    comm.recv(ANY_SOURCE, 5)


def wait_for_any(comm: Communicator) -> None:
    """Rank 0 would take a message of any other rank; all of them wait for rank 0."""
    if comm.rank:
        comm.irecv(0, 5).wait()
    else:
        ringcast.wait_any([comm.irecv(rank, 5) for rank in range(1, comm.size)])


def wait_for_some(comm: Communicator) -> None:
    ringcast.wait_some([comm.irecv(rank, 5) for rank in range(comm.size) if rank != comm.rank])


def wait_for_all(comm: Communicator) -> None:
    """On one of two communicators every rank gets what it waits for, and on the other one nothing."""
    copy = comm.dup()
    around = (comm.rank + 1) % comm.size
    requests = [copy.irecv(around, 4), comm.irecv(around, 5)]
    copy.send("here", (comm.rank - 1) % comm.size, 4)
    ringcast.wait_all(requests)


def collectives_crosswise(comm: Communicator) -> None:
    """Rank 0 waits on one communicator for what the others do on it after another one."""
    copy = comm.dup()
    first, second = (comm, copy) if comm.rank else (copy, comm)
    first.iallreduce(1).wait()
    second.iallreduce(1).wait()


def collective_against_receive(comm: Communicator) -> None:
    if comm.rank:
        comm.recv(0, 5)
    comm.barrier()
    if comm.rank == 0:
        comm.send("late", 1, 5)


def another_tag(comm: Communicator) -> None:
    """Rank 0 has got a message of rank 1, but with another tag than it wants."""
    if comm.rank == 0:
        comm.recv(1, 5)
    elif comm.rank == 1:
        comm.send("x", 0, 6)
    comm.barrier()


def another_communicator(comm: Communicator) -> None:
    """The message that rank 0 waits for is on the copy."""
    copy = comm.dup()
    if comm.rank == 0:
        comm.recv(1, 5)
    elif comm.rank == 1:
        copy.send("x", 0, 5)
    comm.barrier()


def a_call_left_open(comm: Communicator) -> None:
    """All have a collective under way that can be completed, but wait for each other's messages before."""
    request = comm.iallreduce(1)
    comm.recv((comm.rank + 1) % comm.size, 5)
    request.wait()


# The numbers of ranks; of these, those that every cycle goes through; and a call that one names.
CYCLES: list[tuple[Program, tuple[int, ...], Callable[[int], Iterable[int]], str]] = [
    (ring_of_receives, (1, 2, 3), range, "recv with tag 5"),
    (ring_of_sends, (2, 5), range, "send with tag 5"),
    (ring_of_probes, (1, 2, 3), range, "probe with tag 5"),
    (ring_of_open_receives, (1, 2, 3), lambda p: (), "recv with tag 5"),
    (wait_for_any, (2, 5), lambda p: (0,), "recv with tag 5"),
    (wait_for_some, (2, 5), lambda p: (), "recv with tag 5"),
    (wait_for_all, (1, 2, 3), range, "recv with tag 5"),
    (collectives_crosswise, (2, 5), lambda p: (0,), "allreduce"),
    (collective_against_receive, (2, 5), lambda p: (0,), "recv with tag 5"),
    (another_tag, (2, 5), lambda p: (0, 1), "recv with tag 5"),
    (another_communicator, (2, 5), lambda p: (0, 1), "recv with tag 5"),
    (a_call_left_open, (2, 5), range, "recv with tag 5"),
]


@pytest.mark.parametrize(("program", "sizes", "through", "call"), [pytest.param(*c, id=c[0].__name__) for c in CYCLES])
@pytest.mark.parametrize("orders", [pytest.param(ORDERS, id="some"), MORE])
@each("slow", [0.0, 0.05])
def test_a_cycle_is_named(
    program: Program,
    sizes: tuple[int, ...],
    through: Callable[[int], Iterable[int]],
    call: str,
    orders: range,
    slow: float,
) -> None:
    for p, order in product(sizes, orders):
        errors = AnyOrder(p, order, slow=slow).run(program)
        found = [error for error in errors if isinstance(error, CollectiveTimeout)]
        assert found, errors
        assert all(isinstance(error, CollectiveTimeout | Revoked) for error in errors), errors
        for error in found:
            assert {error.rank, *through(p)} <= {*error.cycle}, error
            assert len(error.calls) == len(error.cycle)
            assert all(re.search(f" at {HERE}$", text) for text in error.calls), error.calls
        assert any(call in text for error in found for text in error.calls), found


# Nobody is accused who can go on.


def test_a_program_that_only_polls_is_not_accused() -> None:
    """Rank 0 waits for rank 1, which tests for a message that rank 0 sends afterwards, for long, and then gives up."""

    def work(comm: Communicator) -> Any:
        if comm.rank == 0:
            got = comm.recv(1, 5)
            comm.send("second", 1, 5)
            return got
        request, polls = comm.irecv(0, 5), 0
        while not request.test() and polls < 100:
            assert comm.iprobe(0, 6) is None
            polls += 1
            job.compute(1, 0.1)
        comm.send("first", 0, 5)
        return request.wait()

    for order in ORDERS:
        job = AnyOrder(2, order, slow=0.05)
        assert job.run(work) == ["first", "second"]
        assert job.now > 5


@each("p", [2, 3])
def test_a_rank_that_computes_is_not_accused(p: int) -> None:
    """All others wait in a cycle through the rank that computes, and for it."""

    def work(comm: Communicator) -> Any:
        request = comm.irecv((comm.rank + 1) % comm.size, 5)
        if comm.rank == p - 1:
            job.compute(comm.rank, 5.0)
            comm.send(comm.rank, comm.rank - 1, 5)
            return request.wait()
        got = request.wait()
        comm.send(comm.rank, (comm.rank - 1) % comm.size, 5)
        return got

    for order in ORDERS:
        job = AnyOrder(p, order)
        assert job.run(work) == [(rank + 1) % p for rank in range(p)]
        assert job.now > 5


def test_what_any_of_several_would_do_is_not_stuck_as_long_as_one_can_come() -> None:
    """Ranks 0 and 1 wait for each other, but rank 0 also for rank 2, which computes."""

    def work(comm: Communicator) -> Any:
        if comm.rank == 2:
            job.compute(2, 5.0)
            comm.send("at last", 0)
            return None
        if comm.rank == 1:
            return comm.recv(0)
        requests = [comm.irecv(1), comm.irecv(2)]
        place, got = ringcast.wait_any(requests)
        comm.send("go on", 1)
        assert requests[1 - place].cancel()
        return got

    for order in ORDERS:
        job = AnyOrder(3, order)
        assert job.run(work) == ["at last", "go on", None]


@each("size", [1, 100_000])
def test_messages_that_are_slow_are_no_deadlock(size: int) -> None:
    """Some are under way for longer than it takes a rank to report that it waits."""

    def work(comm: Communicator) -> int:
        around, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        requests = [comm.irecv(before, 5), comm.iallreduce(1), comm.isend(np.zeros(size), around, 5)]
        got, total, _ = ringcast.wait_all(requests)
        return got.size + total

    for order in range(1, 6):
        job = AnyOrder(3, order, slow=0.05)
        assert job.run(work) == [size + 3] * 3


def test_who_frees_late_is_not_disturbed_by_those_who_have_freed() -> None:
    """Ranks that still wait for others in `free` probe ranks that have left it."""

    def work(comm: Communicator) -> int:
        comm.dup().free()
        return comm.allreduce(1)

    for order in range(20, 50):
        assert AnyOrder(5, order, slow=0.3).run(work) == [5] * 5


# A receive that nothing can ever match.


@each("how", ["recv", "irecv", "probe", "any", "large send"])
def test_a_partner_that_has_left_is_named(how: str) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.finalize()
            return
        calls: dict[str, Program] = {
            "recv": lambda c: c.recv(1, 5),
            "irecv": lambda c: ringcast.wait_any([c.irecv(1, 5), c.irecv(1, 6)]),
            "probe": lambda c: c.probe(1, 5),
            "any": lambda c: c.recv(),
            "large send": lambda c: c.send(LARGE, 1),
        }
        with pytest.raises(PeerFailed, match="rank 1 finished"):
            calls[how](comm)

    for order in ORDERS:
        assert AnyOrder(2, order).run(work) == [None, None]
