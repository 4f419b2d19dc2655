"""Requests in asyncio: results, several at a time, errors, cancellation; and that nothing is polled."""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import CollectiveMismatch, CollectiveTimeout, PeerFailed, Revoked, UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine import drive, shared
from ringcast.requests import awaiting
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

KINDS = ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)]


@pytest.fixture(params=["one thread", "engine's thread"])
def ways(request: pytest.FixtureRequest) -> bool:
    """Whether the rank has a thread that makes progress."""
    return bool(request.param == "engine's thread")


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a wake-up that is lost be lost for good."""
    monkeypatch.setattr(drive, "QUIET", 1e5)
    monkeypatch.setattr(shared, "SLICE", 1e5)


def ask(kind: str, p: int, work: Callable[[Communicator], Coroutine[Any, Any, Any]], ways: bool = False) -> list[Any]:
    """Run a coroutine on every rank, and return the results."""
    job = Job(kind, p)

    def rank(comm: Communicator) -> Any:
        if ways:
            comm.progress_thread()
        return asyncio.run(work(comm), debug=kind == "shm")  # asyncio's debug mode checks threads and file descriptors

    try:
        results = job.ask(rank)
        assert not awaiting._WATCHES
        assert not job.left_over()
        return results
    finally:
        job.close()


# Results.


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, pytest.param(3, marks=pytest.mark.live), 5])
def test_await_returns_what_wait_does(kind: str, p: int, ways: bool) -> None:
    async def work(comm: Communicator) -> None:
        for i, size in enumerate((0, 1, 100, 30_000)):
            total = await comm.iallreduce(np.full(size, comm.rank + i))
            np.testing.assert_array_equal(total, np.full(size, p * (p - 1) // 2 + p * i))
            assert await comm.ibcast(("any", i) if comm.rank == p - 1 else None, p - 1) == ("any", i)
            assert await comm.ibarrier() is None
            right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
            sent, got = comm.isend(np.full(size, comm.rank), right), comm.irecv(left)
            np.testing.assert_array_equal(await got, np.full(size, left))
            await sent

    ask(kind, p, work, ways)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [2, 3])
def test_several_coroutines_await_at_the_same_time(kind: str, p: int, ways: bool) -> None:
    async def work(comm: Communicator) -> list[list[int]]:
        own = [comm.dup() for _ in range(4)]

        async def many(i: int) -> list[int]:
            return [await own[i].iallreduce(i + j) for j in range(10)]

        return await asyncio.gather(*map(many, range(4)))

    assert ask(kind, p, work, ways) == [[[p * (i + j) for j in range(10)] for i in range(4)]] * p


@pytest.mark.usefixtures("no_second_look")
def test_requests_themselves_are_gathered(ways: bool) -> None:
    async def work(comm: Communicator) -> list[Any]:
        return await asyncio.gather(*(comm.iallreduce(i) for i in range(20)), comm.ibcast("a"))

    assert ask("ipc", 2, work, ways) == [[*range(0, 40, 2), "a"]] * 2


@pytest.mark.usefixtures("no_second_look")
def test_a_blocking_call_meanwhile_takes_no_message_away(ways: bool) -> None:
    """It reads what the awaited call needs, and perhaps a part only of what has come."""

    async def work(comm: Communicator) -> list[int]:
        other, got = comm.dup(), []

        async def receive() -> None:
            for _ in range(100):
                got.append(await comm.irecv((comm.rank - 1) % 2))

        async def block() -> None:
            for i in range(100):
                comm.isend(i, (comm.rank + 1) % 2).wait()
                other.barrier()
                await asyncio.sleep(0)

        await asyncio.gather(receive(), block())
        return got

    assert ask("ipc", 2, work, ways) == [[*range(100)]] * 2


@pytest.mark.usefixtures("no_second_look")
def test_a_message_of_the_rank_to_itself_ends_an_await(ways: bool) -> None:
    async def work(comm: Communicator) -> Any:
        received = asyncio.ensure_future(comm.irecv(0))
        await asyncio.sleep(0)
        comm.send("hello", 0)
        return await received

    assert ask("threads", 1, work, ways) == ["hello"]


@pytest.mark.usefixtures("no_second_look")
def test_the_loop_serves_others_meanwhile(ways: bool) -> None:
    """Rank 1 sends when rank 0, which awaits, has told it to by another coroutine."""
    told = threading.Event()

    async def work(comm: Communicator) -> Any:
        if comm.rank == 1:
            assert told.wait(patience(60))
            await comm.isend("told", 0)
            return None
        received = asyncio.ensure_future(comm.irecv(1))
        await asyncio.sleep(0)
        assert not received.done()
        told.set()
        return await received

    assert ask("ipc", 2, work, ways) == ["told", None]


@pytest.mark.usefixtures("no_second_look")
def test_loops_of_several_threads_await_calls_of_one_rank() -> None:
    job = Job("ipc", 2)

    def work(comm: Communicator) -> list[int]:
        comm.progress_thread()
        own = [comm.dup() for _ in range(3)]
        results = [0] * 3

        async def add(i: int) -> None:
            for j in range(20):
                results[i] += await own[i].iallreduce(j)

        threads = [threading.Thread(target=asyncio.run, args=(add(i),)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    assert job.ask(work) == [[2 * sum(range(20))] * 3] * 2
    job.close()


# Nothing is polled.


MANY = 50  # more rounds than a loop makes that has little to do


class Rounds(selectors.EpollSelector):
    """Counts the rounds of a loop, and tells when one falls asleep, as nothing is ready or due; or makes too many."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.asleep = 0, threading.Event()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.count += 1
        ready = super().select(0)
        if self.count > MANY or (not ready and (timeout is None or timeout > 1)):
            self.asleep.set()
        return ready or super().select(timeout)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", "tcp"])
def test_a_loop_that_waits_does_not_look_all_the_time(kind: str) -> None:
    """It falls asleep until a message comes, which is sent only then."""
    rounds = Rounds()

    async def work(comm: Communicator) -> Any:
        transport = comm._group.endpoint.transport
        polls, poll = [0], transport.poll

        def counted(deadline: float | None) -> Any:
            polls[0] += 1
            return poll(deadline)

        transport.poll = counted  # of this one
        got = await comm.irecv(1)
        assert rounds.count <= MANY
        assert polls[0] <= 10
        return got

    def rank(comm: Communicator) -> Any:
        if comm.rank == 1:
            assert rounds.asleep.wait(patience(60))
            return comm.send("late", 0)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(rounds)) as runner:
            return runner.run(work(comm))

    job = Job(kind, 2)
    assert job.ask(rank) == ["late", None]
    job.close()


# Errors.


@pytest.mark.usefixtures("no_second_look")
def test_a_cancelled_await_leaves_the_request_to_be_waited_for(ways: bool) -> None:
    async def work(comm: Communicator) -> list[Any]:
        if comm.rank == 1:
            comm.recv(0, 1)
            comm.send("a", 0)
            comm.recv(0, 1)
            comm.send("b", 0)
            return []
        first, second = comm.irecv(1), comm.irecv(1)
        waiting = asyncio.ensure_future(first)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        comm.send(None, 1, 1)
        got = [await first]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(second, 0.01)
        comm.send(None, 1, 1)
        return [*got, second.wait()]

    assert ask("ipc", 2, work, ways) == [["a", "b"], []]


@pytest.mark.usefixtures("no_second_look")
def test_the_timeout_of_the_communicator_holds(ways: bool) -> None:
    over = threading.Event()

    async def work(comm: Communicator) -> None:
        if comm.rank == 1:
            assert over.wait(patience(60))
            return
        comm.timeout = 0.05
        with pytest.raises(CollectiveTimeout, match=r"allreduce #1.*0\.05 s"):
            await comm.iallreduce(1)
        over.set()
        with pytest.raises(Revoked):
            await comm.ibarrier()

    ask("ipc", 2, work, ways)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_all_coroutines_get_the_error_when_a_peer_is_gone(
    kind: str, ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.transports.zeromq.LINGER", 0.1)  # what was sent to it is not delivered
    made = threading.Barrier(3, timeout=patience(30))

    async def work(comm: Communicator) -> None:
        own = [comm.dup() for _ in range(3)]
        made.wait()  # what rank 1 has sent for these is delivered
        if comm.rank == 1:
            comm.finalize()
            return

        async def one(part: Communicator) -> Any:
            return await part.iallreduce(1)

        errors = await asyncio.gather(*map(one, own), return_exceptions=True)
        assert all(isinstance(error, PeerFailed) and "rank 1 finished" in str(error) for error in errors)

    ask(kind, 3, work, ways)


@pytest.mark.usefixtures("soon_stalled")
def test_calls_between_which_no_message_flows_are_found(ways: bool) -> None:
    async def work(comm: Communicator) -> None:
        with pytest.raises((CollectiveMismatch, Revoked)):
            await comm.igather(1, root=comm.rank)

    ask("ipc", 3, work, ways)


@pytest.mark.usefixtures("soon_stalled")
def test_who_awaits_is_in_no_cycle(monkeypatch: pytest.MonkeyPatch, ways: bool) -> None:
    """Both ranks wait for a message of the other; another coroutine of rank 0 sends it after many reports."""
    reports = threading.Semaphore(0)

    async def work(comm: Communicator) -> Any:
        send = comm._group.endpoint.control.send
        monkeypatch.setattr(comm._group.endpoint.control, "send", lambda m: (send(m), reports.release()))
        if comm.rank:
            comm.send("answer to " + comm.recv(0), 0)
            return None
        received = asyncio.ensure_future(comm.irecv(1))
        for _ in range(10):
            assert await asyncio.to_thread(reports.acquire, timeout=patience(60))
        comm.send("late", 1)
        return await received

    assert ask("ipc", 2, work, ways) == ["answer to late", None]


@pytest.mark.usefixtures("no_second_look")
def test_who_leaves_ends_what_is_awaited(ways: bool) -> None:
    async def work(comm: Communicator) -> None:
        waiting = asyncio.ensure_future(comm.dup().irecv(0))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="dropped without wait: irecv"):
            comm.finalize()
        with pytest.raises(UsageError, match="finalize"):
            await waiting

    ask("ipc", 1, work, ways)


def test_a_request_is_awaited_once(ways: bool) -> None:
    async def work(comm: Communicator) -> None:
        request = comm.irecv(0)
        waiting = [asyncio.ensure_future(request) for _ in range(2)]
        await asyncio.sleep(0)
        comm.send("once", 0)
        got = await asyncio.gather(*waiting, return_exceptions=True)
        assert got[0] == "once"
        with pytest.raises(UsageError, match="await of a request that was waited for before: irecv"):
            raise got[1]

    ask("ipc", 1, work, ways)


def test_progress_thread_is_not_begun_in_an_await() -> None:
    async def work(comm: Communicator) -> None:
        waiting = asyncio.ensure_future(comm.irecv(0))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="while a call is under way"):
            comm.progress_thread()
        comm.send(None, 0)
        await waiting

    ask("ipc", 1, work)


@pytest.mark.usefixtures("no_second_look")
def test_what_breaks_off_the_engine_ends_all_awaits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(comm: Communicator) -> None:
        other = comm.dup()
        if comm.rank:
            comm.send(1, 0, 5)
            with pytest.raises((PeerFailed, Revoked)):
                other.recv(0)
            return
        waiting = [asyncio.ensure_future(one.irecv(1, 0)) for one in (comm, other)]
        transport = comm._group.endpoint.transport
        poll = transport.poll

        def broken(deadline: float | None) -> None:
            if poll(deadline) is not None:
                raise MemoryError("no room")

        monkeypatch.setattr(transport, "poll", broken)
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(error, MemoryError | ringcast.JobAborted) for error in errors)

    job = Job("threads", 2)
    job.ask(lambda comm: asyncio.run(work(comm)))
    job.close()
    assert not awaiting._WATCHES
    gc.collect()


@pytest.mark.parametrize("handled", [True, False])
def test_ctrl_c_ends_the_loop_and_leaves_the_request(handled: bool, ways: bool) -> None:
    """As asyncio.run does it, whose handler cancels the main task; and with Python's own."""
    job = Job("ipc", 1)
    comm = Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    if ways:
        comm.progress_thread()
    request = comm.irecv(0)

    async def wait() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        await request

    if handled:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(wait())
    else:
        loop = asyncio.new_event_loop()
        task = loop.create_task(wait())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
    comm.send("after all", 0)
    assert request.wait() == "after all"
    comm.finalize()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio.run finds another one in the place of its own
    job.close()
