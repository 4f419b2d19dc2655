"""Ranks of several threads: results, progress while the program does something else, errors, and the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import CollectiveMismatch, CollectiveTimeout, JobAborted, PeerFailed, Revoked, UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine import drive, shared, signal_gate
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.shared_gate import SharedGate
from ringcast.transports import zeromq
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

ALL_KINDS = ["threads", "shm", "sockets", "tcp"]
KINDS = ["threads", "shm", "sockets", pytest.param("tcp", marks=pytest.mark.live)]
THREADS = 4


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a wake-up that is lost be lost for good."""
    monkeypatch.setattr(drive, "QUIET", 1e5)
    monkeypatch.setattr(shared, "SLICE", 1e5)


class Helpers:
    """Threads of one rank; `start` runs a function in one of them, and leaving awaits all and raises their error."""

    def __enter__(self) -> Helpers:
        self._pool, self._begun = ThreadPoolExecutor(THREADS), list[Future[Any]]()
        return self

    def start(self, fn: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self._begun.append(self._pool.submit(fn, *arguments))
        return self._begun[-1]

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for one in self._begun:
            one.result()


def each_in_a_thread(fn: Callable[[int], Any]) -> None:
    with Helpers() as helpers:
        for thread in range(THREADS):
            helpers.start(fn, thread)


def spread(comm: Communicator) -> list[Communicator]:
    comm.progress_thread()
    return [comm.dup() for _ in range(THREADS)]


class Bells(list[Any]):
    """Those of the threads that wait in a call; tells when there are more."""

    def __init__(self) -> None:
        super().__init__()
        self.more = threading.Condition()

    def append(self, bell: Any) -> None:
        with self.more:
            super().append(bell)
            self.more.notify_all()


class TellingGate(SharedGate):
    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__(settle)
        self.bells = Bells()


@pytest.fixture(autouse=True)
def _telling_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SharedGate", TellingGate)


def until_wait(comm: Communicator, threads: int = 1) -> None:
    """Return when so many threads of a rank wait in a call."""
    endpoint = comm._group.endpoint
    assert isinstance(endpoint, shared.SharedEndpoint)
    bells = endpoint.gate.bells
    assert isinstance(bells, Bells)
    with bells.more:
        assert bells.more.wait_for(lambda: len(bells) >= threads, 60)


# Results.


def some_calls(comm: Communicator, all_: Communicator, thread: int, seed: int, count: int) -> None:
    """Make random calls on a communicator of this thread's own, and send messages with its tags on one of all."""
    random, p, rank = Random(f"{seed} {thread}"), comm.size, comm.rank
    right, left = (rank + 1) % p, (rank - 1) % p
    for i in range(count):
        size, way = random.choice([0, 1, 100, 30_000]), random.randrange(7)
        value, tag = np.arange(size) + rank * i, thread * 1000 + i % 7
        sums = sum(np.arange(size) + r * i for r in range(p))
        if way == 0:
            np.testing.assert_array_equal(comm.allreduce(value), sums)
        elif way == 1:
            request = comm.iallgather(value)
            np.testing.assert_array_equal(request.wait(), [np.arange(size) + r * i for r in range(p)])
        elif way == 2:
            root = random.randrange(p)
            got = comm.bcast((thread, i) if rank == root else None, root)
            assert got == (thread, i)
        elif way == 3:
            np.testing.assert_array_equal(all_.sendrecv(value, right, left, tag), np.arange(size) + left * i)
        elif way == 4:
            requests = [all_.isend(value, right, tag), all_.irecv(left, tag), comm.iallreduce(i)]
            _, got, total = ringcast.wait_all(requests)
            np.testing.assert_array_equal(got, np.arange(size) + left * i)
            assert total == i * p
        elif way == 5:
            request = comm.ireduce(value, root=p - 1)
            while not request.test():
                pass
            assert (request.wait() is None) == (rank != p - 1)
        else:
            all_.send(value, rank, tag)
            np.testing.assert_array_equal(all_.recv(rank, tag), value)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, pytest.param(3, marks=pytest.mark.live), 5])
def test_four_threads_make_calls_on_communicators_of_their_own_and_on_one_of_all(kind: str, p: int) -> None:
    stress(kind, p, 1, 10)


@pytest.mark.long
@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("p", [2, 3, 5, 7])
def test_many_calls_of_four_threads(kind: str, p: int) -> None:
    stress(kind, p, 10, 100)


def stress(kind: str, p: int, seeds: int, count: int) -> None:
    job = Job(kind, p)

    def work(comm: Communicator) -> None:
        own = spread(comm)
        for seed in range(seeds):
            each_in_a_thread(lambda thread, seed=seed: some_calls(own[thread], comm, thread, seed, count))

    job.ask(work)
    assert not job.left_over()
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("shares", [(True, False), (False, True), (True, True)])
def test_ranks_need_not_do_it_alike(shares: tuple[bool, bool]) -> None:
    job = Job("ipc", 2)

    def work(comm: Communicator) -> list[int]:
        if shares[comm.rank]:
            comm.progress_thread()
            comm.progress_thread()  # once more changes nothing
        return [comm.allreduce(np.full(20_000, comm.rank + i))[-1] for i in range(20)]

    assert job.ask(work) == [[2 * i + 1 for i in range(20)]] * 2
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_more_messages_than_are_taken_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BATCH", 1)
    stress(kind, 2, 1, 10)


# Progress.


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [2, pytest.param(3, marks=pytest.mark.live), 5])
def test_calls_go_on_while_the_program_makes_none(kind: str, p: int) -> None:
    """Rank 0 makes no call until the calls of all others, which need it in several rounds, have returned."""
    job, returned = Job(kind, p), threading.Semaphore(0)

    def work(comm: Communicator) -> None:
        message, value = np.arange(300_000), np.full(100_000, comm.rank)
        if comm.rank:
            got = comm.allreduce(value), comm.recv(0)
            returned.release()
        else:
            comm.progress_thread()
            requests = [comm.iallreduce(value), *(comm.isend(message, r) for r in range(1, p))]
            for _ in range(1, p):
                assert returned.acquire(timeout=patience(60))
            got = ringcast.wait_all(requests)[0], message
        assert (got[0] == p * (p - 1) // 2).all()
        np.testing.assert_array_equal(got[1], message)

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("no_second_look")
def test_a_message_of_another_thread_of_the_same_rank_ends_a_wait() -> None:
    job = Job("ipc", 1)

    def work(comm: Communicator) -> None:
        comm.progress_thread()
        with Helpers() as helpers:
            received = helpers.start(comm.recv, 0, 5)
            until_wait(comm)
            comm.send("hello", 0, 5)
            assert received.result() == "hello"

    job.ask(work)
    job.close()


# Who may call.


def test_another_thread_is_told_how_it_may_call() -> None:
    job = Job("threads", 1)

    def work(comm: Communicator) -> None:
        with Helpers() as helpers, pytest.raises(UsageError, match=r'threads="multiple"\), or progress_thread\(\)'):
            helpers.start(comm.barrier).result()
        assert type(comm._group.endpoint) is Endpoint

    with pytest.raises(UsageError, match="another thread"):
        job.ask(work)
    job.close()


def test_a_call_under_way_is_not_shared() -> None:
    job = Job("threads", 1)

    def work(comm: Communicator) -> int:
        class Asks:
            """Calls progress_thread in the middle of a call: while it is pickled."""

            def __reduce__(self) -> Any:
                with pytest.raises(UsageError, match="while a call is under way"):
                    comm.progress_thread()
                return int, (1,)

        comm.send(Asks(), 0)
        return int(comm.recv(0))

    assert job.ask(work) == [1]
    job.close()


def test_init_takes_one_of_two_words() -> None:
    with pytest.raises(ValueError, match="threads='many': expected 'single' or 'multiple'"):
        ringcast.init(threads="many")  # as a program may


def test_ranks_that_are_threads_have_threads_of_their_own() -> None:
    def work(comm: Communicator) -> list[int]:
        assert ringcast.init(threads="multiple") is comm
        own = [comm.dup() for _ in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as pool:
            return [*pool.map(lambda thread: own[thread].allreduce(thread), range(THREADS))]

    assert ringcast.run(work, 3, backend="threads") == [[0, 3, 6, 9]] * 3


@pytest.mark.live
def test_a_forked_child_is_refused_and_ends() -> None:
    program = """
import os, threading, ringcast
comm = ringcast.init(threads="multiple")
threading.Thread(target=comm.recv, args=(0, 1)).start()
pid = os.fork()
if pid == 0:
    try:
        comm.barrier()
    except ringcast.UsageError as error:
        assert "forked" in str(error)
        ringcast.finalize()
        os.write(1, b"refused ")
        raise SystemExit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
comm.send(None, 0, 1)
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stdout) == (0, "refused ended\n"), done.stderr


def launch(program: str, size: int = 2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), "python", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)


@pytest.mark.live
def test_a_program_ends_without_finalize() -> None:
    """The engine's thread keeps no process alive, and the others get all that was sent."""
    program = """
import sys, threading, ringcast
comm = ringcast.init(threads="multiple")
own = comm.dup(), comm.dup()
threads = [threading.Thread(target=lambda part=part: sys.stdout.write(f"{part.allreduce(1)}\\n")) for part in own]
for thread in threads: thread.start()
comm.isend(comm.rank, 1 - comm.rank).wait()
assert comm.recv() == 1 - comm.rank
"""
    done = launch(program)
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", *["[0] 2"] * 2, *["[1] 2"] * 2]), done.stderr


@pytest.mark.live
def test_a_rank_that_raises_while_its_threads_wait_ends_the_job() -> None:
    program = """
import threading, ringcast
comm = ringcast.init(threads="multiple")
own = comm.dup()
if comm.rank: own.barrier()
threading.Thread(target=own.recv, args=(1,)).start()
raise ZeroDivisionError
"""
    done = launch(program)
    assert done.returncode == 1
    assert "rank 0" in done.stderr.splitlines()[-1]
    assert "ZeroDivisionError" in done.stderr.splitlines()[-1]


# Signals.


class Alarm(Exception):
    """Raised by a handler."""


def alarm(*_: object) -> None:
    raise Alarm


@pytest.fixture
def handler() -> Iterator[Callable[[Any], None]]:
    """Set the handler of SIGUSR1, for one test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda wanted: signal.signal(signal.SIGUSR1, wanted)
    signal.signal(signal.SIGUSR1, before)


def interrupt(number: int, delivered: Callable[[], bool]) -> None:
    """Send a signal to this process; again, where it comes in the moment in which the main thread falls asleep.

    Python's locks do not notice it then, and programs not before the next report of a stall is due.
    """
    again = threading.Event()
    while not delivered():
        os.kill(os.getpid(), number)
        again.wait(0.1)


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_ends_the_wait_of_the_main_thread_only(kind: str, number: signal.Signals) -> None:
    expected = {signal.SIGUSR1: Alarm, signal.SIGINT: KeyboardInterrupt}[number]
    delivered = threading.Event()

    def handle(*_: object) -> None:
        if not delivered.is_set():
            delivered.set()
            raise expected

    before = signal.signal(number, handle)
    job = Job(kind, 2)
    comms = [Communicator(Group(endpoint, 3, NETWORKS["threads"]), 60) for endpoint in job.endpoints]
    for comm in comms:
        comm.progress_thread()
    with Helpers() as helpers:
        other = helpers.start(comms[1].dup)
        own = comms[0].dup()
        other.result()
        received = helpers.start(own.recv, 1)

        def end_the_wait() -> None:
            until_wait(comms[0], 2)
            interrupt(number, delivered.is_set)

        helpers.start(end_the_wait)
        with pytest.raises(expected):
            comms[0].recv(1)
        with pytest.raises(Revoked, match=expected.__name__):
            comms[1].barrier()
        other.result().send("untouched", 0)
        assert received.result() == "untouched"
    signal.signal(number, before)
    job.close()


@pytest.mark.usefixtures("no_second_look")
def test_a_handler_may_make_calls_and_wait_for_other_threads(handler: Callable[[Any], None]) -> None:
    """It runs without the lock, so that the others go on meanwhile."""
    job = Job("ipc", 1)
    comm = Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    comm.progress_thread()
    delivered = threading.Event()
    with Helpers() as helpers:

        def handle(*_: object) -> None:
            if delivered.is_set():
                return
            delivered.set()
            helpers.start(comm.send, "of a thread", 0, 1).result()
            comm.send(comm.recv(0, 1), 0, 2)

        handler(handle)

        def end_the_wait() -> None:
            until_wait(comm)
            interrupt(signal.SIGUSR1, delivered.is_set)

        helpers.start(end_the_wait)
        assert comm.recv(0, 2) == "of a thread"
    job.close()


@pytest.mark.usefixtures("no_second_look")
def test_finalize_waits_for_a_call_in_which_a_handler_has_made_another_one(handler: Callable[[Any], None]) -> None:
    job = Job("ipc", 1)
    comm = Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    comm.progress_thread()
    endpoint, delivered, main = comm._group.endpoint, threading.Event(), threading.get_ident()
    assert isinstance(endpoint, shared.SharedEndpoint)
    gate = endpoint.gate

    def handle(*_: object) -> None:
        if not delivered.is_set():
            assert comm.iprobe(0, 2) is None
            delivered.set()

    def end() -> bool:
        """Finalize, and return whether it was known then that the main thread is in a call."""
        until_wait(comm)
        interrupt(signal.SIGUSR1, delivered.is_set)
        until_wait(comm)
        with gate:
            known = main in gate.inside
        comm.finalize()
        return known

    handler(handle)
    with Helpers() as helpers:
        ended = helpers.start(end)
        with pytest.raises(UsageError, match=r"another thread has called finalize\(\)"):
            comm.recv(0, 1)
        assert ended.result()
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("waits_in_a_call", [True, False])
def test_a_second_signal_does_not_wait_for_the_lock(
    waits_in_a_call: bool, handler: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one ends the wait; but another thread, as in an operator that hangs, lets the main thread not in."""
    handler(alarm)
    job = Job("ipc", 1)
    comm = Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    comm.progress_thread()
    endpoint, main = comm._group.endpoint, signal_gate._MAIN
    assert isinstance(endpoint, shared.SharedEndpoint)
    gate = endpoint.gate
    entered, over = threading.Event(), threading.Event()

    def hang() -> None:
        if waits_in_a_call:
            until_wait(comm)
        with gate:
            entered.set()
            while not main._depth:
                pass
            interrupt(signal.SIGUSR1, lambda: bool(main.pending))
            monkeypatch.setattr(signal_gate, "PATIENCE", 0.0)
            interrupt(signal.SIGUSR1, lambda: not main.pending)
            if not waits_in_a_call:
                assert over.wait(patience(60))

    with Helpers() as helpers:
        helpers.start(hang)
        if waits_in_a_call:
            with pytest.raises(Alarm):
                comm.recv(0)
        else:
            assert entered.wait(patience(60))
            with pytest.raises(Alarm):
                comm.barrier()
            over.set()
    assert not main._depth
    assert {*gate.inside} <= {endpoint._thread.ident}
    job.close()


# Errors.


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ["threads", "ipc"])
def test_all_threads_get_the_error_when_a_peer_is_gone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "LINGER", 0.1)  # what was sent to the peer that is gone is not delivered
    job = Job(kind, 3)

    def work(comm: Communicator) -> None:
        own = spread(comm)
        if comm.rank == 1:
            comm.finalize()
            return

        def fail(thread: int) -> None:
            with pytest.raises(PeerFailed, match="rank 1 finished") as error:
                own[thread].allreduce(1) if thread % 2 else own[thread].irecv(1).wait()
            assert error.value.rank == comm.rank

        each_in_a_thread(fail)

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("verb", ["shrink", "agree"])
def test_threads_agree_and_shrink_on_communicators_of_their_own(verb: str) -> None:
    job = Job("ipc", 3)

    def work(comm: Communicator) -> None:
        own = spread(comm)

        def go_on(thread: int) -> None:
            mine = own[thread]
            if verb == "agree":
                assert mine.agree(thread) == thread
            else:
                mine.revoke()
                assert mine.shrink().allgather(thread) == [thread] * 3

        each_in_a_thread(go_on)

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("verb", ["shrink", "agree"])
def test_a_second_thread_that_agrees_on_the_same_communicator_is_refused(verb: str) -> None:
    """The call of the first one goes on, and ends as ever."""
    job = Job("ipc", 2)
    refused = threading.Event()

    def work(comm: Communicator) -> list[int]:
        if comm.rank:
            assert refused.wait(patience(60))
            return [comm.agree(3), comm.agree(5)]
        comm.progress_thread()
        with Helpers() as helpers:
            first = helpers.start(comm.agree, 6)
            until_wait(comm)
            try:
                with pytest.raises(UsageError, match=rf"^rank 0: {verb} at test_shared.py:\d+ while agree at .*thread"):
                    getattr(comm, verb)(timeout=patience(5))
            finally:
                refused.set()
            return [first.result(), comm.agree(12)]

    assert job.ask(work, timeout=patience(20)) == [[2, 4], [2, 4]]
    job.close()


@pytest.mark.usefixtures("no_second_look")
def test_a_timeout_ends_the_call_of_one_thread() -> None:
    job = Job("ipc", 2)

    def work(comm: Communicator) -> None:
        own = spread(comm)
        if comm.rank:
            assert own[1].recv(0) == "done"
            return
        with Helpers() as helpers:
            received = helpers.start(own[2].recv, 0)
            with pytest.raises(CollectiveTimeout):
                own[0].recv(1, timeout=0.05)
            assert not received.done()
            own[2].send("as ever", 0)
            assert received.result() == "as ever"
        own[1].send("done", 1)

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", KINDS)
def test_finalize_ends_the_waits_of_other_threads(kind: str) -> None:
    job = Job(kind, 2)

    def work(comm: Communicator) -> None:
        own = spread(comm)
        if comm.rank:
            with pytest.raises((PeerFailed, Revoked)):
                own[0].recv(0)
            return

        def end(thread: int) -> None:
            with pytest.raises(UsageError, match=r"another thread has called finalize\(\)"):
                own[thread].recv(1)
            with pytest.raises(UsageError, match="finalize"):
                own[thread].barrier()

        with Helpers() as helpers:
            for thread in range(3):
                helpers.start(end, thread)
            until_wait(comm, 3)
            comm.finalize()

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("there", ["poll", "send"])
def test_what_breaks_off_the_engine_ends_all_waits(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory is left in the engine's thread: for what arrives, or for the next message of a call."""
    job = Job("ipc", 2)
    ready = threading.Event()

    def work(comm: Communicator) -> None:
        own = spread(comm)
        if comm.rank:
            assert ready.wait(patience(60))
            with pytest.raises((PeerFailed, Revoked)):
                own[3].allreduce(np.ones(10), algorithm="pipelined_ring")
            return
        endpoint = comm._group.endpoint
        assert isinstance(endpoint, shared.SharedEndpoint)
        request = own[3].iallreduce(np.ones(10), algorithm="pipelined_ring")
        with Helpers() as helpers:
            results = [helpers.start(own[thread].recv, 1) for thread in range(3)]
            until_wait(comm, 3)
            whole = getattr(endpoint.transport, there)

            def breaks(*arguments: Any) -> Any:
                if threading.current_thread() is endpoint._thread:
                    raise MemoryError("no room")
                return whole(*arguments)

            monkeypatch.setattr(endpoint.transport, there, breaks)
            ready.set()
            for result in results:
                assert isinstance(result.exception(60), JobAborted)
                result._exception = None  # it is as expected
        with pytest.raises(JobAborted, match="MemoryError"):
            request.wait()

    job.ask(work)
    job.close()


def test_an_operator_that_raises_in_the_engines_thread_ends_its_call_only() -> None:
    job = Job("ipc", 2)

    def operator(left: Any, right: Any) -> Any:
        raise SystemExit(3)

    def work(comm: Communicator) -> None:
        own = spread(comm)
        with pytest.raises((SystemExit, Revoked)):
            own[0].allreduce([1], operator)
        assert own[2].allreduce(1) == 2

    job.ask(work)
    job.close()


# What is found, and what is not.


@pytest.mark.usefixtures("soon_stalled")
def test_calls_between_which_no_message_flows_are_found() -> None:
    job = Job("ipc", 3)

    def work(comm: Communicator) -> None:
        own = spread(comm)

        def gather() -> None:
            with pytest.raises((CollectiveMismatch, Revoked)):
                own[0].gather(1, root=comm.rank)

        with Helpers() as helpers:
            helpers.start(gather)
            others = helpers.start(own[1].allreduce, 1)
        assert others.result() == 3

    job.ask(work)
    job.close()


@pytest.mark.usefixtures("soon_stalled")
def test_a_rank_whose_other_thread_may_call_is_in_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks wait for a message of the other for many times the time of a report; a second thread sends it."""
    job, reports = Job("ipc", 2), threading.Semaphore(0)

    def work(comm: Communicator) -> Any:
        send = comm._group.endpoint.control.send
        monkeypatch.setattr(comm._group.endpoint.control, "send", lambda m: (send(m), reports.release()))
        if comm.rank:
            comm.send("answer to " + comm.recv(0), 0)
            return None
        comm.progress_thread()
        with Helpers() as helpers:
            received = helpers.start(comm.recv, 1)
            for _ in range(10):
                assert reports.acquire(timeout=patience(60))
            comm.send("late", 1)
            return received.result()

    assert job.ask(work) == ["answer to late", None]
    job.close()
