"""Memory of calls under way: what would be wrong is refused, with both calls named; what would not be is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives import memory
from ringcast.collectives.memory import uses_of
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.shared_gate import SharedGate
from ringcast.requests import buffers
from ringcast.wire.collective import COLLECTIVES
from support.calls import CASES
from support.jobs import Job
from support.patience import patience

BIG = 40_000  # numbers of a message that waits for its receive
Floats = np.ndarray[Any, np.dtype[np.float64]]


Work = Callable[[], object]


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job("threads", 2)
    yield made
    made.close()


@pytest.fixture
def comm(job: Job) -> Communicator:
    """Return a communicator of rank 0 alone."""
    return alone(job, 1)


def alone(job: Job, number: int) -> Communicator:
    """Return a communicator of rank 0 of the same job."""
    group = Group(job.endpoints[0], number * 2**32, NETWORKS["threads"], members=(0,), derived=True)
    return Communicator(group, 60)


def reading(job: Job, array: Floats) -> Work:
    """Begin a call of rank 0 that reads an array; return what ends it."""
    here, there = (Communicator(Group(endpoint, 3, NETWORKS["threads"]), 60) for endpoint in job.endpoints)
    request = here.isend(array, 1, tag=1)
    assert not request.test()

    def end() -> None:
        receive = there.irecv(0, tag=1)
        while not (receive.test() and request.test()):
            request.test()
        ringcast.wait_all([request])
        receive.wait()

    return end


def writing(job: Job, array: Floats) -> Work:
    """Begin a call that writes an array."""
    comm = alone(job, 3)
    request = comm.irecv(0, tag=1, out=array)
    return lambda: ringcast.wait_all([comm.isend(array[:0].copy(), 0, tag=1), request])


def persistent(job: Job, array: Floats) -> Work:
    """Begin a persistent call that writes an array."""
    comm = alone(job, 3)
    call = comm.recv_init(0, tag=1, out=array)
    call.start()
    return lambda: ringcast.wait_all([comm.isend(array[:0].copy(), 0, tag=1), call])


def started(call: ringcast.Persistent[Any]) -> Any:
    call.start()
    return call.wait()


READERS: dict[str, Callable[[Communicator, Floats], object]] = {
    "allreduce": lambda c, x: c.allreduce(x),
    "iallreduce": lambda c, x: c.iallreduce(x).wait(),
    "allreduce_init": lambda c, x: started(c.allreduce_init(x)),
    "bcast": lambda c, x: c.bcast(x),
    "scatter": lambda c, x: c.scatter(x[None]),
    "alltoallv": lambda c, x: c.alltoallv(x, [len(x)]),
    "merge_sorted": lambda c, x: c.merge_sorted(x),
    "send": lambda c, x: (c.send(x[:9], 0), c.recv(0)),
    "sendrecv": lambda c, x: c.sendrecv(x[:9], 0, 0),
}
WRITERS: dict[str, Callable[[Communicator, Floats], object]] = {
    "allreduce": lambda c, x: c.allreduce(np.zeros_like(x), out=x),
    "iscan": lambda c, x: c.iscan(np.zeros_like(x), out=x).wait(),
    "reduce_init": lambda c, x: started(c.reduce_init(np.zeros_like(x), out=x)),
    "gatherv": lambda c, x: c.gatherv(np.zeros_like(x), out=x),
    "recv": lambda c, x: (c.send(x[:0].copy(), 0), c.recv(0, out=x)),
    "sendrecv": lambda c, x: c.sendrecv(np.zeros(9), 0, 0, out=x),
    "reduce_scatter": lambda c, x: c.reduce_scatter(x, out=x),
}


@pytest.mark.parametrize("begin", [reading, writing, persistent])
@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_one_of_two_that_use_the_same_memory_must_not_write_it(
    job: Job, begin: Callable[[Job, Floats], Work], kind: str
) -> None:
    array = np.zeros(BIG)
    end = begin(job, array)
    theirs = "reads" if begin is reading else "writes"
    for name, call in (READERS if kind == "reads" else WRITERS).items():
        for where in alone(job, 1), alone(job, 2):
            if (kind, theirs) == ("reads", "reads"):
                call(where, array)
                continue
            with pytest.raises(UsageError, match=rf"^rank 0: {name}( at test_buffers.py:\d+)? {kind} memory") as caught:
                call(where, array)
            busy = {reading: "isend", writing: "irecv", persistent: "recv_init"}[begin]
            assert f"that {busy} at test_buffers.py:" in str(caught.value)
            assert f"which is under way, {theirs}; wait for that one before" in str(caught.value)
            call(where, array.copy())
    end()
    for call in [*READERS.values(), *WRITERS.values()]:
        call(alone(job, 1), array)


def test_parts_of_an_array_are_told_apart(comm: Communicator) -> None:
    table = np.zeros((50, 50))
    flat = table.reshape(-1)
    busy = comm.irecv(0, tag=1, out=table[7])
    comm.allreduce(flat[6 * 50 : 7 * 50])
    comm.allreduce(table[8:])
    comm.allreduce(table[:7, 3])
    for array in table, table[:, 3], table[7:8, ::9], flat[7 * 50 - 1 :: 2], flat[:351]:
        with pytest.raises(UsageError, match="reads memory"):
            comm.allreduce(array)
    assert busy.cancel()
    comm.allreduce(table)


def test_columns_of_a_table_are_different_memory(job: Job, comm: Communicator) -> None:
    rows = np.zeros((3, 300))
    columns = rows.T  # of which each lies in one piece
    end = writing(job, rows[1])
    comm.allreduce(columns[:, 0], out=rows[2])
    for array in columns[:, 1], columns[7], columns[:, ::-1], columns[::7, :2]:
        with pytest.raises(UsageError, match="reads memory that irecv"):
            comm.allreduce(array)
    comm.allreduce(columns[:, ::2])
    end()


def test_what_is_too_hard_to_find_out_is_allowed(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_hard(*_: object, **__: object) -> bool:
        raise np.exceptions.TooHardError

    array = np.zeros(9)
    request = comm.irecv(0, tag=1, out=array)
    monkeypatch.setattr("numpy.shares_memory", too_hard)
    comm.allreduce(array)
    assert request.cancel()


def test_what_has_ended_is_not_under_way_though_nobody_has_waited_for_it(comm: Communicator) -> None:
    array = np.zeros(9)
    requests: list[ringcast.Request[Any]] = [comm.iallreduce(array, out=array), comm.isend(array, 0)]
    received = comm.irecv(0, out=array)
    assert received.test()
    comm.allreduce(array, out=array)
    ringcast.wait_all([*requests, received])
    gone = comm.irecv(0, out=array)
    assert gone.cancel()
    comm.allreduce(array, out=array)


def test_another_thread_ends_the_other_call_meanwhile(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    comm.progress_thread()
    gate, array = comm._group.endpoint.gate, np.zeros(9)
    assert isinstance(gate, SharedGate)
    request = comm.irecv(0, tag=1, out=array)

    def state_of(steps: Any) -> str:
        """Let the other thread come, unless this one keeps it out."""
        state = getgeneratorstate(steps)
        if other.ident is None:
            other.start()
        if gate._owner != threading.get_ident():
            other.join()
        return state

    other = threading.Thread(target=request.cancel)
    monkeypatch.setattr(buffers, "getgeneratorstate", state_of)
    with pytest.raises(UsageError, match="reads memory that irecv"):
        comm.allreduce(array)
    other.join()
    comm.allreduce(array)


def test_copies_scalars_and_objects_are_not_looked_at(comm: Communicator) -> None:
    array = np.zeros(BIG)
    request = comm.irecv(0, tag=1, out=array[1:])
    comm.allreduce([array])
    comm.allreduce(np.float64(1))
    comm.allreduce(array[:1])
    assert request.cancel()


# Nothing is refused that would do no harm, and the rest does harm.


def test_every_call_that_takes_an_array_has_a_rule() -> None:
    assert set(memory._RULES) == {*COLLECTIVES, "bcast_into", "bcast_shared", "send", "recv"} - {"barrier"}


@pytest.mark.parametrize("layout", ["contiguous", "strided", "small"])
def test_a_value_may_be_changed_at_once_where_it_is_not_in_use_any_more(layout: str) -> None:
    """Rank 1 begins, and changes its value, before the others come: all get the right result if it was not in use."""
    job = Job("threads", 3)
    names = [name for name in CASES if name != "barrier"]
    begun = {name: threading.Event() for name in names}

    def call(comm: Communicator, name: str) -> tuple[bool, bool]:
        """Return whether rank 1 is told that its value is in use, and whether the result is right."""
        (value, *rest), expected = CASES[name](comm, 3 if layout == "small" else BIG, 1)
        expected = None if expected is None else np.array(expected)  # it may be a part of the value
        if layout == "strided" and value is not None:
            wide = np.zeros((*value.shape, 2), value.dtype)
            wide[..., 0] = value
            value = wide[..., 0]
        used = False
        assert comm.rank == 1 or begun[name].wait(patience(60))
        request = getattr(comm, f"i{name}")(value, *rest)
        if comm.rank == 1:
            steps = next(iter(comm._group.endpoint.requests.values())).steps
            used = getgeneratorstate(steps) != GEN_CLOSED and any(use.later for use in uses_of(steps))
            value[...] = 77
        begun[name].set()
        got = request.wait()
        if name == "bcast" and comm.rank == 1:  # whose result is the value itself
            return used, True
        return used, (got is None and expected is None) or np.array_equal(got, expected)

    results = job.ask(lambda comm: [call(comm, name) for name in names])
    for name, ranks in zip(names, zip(*results, strict=True), strict=True):
        (_, used, _), right = zip(*ranks, strict=True)
        if not used:
            assert all(right), name
        elif layout != "small":  # of which copies are on their way
            assert not all(right), name
    job.close()
