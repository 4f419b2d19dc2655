"""Endpoints that are driven to the end, or not: timeouts, interruptions, deadlocks, events, and the simulated clock."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringcast import collectives
from ringcast.algorithms import Params, build
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis.simulate import simulate
from ringcast.bootstrap.in_process import LocalControl, drive_together, endpoints, simulated_endpoints, thread_endpoints
from ringcast.collectives.stage import Choice, Group
from ringcast.communicator import Communicator
from ringcast.engine.drive import drive, wait
from ringcast.engine.endpoint import Endpoint, Exchange
from ringcast.engine.execute import Steps
from ringcast.engine.task import begin
from ringcast.errors import CollectiveTimeout, JobAborted, LinkLost, PeerFailed, Revoked, RingcastError
from ringcast.events import Event, RoundEnd, RoundStart
from ringcast.ops import SUM, Op
from ringcast.transports.base import Arrival, LoanWithdrawn, Transport
from ringcast.wire import codec
from ringcast.wire import header as wire
from ringcast.wire.call import Call
from ringcast.wire.control_messages import NOTICES, Failing, Finished, Revoke
from ringcast.wire.failure import Failure
from support import needs
from support.gates import ThreadGate
from support.jobs import transports
from support.patience import patience
from support.protocol_net import Buffer

CONTEXT = 3


def group(endpoint: Endpoint, observe: Callable[[Event], None] | None = None) -> Group:
    return Group(endpoint, CONTEXT, NETWORKS["threads"], observe)


def barrier(endpoint: Endpoint) -> Steps[None]:
    return collectives.reduce.barrier(group(endpoint))


def exchange(endpoint: Endpoint, dest: int | None, source: int | None, size: int = 100_000) -> Steps[Any]:
    """Send `size` bytes to `dest` and receive from `source`."""
    return collectives.point_to_point.sendrecv(group(endpoint), bytes(size), dest, source, 0)


def quietly_close(made: list[Endpoint]) -> None:
    for endpoint in made:
        endpoint.transport.close()


# Errors.


@pytest.mark.parametrize("kind", ["threads", "simulated"])
def test_a_timeout_names_who_is_waited_for(kind: str) -> None:
    made = thread_endpoints(3) if kind == "threads" else simulated_endpoints(3)[1]
    with pytest.raises(CollectiveTimeout) as error:
        drive(made[0], exchange(made[0], 1, 2), timeout=0.02)
    assert (error.value.rank, error.value.waiting_for, error.value.seconds) == (0, (1, 2), 0.02)
    assert error.value.where.operation == "sendrecv with tag 0"
    with pytest.raises(Revoked, match="did not finish within"):
        drive(made[0], barrier(made[0]))
    for peer in 1, 2:  # they are told, and need not wait for a timeout of their own
        with pytest.raises(Revoked, match="did not finish within") as revoked:
            drive(made[peer], barrier(made[peer]))
        assert revoked.value.by == 0
    quietly_close(made)


def test_a_timeout_names_the_round() -> None:
    _, made = simulated_endpoints(4)
    steps = [barrier(made[rank]) for rank in range(4)]
    del steps[1]
    with pytest.raises(CollectiveTimeout) as error:
        drive(made[0], steps[0], timeout=1.0)
    assert error.value.where.operation == "barrier"
    assert error.value.where.number == 1
    assert error.value.where.round == 0


def test_time_that_others_take_counts() -> None:
    """Messages that do not complete the call must not put its end off."""
    simulated, made = simulated_endpoints(2)

    def chatter() -> None:
        for i in range(100):
            op = made[1].protocol.begin(CONTEXT, Call("sendrecv"), p2p=True)
            made[1].post(Exchange(op, 0, [memoryview(b"x")], False, None, None, i + 1))

    chatter()
    with pytest.raises(CollectiveTimeout):
        drive(made[0], exchange(made[0], None, 1), timeout=0.5)
    assert simulated.now == pytest.approx(0.5, abs=1e-3)


class Disturbed:
    """A transport in whose n-th wait something happens."""

    def __init__(self, inner: Transport, when: int, what: Callable[[], None]) -> None:
        self.inner, self.when, self.what = inner, when, what

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def poll(self, deadline: float | None) -> Arrival | None:
        self.when -= 1
        if self.when == -1:
            self.what()
        return self.inner.poll(deadline)


def ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


def no_memory() -> None:
    raise MemoryError("no room")


def disturbed(made: list[Endpoint], when: int, what: Callable[[], None]) -> dict[int, BaseException]:
    """Let something happen to rank 0 in the middle of a call; return what all ranks raised."""
    made[0].transport = Disturbed(made[0].transport, when, what)
    caught: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        data = np.zeros(500_000)
        try:
            drive(made[rank], collectives.reduce.allreduce(group(made[rank]), data, SUM, None, Choice()), timeout=20)
        except BaseException as error:
            caught[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return caught


@pytest.mark.parametrize("when", range(4))
def test_what_breaks_off_the_engine_fails_the_rank(when: int) -> None:
    made = endpoints([*transports("threads", 3)])
    caught = disturbed(made, when, no_memory)
    assert isinstance(caught[0], MemoryError)
    assert all(isinstance(caught[rank], PeerFailed | Revoked) for rank in (1, 2)), caught
    assert all("MemoryError: no room" in str(caught[rank]) for rank in (1, 2))
    for other in made[1:]:
        other.catch_up()
        assert "MemoryError: no room" in other.protocol.failed[0].cause
    with pytest.raises(JobAborted, match=r"rank 0: .*MemoryError broke off a message"):
        Communicator(group(made[0])).shrink()
    quietly_close(made)


@pytest.mark.parametrize("when", range(4))
def test_an_interrupt_in_the_middle_ends_the_communicator_everywhere(when: int) -> None:
    made = endpoints([*transports("threads", 3)])
    gate = made[0].gate = ThreadGate()
    caught = disturbed(made, when, lambda: gate.interrupt(ctrl_c))
    assert isinstance(caught[0], KeyboardInterrupt)
    assert all(isinstance(caught[rank], Revoked) for rank in (1, 2)), caught
    assert all("KeyboardInterrupt" in str(caught[rank]) for rank in (1, 2))
    for endpoint in made:
        with pytest.raises(Revoked, match="KeyboardInterrupt"):
            drive(endpoint, barrier(endpoint))
        assert not endpoint.protocol._sending.transfers
        assert not endpoint.protocol._receiving.transfers
    quietly_close(made)


def test_an_operator_that_raises_ends_the_communicator() -> None:
    _, made = simulated_endpoints(2)

    def fails(a: Any, b: Any) -> Any:
        raise ZeroDivisionError("a bug in the user's function")

    op = Op(fails)
    steps = [collectives.reduce.allreduce(group(e), np.zeros(3), op, None, Choice()) for e in made]
    with pytest.raises(ZeroDivisionError):
        drive_together(simulated_of(made), made, steps)
    for endpoint in made:
        endpoint.progress(endpoint.transport.clock())
    states = [endpoint.protocol._contexts[CONTEXT].error for endpoint in made]
    assert any(isinstance(state, ZeroDivisionError) for state in states)
    assert all(states)


def simulated_of(made: list[Endpoint]) -> Any:
    return made[0].transport._wire


@needs.shared_memory
def test_a_rank_whose_engine_is_broken_off_takes_back_what_it_has_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is the program's again with the error; whoever comes to read it later gets an error as well."""
    made = endpoints(transports("shm", 2))
    lender, reader = made[0].transport, made[1].transport
    memory = np.ones(100_100)
    comm = Communicator(group(made[0]), 20)
    other = Communicator(Group(made[0], CONTEXT + 1, NETWORKS["threads"]), 20)
    requests = [each.isend(memory[place : place + 100_000], 1) for place, each in ((0, comm), (10, other))]
    arrivals = [reader.poll(reader.clock() + patience(20)) for _ in requests]
    loans = [arrival.loan for arrival in arrivals if arrival is not None and arrival.loan is not None]
    monkeypatch.setattr(lender, "poll", lambda _: no_memory())
    with pytest.raises(MemoryError):
        requests[0].wait()
    assert len(loans) == 2
    for loan in loans:
        with pytest.raises(LoanWithdrawn):
            loan.read_into(memoryview(bytearray(8)))
    quietly_close(made)


def test_a_wrong_argument_ends_nothing() -> None:
    _, made = simulated_endpoints(2)
    with pytest.raises(ValueError, match="root"):
        drive(made[0], collectives.broadcast.bcast(group(made[0]), 1, 5, Choice()))
    drive_together(simulated_of(made), made, [barrier(e) for e in made])


def test_abort_ends_every_call() -> None:
    made = thread_endpoints(2)
    control = made[0].control
    assert isinstance(control, LocalControl)
    control.abort("a reason")
    for _ in range(2):
        with pytest.raises((JobAborted, Revoked), match="a reason"):
            drive(made[1], barrier(made[1]))
    quietly_close(made)


def test_a_lost_link_is_a_failed_peer() -> None:
    made = thread_endpoints(2)
    made[1].transport.close()
    with pytest.raises(PeerFailed, match="closed") as error:
        drive(made[0], exchange(made[0], 1, None))
    assert (error.value.rank, error.value.peer) == (0, 1)
    quietly_close(made)


@needs.shared_memory
def test_a_lost_link_may_be_explained_behind_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer has left, as the notice of it says, which has come with the message of another rank."""
    monkeypatch.setattr("ringcast.engine.endpoint.REPORT_GRACE", 0.0)
    made = endpoints(transports("shm", 3))
    made[1].transport.close()
    drive(made[0], exchange(made[0], 1, None, 8))
    drive(made[2], exchange(made[2], 0, None, 8))
    made[1].control.send(Finished(1, {}))
    for _ in range(2):
        drive(made[0], exchange(made[0], None, 2, 8), timeout=patience(20))
        drive(made[2], exchange(made[2], 0, None, 8))
    assert not made[0].protocol.failed
    quietly_close(made)


def test_what_a_rank_that_has_left_does_not_need_may_get_lost() -> None:
    """Its eager budget is returned to it, its link is gone, and yet all that it sent is received."""
    made = thread_endpoints(2)
    for tag in range(60):
        drive(made[0], collectives.point_to_point.sendrecv(group(made[0]), bytes(10_000), 1, None, tag))
    made[0].leave()
    for tag in range(60):
        got = drive(made[1], collectives.point_to_point.sendrecv(group(made[1]), None, None, 0, tag), timeout=20)
        assert got == bytes(10_000)
    with pytest.raises(PeerFailed, match="finished"):
        drive(made[1], exchange(made[1], None, 0), timeout=20)
    quietly_close(made)


def test_a_sender_that_does_not_wait_for_completion_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.engine.endpoint.REPORT_GRACE", 0.0)
    made, size = thread_endpoints(2), 100_000
    for endpoint in made:
        endpoint.protocol.lookahead = size
    ops = [endpoint.protocol.begin(CONTEXT, Call("bcast", "uint8", (size,)), granted=True) for endpoint in made]
    buffer = Buffer(size)
    made[1].post(Exchange(ops[1], None, (), False, 0, buffer))
    made[0].post(Exchange(ops[0], 1, [memoryview(bytes(range(100)) * (size // 100))], False, None, None))
    while ops[0].pending:
        assert made[0].progress(made[0].transport.clock() + patience(20))
    made[0].protocol.end(ops[0])
    made[0].leave()
    while ops[1].pending:
        assert made[1].progress(made[1].transport.clock() + patience(20))
    assert buffer.data == bytes(range(100)) * (size // 100)
    made[1].protocol.end(ops[1])
    while made[1].progress(made[1].transport.clock()):  # that rank 0 has left
        pass
    made[1].progress(made[1].transport.clock())  # what was said to it after that is not missed
    made[1].protocol.begin(CONTEXT, Call("barrier", "", ()))
    quietly_close(made)


@pytest.mark.parametrize("fails", [False, True])
def test_leave_closes_the_transport_whatever_happens(fails: bool) -> None:
    made = thread_endpoints(2)

    class Control:
        def send(self, message: object) -> None:
            if fails:
                raise OSError("the control plane is gone")

        def close(self) -> None:
            pass

    made[0].control = Control()
    try:
        made[0].leave()
    except OSError:
        assert fails
    with pytest.raises(LinkLost):
        made[1].transport.send(0, [b"header"])
    quietly_close(made)


# Deadlocks.


def test_a_deadlock_is_reported_with_who_waits_for_whom() -> None:
    simulated, made = simulated_endpoints(3)
    steps = [exchange(made[0], None, 1), exchange(made[1], None, 2), exchange(made[2], None, 0)]
    with pytest.raises(RingcastError, match="deadlock") as error:
        drive_together(simulated, made, steps)
    assert "{0: (1,), 1: (2,), 2: (0,)}" in str(error.value)


def test_ranks_that_are_done_are_not_part_of_a_deadlock() -> None:
    simulated, made = simulated_endpoints(3)

    def both(rank: int) -> Steps[Any]:
        yield from exchange(made[rank], 1 - rank, 1 - rank)
        if rank == 0:
            yield from exchange(made[rank], 2, None)

    def nothing() -> Steps[None]:
        return
        yield

    with pytest.raises(RingcastError, match="deadlock") as error:
        drive_together(simulated, made, [both(0), both(1), nothing()])
    assert "{0: (2,)}" in str(error.value)


# Events.


def watched_bcast(p: int, nbytes: int, **times: float) -> tuple[float, list[Event]]:
    """Return when a broadcast on the simulated wire ended, and its events."""
    simulated, made = simulated_endpoints(p, **times)
    events: list[Event] = []
    value = np.arange(nbytes, dtype=np.uint8)
    steps = [
        collectives.broadcast.bcast(group(e, events.append), value if e.rank == 0 else None, 0, Choice("circulant", 8))
        for e in made
    ]
    for result in drive_together(simulated, made, steps):
        assert np.array_equal(result, value)
    return simulated.now, events


def test_events_tell_the_bytes_and_the_wait_of_every_round() -> None:
    p, nbytes = 5, 80_000
    _, events = watched_bcast(p, nbytes, alpha=1e-4, beta=1e-8)
    rounds: dict[tuple[int, int, int], list[Event]] = defaultdict(list)
    for event in events:
        rounds[event.rank, event.number, event.round].append(event)
    for start, end in rounds.values():
        assert isinstance(start, RoundStart)
        assert isinstance(end, RoundEnd)
        assert end.time >= start.time
        assert end.wait == end.time - start.time
        assert start.operation == end.operation == "bcast"
    last = max(event.number for event in events)
    for rank in range(p):
        received = sum(e.received for e in events if isinstance(e, RoundEnd) and (e.rank, e.number) == (rank, last))
        assert received == (nbytes if rank else 0)
    sent = sum(e.sent for e in events if isinstance(e, RoundStart) and e.number == last)
    assert sent == (p - 1) * nbytes
    assert {e.round for e in events if e.number == last} == set(range(8 - 1 + 3))


def test_events_of_objects_tell_their_bytes_too() -> None:
    simulated, made = simulated_endpoints(2)
    events: list[Event] = []
    steps = [collectives.gather.gather(group(e, events.append), {"rank": e.rank}, 0, None, Choice()) for e in made]
    drive_together(simulated, made, steps)
    sent = sum(e.sent for e in events if isinstance(e, RoundStart))
    received = sum(e.received for e in events if isinstance(e, RoundEnd))
    assert sent == received > 0


@pytest.mark.parametrize("p", [2, 5, 8])
def test_the_simulated_wire_does_the_same_every_time(p: int) -> None:
    assert watched_bcast(p, 200_000) == watched_bcast(p, 200_000)


@pytest.mark.parametrize("p", [2, 3, 5, 8, 17])
def test_the_live_protocol_takes_the_time_of_the_model(p: int) -> None:
    """Where bytes cost much more than messages, grants and completions cost next to nothing."""
    nbytes, alpha, beta = 4_000_000, 1e-6, 1e-8
    schedules = [build("bcast", "circulant", Params(p, 0, 8), rank) for rank in range(p)]
    model = simulate(schedules, [nbytes // 8] * 8, alpha=alpha, beta=beta).time
    live, _ = watched_bcast(p, nbytes, alpha=alpha, beta=beta)
    assert model < live < 1.02 * model


def test_latency_counts_at_most_four_messages_a_round() -> None:
    """Grant, data and completion, and the next round's grant, which may have to wait for the completion."""
    p, nbytes, alpha = 8, 200_000, 1e-3
    rounds = 8 - 1 + 3
    live, events = watched_bcast(p, nbytes, alpha=alpha, beta=0.0)
    last = max(event.number for event in events)
    begun = min(event.time for event in events if event.number == last)
    assert rounds * alpha < live - begun <= 4 * rounds * alpha


def test_messages_on_one_link_follow_each_other() -> None:
    """One-ported: two messages into one rank take the time of both, to two ranks from two ranks that of one."""
    for links, times in ((((0, 2), (1, 2)), 2), (((0, 2), (1, 3)), 1), (((0, 1), (0, 2)), 2), (((0, 1), (1, 0)), 1)):
        simulated, made = simulated_endpoints(4, alpha=0.5, beta=1.0)
        for a, b in links:
            made[a].transport.send(b, [b"x" * 10_000])
        while simulated.deliver() is not None:
            pass
        assert simulated.now == 10_000 * times + 0.5


def test_small_messages_wait_only_for_what_goes_the_same_way() -> None:
    simulated, made = simulated_endpoints(3, alpha=0.5, beta=1.0)
    for peer, size in ((1, 10_000), (1, 10), (2, 10)):
        made[0].transport.send(peer, [b"x" * size])
    arrivals = []
    while (peer := simulated.deliver()) is not None:
        arrivals.append((peer, simulated.now))
    assert arrivals == [(2, 10.5), (1, 10_000.5), (1, 10_010.5)]


# The control plane within one process.


def test_notices_go_to_all_others() -> None:
    made = thread_endpoints(3)
    revoke = Revoke(1, CONTEXT, "a reason")
    made[1].control.send(revoke)
    for endpoint in made:
        arrival = endpoint.transport.poll(endpoint.transport.clock())
        assert (arrival is None) == (endpoint.rank == 1)
        if arrival is not None:
            assert wire.unpack(arrival.header).kind == wire.Kind.NOTICE
            assert codec.decode(arrival.read(), NOTICES) == revoke
    quietly_close(made)


@pytest.mark.parametrize("kind", ["shm", "sockets"])
def test_a_call_whose_message_is_here_ends_before_a_revocation(kind: str) -> None:
    made = endpoints(transports(kind, 2))
    receive = begin(made[1], exchange(made[1], None, 0, 8))
    drive(made[0], exchange(made[0], 1, None, 8))
    made[0].revoke(CONTEXT, "a reason")
    wait(made[1], [receive], patience(20))
    assert receive.result == bytes(8)
    with pytest.raises(Revoked, match="a reason"):
        drive(made[1], exchange(made[1], None, 0, 8), patience(20))
    quietly_close(made)


@pytest.mark.parametrize("told", [True, False])
def test_who_hears_of_a_failure_from_the_control_plane_need_not_tell_the_others(told: bool) -> None:
    """A failure that a rank has found itself the others have to hear of."""
    made = thread_endpoints(3)
    said: list[object] = []
    send = made[0].control.send
    made[0].control.send = lambda message: [said.append(message), send(message)]
    if told:
        made[2].control.send(Failing(2, Failure("killed")))
    else:
        made[0].protocol.enrol(CONTEXT, range(3))
        made[0].protocol.lose(2, "its link is lost")
    with pytest.raises(PeerFailed):
        drive(made[0], collectives.reduce.allreduce(group(made[0]), np.zeros(4), SUM, None, Choice()), timeout=20)
    made[0].tell_found()
    assert [type(message) for message in said] == ([] if told else [Revoke])
    quietly_close(made)
