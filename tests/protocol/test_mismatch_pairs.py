"""Ranks that do not make the same calls, or wait for each other in a cycle, learn it soon, whatever the calls are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import pytest

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import LocalControl, SharedControl
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.errors import CollectiveMismatch, CollectiveTimeout, PeerFailed, Revoked
from support.jobs import Job
from support.patience import patience
from support.public import METHODS

LIMIT = 6.0  # seconds; on a free machine a mismatch takes half of that at most, and so does a deadlock
AT_ONCE = 40  # jobs; most of the time their ranks wait

Call: TypeAlias = Callable[[Communicator, Any], Any]


def own(c: Communicator, x: Any) -> list[Any]:
    return [x] * c.size


ROOTED: dict[str, Callable[[Communicator, Any, int], Any]] = {
    "bcast": lambda c, x, root: c.bcast(x, root),
    "bcast_into": lambda c, x, root: c.bcast_into(x, root),
    "bcast_shared": lambda c, x, root: c.bcast_shared(x, root),
    "reduce": lambda c, x, root: c.reduce(x, root=root),
    "gather": lambda c, x, root: c.gather(x, root),
    "gatherv": lambda c, x, root: c.gatherv(x, [len(x)] * c.size, root),
    "scatter": lambda c, x, root: c.scatter(np.stack([x] * c.size), root),
    "scatterv": lambda c, x, root: c.scatterv(np.concatenate([x] * c.size), [len(x)] * c.size, root),
}
OTHERS: dict[str, Call] = {
    "allreduce": lambda c, x: c.allreduce(x),
    "allgather": lambda c, x: c.allgather(x),
    "allgatherv": lambda c, x: c.allgatherv(x, [len(x)] * c.size),
    "merge_sorted": lambda c, x: c.merge_sorted(x),
    "reduce_scatter": lambda c, x: c.reduce_scatter(np.concatenate([x] * c.size)),
    "scan": lambda c, x: c.scan(x),
    "exscan": lambda c, x: c.exscan(x),
    "alltoall": lambda c, x: c.alltoall(np.stack([x] * c.size)),
    "alltoallv": lambda c, x: c.alltoallv(np.concatenate([x] * c.size), [len(x)] * c.size),
    "shift": lambda c, x: c.shift(x, 1),
    "barrier": lambda c, x: c.barrier(),
    "sendrecv": lambda c, x: c.sendrecv(x, 1 - c.rank, 1 - c.rank),
    "split": lambda c, x: c.split(0),
    "shared_array": lambda c, x: c.shared_array(len(x)),
    "split_by_host": lambda c, x: c.split_by_host(),
    "create": lambda c, x: c.create([0, 1]),
    "dup": lambda c, x: c.dup(),
    "cart": lambda c, x: c.cart(2),
    "graph": lambda c, x: c.graph([1 - c.rank]),
}


def rooted(name: str, root: int) -> Call:
    return lambda c, x: ROOTED[name](c, x, root)


def variants(kind: str, rank: int) -> dict[tuple[str, int], Call]:
    """Return the calls of one rank, with every root; over sockets only with itself: then all wait, or all send."""
    roots = (0, 1) if kind == "threads" else (rank,)
    made = {(name, root): rooted(name, root) for name in ROOTED for root in roots}
    return made | {(name, 0): call for name, call in OTHERS.items()}


def test_the_calls_are_all_that_there_are() -> None:
    verbs = {"revoke", "get_failed", "ack_failed", "agree", "shrink"}  # which go through the control plane
    not_collective = {"send", "recv", "probe", "iprobe"}  # `sendrecv` stands for them
    others = {"bcast_file", "explain", "fetch", "finalize", "free", "read_file", "read_rows"}
    assert METHODS - others - not_collective - verbs == {*ROOTED, *OTHERS}


@pytest.fixture
def pool() -> Iterator[Callable[[str, int], SimpleQueue[Job]]]:
    """Return a function that makes idle jobs of one kind and size; they are closed afterwards."""
    jobs: list[Job] = []

    def make(kind: str, count: int) -> SimpleQueue[Job]:
        idle: SimpleQueue[Job] = SimpleQueue()
        for _ in range(count):
            jobs.append(Job(kind, 2))
            idle.put(jobs[-1])
        return idle

    yield make
    for job in jobs:
        job.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("threads", 1),
        pytest.param("ipc", 100_000, marks=pytest.mark.live),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("threads", 100_000), ("ipc", 1))),
    ],
)
def test_every_pair_of_different_calls_fails_on_both_ranks(
    pool: Callable[[str, int], SimpleQueue[Job]], kind: str, size: int
) -> None:
    x = np.zeros(size, np.uint8)
    idle = pool(kind, AT_ONCE)

    def check(names: tuple[tuple[str, int], tuple[str, int]], calls: tuple[Call, Call]) -> str:
        def work(c: Communicator) -> None:
            calls[c.rank](c, x)
            c.barrier()  # for a rank whose call needed nobody

        job = idle.get()
        start = time.monotonic()
        errors = job.run(work)
        took = time.monotonic() - start
        left = job.left_over()
        idle.put(job)
        fine = all(tells(error, "sendrecv" in (names[0][0], names[1][0])) for error in errors)
        return "" if fine and took < patience(LIMIT) and not left else f"{names} after {took:.1f} s: {errors} {left}"

    pairs = [
        (names, calls)
        for (*names,), (*calls,) in (
            zip(one, other, strict=True) for one, other in product(variants(kind, 0).items(), variants(kind, 1).items())
        )
        if names[0][0] != names[1][0]
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        wrong = [said for said in threads.map(lambda pair: check(*pair), pairs) if said]
    assert not wrong, "\n".join(wrong)


def tells(error: object, exchange: bool) -> bool:
    """Whether an error names both calls; an exchange has no number by which it could be the same call or another."""
    if isinstance(error, CollectiveTimeout):
        return exchange and error.cycle == (0, 1)
    if isinstance(error, Revoked):
        return "mismatch with rank" in str(error) or (exchange and "deadlock" in str(error))
    return isinstance(error, CollectiveMismatch) and bool(error.my_site)


def test_each_side_of_a_mismatch_tells_both_places() -> None:
    job = Job("threads", 2)
    x = np.zeros(3)

    def work(c: Communicator) -> None:
        if c.rank == 0:
            c.gather(x, root=0)  # first
        else:
            c.gather(x, root=1)  # second

    first = work.__code__.co_firstlineno + 2
    sites = [f"test_mismatch_pairs.py:{line}" for line in (first, first + 2)]
    for rank, error in enumerate(job.run(work)):
        assert isinstance(error, CollectiveMismatch)
        assert error.complete
        assert (error.my_site, error.their_site) == (sites[rank], sites[1 - rank])
        assert all(f" at {site}" in str(error) for site in sites)
    job.close()


def test_the_place_of_a_call_that_has_ended_is_told_too() -> None:
    job = Job("threads", 2)

    def work(c: Communicator) -> None:
        if c.rank == 0:
            c.bcast(1, root=0)
            c.barrier()
        else:
            c.gather(1, root=1)

    line = work.__code__.co_firstlineno + 2
    errors = job.run(work)
    assert all(isinstance(error, CollectiveMismatch) for error in errors), errors
    assert errors[0].my_site == errors[1].their_site == f"test_mismatch_pairs.py:{line}"
    assert errors[1].my_site == errors[0].their_site == f"test_mismatch_pairs.py:{line + 3}"
    job.close()


# Circles.


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize("p", [2, 3, 5])
def test_exchanges_in_a_cycle_with_tags_that_never_match(kind: str, p: int) -> None:
    job, start = Job(kind, p), time.monotonic()
    errors = job.run(lambda c: c.sendrecv(c.rank, (c.rank - 1) % p, (c.rank + 1) % p, tag=c.rank))
    assert time.monotonic() - start < patience(LIMIT)
    for rank, error in enumerate(errors):
        assert isinstance(error, CollectiveTimeout)
        assert error.cycle == tuple(range(p))
        assert (error.rank, error.waiting_for) == (rank, ((rank + 1) % p,))
        assert error.calls == tuple(f"sendrecv with tag {r} at {place(error)}" for r in range(p))
    job.close()


def place(error: CollectiveTimeout) -> str:
    return error.calls[0].rpartition(" at ")[2]


@pytest.mark.usefixtures("soon_stalled")
def test_who_waits_for_a_cycle_learns_of_it() -> None:
    job = Job("threads", 4)
    errors = job.run(lambda c: c.sendrecv(None, None, (1, 0, 1, 2)[c.rank]))
    assert [type(error) for error in errors] == [CollectiveTimeout] * 2 + [Revoked] * 2
    assert all("deadlock: rank 0 -> 1 (both in sendrecv with tag 0 at " in str(error) for error in errors)
    job.close()


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_a_cycle_through_two_communicators(kind: str) -> None:
    job = Job(kind, 2)

    def work(c: Communicator) -> None:
        context = c._group.context + 2**32 * (1 + c.rank)
        Communicator(Group(c._group.endpoint, context, NETWORKS[kind])).barrier(timeout=60)

    for error in job.run(work):
        assert isinstance(error, CollectiveTimeout)
        assert error.cycle == (0, 1)
    job.close()


def test_a_rank_that_has_left_is_named_to_all_that_wait_for_it() -> None:
    """Rank 3 has left; 2 waits for it, 1 for 2, and 0 for 1."""
    job = Job("threads", 4)

    def work(c: Communicator) -> None:
        if c.rank == 3:
            c.finalize()
        else:
            c.sendrecv(None, None, c.rank + 1)

    errors = job.run(work)
    assert isinstance(errors[2], PeerFailed)
    assert all("rank 3 finished" in str(error) for error in errors[:3])
    job.close()


def test_a_slow_rank_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others report that they wait for it any number of times: no rank is accused."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.01)
    job = Job("threads", 4)
    control = job.endpoints[0].control
    assert isinstance(control, LocalControl)

    def work(c: Communicator) -> Any:
        if c.rank == 2:
            await_reports(control._shared, (0, 1, 3), 10)
        return c.allreduce(c.rank)

    assert job.run(work) == [6] * 4
    assert not control._shared._membership._deadlocks._reports  # all have moved
    job.close()


def test_a_call_that_ends_by_itself_takes_its_report_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a rank that waits for this one, after its timeout, would seem to be in a cycle with it."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.01)
    job = Job("threads", 2)
    control = job.endpoints[0].control
    assert isinstance(control, LocalControl)

    def work(c: Communicator) -> Any:
        if c.rank == 0:
            c.sendrecv(None, None, 1, timeout=patience(0.5))
        else:
            await_reports(control._shared, (0,), 3)

    errors = job.run(work)
    assert isinstance(errors[0], CollectiveTimeout)
    assert (errors[0].cycle, errors[1]) == ((), None)
    assert not control._shared._membership._deadlocks._reports
    job.close()


def await_reports(shared: SharedControl, ranks: tuple[int, ...], times: int) -> None:
    deadline = time.monotonic() + patience(30)
    while time.monotonic() < deadline:
        with shared._lock:
            reports = [shared._membership._deadlocks._reports.get(rank) for rank in ranks]
        if all(report is not None and report.times >= times for report in reports):
            return
        time.sleep(0.001)  # a clock tick: what is waited for is the condition above
    raise AssertionError("ranks that wait do not report it")


# Real processes.

PROGRAM = """
import time, ringcast
comm = ringcast.init()
comm.barrier()
start = time.monotonic()
try:
    CALL
except ringcast.RingcastError as error:
    print(f"{time.monotonic() - start:.1f} {type(error).__name__} {error}", flush=True)
"""


@pytest.mark.live
@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("comm.sendrecv(1, None, (comm.rank + 1) % comm.size)", "deadlock"),
        ("comm.barrier() if comm.rank else comm.sendrecv(1, None, 1)", "deadlock"),
        ("comm.gather(1, root=comm.rank)", "mismatch with rank"),
    ],
)
def test_real_processes_are_told_why_they_cannot_go_on(tmp_path: Path, call: str, word: str) -> None:
    program = tmp_path / "prog.py"
    program.write_text(PROGRAM.replace("CALL", call))
    done = subprocess.run(
        [sys.executable, "-m", "ringcast_launcher", "-n", "3", str(program)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    said = [line.split("] ", 1)[-1] for line in done.stdout.splitlines()]
    assert len(said) == 3, done
    for line in said:
        assert word in line, done
        assert "prog.py:7" in line
        assert float(line.split()[0]) < patience(LIMIT)
