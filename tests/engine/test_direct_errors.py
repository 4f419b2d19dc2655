"""Errors in calls that run by prediction: all ranks end as by the engine, with the same words."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives import point_to_point
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import expire
from ringcast.engine.drive import drive
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.objects import pack_record
from ringcast.errors import CollectiveMismatch, CollectiveTimeout, ObjectsRefused, Revoked, RingcastError, UsageError
from ringcast.protocol import lane
from ringcast.transports.memory.segment import AT_FUTEX
from ringcast.wire.flight import decode
from support import needs
from support.any_order import AnyOrder
from support.jobs import shared
from support.lane_ends import BUILDS, need
from support.patience import patience

ONES = np.ones(3, np.float32)
BIG = np.full(3, 3e38, np.float32)  # the sum of two overflows
WARM = 3  # calls of a kind before the one with the fault: those after the second are made again
CALLS = 5.0  # seconds of virtual time that a call may take

Fault = Callable[[AnyOrder, Communicator, int, int], Any]


class Strange(BaseException):
    """No `Exception`, as what handlers of signals raise."""


def strange(*_: object) -> None:
    raise Strange


def overflow(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim wants an error of numpy's."""
    with np.errstate(all="raise" if comm.rank == victim else "ignore"):
        for _ in range(calls):
            comm.allreduce(ONES)
        return comm.allreduce(BIG)


def interrupted(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """numpy calls a function of the victim, which raises."""
    called = np.errstate(over="call", call=strange) if comm.rank == victim else np.errstate(all="ignore")
    with called:
        for _ in range(calls):
            comm.allreduce(ONES)
        return comm.allreduce(BIG)


def refuses(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim's own operator raises."""

    def operator(a: Any, b: Any) -> Any:
        if comm.rank == victim and max(a[0], b[0]) > 1e38:
            raise KeyError("mine")
        return a + b

    with np.errstate(all="ignore"):
        for _ in range(calls):
            comm.allreduce(ONES, operator)
        return comm.allreduce(BIG, operator)


def other_call(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim makes another call than the others."""
    for _ in range(calls):
        comm.allreduce(ONES)
        comm.barrier()
    return comm.barrier() if comm.rank == victim else comm.allreduce(ONES)


def other_shape(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim gives another array."""
    for _ in range(calls):
        comm.allreduce(ONES)
        comm.allreduce(BIG[:2] / 9)
    return comm.allreduce(BIG[:2] / 9 if comm.rank == victim else ONES)


def late(job: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim computes for too long."""
    for _ in range(calls):
        comm.allreduce(ONES)
    if comm.rank == victim:
        job.compute(victim, 4 * CALLS)
    return comm.allreduce(ONES)


def absent(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """The victim does not make the call."""
    for _ in range(calls):
        comm.allreduce(ONES)
    return None if comm.rank == victim else comm.allreduce(ONES)


# Faults of messages between two ranks: rank 0 is the victim's source, or rank 1 if that is the victim.


def unpickled() -> None:
    raise KeyError("mine")


class Unreadable:
    """An object whose unpickling raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, ()


def received(comm: Communicator, victim: int, calls: int, send: Callable[[int], object], **how: Any) -> Any:
    """The victim gets some messages, then the one that is sent by `send`; and then all ranks meet."""
    source = int(victim == 0)
    for _ in range(calls):
        if comm.rank == source:
            comm.send(ONES, victim)
            assert comm.recv(victim, 0) == {"as": "it is"}
        if comm.rank == victim:
            assert (comm.recv(source, 0) == ONES).all()
            comm.send({"as": "it is"}, source)
    if comm.rank == source:
        send(victim)
    if comm.rank == victim:
        comm.recv(source, 0, **how)
    return comm.barrier()


def unreadable(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """An object cannot be unpickled."""
    return received(comm, victim, calls, lambda to: comm.send(Unreadable(), to))


def too_large(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """An array does not fit where it is to be put."""
    return received(comm, victim, calls, lambda to: comm.send(BIG, to), out=np.zeros(2, np.float32))


def other_items(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """An array has another dtype than the one where it is to be put."""
    return received(comm, victim, calls, lambda to: comm.send(BIG, to), out=np.zeros(3, np.int32))


def no_array(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
    """An object comes in place of an array."""
    return received(comm, victim, calls, lambda to: comm.send("text", to), out=np.zeros(3, np.int32))


def strange_frames(*frames: bytes) -> Fault:
    """Return a fault: a message is no value, as only a rank that breaks the rules sends it."""

    def fault(_: AnyOrder, comm: Communicator, victim: int, calls: int) -> Any:
        views, group = [memoryview(frame) for frame in frames], comm._group
        return received(
            comm, victim, calls, lambda to: drive(group.endpoint, point_to_point.send(group, None, to, 0, views))
        )

    fault.__name__ = "strange_frames"
    return fault


def record(**facts: Any) -> bytes:
    return pack_record({"kind": "array", "dtype": "'<i4'", "shape": [3], "order": "C", **facts})


STRANGE = [
    *(
        strange_frames(frame, bytes(12))
        for frame in (b"", b"\xc1", b"\x01", bytes(2000), pack_record({"kind": "none"}))
    ),
    *(strange_frames(record(**facts), bytes(12)) for facts in ({"dtype": "'|O'"}, {"dtype": "1 +"}, {"dtype": "[]"})),
    *(strange_frames(record(shape=shape), bytes(12)) for shape in ([4], [2], [-1, -3], [-1], "3", [3.0], [1] * 99)),
    *(strange_frames(record(**facts), bytes(12)) for facts in ({"order": "X"}, {"order": 0}, {"kind": 3})),
    *(strange_frames(*frames) for frames in ([record()], [record(), bytes(12), b"x"], [record(), b""])),
]
OF_MESSAGES = [unreadable, too_large, other_items, no_array, *STRANGE]
OF_OPERATORS = {overflow: FloatingPointError, interrupted: Strange, refuses: KeyError}
OF_CALLS = {other_call: CollectiveMismatch, other_shape: CollectiveMismatch}
OF_TIME = {late: CollectiveTimeout, absent: CollectiveTimeout}
FAULTS = {**OF_OPERATORS, **OF_CALLS, **OF_TIME}

faults = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
before = pytest.mark.parametrize("calls", [0, 1, WARM])


def played(p: int, seed: int, victim: int, fault: Fault, calls: int, *, lanes: bool) -> list[Any]:
    job = AnyOrder(p, seed)
    job.lanes = lanes
    results = job.run(lambda comm: fault(job, comm, victim, calls), timeout=CALLS)
    assert not job.left_over()
    return results


def told(results: list[Any]) -> list[tuple[str, str]]:
    return [(type(result).__name__, str(result)) for result in results]


@faults
@before
@pytest.mark.parametrize(("p", "victim"), [(2, 0), (2, 1), (3, 0), (3, 1)])
def test_all_ranks_end_as_by_the_engine(p: int, victim: int, fault: Fault, calls: int) -> None:
    with_lanes, without = (played(p, 0, victim, fault, calls, lanes=lanes) for lanes in (True, False))
    assert told(with_lanes) == told(without)


@before
@pytest.mark.parametrize("fault", OF_MESSAGES, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(("p", "victim"), [(2, 0), (2, 1), (3, 0), (3, 1)])
def test_all_ranks_end_as_by_the_engine_where_a_message_is_no_value(
    p: int, victim: int, fault: Fault, calls: int
) -> None:
    with_lanes, without = (played(p, 0, victim, fault, calls, lanes=lanes) for lanes in (True, False))
    assert told(with_lanes) == told(without)


# What refuses a message, whether messages came before or not.


def revoked(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    comm.revoke()


def left(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    comm.finalize()


def freed(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    expire(comm)


def left_by_another(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    """The program has left by another communicator."""
    comm._group.endpoint.closed = True


def torn(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    comm._group.endpoint.torn = "something broke off a message"


def dropped(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    comm._group.endpoint.dropped.append(("irecv", ("program.py", 3)))


def forked(_: Communicator, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "getpid", lambda: 1)


def in_another_thread(_: Communicator, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(threading, "get_ident", lambda: 1)


def in_use(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    """A receive under way writes the array."""
    if not comm._group.endpoint.requests:
        kept.append(comm.irecv(1, 99, out=ONES))


kept: list[Any] = []  # requests, until the end


def aborted(comm: Communicator, _: pytest.MonkeyPatch) -> None:
    comm._group.endpoint.protocol._notices.aborted = "the job ends"


REFUSALS = [revoked, left, left_by_another, freed, torn, dropped, forked, in_another_thread, aborted, in_use]


def attempts(comm: Communicator, calls: int, refuse: Callable[..., None]) -> list[tuple[str, str]]:
    """Return the errors of some messages of rank 0 after others; none of them comes to rank 1."""
    other, found = 1 - comm.rank, []
    comm.barrier()
    for _ in range(calls):
        assert (comm.sendrecv(ONES, other, other) == ONES).all()
    if comm.rank:
        return []
    with pytest.MonkeyPatch.context() as patch:
        for attempt in ATTEMPTS.values():
            refuse(comm, patch)
            try:
                attempt(comm)
            except RingcastError as error:
                found.append((type(error).__name__, str(error)))
    assert sum(comm._group.endpoint.protocol.posted) == sum(comm._group.endpoint.protocol.matched)
    return found


@pytest.mark.parametrize("calls", [0, WARM])
@pytest.mark.parametrize("refuse", REFUSALS, ids=lambda refuse: refuse.__name__)
def test_what_may_not_be_sent_is_refused_as_by_the_engine(refuse: Callable[..., None], calls: int) -> None:
    results = []
    for lanes in True, False:
        job = AnyOrder(2)
        job.lanes = lanes
        results.append(job.run(lambda comm: attempts(comm, calls, refuse), timeout=CALLS))
    assert results[0] == results[1]
    assert len(results[0][0]) == len(ATTEMPTS)


def nested() -> None:
    receivers[0].send(ONES, 1)
    raise KeyError("mine")


class Talkative:
    """An object whose unpickling sends a message, and then raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return nested, ()


receivers: list[Communicator] = []


def interrupted_by_itself(comm: Communicator) -> list[tuple[str, str]]:
    """Rank 0 receives such an object; return what its flight recorder has of its calls."""
    comm.barrier()
    if comm.rank:
        comm.send(Talkative(), 0)
        assert (comm.recv(0) == ONES).all()
        return []
    receivers[:] = [comm]
    with pytest.raises(KeyError):
        comm.recv(1)
    flight = decode(comm._group.endpoint.recorder.image())
    assert flight is not None
    return [(entry.label, entry.state) for entry in flight.entries]


def test_the_flight_recorder_knows_which_call_has_failed() -> None:
    results = []
    for lanes in True, False:
        job = AnyOrder(2)
        job.lanes = lanes
        results.append(job.run(interrupted_by_itself, timeout=CALLS))
    assert results[0] == results[1]
    assert [state for _, state in results[0][0]] == ["done", "failed", "done"]


def unwanted(comm: Communicator) -> Any:
    """Return what rank 0, which takes no objects, gets of an object, and after it."""
    assert (comm.sendrecv(ONES, 1 - comm.rank, 1 - comm.rank) == ONES).all()
    if comm.rank:
        comm.send("text", 0)
        return comm.send(ONES, 0)
    comm._group.pickle = False
    with pytest.raises(ObjectsRefused) as refused:
        comm.recv(1)
    return str(refused.value), comm.recv(1).tolist()


def test_objects_are_refused_as_by_the_engine() -> None:
    results = []
    for lanes in True, False:
        job = AnyOrder(2)
        job.lanes = lanes
        results.append(job.run(unwanted, timeout=CALLS))
    assert results[0] == results[1]
    assert results[0][0][1] == ONES.tolist()


ATTEMPTS: dict[str, Callable[[Communicator], object]] = {
    "send": lambda comm: comm.send(ONES, 1),
    "recv": lambda comm: comm.recv(1),
    "sendrecv": lambda comm: comm.sendrecv(ONES, 1, 1),
    "sendrecv to": lambda comm: comm.sendrecv(ONES, 1, None),
    "sendrecv from": lambda comm: comm.sendrecv(None, None, 1),
}


def departed(comm: Communicator, attempt: Callable[[Communicator], object]) -> object:
    """Rank 1 leaves, which rank 0 has noticed when it attempts to reach it."""
    comm.barrier()
    if comm.rank == 1:
        comm.finalize()
        return None
    while not comm._group.endpoint.protocol.finished:
        comm._group.endpoint.progress(None)
    return attempt(comm)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_messages_with_a_rank_that_has_left_fail_as_by_the_engine(name: str) -> None:
    results = []
    for lanes in True, False:
        job = AnyOrder(2)
        job.lanes = lanes
        results.append(told(job.run(lambda comm: departed(comm, ATTEMPTS[name]), timeout=CALLS)))
    assert results[0] == results[1]
    assert results[0][0][0] == "PeerFailed"


@before
@pytest.mark.parametrize("fault", OF_OPERATORS, ids=lambda fault: fault.__name__)
def test_an_operator_raises_in_the_lane(fault: Fault, calls: int) -> None:
    error = played(2, 0, 0, fault, calls, lanes=True)[0]
    assert type(error) is OF_OPERATORS[fault]
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert ("_run" if fault is refuses else "run_flat") in names
    assert ("_failed" in names) == (calls == WARM and fault is not refuses), "whether the call is made again"


@faults
@pytest.mark.parametrize("seed", range(20))
def test_some_rank_has_the_cause_and_all_others_know_it(seed: int, fault: Fault) -> None:
    """On any number of ranks, in any order of messages; an operator may well not be called with what it refuses."""
    p, victim, calls = 2 + seed % 5, seed % 2, seed % 3
    with np.errstate(all="ignore") if fault in OF_OPERATORS else nullcontext():
        results = played(p, seed, victim, fault, calls, lanes=True)
    errors = {rank: error for rank, error in enumerate(results) if isinstance(error, BaseException)}
    causes = {rank: error for rank, error in errors.items() if not isinstance(error, Revoked)}
    assert {type(error) for error in causes.values()} <= {FAULTS[fault]}
    if fault in OF_OPERATORS:
        assert {*causes} <= {victim}
    else:
        assert {*errors} >= {*range(p)} - {victim}
        assert causes
    for error in errors.values():
        assert not isinstance(error, Revoked) or any(f"rank {rank}: " in str(error) for rank in causes), error


# Signals: rank 0 is the main thread.


@needs.shared_memory
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("calls", [0, WARM])
def test_ctrl_c_ends_a_wait_in_the_lane(build: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get the reason, and both go on."""
    need(build)
    if build == "python":
        monkeypatch.setattr(lane, "Compiled", None)
    for _ in range(10):
        interrupt(endpoints(shared(2)), calls)


def interrupt(made: list[Endpoint], calls: int) -> None:
    """Send Ctrl-C to rank 0, this thread, while it waits in a call after so many others."""
    last = threading.Event()

    def communicator(rank: int) -> Communicator:
        return Communicator(Group(made[rank], 3, NETWORKS["shm"]), timeout=patience(60))

    def work() -> list[int]:
        comm = communicator(1)
        for _ in range(calls):
            comm.allreduce(ONES)
        waiting, until = made[0].transport._own.state, time.monotonic() + patience(60)  # type: ignore[attr-defined]
        assert last.wait(patience(60))
        while waiting[0] != AT_FUTEX and time.monotonic() < until:
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Revoked, match="rank 0: KeyboardInterrupt"):
            comm.recv(0)
        comm.revoke()
        try:
            return comm.shrink().allgather(comm.rank)
        finally:
            comm.finalize()

    with ThreadPoolExecutor(1) as pool:
        others, comm = pool.submit(work), communicator(0)
        for _ in range(calls):
            comm.allreduce(ONES)
        last.set()
        with pytest.raises(KeyboardInterrupt):
            comm.allreduce(ONES)
        comm.revoke()
        assert comm.shrink().allgather(0) == others.result(patience(60)) == [0, 1]
        comm.finalize()


class Leaves:
    """An object whose pickling makes its rank leave."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def __reduce__(self) -> tuple[Any, ...]:
        self.endpoint.closed = True
        return int, ()


@pytest.mark.parametrize("call", ["send", "sendrecv"])
def test_nothing_is_sent_when_the_pickling_of_a_value_has_left_the_job(call: str) -> None:
    made = endpoints(shared(2))
    try:
        comm = Communicator(Group(made[0], 1, NETWORKS["shm"]), None)
        comm.send(1, 1)
        sent = made[0].protocol.sent[1]
        arguments = (1,) if call == "send" else (1, 1)
        with pytest.raises(UsageError):
            getattr(comm, call)(Leaves(made[0]), *arguments)
        assert made[0].protocol.sent[1] == sent == 1
    finally:
        for endpoint in made:
            endpoint.transport.close(0.1)
