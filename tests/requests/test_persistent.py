"""Persistent calls: each start is the call that blocks, with what the arrays hold then; and their errors."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, Revoked, UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from support.calls import CASES, assert_same
from support.jobs import Job
from support.patience import patience

KINDS = ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)]


@pytest.fixture
def comm() -> Iterator[Communicator]:
    job = Job("threads", 1)
    yield Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    job.close()


# The same as the calls that block.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_each_start_takes_what_the_arrays_hold_then(kind: str, p: int) -> None:
    job = Job(kind, p)

    def work(comm: Communicator) -> None:
        for size in (0, 1, 3000):
            for seed, (name, case) in enumerate(CASES.items()):
                arguments, _ = case(comm, size, seed)
                call = getattr(comm, f"{name}_init")(*arguments)
                for again in range(3):  # with the same root and distance
                    new, expected = case(comm, size, seed + again * p)
                    for array, values in zip(arguments, new, strict=True):
                        if isinstance(array, np.ndarray):
                            array[...] = values
                    call.start()
                    assert_same(call.wait(), expected, f"{name} of {size}")

    job.ask(work)
    assert not job.left_over()
    job.close()


@pytest.mark.parametrize("p", [2, 3, 33])
def test_any_form_of_a_call_is_matched_by_any_other(p: int) -> None:
    job = Job("threads", p)

    def work(comm: Communicator) -> None:
        for seed, (name, case) in enumerate(CASES.items()):
            arguments, expected = case(comm, 50, seed)
            form = (comm.rank + seed) % 3
            if form == 0:
                got = getattr(comm, name)(*arguments)
            elif form == 1:
                got = getattr(comm, f"i{name}")(*arguments).wait()
            else:
                call = getattr(comm, f"{name}_init")(*arguments)
                call.start()
                got = call.wait()
            assert_same(got, expected, name)

    job.ask(work)
    job.close()


def test_several_are_under_way_and_waited_for_together() -> None:
    job = Job("threads", 3)

    def work(comm: Communicator) -> None:
        sums = [np.zeros(10) for _ in range(3)]
        values = [np.full(10, float(comm.rank + i)) for i in range(3)]
        calls = [comm.allreduce_init(value, out=out) for value, out in zip(values, sums, strict=True)]
        for _ in range(5):
            for call in calls:
                call.start()
            request = comm.iallreduce(np.full(10, 1.0))
            place, _ = ringcast.wait_any(calls)
            left = [*calls[:place], *calls[place + 1 :], request]
            done = {place for place, _ in ringcast.wait_some(left)}
            ringcast.wait_all(call for place, call in enumerate(left) if place not in done)
            for i, out in enumerate(sums):
                assert (out == 3 + 3 * i).all()

    job.ask(work)
    job.close()


def test_halos_are_exchanged_again_and_again() -> None:
    job = Job("ipc", 3)

    def work(comm: Communicator) -> None:
        left, right = (comm.rank - 1) % 3, (comm.rank + 1) % 3
        edge, ghost = np.empty(5000), np.empty(5000)
        calls = [comm.recv_init(left, tag=1, out=ghost), comm.send_init(edge, right, tag=1)]
        for step in range(5):
            edge[...] = 10 * step + comm.rank
            for call in calls:
                call.start()
            ringcast.wait_all(calls)
            assert (ghost == 10 * step + left).all()

    job.ask(work)
    job.close()


# What is wrong.


def test_a_wrong_argument_is_an_error_when_the_call_is_made(comm: Communicator) -> None:
    with pytest.raises(ArgumentError, match=r"reduce.*root"):
        comm.reduce_init(1, root=1)
    with pytest.raises(ArgumentError, match=r"allreduce.*out.*shape"):
        comm.allreduce_init(np.ones(3), out=np.ones(4))
    with pytest.raises(ArgumentError, match=r"recv.*writeable"):
        comm.recv_init(out=np.broadcast_to(np.ones(1), 1))
    with pytest.raises(ArgumentError, match=r"contiguous"):
        comm.allreduce_init(np.ones(3), out=np.ones(6)[::2])
    with pytest.raises(ArgumentError, match=r"send.*tag"):
        comm.send_init(1, 0, tag=-1)
    assert comm.allreduce(1) == 1, "the communicator is as it was"


@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "allgather", "gather", "alltoall", "reduce_scatter"])
def test_nothing_is_written_before_the_start(comm: Communicator, name: str) -> None:
    value = np.arange(1.0, 2.0)
    out = np.full((1, 1) if "gather" in name else 1, 9.0)
    call = getattr(comm, f"{name}_init")(value, out=out)
    assert out == 9
    call.start()
    assert call.wait() is out
    assert out == 1


def test_a_call_under_way_is_not_started_again(comm: Communicator) -> None:
    call = comm.allreduce_init(1)
    call.start()
    with pytest.raises(UsageError, match=r"rank 0: start of allreduce_init at test_p\w+.py:\d+, which is under way"):
        call.start()
    assert call.wait() == 1
    call.start()
    assert call.wait() == 1


def test_what_was_not_started_is_not_waited_for(comm: Communicator) -> None:
    call = comm.allreduce_init(1)
    for wait in call.wait, call.test, call.cancel, lambda: ringcast.wait_all([call]):
        with pytest.raises(UsageError, match=r"\w+ of allreduce_init at test_p\w+.py:\d+, which is not under way"):
            wait()
    call.start()
    assert call.test()
    assert call.wait() == 1
    with pytest.raises(UsageError, match="wait of allreduce_init"):
        call.wait()


def test_a_call_that_is_dropped_under_way_is_named_by_the_next_one(comm: Communicator) -> None:
    comm.allreduce_init(1).start()
    gc.collect()
    with pytest.raises(UsageError, match=r"dropped without wait: allreduce_init at test_persistent.py:\d+"):
        comm.barrier()


def test_a_call_that_is_not_under_way_may_be_dropped(comm: Communicator) -> None:
    comm.allreduce_init(1)
    call = comm.barrier_init()
    call.start()
    call.wait()
    del call
    gc.collect()
    comm.barrier()


def test_a_result_is_not_kept(comm: Communicator) -> None:
    call = comm.allreduce_init(np.zeros(9))
    call.start()
    result = weakref.ref(call.wait())
    assert result() is None


def test_a_receive_is_cancelled_and_started_again(comm: Communicator) -> None:
    call = comm.recv_init(0, tag=5)
    call.start()
    assert call.cancel()
    call.start()
    comm.send("a", 0, tag=5)
    assert call.wait() == "a"


def test_its_words(comm: Communicator) -> None:
    call = comm.recv_init(0)
    assert repr(call).endswith(", not started>")
    call.start()
    assert repr(call).startswith("<Persistent: recv_init at test_persistent.py:")
    assert repr(call).endswith(", under way>")
    comm.send(1, 0)
    call.test()
    assert repr(call).endswith(", done>")
    call.wait()


def in_threads(*actions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_two_threads_that_start_a_call_one_does(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    comm.progress_thread()
    call, meeting, errors = comm.recv_init(0), threading.Barrier(2), []
    make = call._make

    def meet() -> Any:
        meeting.wait(patience(60))
        return make()

    def start() -> None:
        try:
            call.start()
        except UsageError as error:
            errors.append(str(error))

    monkeypatch.setattr(call, "_make", meet)
    in_threads(start, start)
    assert len(errors) == 1
    assert "which is under way; call wait() before" in errors[0]
    comm.send("a", 0)
    assert call.wait() == "a"
    assert comm.iprobe() is None


def test_threads_that_share_a_call_get_results_or_usage_errors(comm: Communicator) -> None:
    comm.progress_thread()
    call = comm.allreduce_init(np.ones(3))
    starts, results = [], []

    def work() -> None:
        for _ in range(100):
            with suppress(UsageError):
                call.start()
                starts.append(1)
            with suppress(UsageError):
                results.append(call.wait())

    in_threads(work, work, work)
    with suppress(UsageError):
        results.append(call.wait())
    assert len(starts) == len(results)
    assert all((result == 1).all() for result in results)


def test_a_communicator_that_was_given_up_starts_nothing() -> None:
    job = Job("threads", 2)

    def work(comm: Communicator) -> Any:
        call = comm.allreduce_init(1)
        if comm.rank == 1:
            comm.revoke()
        else:
            call.start()
            with pytest.raises(Revoked):
                call.wait()
        with pytest.raises(Revoked):
            call.start()
        assert repr(call).endswith(", not started>")

    job.ask(work)
    job.close()
