"""Clusters: run after run on the same ranks; a run that fails disturbs none of the next ones."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ringcast
from ringcast import Cluster, Communicator, JobAborted, RunFailed, RunTimeout, UsageError, cluster
from ringcast.bootstrap.cluster.processes import ProcessRanks
from ringcast.monitoring import jobs
from ringcast.net.hostlist import Host
from support.causes import names
from support.patience import patience

BACKENDS = ("threads", pytest.param("processes", marks=pytest.mark.live))
PATIENCE = 60.0  # seconds within which what must happen does, on a loaded machine too
GRACE = 3.0  # seconds that pass in full, and within which a thread that may run does, on a loaded machine too

pytestmark = pytest.mark.usefixtures("nothing_left", "no_folder_left")


@pytest.fixture
def no_folder_left(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> Iterator[None]:
    monkeypatch.setattr(jobs, "bases", lambda: [str(short_path)])
    for name in [name for name in os.environ if name.startswith("RINGCAST_")]:
        monkeypatch.delenv(name)
    yield
    assert list(short_path.iterdir()) == []


def _total(comm: Communicator) -> Any:
    return comm.allreduce(comm.rank + 1)


def _works(ranks: Cluster) -> bool:
    """Whether all collectives of a next run see nothing of the one before."""
    size = ranks.size
    whole = size * (size + 1) // 2
    return bool(ranks.run(_total) == [whole] * size) and ranks.run(lambda comm: comm.bcast(comm.rank)) == [0] * size


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_follow_each_other_on_the_same_ranks(backend: str) -> None:
    with cluster(3, backend=backend) as ranks:
        assert ranks.size == 3
        assert repr(ranks) == f"<Cluster: 3 ranks, {backend}, idle>"
        first = ranks.run(lambda comm: (os.getpid(), threading.current_thread().name))
        for turn in range(5):
            values = ranks.run(lambda comm, a, b: comm.allreduce(np.full(3, a) + comm.rank)[0] + b, turn, 0.5)
            assert values == [3 * turn + 3.5] * 3
        assert ranks.run(lambda comm: (os.getpid(), threading.current_thread().name)) == first
        assert ranks.run(lambda comm: ringcast.init() is comm) == [True] * 3
    assert repr(ranks) == f"<Cluster: 3 ranks, {backend}, closed>"
    ranks.close()
    with pytest.raises(UsageError, match=r"the cluster is closed; make another one: ringcast\.cluster\(3\)"):
        ranks.run(_total)


def _one_raises(comm: Communicator) -> None:
    if comm.rank == 1:
        raise KeyError("of all things")
    comm.allreduce(1)


def _all_raise(comm: Communicator) -> None:
    raise KeyError("of all things")


def _raises_beside_a_part(comm: Communicator) -> None:
    part = comm.dup()
    if comm.rank == 1:
        raise KeyError("of all things")
    part.barrier()


def _raises_while_arrays_move(comm: Communicator) -> None:
    if comm.rank == 1:
        comm.iallreduce(np.ones(1 << 20))
        raise KeyError("of all things")
    comm.allreduce(np.ones(1 << 20))


def _exits(comm: Communicator) -> None:
    if comm.rank == 1:
        sys.exit(3)
    comm.barrier()


def _other_calls(comm: Communicator) -> None:
    if comm.rank == 1:
        comm.allreduce(1)
    else:
        comm.barrier()


def _other_roots(comm: Communicator) -> None:
    comm.bcast(comm.rank, root=comm.rank % 2)


def _not_taken(comm: Communicator) -> None:
    if comm.rank == 0:
        comm.send(1, 1)


def _not_waited_for(comm: Communicator) -> None:
    comm.iallreduce(1)


def _returned_too_soon(comm: Communicator) -> None:
    if comm.rank == 0:
        comm.recv(1)


def _caught(comm: Communicator) -> None:
    with contextlib.suppress(ringcast.RingcastError):
        _other_calls(comm)


FAULTS: dict[Callable[[Communicator], None], str] = {
    _one_raises: r"^rank 1: KeyError: 'of all things'\nTraceback [^\n]*\n  File [^\n]* in _one_raises",
    _all_raise: r"^rank [012]: KeyError: 'of all things'",
    _raises_beside_a_part: r"^rank 1: KeyError: 'of all things'",
    _raises_while_arrays_move: r"^rank 1: KeyError: 'of all things'",
    _exits: r"^rank 1: SystemExit: 3",
    _other_calls: r"^rank [012]: CollectiveMismatch: .*mine is (allreduce|barrier)",
    _other_roots: r"^rank [012]: CollectiveMismatch: .*root|without taking a message",
    _not_taken: r"^rank 1: it finished without taking a message of rank 0",
    _not_waited_for: r"^rank [012]: UsageError: .*request was dropped without wait: iallreduce",
    _returned_too_soon: r"^rank 0: CollectiveTimeout: .*deadlock.*in recv.*in end of the run",
    _caught: r"^rank [012]: CollectiveMismatch: .*raised in .* and caught",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.usefixtures("soon_stalled")
def test_a_cluster_of_threads_stays_in_use_after_a_fault(fault: Callable[[Communicator], None]) -> None:
    with cluster(3, backend="threads") as ranks:
        for _ in range(2):
            with pytest.raises(RunFailed, match=FAULTS[fault]) as caught:
                ranks.run(fault)
            del caught
            assert _works(ranks)


@pytest.mark.live
def test_a_cluster_of_processes_stays_in_use_after_all_faults() -> None:
    with cluster(3) as ranks:
        for fault, told in FAULTS.items():
            with pytest.raises(RunFailed, match=told):
                ranks.run(fault)
            assert _works(ranks), fault


def test_threads_raise_from_the_error_itself() -> None:
    with cluster(2, backend="threads") as ranks, pytest.raises(RunFailed) as caught:
        ranks.run(_one_raises)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_may_free_its_communicator(backend: str) -> None:
    with cluster(2, backend=backend) as ranks:
        ranks.run(lambda comm: comm.finalize())
        assert _works(ranks)


@pytest.mark.live
def test_a_function_that_leaves_the_job_closes_the_cluster() -> None:
    ranks = cluster(2)
    told = r"^rank 1: UsageError: rank 1: the function called ringcast\.finalize\(\); leave that out"
    with pytest.raises(RunFailed, match=told):
        ranks.run(lambda comm: ringcast.finalize() if comm.rank == 1 else None)
    assert ranks.closed


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_rank(backend: str) -> None:
    with cluster(1, backend=backend) as ranks:
        assert _works(ranks)
        assert repr(ranks) == f"<Cluster: 1 rank, {backend}, idle>"


@pytest.mark.live
def test_ranks_that_are_closed_again_leave_alone_what_was_opened_since() -> None:
    ranks = ProcessRanks([Host("", 1)])
    ranks.close()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    ranks.close()
    for file in files:
        os.close(file)


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="n=0: expected 1 rank or more"):
        cluster(0)
    with pytest.raises(TypeError, match="integer"):
        cluster("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend='gpu': expected 'processes' or 'threads'"):
        cluster(2, backend="gpu")
    with cluster(1, backend="threads") as ranks:
        with pytest.raises(TypeError, match="fn=3: expected a function"):
            ranks.run(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout=0"):
            ranks.run(_total, timeout=0)
        with pytest.raises(TypeError, match="a Cluster cannot be pickled"):
            ranks.__reduce__()


@pytest.mark.live
def test_ranks_that_cannot_start_tell_what_the_launcher_said() -> None:
    with pytest.raises(RunFailed, match=r"^rank 0: ringcast-launch: 2000000 ranks are too many: [^\n]*$"):
        cluster(2_000_000)


@pytest.mark.live
def test_ranks_that_do_not_start_in_time_tell_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.bootstrap.cluster.processes.START", 0.0)
    monkeypatch.setattr("ringcast.bootstrap.cluster.processes.LOOK", 0.0)
    monkeypatch.setattr("ringcast.bootstrap.cluster.processes.VERDICT", 0.0)
    with pytest.raises(RunFailed, match=r"^rank 0: the ranks did not start within 0 s"):
        cluster(2)


def test_a_second_run_at_the_same_time_is_refused() -> None:
    with cluster(1, backend="threads") as ranks:
        with pytest.raises(RunFailed, match="UsageError: the cluster runs a function"):
            ranks.run(lambda comm: ranks.run(_total))
        with pytest.raises(RunFailed, match="UsageError: the cluster runs a function"):
            ranks.run(lambda comm: ranks.close())
        assert _works(ranks)


def test_a_forgotten_cluster_of_threads_leaves_nothing() -> None:
    ranks = cluster(3, backend="threads")
    ranks.run(_total)
    del ranks
    gc.collect()  # `nothing_left` looks for its threads


def test_a_time_limit_ends_communication_in_threads_and_names_those_that_still_run() -> None:
    go_on = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.recv(1)
        go_on.wait(patience(PATIENCE))

    ranks = cluster(2, backend="threads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ringcast.bootstrap.cluster.threads.GRACE", GRACE)
        patch.setattr("ringcast.bootstrap.cluster.threads.PATIENCE", 0.0)
        with pytest.raises(RunTimeout, match=r"did not finish within 0\.1 s.*rank 1 still runs") as caught:
            ranks.run(work, timeout=0.1)
    assert caught.value.running == (1,)
    assert any("the cluster is closed" in note for note in caught.value.__notes__)
    assert ranks.closed
    assert "still run" in repr(ranks)
    left = [thread for thread in threading.enumerate() if thread.name.startswith("ringcast-rank-")]
    go_on.set()
    for thread in left:
        thread.join(patience(PATIENCE))


def test_an_interrupt_ends_a_run_of_threads_and_closes_the_cluster() -> None:
    ranks = cluster(2, backend="threads")

    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        comm.recv(1 - comm.rank)

    with pytest.raises(KeyboardInterrupt) as caught:
        ranks.run(work)
    assert any("the cluster is closed" in note for note in caught.value.__notes__)
    with pytest.raises(UsageError, match="the cluster is closed: its communication was ended by KeyboardInterrupt"):
        ranks.run(_total)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("idle", [0, 1, 2])
def test_a_time_limit_names_the_rank_in_no_call_and_those_that_wait_for_it(backend: str, idle: int) -> None:
    go_on = threading.Event() if backend == "threads" else None
    waiting, returned = (idle + 1) % 3, (idle + 2) % 3

    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == idle:
            (go_on or threading.Event()).wait()
            comm.barrier()  # a thread begins it after the end of the run
        elif comm.rank == waiting:
            try:
                comm.recv(idle)
            except JobAborted:
                assert go_on is not None
                go_on.set()
                raise

    with cluster(3, backend=backend) as ranks:
        assert _works(ranks)
        with pytest.raises(RunTimeout, match=f"^rank {idle}: the run did not finish within") as late:
            ranks.run(work, timeout=patience(1.0))
    error = late.value
    assert (error.rank, error.ranks, error.running) == (idle, tuple(sorted({idle, waiting})), ()), returned
    assert error.waits == f"rank {idle} is in no call; rank {waiting} waits for rank {idle}"
    assert error.waits in str(error).splitlines()[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_limit_names_the_only_rank_that_has_not_returned(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.bootstrap.cluster.threads.GRACE", 0.5)
    go_on = threading.Event() if backend == "threads" else None

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            (go_on or threading.Event()).wait()

    with cluster(3, backend=backend) as ranks:
        assert _works(ranks)
        with pytest.raises(RunTimeout) as late:
            ranks.run(work, timeout=patience(1.0))
        if go_on is not None:
            left = [thread for thread in threading.enumerate() if thread.name == "ringcast-rank-1"]
            go_on.set()
            left[0].join(patience(PATIENCE))
    error = late.value
    assert (error.rank, error.ranks, error.waits) == (1, (1,), "")
    assert error.running == ((1,) if backend == "threads" else ())


@pytest.mark.live
def test_a_time_limit_and_an_interrupt_end_the_functions_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(comm: Communicator) -> None:
        if comm.rank == 1:
            print("endless", flush=True)
            while True:
                pass

    class Screen:
        def write(self, text: str) -> None:
            if "endless" in text:
                os.kill(os.getpid(), signal.SIGINT)

        def flush(self) -> None:
            pass

    monkeypatch.setattr("ringcast.bootstrap.cluster.processes.GRACE", PATIENCE)
    with cluster(2) as ranks:
        # Where much else runs, rank 0 too may not have returned by then.
        told = r"the run did not finish within 0\.5 s; rank (0, )?1 had not ended(; rank 1 is in no call.*)?\n"
        with pytest.raises(RunTimeout, match=told) as late:
            ranks.run(endless, timeout=0.5)
        assert late.value.running == ()
        assert _works(ranks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", Screen())
            with pytest.raises(KeyboardInterrupt):
                ranks.run(endless)
        assert _works(ranks)


@pytest.mark.parametrize(
    "backend", ["threads", pytest.param("processes", marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_an_interrupt_at_every_step_leaves_a_cluster_that_works_or_is_closed(backend: str) -> None:
    """SIGINT comes at the n-th line that the caller executes in the cluster's modules, for more and more n."""
    room = str(Path(ringcast.__file__).parent / "bootstrap" / "cluster")
    ranks, step, outcomes = cluster(2, backend=backend), 0, set()
    data = np.ones(300_000)  # more than a socket holds
    left = 0  # lines until it comes

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(room):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return trace

    try:
        while left <= 0:
            left = step + 1

            sys.settrace(trace)
            try:
                ranks.run(lambda comm, x: x.sum(), data)
                outcomes.add("result")
            except KeyboardInterrupt:
                outcomes.add("interrupt")
            finally:
                sys.settrace(None)
            if ranks.closed:
                outcomes.add("closed")
                ranks = cluster(2, backend=backend)
            assert _works(ranks), step
            step += 1 if backend == "threads" or step < 40 else 4
    finally:
        ranks.close()
    assert "interrupt" in outcomes
    assert step > (100 if backend == "processes" else 30)


@pytest.mark.live
@pytest.mark.parametrize("how", ["kill", "exit 0", "exit 5"])
def test_a_rank_that_dies_closes_the_cluster(how: str) -> None:
    def die(comm: Communicator) -> None:
        if comm.rank == 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(int(how[-1]))
        comm.barrier()

    ranks = cluster(3)
    with pytest.raises(RunFailed) as caught:
        ranks.run(die)
    assert caught.value.rank == 1
    assert names(caught.value.cause, "SIGKILL" if how == "kill" else f"code {how[-1]}")
    assert ranks.closed
    with pytest.raises(UsageError, match=r"the cluster is closed: rank 1: .*; make another one"):
        ranks.run(_total)


@pytest.mark.live
def test_a_rank_that_dies_between_two_runs_closes_the_cluster() -> None:
    ranks = cluster(2)
    pids = ranks.run(lambda comm: os.getpid())
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RunFailed, match="rank 1: killed by SIGKILL") as caught:
        ranks.run(lambda comm: comm.barrier())
    assert "share the cores" not in str(caught.value)
    assert ranks.closed


@pytest.mark.live
def test_what_ranks_print_is_shown_before_the_run_returns(capsys: pytest.CaptureFixture[str]) -> None:
    def work(comm: Communicator, turn: int) -> None:
        print(f"turn {turn}")
        print("to err", file=sys.stderr)
        os.write(1, b"\xff is not text, ")
        print("no end of line", end="")

    with cluster(2) as ranks:
        for turn in range(5):
            ranks.run(work, turn)
            shown = capsys.readouterr()
            for rank in range(2):
                assert f"[{rank}] turn {turn}\n" in shown.out
                assert f"[{rank}] to err\n" in shown.err
                assert f"[{rank}] � is not text, no end of line\n" in shown.out


@pytest.mark.live
def test_large_arguments_results_and_output(capsys: pytest.CaptureFixture[str]) -> None:
    data = np.arange(2_000_000)

    def work(comm: Communicator, x: Any) -> Any:
        print("much " * 200_000)
        return x + comm.rank

    with cluster(2) as ranks:
        for rank, result in enumerate(ranks.run(work, data)):
            assert np.array_equal(result, data + rank)
    assert capsys.readouterr().out.count("much ") == 400_000


@pytest.mark.live
@pytest.mark.parametrize("end", ["pass", "del ranks", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_forgets_its_cluster_leaves_nothing(tmp_path: Path, short_path: Path, end: str) -> None:
    program = f"""
import os, sys, ringcast
ranks = ringcast.cluster(2)
print(*ranks.run(lambda comm: (os.getpid(), os.getppid())), file=open(sys.argv[1], "w"))
{end}
"""
    file = tmp_path / "pids"
    environment = {**os.environ, "TMPDIR": str(short_path)}
    subprocess.run([sys.executable, "-c", program, str(file)], env=environment, timeout=patience(PATIENCE), check=False)
    pids = [int(word.strip("(),")) for word in file.read_text().split()]
    until = time.monotonic() + patience(PATIENCE)
    while any(psutil.pid_exists(pid) for pid in pids) or [*short_path.iterdir()]:
        assert time.monotonic() < until, (pids, [*short_path.iterdir()])
        os.sched_yield()


@pytest.mark.live
def test_ranks_of_a_killed_caller_end_though_a_copy_of_it_lives(tmp_path: Path, short_path: Path) -> None:
    program = """
import os, signal, sys, ringcast
ranks = ringcast.cluster(2)
pids = ranks.run(lambda comm: os.getpid())
reading, writing = os.pipe()
if (copy := os.fork()) == 0:
    try:
        ranks.run(lambda comm: None)
    except ringcast.UsageError as error:
        os.write(writing, str(error).encode())
    sys.stdin.read()
    os._exit(0)
said = os.read(reading, 1000).decode()
ranks.run(lambda comm: comm.barrier())
print(copy, *pids, said, file=open(sys.argv[1], "w"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    file = tmp_path / "pids"
    environment = {**os.environ, "TMPDIR": str(short_path)}
    with subprocess.Popen([sys.executable, "-c", program, str(file)], env=environment, stdin=subprocess.PIPE) as caller:
        try:
            caller.wait(patience(PATIENCE))
        finally:
            caller.kill()
        *numbers, said = file.read_text().split(maxsplit=3)
        copy, *pids = map(int, numbers)
        assert said.startswith("the cluster belongs to process ")
        until = time.monotonic() + patience(PATIENCE)
        while any(psutil.pid_exists(pid) for pid in pids) or [*short_path.iterdir()]:
            assert time.monotonic() < until, (pids, [*short_path.iterdir()])
            os.sched_yield()
        assert psutil.pid_exists(copy)  # it ends with its standard input


@pytest.mark.live
def test_classes_of_main_travel_as_values(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import ringcast


class Point:
    def __init__(self, x):
        self.x = x


def twice(value):
    return 2 * value


def work(comm, start):
    point = comm.bcast(Point(start) if comm.rank == 0 else None)
    assert isinstance(point, Point)
    rank = comm.rank
    one = comm.sendrecv((lambda v: twice(v) + rank), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    points = comm.allgather(Point(one(point.x)))
    assert all(type(each) is Point for each in points)
    return points


if __name__ == "__main__":
    with ringcast.cluster(2) as ranks:
        for points in ranks.run(work, 10):
            assert all(type(each) is Point for each in points)
            print([each.x for each in points])
    print([[each.x for each in points] for points in ringcast.run(work, 2, args=(10,))])
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=patience(PATIENCE))
    assert done.stdout.splitlines()[-3:] == ["[21, 20]", "[21, 20]", "[[21, 20], [21, 20]]"], done.stderr
