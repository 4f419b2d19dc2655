"""A rank may have any number of requests to another one, which receives in any order and keeps only so much of them.

With budgets of a few messages, on the wire that delivers in any order; with those of real jobs, on each transport.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ANY_SOURCE, ANY_TAG, Communicator
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.protocol.eager_credits import KEPT
from ringcast.protocol.machine import Protocol
from ringcast.protocol.request_budget import BUDGET
from ringcast.transports.base import MemoryArrival
from ringcast.wire import header as wire
from ringcast.wire.call import Call
from ringcast.wire.header import Header, Kind
from support.any_order import AnyOrder
from support.cases import each, long_but
from support.jobs import Job
from support.mixed import Program, random_items

COUNT = 30  # messages, of which a few have room
EAGER, ROOM = 600, 5 * (KEPT + 16)
LARGE = np.arange(9000.0)
ORDERS = range(6)

Way = Callable[[Communicator], Any]


def budgets(job: AnyOrder, eager: int = EAGER, room: int = ROOM) -> None:
    """Give each rank of a job room for a few messages, and lend it to one at a time."""
    for endpoint in job.endpoints:
        protocol = endpoint.protocol
        protocol._eager_credits.each = eager
        protocol._budget.each, protocol._budget.at_once = room, 1


def check_quiet(job: AnyOrder) -> None:
    """Assert that nothing waits any more, and that all room is free again."""
    assert not job.left_over()
    for endpoint in job.endpoints:
        budget = endpoint.protocol._budget
        assert not any((*budget.asked, *budget.kept)), (endpoint.rank, budget.asked, budget.kept)
        assert budget.lent == budget.unused
        assert [job.endpoints[peer].protocol._budget.room[endpoint.rank] for peer in range(job.size)] == budget.unused


def sent(comm: Communicator, value: Any = None) -> list[ringcast.Request[None]]:
    """Send many messages from each rank but the last to that one, and wait for none of them."""
    if comm.rank == comm.size - 1:
        return []
    return [comm.isend(i if value is None else value + i, comm.size - 1, i) for i in range(COUNT)]


def sources(comm: Communicator) -> Iterator[int]:
    if comm.rank == comm.size - 1:
        yield from range(comm.size - 1)


def in_order(comm: Communicator) -> None:
    requests = sent(comm)
    for source in sources(comm):
        assert [comm.recv(source, i) for i in range(COUNT)] == [*range(COUNT)]
    ringcast.wait_all(requests)


def backwards(comm: Communicator) -> None:
    requests = sent(comm)
    for source in sources(comm):
        assert [comm.recv(source, i) for i in reversed(range(COUNT))] == [*reversed(range(COUNT))]
    ringcast.wait_all(requests)


def large_ones_backwards(comm: Communicator) -> None:
    requests = sent(comm, LARGE)
    for source in sources(comm):
        for i in reversed(range(COUNT)):
            np.testing.assert_array_equal(comm.recv(source, i), LARGE + i)
    ringcast.wait_all(requests)


def in_a_random_order(comm: Communicator) -> None:
    requests = sent(comm)
    awaited = [(source, i) for source in sources(comm) for i in range(COUNT)]
    Random(5).shuffle(awaited)
    assert [comm.recv(*one) for one in awaited] == [i for _, i in awaited]
    ringcast.wait_all(requests)


def all_receives_at_once(comm: Communicator) -> None:
    requests = sent(comm)
    awaited = [(source, i) for source in sources(comm) for i in reversed(range(COUNT))]
    received = [comm.irecv(*one) for one in awaited]
    assert ringcast.wait_all(received) == [i for _, i in awaited]
    ringcast.wait_all(requests)


def the_last_one_is_probed(comm: Communicator) -> None:
    requests = sent(comm)
    for source in sources(comm):
        assert comm.probe(source, COUNT - 1).tag == COUNT - 1
        assert comm.recv(source, COUNT - 1) == COUNT - 1
    for _ in range((COUNT - 1) * len([*sources(comm)])):
        comm.recv(ANY_SOURCE, ANY_TAG)
    ringcast.wait_all(requests)


def the_last_one_is_looked_for(comm: Communicator) -> None:
    """A loop around iprobe finds what is behind all others."""
    requests = sent(comm)
    for source in sources(comm):
        while comm.iprobe(source, COUNT - 1) is None:
            pass
        assert [comm.recv(source, i) for i in reversed(range(COUNT))] == [*reversed(range(COUNT))]
    ringcast.wait_all(requests)


def none_overtakes(comm: Communicator) -> None:
    """Small messages and large ones of one tag come in order, also from any source."""
    if comm.rank < comm.size - 1:
        values = [i if i % 3 else LARGE + i for i in range(COUNT)]
        ringcast.wait_all([comm.isend(value, comm.size - 1, 1) for value in values])
    else:
        seen = [0] * comm.size
        for _ in range(COUNT * (comm.size - 1)):
            status = ringcast.Status()
            value = comm.recv(ANY_SOURCE, 1, status=status)
            assert np.ravel(value)[0] == seen[status.source]
            seen[status.source] += 1


def collectives_come_first(comm: Communicator) -> None:
    """A collective needs no receive of a message that was sent before it."""
    requests = sent(comm)
    for n in (1, 9000, 90_000):
        assert (comm.allreduce(np.full(n, comm.rank + 1)) == comm.size * (comm.size + 1) // 2).all()
    for source in sources(comm):
        assert [comm.recv(source, i) for i in reversed(range(COUNT))] == [*reversed(range(COUNT))]
    ringcast.wait_all(requests)


def broadcasts(comm: Communicator, size: int) -> list[ringcast.Request[Any]]:
    return [comm.ibcast(np.full(size, i) if comm.rank == 0 else None) for i in range(COUNT)]


def check_broadcasts(calls: list[ringcast.Request[Any]]) -> None:
    for i, value in enumerate(ringcast.wait_all(calls)):
        assert (value == i).all()


def the_root_runs_ahead(comm: Communicator) -> None:
    for size in (10, 9000, 90_000):
        if comm.rank == 0:
            calls = broadcasts(comm, size)
            for peer in range(1, comm.size):
                comm.send("go", peer, 77)
        else:
            comm.recv(0, 77)
            calls = broadcasts(comm, size)
        check_broadcasts(calls)


def the_root_is_late(comm: Communicator) -> None:
    for size in (10, 9000, 90_000):
        if comm.rank == 0:
            for peer in range(1, comm.size):
                comm.recv(peer, 77)
            calls = broadcasts(comm, size)
        else:
            calls = broadcasts(comm, size)
            comm.send("go", 0, 77)
        check_broadcasts(calls)


def communicators_crosswise(comm: Communicator) -> None:
    several = [comm.dup() for _ in range(3)]
    if comm.rank < comm.size - 1:
        ringcast.wait_all([part.isend(i, comm.size - 1, i) for part in several for i in range(COUNT)])
    for source in sources(comm):
        for part in reversed(several):
            assert [part.recv(source, i) for i in reversed(range(COUNT))] == [*reversed(range(COUNT))]


def both_ways(comm: Communicator) -> None:
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    requests = [comm.isend((comm.rank, i), peer, i) for i in range(COUNT) for peer in peers]
    for peer in peers:
        assert [comm.recv(peer, i) for i in reversed(range(COUNT))] == [(peer, i) for i in reversed(range(COUNT))]
    ringcast.wait_all(requests)


WAYS: list[Way] = [
    in_order,
    backwards,
    large_ones_backwards,
    in_a_random_order,
    all_receives_at_once,
    the_last_one_is_probed,
    the_last_one_is_looked_for,
    none_overtakes,
    collectives_come_first,
    the_root_runs_ahead,
    the_root_is_late,
    communicators_crosswise,
    both_ways,
]


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("orders", long_but([(0, 2)], [(0, 2), (1, 3)]))
@each("p, number", product((2, 3), range(2)))
def test_requests_beyond_the_budget_wait_until_the_receiver_gets_there(
    way: Way, orders: tuple[int, int], p: int, number: int
) -> None:
    job = AnyOrder(p, orders[number])
    budgets(job)
    for error in job.run(way):
        if error is not None:
            raise error
    check_quiet(job)


@each("seed", range(30))
def test_programs_under_any_budget(seed: int) -> None:
    random = Random(seed)
    program = Program(random.choice((2, 3, 5)), random_items(random, 25), random.randrange(4))
    job = AnyOrder(program.size, seed)
    budgets(job, random.choice((0, 300, 3000)), random.choice((0, 600, 3000)))
    for error in job.run(program.run):
        if error is not None:
            raise error
    check_quiet(job)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", ["shm", *(pytest.param(kind, marks=pytest.mark.live) for kind in ("threads", "sockets", "tcp"))]
)
def test_ten_thousand_messages_that_are_received_backwards(kind: str) -> None:
    n = 10_000

    def program(comm: Communicator) -> None:
        if comm.rank == 0:
            ringcast.wait_all([comm.isend(i, 1, i) for i in range(n)])
        else:
            assert [comm.recv(0, i) for i in reversed(range(n))] == [*reversed(range(n))]

    job = Job(kind, 2)
    job.ask(program)
    assert not job.left_over()
    job.close()


# What a peer can make a rank keep.


def request(number: int, flags: int = 0) -> MemoryArrival:
    """Return the request of rank 1 for a message point-to-point that rank 0 does not receive."""
    sizes = (8).to_bytes(8, "little") * 2
    header = Header(wire.VERSION, Kind.RTS, flags, 1, 5, 3, 0, number, number, number + 1, 16, 0, 0)
    return MemoryArrival([wire.pack(header), sizes])


def test_a_rank_keeps_a_budget_of_requests_that_its_program_does_not_wait_for() -> None:
    protocol = Protocol(0, 2, 5)
    most = BUDGET // (KEPT + 16)
    for i in range(most):
        protocol.handle(request(i))
        assert not protocol.failed
    protocol.handle(request(most))
    assert "of its requests and grants wait" in str(protocol.failed[1])


def test_room_is_used_only_where_it_was_lent() -> None:
    protocol = Protocol(0, 2, 5)
    protocol.handle(request(0, wire.LENT))
    assert "that are lent" in str(protocol.failed[1])


def test_a_rank_lends_no_more_than_the_most_while_its_program_waits() -> None:
    protocol, size = Protocol(0, 2, 5), KEPT + 16
    protocol._budget.most_lent, protocol._budget.at_once = 100 * size, 1
    op = protocol.begin(3, Call("sendrecv"), p2p=True)
    protocol.receive(op, 1, SelfDescribing(), tag=1 << 31)
    for i in range(0, 200, 2):
        held = Header(wire.VERSION, Kind.CTS, wire.HELD, 1, 5, 0, 0, 0, i, 0, 0, size, 0)
        protocol.handle(MemoryArrival([wire.pack(held)]))
        protocol.handle(request(i + 1, wire.LENT))
        assert not protocol.failed
    protocol.handle(MemoryArrival([wire.pack(held._replace(pair=200))]))
    assert protocol._budget.unused == [0, 0]
    protocol.handle(request(201, wire.LENT))
    assert "that are lent" in str(protocol.failed[1])


def test_room_is_lent_only_to_peers_that_the_program_waits_for() -> None:
    protocol = Protocol(0, 3, 5)
    op = protocol.begin(3, Call("sendrecv"), p2p=True)
    protocol.receive(op, 2, SelfDescribing(), tag=1)
    held = Header(wire.VERSION, Kind.CTS, wire.HELD, 1, 5, 0, 0, 0, 0, 0, 0, KEPT, 0)
    protocol.handle(MemoryArrival([wire.pack(held)]))
    assert protocol._budget.lent == [0, 0, 0]
    protocol.handle(MemoryArrival([wire.pack(held._replace(source=2))]))
    assert protocol._budget.lent == [0, 0, BUDGET // 16]
