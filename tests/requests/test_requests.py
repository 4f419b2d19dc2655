"""Calls that do not block: the same results as those that do, in any number and order of waits; and their errors."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any, SupportsIndex

import numpy as np
import pytest

import ringcast
from ringcast import CollectiveMismatch, CollectiveTimeout, JobAborted, PeerFailed, Revoked, UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.endpoint import Endpoint
from ringcast.protocol.operations import Operation
from support.calls import CASES, assert_same
from support.jobs import Job
from support.patience import patience
from support.public import NONBLOCKING, PERSISTENT


def other(comm: Communicator) -> Communicator:
    """Return a second communicator of the same ranks."""
    group = comm._group
    return Communicator(Group(group.endpoint, group.context + 2**32, group.network), 60)


# The same as the calls that block.


def test_every_collective_has_its_form_with_the_same_arguments() -> None:
    calls = *CASES, "send", "recv"
    assert {f"i{name}" for name in calls} == NONBLOCKING
    assert {f"{name}_init" for name in calls} == PERSISTENT
    for name in calls:
        blocking = inspect.signature(getattr(Communicator, name)).parameters
        wanted = {argument: parameter for argument, parameter in blocking.items() if argument != "timeout"}
        for form in f"i{name}", f"{name}_init":
            assert dict(inspect.signature(getattr(Communicator, form)).parameters) == wanted


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_the_results_are_those_of_the_calls_that_block(kind: str, p: int) -> None:
    job = Job(kind, p)

    def work(comm: Communicator) -> None:
        for size in (0, 1, 3000):
            for seed, (name, case) in enumerate(CASES.items()):
                arguments, expected = case(comm, size, seed)
                assert_same(getattr(comm, f"i{name}")(*arguments).wait(), expected, f"{name} of {size}")

    job.ask(work)
    assert not job.left_over()
    job.close()


def overlapping(comm: Communicator, seed: int, count: int) -> None:
    """Make random calls, some of them blocking, on two communicators, and wait for them in an order of this rank's."""
    shared, own = Random(seed), Random(f"{seed} {comm.rank}")
    comms = comm, other(comm)
    open_: list[tuple[Any, Any, str]] = []
    for i in range(count):
        where, name = shared.choice(comms), shared.choice([*CASES])
        size, blocks = shared.choice([0, 1, 50, 3000, 30_000]), shared.random() < 0.2
        arguments, expected = CASES[name](where, size, i)
        if blocks:
            assert_same(getattr(where, name)(*arguments), expected, name)
        elif own.random() < 0.2:
            call = getattr(where, f"{name}_init")(*arguments)
            call.start()
            open_.append((call, expected, name))
        else:
            open_.append((getattr(where, f"i{name}")(*arguments), expected, name))
        while open_ and own.random() < 0.4:
            _wait_for_some(open_, own)
    while open_:
        _wait_for_some(open_, own)


def _wait_for_some(open_: list[tuple[Any, Any, str]], random: Random) -> None:
    way = random.choice(["wait", "test", "all", "any", "some"])
    requests = [request for request, _, _ in open_]
    if way == "test":
        requests[random.randrange(len(requests))].test()
        return
    if way == "wait":
        place = random.randrange(len(requests))
        done = [(place, requests[place].wait())]
    elif way == "all":
        done = [*enumerate(ringcast.wait_all(requests))]
    elif way == "any":
        done = [ringcast.wait_any(requests)]
    else:
        done = ringcast.wait_some(requests)
    for place, got in sorted(done, key=lambda one: one[0], reverse=True):
        _, expected, name = open_.pop(place)
        assert_same(got, expected, name)


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_any_number_of_calls_may_be_under_way_and_be_waited_for_in_any_order(kind: str, p: int) -> None:
    job = Job(kind, p)
    for seed in range(3):
        job.ask(lambda comm, seed=seed: overlapping(comm, seed, 15))
    assert not job.left_over()
    job.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [2, 3, 5, 7])
def test_many_random_programs_of_calls_that_overlap(kind: str, p: int) -> None:
    job = Job(kind, p)
    for seed in range(100, 130):
        job.ask(lambda comm, seed=seed: overlapping(comm, seed, 40))
    assert not job.left_over()
    job.close()


@pytest.mark.parametrize("p", [33, 65])
def test_calls_of_many_ranks_overlap(p: int) -> None:
    job = Job("threads", p)

    def work(comm: Communicator) -> None:
        requests = [comm.iallreduce(np.full(10, comm.rank)), comm.ibcast(comm.rank, root=p - 1), comm.ibarrier()]
        total, root, nothing = ringcast.wait_all(requests[:: 1 if comm.rank % 2 else -1])[:: 1 if comm.rank % 2 else -1]
        assert (int(total[0]), root, nothing) == (p * (p - 1) // 2, p - 1, None)

    job.ask(work)
    job.close()


def test_a_call_goes_on_while_the_program_waits_for_another_one() -> None:
    """Rank 1 waits in the barrier, to which the others come only when it has passed on what comes from rank 0."""
    job = Job("threads", 3)

    def work(comm: Communicator) -> Any:
        first = comm.ibcast("first" if comm.rank == 0 else None, algorithm="linear_pipeline")
        if comm.rank == 1:
            other(comm).barrier()
        got = first.wait()
        if comm.rank != 1:
            other(comm).barrier()
        return got

    assert job.ask(work) == ["first"] * 3
    job.close()


@pytest.mark.parametrize("verb", ["agree", "shrink"])
def test_a_call_goes_on_while_the_program_agrees(verb: str) -> None:
    """Rank 0 votes at once; the others vote when the allreduce is done, which needs rank 0 in every round."""

    def work(comm: Communicator) -> int:
        vote = getattr(comm, verb)
        if comm.rank == 0:
            request = comm.iallreduce(1)
            vote()
            return int(request.wait())
        total = comm.allreduce(1)
        vote()
        return int(total)

    job = Job("threads", 5)
    assert job.ask(work) == [5] * 5
    job.close()


def test_two_iallreduces_need_no_order_of_waits() -> None:
    job = Job("threads", 2)

    def work(comm: Communicator) -> list[int]:
        requests = [comm.iallreduce(comm.rank + i) for i in range(4)]
        order = [3, 1, 0, 2] if comm.rank else [2, 0, 3, 1]
        got = {i: requests[i].wait() for i in order}
        return [got[i] for i in range(4)]

    assert job.ask(work) == [[1, 3, 5, 7]] * 2
    job.close()


@pytest.mark.parametrize("p", [1, 2])
def test_a_result_belongs_to_the_program_alone(p: int) -> None:
    """It is freed when the program drops it, without the garbage collector."""
    job = Job("threads", p)

    def work(comm: Communicator) -> list[bool]:
        results = [comm.allreduce(np.ones(9)), comm.iallreduce(np.ones(9)).wait(), comm.shift(np.ones(9), 1)]
        found = [weakref.ref(result) for result in results]
        results.clear()
        return [each() is None for each in found]

    gc.disable()
    try:
        assert job.ask(work) == [[True] * 3] * p
    finally:
        gc.enable()
    job.close()


# What is wrong.


@pytest.fixture
def comm() -> Iterator[Communicator]:
    job = Job("threads", 1)
    yield Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    job.close()


def test_a_request_is_waited_for_once(comm: Communicator) -> None:
    request = comm.iallreduce(1)
    assert request.wait() == 1
    for again in (request.wait, request.test, lambda: ringcast.wait_any([request])):
        with pytest.raises(UsageError, match=r"\w+ of a request that was waited for before: iallreduce at test_"):
            again()


def test_a_request_is_not_given_twice_and_of_none_nobody_waits_for_any(comm: Communicator) -> None:
    request = comm.iallreduce(1)
    with pytest.raises(UsageError, match="got a request twice"):
        ringcast.wait_all([request, request])
    assert ringcast.wait_all([]) == []
    for wait in ringcast.wait_any, ringcast.wait_some:
        with pytest.raises(UsageError, match="of no requests"):
            wait([])
    assert request.wait() == 1


def test_a_request_that_is_dropped_is_named_by_the_next_call(comm: Communicator) -> None:
    comm.iallreduce(1)
    gc.collect()
    with pytest.raises(UsageError, match=r"a request was dropped without wait: iallreduce at test_requests.py:\d+"):
        comm.barrier()


def test_a_request_that_is_dropped_while_others_are_reported_is_reported_next(comm: Communicator) -> None:
    """The garbage collector may find it at any moment."""

    class Dropped(list[tuple[str, tuple[str, int]]]):
        """Calls, and one more as soon as they were looked at."""

        found = False

        def find(self) -> None:
            if not self.found:
                self.found = True
                self.append(("irecv", ("later.py", 2)))

        def __iter__(self) -> Iterator[tuple[str, tuple[str, int]]]:
            yield from [*super().__getitem__(slice(None))]
            self.find()

        def pop(self, index: SupportsIndex = -1) -> tuple[str, tuple[str, int]]:
            call = super().pop(index)
            self.find()
            return call

    comm._group.endpoint.dropped = Dropped([("isend", ("before.py", 1))])
    for call in "isend at before.py:1", "irecv at later.py:2":
        with pytest.raises(UsageError, match=re.escape(f"dropped without wait: {call};")):
            comm.barrier()
    comm.barrier()


def test_who_leaves_with_a_request_is_told(comm: Communicator) -> None:
    request = comm.iallreduce(1)
    with pytest.raises(UsageError, match="dropped without wait: iallreduce"):
        comm.finalize()
    assert comm.closed
    with pytest.raises(UsageError, match="finalized"):
        request.wait()


@pytest.mark.parametrize("end", ["free", "finalize", "with"])
def test_a_communicator_with_open_requests_is_not_freed(comm: Communicator, end: str) -> None:
    part, outer = comm.dup(), comm.irecv(0)
    under_way, done = part.irecv(0), part.iallreduce(1)
    again = part.allreduce_init(2)
    again.start()

    def leave() -> None:
        if end == "with":
            with part:
                pass
        else:
            getattr(part, end)()

    named = (
        r"irecv at test_requests.py:\d+, iallreduce at test_requests.py:\d+, allreduce_init at test_requests.py:\d+;"
    )
    with pytest.raises(UsageError, match=rf"a request was dropped without wait: {named}"):
        leave()
    assert not part.closed
    part.send("a", 0)
    assert ringcast.wait_all([under_way, done, again]) == ["a", 1, 2]
    leave()
    assert part.closed
    assert outer.cancel(), "that of another communicator is not asked for"


def test_requests_of_a_communicator_that_was_given_up_need_no_wait(comm: Communicator) -> None:
    part = comm.dup()
    request = part.irecv(0)
    part.revoke()
    part.finalize()
    assert part.closed
    del request
    gc.collect()
    comm.barrier()


def test_an_error_that_passes_by_is_not_covered_by_a_dropped_request(comm: Communicator) -> None:
    def work() -> None:
        with comm:
            comm.iallreduce(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_wrong_argument_is_an_error_of_the_call_itself(comm: Communicator) -> None:
    with pytest.raises(ringcast.ArgumentError, match=r"reduce.*root"):
        comm.ireduce(1, root=1)
    assert comm.iallreduce(1).wait() == 1


def test_another_thread_may_not_wait(comm: Communicator) -> None:
    request, errors = comm.iallreduce(1), []

    def work() -> None:
        try:
            request.wait()
        except UsageError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "belongs to another thread" in errors[0]
    assert request.wait() == 1


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_calls_in_another_order_are_a_mismatch(kind: str) -> None:
    job = Job(kind, 2)

    def work(comm: Communicator) -> None:
        names = ["iallreduce", "iallgather"][:: 1 if comm.rank else -1]
        ringcast.wait_all([getattr(comm, name)(np.ones(10)) for name in names])

    errors = job.run(work)
    assert any(isinstance(error, CollectiveMismatch) for error in errors)
    assert all(isinstance(error, CollectiveMismatch | Revoked) for error in errors)
    job.close()


@pytest.mark.parametrize("wait", ["wait", "all", "any", "some"])
def test_a_timeout_ends_what_is_waited_for(wait: str) -> None:
    job = Job("threads", 2)
    over = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            assert over.wait(patience(60))
            return
        requests = [comm.iallreduce(1), other(comm).ibarrier()]
        ways = {"wait": lambda: requests[0].wait(0.1), "all": lambda: ringcast.wait_all(requests, 0.1)}
        ways |= {"any": lambda: ringcast.wait_any(requests, 0.1), "some": lambda: ringcast.wait_some(requests, 0.1)}
        try:
            with pytest.raises(CollectiveTimeout, match=r"allreduce #1.*0\.1 s"):
                ways[wait]()
        finally:
            over.set()
        with pytest.raises(Revoked):
            comm.barrier()

    assert job.run(work) == [None, None]
    job.close()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_a_rank_that_leaves_ends_all_calls_that_need_it(kind: str) -> None:
    job = Job(kind, 3)

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.finalize()
            return
        requests = [comm.iallreduce(1), other(comm).iallreduce(2)]
        for request in requests:
            with pytest.raises(PeerFailed, match="rank 1 finished"):
                request.wait()

    assert job.run(work) == [None] * 3
    job.close()


def test_the_first_error_ends_a_wait_for_all() -> None:
    job = Job("threads", 2)
    done = threading.Event()

    def work(comm: Communicator) -> None:
        second = other(comm)
        if comm.rank == 1:
            comm.revoke()
            assert done.wait(patience(60))
            second.barrier()
            return
        requests = [second.ibarrier(), comm.ibarrier()]
        try:
            with pytest.raises(Revoked, match=r"rank 1 called revoke"):
                ringcast.wait_all(requests)
        finally:
            done.set()
        assert not second.is_revoked  # the barrier goes on …
        requests[0].wait()  # … and has still to be waited for
        with pytest.raises(UsageError, match="waited for before"):
            requests[1].wait()

    assert job.run(work)[0] is None
    job.close()


def test_a_receive_that_goes_on_after_the_error_of_another_request_keeps_its_memory() -> None:
    job = Job("threads", 2)
    begun = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            assert begun.wait(patience(60))
            comm.revoke()
            return
        second, out = other(comm), np.zeros(3)
        receive, barrier = second.irecv(1, out=out), comm.ibarrier()
        begun.set()
        with pytest.raises(Revoked):
            ringcast.wait_all([receive, barrier])
        with pytest.raises(UsageError, match="which is under way"):
            second.irecv(1, tag=1, out=out)
        assert receive.cancel()

    assert job.run(work) == [None, None]
    job.close()


def test_what_breaks_off_another_call_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has no memory left for the second message of its first call, while it waits for the second one."""
    job = Job("threads", 2)
    ready = threading.Event()

    def work(comm: Communicator) -> None:
        second = other(comm)
        if comm.rank == 1:
            assert ready.wait(patience(60))
            comm.allreduce(np.ones(10), algorithm="pipelined_ring")
            return
        first = comm.iallreduce(np.ones(10), algorithm="pipelined_ring")
        transport, sends = comm._group.endpoint.transport, count()
        whole = transport.send

        def send(peer: int, frames: Any) -> None:
            if next(sends):
                raise MemoryError("no room")
            whole(peer, frames)  # of the barrier
            ready.set()

        monkeypatch.setattr(transport, "send", send)
        with pytest.raises(MemoryError):
            second.barrier()
        with pytest.raises(MemoryError):
            first.wait()

    errors = job.run(work)
    assert isinstance(errors[0], JobAborted), "this rank counts as failed"
    assert isinstance(errors[1], PeerFailed)
    job.close()


# Handlers of signals, and threads.


class Interrupted(Exception):
    """The error that the handler of a signal raises."""


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a signal come in the middle of the first call that begins, whose handler raises."""
    whole, first = Endpoint.begin, iter([True])

    def begin(*args: Any, **options: Any) -> Operation:
        op = whole(*args, **options)
        if next(first, False):
            signal.raise_signal(signal.SIGUSR1)
        return op

    def handler(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(Endpoint, "begin", begin)
    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupted")
def test_a_call_whose_beginning_was_interrupted_is_known(comm: Communicator) -> None:
    with pytest.raises(Interrupted):
        comm.irecv(0)
    gc.collect()
    with pytest.raises(UsageError, match="dropped without wait: irecv"):
        comm.barrier()


@pytest.mark.usefixtures("interrupted")
def test_a_start_that_was_interrupted_can_be_waited_for(comm: Communicator) -> None:
    call = comm.recv_init(0)
    with pytest.raises(Interrupted):
        call.start()
    comm.send("a", 0)
    assert call.wait() == "a"


def outcomes(*calls: Callable[[], Any]) -> list[Any]:
    """Return what calls return that threads make at the same time, or raise."""
    results: list[Any] = []

    def work(call: Callable[[], Any]) -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=work, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results, key=lambda result: isinstance(result, Exception))


@pytest.mark.parametrize("form", ["request", "persistent"])
def test_of_two_threads_that_wait_for_a_request_one_has_its_result(comm: Communicator, form: str) -> None:
    comm.progress_thread()
    if form == "request":
        request = comm.irecv(0)
    else:
        request = call = comm.recv_init(0)
        call.start()
    gate: Any = comm._group.endpoint.gate

    def send() -> None:
        while len(gate.bells) < 2:  # both wait
            os.sched_yield()
        comm.send("a", 0)

    nothing, got, error = outcomes(request.wait, request.wait, send)
    assert {nothing, got} == {None, "a"}
    assert isinstance(error, UsageError)


def test_a_thread_that_waits_for_a_receive_that_another_one_cancels_gets_an_error(comm: Communicator) -> None:
    comm.progress_thread()
    request = comm.irecv(0)
    gate: Any = comm._group.endpoint.gate

    def cancel() -> bool:
        while not gate.bells:
            os.sched_yield()
        return request.cancel()

    cancelled, error = outcomes(request.wait, cancel)
    assert cancelled is True
    assert isinstance(error, UsageError)
    comm.barrier()


# Deadlocks.


def test_a_cycle_of_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank waits in one communicator before it makes its call in the other one."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.05)
    job = Job("threads", 2)

    def work(comm: Communicator) -> None:
        one, two = (comm, other(comm))[:: 1 if comm.rank else -1]
        one.ibarrier().wait()
        two.ibarrier().wait()

    for error in job.run(work):
        assert isinstance(error, CollectiveTimeout)
        assert error.cycle == (0, 1)
    job.close()


def test_a_call_under_way_is_no_part_of_a_cycle_if_it_can_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 0 and 1 wait for each other's programs only after rank 2, which is late, has come."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.02)
    job = Job("threads", 3)
    stalled = threading.Semaphore(0)

    def work(comm: Communicator) -> list[Any]:
        if comm.rank == 2:
            for _ in range(20):
                assert stalled.acquire(timeout=patience(60))
        else:
            send = comm._group.endpoint.control.send
            monkeypatch.setattr(comm._group.endpoint.control, "send", lambda m: (send(m), stalled.release()))
        requests = [comm.iallreduce(comm.rank), other(comm).iallreduce(2 * comm.rank)]
        return [requests[i].wait() for i in ((0, 1) if comm.rank else (1, 0))]

    assert sorted(map(sorted, job.ask(work))) == [[3, 6]] * 3
    job.close()


def test_who_only_tests_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.02)
    job = Job("threads", 2)
    tested = threading.Event()

    def work(comm: Communicator) -> Any:
        first, second = comm, other(comm)
        if comm.rank == 0:
            return first.allreduce(1), second.allreduce(2)  # waits for rank 1, which tests in another one
        request, times = second.iallreduce(2), 0
        while times < 20_000:
            assert not request.test()
            times += 1
        tested.set()
        return first.allreduce(1), request.wait()

    assert job.ask(work) == [(2, 4)] * 2
    assert tested.is_set()
    job.close()
