"""Every call ends at its timeout, also where one rank never comes, and the error says what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast.communicator import Communicator
from ringcast.errors import ArgumentError, CollectiveTimeout, Revoked
from support.jobs import Jobs
from support.patience import patience
from support.public import METHODS

Call = Callable[[Communicator, float], Any]

LARGE = np.ones(30_000)  # its rounds are granted
CALLS: dict[str, Call] = {
    "bcast": lambda c, t: c.bcast(LARGE if c.rank == 1 else None, root=1, timeout=t),
    "bcast_into": lambda c, t: c.bcast_into(LARGE.copy(), 1, timeout=t),
    "reduce": lambda c, t: c.reduce(LARGE, root=1, timeout=t),
    "allreduce": lambda c, t: c.allreduce(LARGE, timeout=t),
    "gather": lambda c, t: c.gather(LARGE, root=1, timeout=t),
    "gatherv": lambda c, t: c.gatherv(LARGE[: c.rank], root=1, timeout=t),
    "scatter": lambda c, t: c.scatter([1] * c.size if c.rank == 0 else None, timeout=t),
    "scatterv": lambda c, t: c.scatterv(LARGE if c.rank == 0 else None, timeout=t),
    "allgather": lambda c, t: c.allgather(c.rank, timeout=t),
    "allgatherv": lambda c, t: c.allgatherv(LARGE[: c.rank], timeout=t),
    "merge_sorted": lambda c, t: c.merge_sorted(np.arange(5), timeout=t),
    "reduce_scatter": lambda c, t: c.reduce_scatter(LARGE, timeout=t),
    "scan": lambda c, t: c.scan(1, timeout=t),
    "exscan": lambda c, t: c.exscan(1, timeout=t),
    "alltoall": lambda c, t: c.alltoall(np.arange(c.size), timeout=t),
    "alltoallv": lambda c, t: c.alltoallv(np.arange(c.size), [1] * c.size, timeout=t),
    "shift": lambda c, t: c.shift(LARGE, 1, timeout=t),
    "barrier": lambda c, t: c.barrier(timeout=t),
    "sendrecv": lambda c, t: c.sendrecv(None, dest=None, source=0, timeout=t),
    "send": lambda c, t: c.send(LARGE, 0, timeout=t),
    "recv": lambda c, t: c.recv(0, timeout=t),
    "probe": lambda c, t: c.probe(timeout=t),
    "split": lambda c, t: c.split(0, timeout=t),
    "shared_array": lambda c, t: c.shared_array(3, timeout=t),
    "bcast_shared": lambda c, t: c.bcast_shared(LARGE, 1, timeout=t),
    "split_by_host": lambda c, t: c.split_by_host(timeout=t),
    "create": lambda c, t: c.create([0], timeout=t),
    "dup": lambda c, t: c.dup(timeout=t),
    "cart": lambda c, t: c.cart(c.size, timeout=t),
    "graph": lambda c, t: c.graph([0], timeout=t),
}
NOT_CALLS = {
    "bcast_file",
    "fetch",
    "read_file",
    "read_rows",
    "iprobe",
    "explain",
    "finalize",
    "free",
    "revoke",
    "get_failed",
    "ack_failed",
    "agree",
    "shrink",
}


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def test_every_call_is_here() -> None:
    assert set(CALLS) == METHODS - NOT_CALLS


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_ends_at_its_timeout(jobs: Jobs, kind: str, name: str) -> None:
    job = jobs(kind, 3)

    def work(comm: Communicator) -> Any:
        if comm.rank == 0:
            return None
        began = time.monotonic()
        try:
            return CALLS[name](comm, 0.05)
        finally:
            assert time.monotonic() - began < patience(10), "the communicator's own timeout is not the call's"

    results = job.run(work, timeout=patience(60.0))
    errors = [result for result in results if isinstance(result, CollectiveTimeout)]
    assert errors, results
    for error in errors:
        assert error.operation.operation.split()[0] == name
        assert error.waiting_for
        assert error.seconds == 0.05
        assert error.progress is None or 0 <= error.progress <= 1
        assert not error.cycle
        assert f"rank {error.rank}: {name}" in str(error)
    others = [result for result in results if isinstance(result, BaseException) and result not in errors]
    assert all(isinstance(error, Revoked) for error in others), results


def test_a_timeout_tells_how_far_a_call_came(jobs: Jobs) -> None:
    """A pipeline whose last rank never takes its blocks: the one before it waits for it first."""
    short, long = patience(0.3), patience(20)

    def work(comm: Communicator) -> Any:
        if comm.rank == 2:
            return None
        value, seconds = (LARGE, long) if comm.rank == 0 else (None, short)
        return comm.bcast(value, algorithm="linear_pipeline", nblocks=4, timeout=seconds)

    error = jobs("threads", 3).run(work)[1]
    assert isinstance(error, CollectiveTimeout)
    assert error.waiting_for == (2,)
    assert error.round is not None
    assert error.progress is not None
    done = f"{100 * error.progress:.0f} % of its rounds"
    assert f"round {error.round} did not finish within {short:g} s after {done}" in str(error)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5"])
def test_a_timeout_is_a_number_of_seconds(jobs: Jobs, timeout: Any) -> None:
    errors = jobs("threads", 2).run(lambda comm: comm.barrier(timeout=timeout))
    for rank, error in enumerate(errors):
        assert isinstance(error, ArgumentError)
        assert str(error).startswith(f"rank {rank}: barrier: argument timeout: expected a number of seconds above 0")


def test_the_calls_own_timeout_comes_before_the_communicators(jobs: Jobs) -> None:
    def work(comm: Communicator) -> int:
        comm.timeout = 1e-9
        return comm.allreduce(1, timeout=20)

    assert jobs("ipc", 3).run(work) == [3, 3, 3]
