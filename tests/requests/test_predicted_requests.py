"""Requests that begin by prediction: they wait for nobody, and all results and counters are those of the engine."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from threading import Barrier, Event
from typing import Any
from weakref import ref

import numpy as np
import pytest

import ringcast
from ringcast import Communicator, Request
from ringcast.engine import direct
from ringcast.engine.predicted import Predicted
from ringcast.errors import CollectiveTimeout, Revoked, UsageError
from ringcast.ops import Op
from support import needs
from support.jobs import Job
from support.patience import patience, slowness

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

KINDS = "shm", "sockets"
SIZES = 1, 7, 1000, 20_000  # items of an array: a program's own memory, others', and what is offered
ROUNDS = 30
WAITS = 0.0, 20e-6, 0.01  # seconds

Wanted = tuple[Request[Any], Callable[[Any], None]]  # a request, and the check of its result


@pytest.fixture(params=[2, 3, 5])
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=KINDS)
def job(request: pytest.FixtureRequest, size: int) -> Iterator[Job]:
    made = Job(request.param, size)
    yield made
    made.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts requests by how they came to their end: by prediction, or handed over to the engine."""
    count, play, advance = Counter[str](), Predicted.play, Predicted.advance

    def playing(task: Predicted[Any], patience: float) -> bool:
        done = play(task, patience)
        count["predicted"] += done
        return done

    def advancing(task: Predicted[Any]) -> None:
        count["handed over"] += 1
        advance(task)

    monkeypatch.setattr(Predicted, "play", playing)
    monkeypatch.setattr(Predicted, "advance", advancing)
    return count


# Programs.


def same(want: Any) -> Callable[[Any], None]:
    def check(got: Any) -> None:
        np.testing.assert_array_equal(got, want)

    return check


def reduction(comm: Communicator, rng: Random, number: int) -> Wanted:
    n, p = rng.choice(SIZES), comm.size
    value, out = np.arange(n) * (comm.rank + number), rng.choice((None, np.empty(n, np.int64)))
    total = np.arange(n) * (p * (p - 1) // 2 + p * number)
    return comm.iallreduce(value, out=out), same(total)


def with_function(comm: Communicator, rng: Random, number: int) -> Wanted:
    value = np.full(rng.choice(SIZES[:2]), comm.rank + number)
    return comm.iallreduce(value, LARGER), same(np.full(len(value), comm.size - 1 + number))


def barrier(comm: Communicator, _: Random, __: int) -> Wanted:
    return comm.ibarrier(), same(None)


def gathered(comm: Communicator, rng: Random, number: int) -> Wanted:
    n = rng.choice(SIZES)
    want = np.repeat(np.arange(comm.size) + number, n)
    return comm.iallgatherv(np.full(n, comm.rank + number), [n] * comm.size), same(want)


def scattered(comm: Communicator, rng: Random, number: int) -> Wanted:
    n, p = rng.choice(SIZES), comm.size
    value = np.repeat(np.arange(p), n) + comm.rank + number
    return comm.ireduce_scatter(value), same(np.full(n, p * (comm.rank + number) + p * (p - 1) // 2))


def broadcast(comm: Communicator, rng: Random, number: int) -> Wanted:
    root, n = rng.randrange(comm.size), rng.choice(SIZES)
    return comm.ibcast(np.full(n, number) if comm.rank == root else None, root), same(np.full(n, number))


def prepared(comm: Communicator, _: Random, number: int) -> Wanted:
    values, call = PREPARED[comm]
    values[:] = comm.rank + number
    call.start()
    return call, same(np.full(len(values), comm.size * (comm.size - 1) // 2 + comm.size * number))


LARGER = Op(np.maximum)
PREPARED: dict[Communicator, Any] = {}
COLLECTIVES = reduction, with_function, barrier, gathered, scattered, broadcast, prepared


def messages(comm: Communicator, rng: Random, number: int) -> list[Wanted]:
    """Send something to the next rank, and receive what the one before sends, with two requests and in two orders."""
    tag, n = rng.randrange(3), rng.choice((0, 1, 1000, 20_000))
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    value = {"of": comm.rank, "in": number} if rng.random() < 0.2 else np.full(n, comm.rank + number)
    want = {"of": before, "in": number} if isinstance(value, dict) else np.full(n, before + number)

    def receive() -> Wanted:
        out = np.empty_like(want) if isinstance(want, np.ndarray) and rng.random() < 0.5 else None
        return comm.irecv(before, tag, out=out), (lambda got: _equal(got, want))

    def send() -> Wanted:
        return comm.isend(value, after, tag), same(None)

    return [make() for make in ((receive, send) if rng.random() < 0.7 else (send, receive))]


def _equal(got: Any, want: Any) -> None:
    assert got == want if isinstance(want, dict) else (got.dtype, [*got]) == (want.dtype, [*want])


def wait_for(requests: list[Wanted], rng: Random) -> None:
    """Wait for requests in any order and way, and check their results."""
    if rng.random() < 0.5:
        rng.shuffle(requests)
    way = rng.randrange(4)
    if way == 0:
        for (_, check), got in zip(requests, ringcast.wait_all([one for one, _ in requests]), strict=True):
            check(got)
        return
    while way == 1 and requests:
        place, got = ringcast.wait_any([one for one, _ in requests])
        requests.pop(place)[1](got)
    for one, check in requests:
        while way == 2 and not one.test():
            pass
        check(one.wait())


def program(seed: int) -> Callable[[Communicator], None]:
    """Return a program of several requests at a time, between calls that block; all ranks make the same calls."""

    def play(comm: Communicator) -> None:
        values = np.zeros(5, np.int64)
        PREPARED[comm] = values, comm.allreduce_init(values)
        mine = Random(f"{seed} {comm.rank}")
        for number in range(ROUNDS):
            rng = Random(f"{seed} {number}")
            requests: list[Wanted] = []
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                if rng.random() < 0.5:
                    requests += messages(comm, rng, number)
                elif (make := rng.choice(COLLECTIVES)) is not prepared or all(
                    one.__class__ is Request for one, _ in requests
                ):
                    requests.append(make(comm, rng, number))
            if rng.random() < 0.2:
                comm.barrier()
            if rng.random() < 0.2:
                same(comm.size)(comm.allreduce(np.ones(1, np.int64))[0])
            wait_for(requests, mine)
        del PREPARED[comm]

    return play


def counters(job: Job) -> list[list[list[int]]]:
    protocols: list[Any] = [endpoint.protocol for endpoint in job.endpoints]
    for a, mine in enumerate(protocols):
        for b, theirs in enumerate(protocols):
            assert mine._ledger.spent[b] == theirs._ledger.held[a] + theirs._ledger.owed[a]
    return [[[*words] for words in (p.posted, p.matched)] for p in protocols]


# Laws.


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))])
def test_results_and_counters_are_those_of_the_engine(
    seed: int, waits: float, job: Job, ends: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "PATIENCE", waits)
    job.ask(program(seed))
    assert not job.left_over()
    engine = Job(job.kind, job.size)
    for endpoint in engine.endpoints:
        endpoint.direct = False
    try:
        engine.ask(program(seed))
        assert counters(job) == counters(engine)
    finally:
        engine.close()
    assert ends["handed over"]
    # A shorter wait may end before any message comes, as may any one on a slow machine.
    assert ends["predicted"] or waits < WAITS[-1] or slowness() > 1


def test_a_request_waits_for_nobody(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 begins all its calls while the others have begun none."""
    job.ask(program(1))  # some are made again from now on
    monkeypatch.setattr(direct, "PATIENCE", patience(60))
    begun = Event()

    def play(comm: Communicator) -> None:
        for number in range(6):  # the first ones are planned, the others are made again
            for make in COLLECTIVES[:-1]:
                if comm.rank:
                    assert begun.wait(patience(20)), "rank 0 waits for this rank"
                request, check = make(comm, Random(number % 2), 1)
                if comm.rank == 0:
                    begun.set()
                check(request.wait())
                comm.barrier()
                begun.clear()
                comm.barrier()

    job.ask(play)


def test_messages_of_requests_are_received_in_their_order(job: Job, ends: Counter[str]) -> None:
    """A blocking receive comes behind the requests before it, and a request behind those of the same tag."""

    def play(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank > 1:
            return
        for _ in range(5):
            if comm.rank == 0:
                for number in range(5):
                    comm.send(number, 1, 3)
                comm.send("any", 1, 4)
                assert comm.recv(1, 3) == "theirs"
                comm.send(5, 1, 3)
                comm.send(6, 1, 3)
            else:
                first, second = comm.irecv(0, 3), comm.irecv(0, 3)
                assert comm.recv(0, 3) == 2
                third = comm.irecv(0, 3)
                fourth = comm.irecv(0)
                assert comm.recv(0) == "any"
                assert fourth.wait() == 4
                assert (third.wait(), second.wait(), first.wait()) == (3, 1, 0)
                fifth = comm.irecv(0, 3)
                assert comm.sendrecv("theirs", 0, 0, 3) == 6
                assert fifth.wait() == 5

    job.ask(play)
    assert ends["handed over"]


def test_memory_in_use_is_left_alone(job: Job) -> None:
    """As with the engine, a send of memory that a receive under way writes is refused, and so is its like."""

    def play(comm: Communicator) -> None:
        comm.barrier()  # the first call of a communicator needs the engine
        memory = np.zeros(10)
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        request = comm.irecv(before, 1, out=memory)
        for refused in (
            lambda: comm.send(memory, after, 2),
            lambda: comm.isend(memory[2:], after, 2),
            lambda: comm.irecv(before, 2, out=memory[:3]),
            lambda: comm.sendrecv(memory, after, before, 2),
            lambda: comm.allreduce(memory),
            lambda: comm.iallreduce(memory),
        ):
            with pytest.raises(UsageError, match="which is under way, writes"):
                refused()
        comm.barrier()  # what has come before a receive begins ends it at once
        comm.send(np.ones(10), after, 1)
        request.wait()
        comm.send(memory, after, 2)  # nothing writes it any more
        np.testing.assert_array_equal(comm.recv(before, 2), memory)

    job.ask(play)


def test_an_error_of_an_operator_ends_the_call_on_all_ranks(job: Job) -> None:
    def bad(a: Any, b: Any) -> Any:
        if fails:
            raise ArithmeticError("no")
        return a + b

    fails = False
    operator = Op(bad)

    def play(comm: Communicator) -> None:
        for _ in range(3):
            comm.iallreduce(np.ones(4), operator).wait()

    def fail(comm: Communicator) -> None:
        for _ in range(3):
            comm.iallreduce(np.ones(4), operator).wait()
        comm.barrier()
        nonlocal fails
        fails = True
        comm.barrier()
        comm.iallreduce(np.ones(4), operator).wait()

    job.ask(play)
    for error in job.run(fail):
        assert isinstance(error, ArithmeticError | ringcast.Revoked), error


def test_an_error_of_an_operator_at_the_beginning_is_no_mismatch(job: Job) -> None:
    """Rank 0 fails when it begins the call, for which the other ranks have sent their messages."""
    came = Barrier(job.size)

    def play(comm: Communicator) -> None:
        other = comm.dup()
        for _ in range(4):
            other.allreduce(np.full(3, 1.5), ringcast.PROD)
        large = np.full(3, 1e200)
        with np.errstate(over="ignore" if comm.rank else "raise"), suppress(ringcast.Revoked, FloatingPointError):
            request = other.iallreduce(large, ringcast.PROD) if comm.rank else None
            came.wait(patience(20))
            (request or other.iallreduce(large, ringcast.PROD)).wait()
        assert comm.allreduce(1) == comm.size

    job.ask(play)


def test_no_request_that_has_ended_holds_its_array(job: Job) -> None:
    def play(comm: Communicator) -> None:
        for _ in range(3):
            value = np.ones(4)
            held = ref(value)
            comm.iallreduce(value).wait()
            del value
            gc.collect()
            assert held() is None

    job.ask(play)


def test_threads_that_begin_calls_at_once_begin_their_own(job: Job) -> None:
    """Each thread sends, and receives, by a tag of its own."""

    def play(comm: Communicator) -> None:
        comm.progress_thread()
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

        def exchange(tag: int) -> None:
            for number in range(50):
                requests = comm.irecv(before, tag), comm.isend((tag, number), after, tag)
                assert [request.wait() for request in requests] == [(tag, number), None]

        with ThreadPoolExecutor(3) as threads:
            for done in [threads.submit(exchange, tag) for tag in (1, 2, 3)]:
                done.result(patience(60))

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        job.ask(play)
    finally:
        sys.setswitchinterval(often)


def test_the_shortest_timeout_is_one(job: Job) -> None:
    def play(comm: Communicator) -> None:
        for _ in range(3):
            comm.sendrecv(np.ones(1), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
            comm.barrier()
        with pytest.raises(CollectiveTimeout, match=r"recv .* within 1e-30 s"):
            comm.irecv((comm.rank - 1) % comm.size).wait(timeout=1e-30)

    results = job.run(play)
    assert None in results, results
    assert all(result is None or isinstance(result, Revoked) for result in results), results  # by the first one


def test_what_cannot_be_unpickled_is_an_error_of_the_wait(job: Job) -> None:
    def play(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 0:
            comm.send(Unreadable(), 1)
        elif comm.rank == 1:
            request = comm.irecv(0)
            with pytest.raises(ZeroDivisionError):
                request.wait()

    job.ask(play)


class Unreadable:
    def __reduce__(self) -> Any:
        return _divide, (1, 0)


def _divide(a: int, b: int) -> float:
    return a / b


def test_a_receive_is_cancelled(job: Job) -> None:
    def play(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank < 2:
            request = comm.irecv(1 - comm.rank, 5)
            assert request.cancel()
            assert not comm.iprobe(1 - comm.rank, 5)
            comm.barrier()
            comm.send(comm.rank, 1 - comm.rank, 5)
            assert comm.recv(1 - comm.rank, 5) == 1 - comm.rank
        else:
            comm.barrier()

    job.ask(play)


def test_a_request_that_is_dropped_is_named_by_the_next_call(job: Job) -> None:
    def play(comm: Communicator) -> None:
        for _ in range(3):
            comm.ibarrier().wait()
        comm.ibarrier()
        with pytest.raises(UsageError, match="ibarrier"):
            comm.barrier()
        comm.barrier()

    job.ask(play)
