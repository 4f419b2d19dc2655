"""Pools whose workers are processes, or ranks of a communicator: results, errors, deaths, and the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as TooLate
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from support import causes
from support.patience import patience


class Odd(Exception):
    """Its constructor takes other arguments than it keeps."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def on_threads(n: int, use: Callable[[ringcast.Pool], Any], **options: Any) -> Any:
    """Return the result of a function that uses a pool of n threads, whose master is one more."""

    def work(comm: ringcast.Communicator) -> Any:
        with ringcast.Pool(comm, **options) as pool:
            return use(pool) if pool is not None else None

    return ringcast.run(work, n + 1, backend="threads")[0]


def test_a_communicator_is_a_pool_whose_master_is_rank_0() -> None:
    def use(pool: ringcast.Pool) -> list[Any]:
        return [
            pool.submit(divmod, 7, 2).result(),
            list(pool.map(pow, range(20), range(20), chunksize=3)) == [x**x for x in range(20)],
            list(pool.starmap(pow, [(2, 5), (3, 2)])),
            sorted(pool.imap_unordered(abs, range(-5, 0))),
            pool.submit_ranks(2, lambda comm: comm.allreduce(comm.rank + 1)).result(),
            pool.size,
        ]

    assert on_threads(2, use) == [(3, 1), True, [32, 9], [1, 2, 3, 4, 5], [3, 3], 2]


def test_results_before_an_exception_come_first() -> None:
    def use(pool: ringcast.Pool) -> list[Any]:
        got: list[Any] = []
        try:
            got.extend(pool.map(lambda x: 6 // x, [3, 2, 0, 1], chunksize=4))
        except ZeroDivisionError as error:
            got.append(str(error.__cause__))
        return got

    *results, cause = on_threads(1, use)
    assert results == [2, 3]
    assert "ZeroDivisionError" in cause
    assert "6 // x" in cause


def test_what_does_not_travel_is_a_typed_error_of_the_future() -> None:
    def odd() -> None:
        raise Odd(1, 2)

    def use(pool: ringcast.Pool) -> list[Any]:
        bad = threading.Lock()
        futures = [
            pool.submit(lambda: bad),
            pool.submit(abs, bad),
            pool.submit(threading.Lock),
            pool.submit(odd),
            pool.submit(abs, pool.submit(abs, 1)),
            pool.submit_ranks(1, lambda comm: comm),
        ]
        errors = [future.exception(patience(20)) for future in futures]
        assert all(isinstance(error, ringcast.TaskError) for error in errors)
        reasons = ["Odd: 1 2 (when made anew of its `args`: TypeError: ", "a future cannot", "a Communicator cannot"]
        assert all(reason in str(error) for error, reason in zip(errors[3:], reasons, strict=True))
        return [error.part for error in errors] + [pool.submit(abs, -1).result()]

    assert on_threads(1, use) == ["function", "arguments", "result", "exception", "arguments", "result", 1]


def test_a_task_of_ranks_fails_as_a_whole_and_the_workers_go_on() -> None:
    def use(pool: ringcast.Pool) -> list[Any]:
        errors = [
            pool.submit_ranks(2, lambda comm: comm.barrier() if comm.rank else 1 // 0),
            pool.submit_ranks(2, lambda comm: comm.allreduce(1 // comm.rank)),
            pool.submit_ranks(4, lambda comm: comm.rank),
        ]
        names = [type(future.exception(patience(20))).__name__ for future in errors]
        return [*names, pool.submit_ranks(3, lambda comm: comm.allgather(comm.rank)).result(patience(20))]

    expected = ["ZeroDivisionError", "ZeroDivisionError", "UsageError", [[0, 1, 2]] * 3]
    assert on_threads(3, use) == expected


def test_a_task_of_ranks_may_free_its_communicator() -> None:
    def freed(comm: ringcast.Communicator) -> int:
        comm.free()
        return 1

    def left(comm: ringcast.Communicator) -> int:
        with comm:
            return comm.allreduce(1)

    def use(pool: ringcast.Pool) -> list[Any]:
        tasks = [pool.submit_ranks(2, fn) for fn in (freed, left) * 2]
        return [*(task.result(patience(20)) for task in tasks), pool.size]

    assert on_threads(2, use) == [[1, 1], [2, 2]] * 2 + [2]


def test_after_a_task_of_ranks_init_returns_the_communicator_of_before() -> None:
    def work(comm: ringcast.Communicator) -> bool:
        with ringcast.Pool(comm) as pool:
            if pool is not None:
                assert pool.submit_ranks(2, lambda part: ringcast.init() is part).result(patience(20)) == [True, True]
        return ringcast.init() is comm

    assert ringcast.run(work, 3, backend="threads") == [True] * 3


def test_a_request_that_a_task_of_ranks_forgets_is_its_error() -> None:
    kept = []

    def dropped(comm: ringcast.Communicator) -> None:
        if comm.rank == 0:
            comm.irecv(1)

    def left(comm: ringcast.Communicator) -> None:
        if comm.rank == 0:
            kept.append(comm.irecv(1))

    def use(pool: ringcast.Pool) -> list[Any]:
        errors = [pool.submit_ranks(2, fn).exception(patience(20)) for fn in (dropped, left) * 2]
        assert all(isinstance(error, ringcast.UsageError) and "irecv" in str(error) for error in errors)
        return pool.submit_ranks(2, lambda comm: comm.allreduce(1)).result(patience(20))

    assert on_threads(2, use) == [2, 2]


def test_a_task_cannot_make_a_pool() -> None:
    error = on_threads(1, lambda pool: pool.submit(ringcast.Pool, 1).exception(patience(20)))
    assert isinstance(error, ringcast.UsageError)
    assert "submit_ranks" in str(error)


def test_an_initializer_is_called_by_each_worker_and_its_error_breaks_the_pool() -> None:
    def use(pool: ringcast.Pool) -> tuple[Any, ...]:
        with pytest.raises(ringcast.PoolBroken) as caught:  # of the call, if the pool is broken by then
            pool.submit(abs, -1).result(patience(20))
        with pytest.raises(ringcast.PoolBroken, match="no such luck"):
            pool.submit(abs, 1)
        return caught.type, str(caught.value)

    def bad(word: str) -> None:
        raise ValueError(word)

    kind, text = on_threads(2, use, initializer=bad, initargs=["no such luck"])
    assert kind is ringcast.PoolBroken
    assert "ValueError: no such luck" in text


def test_waiting_tasks_are_cancelled_and_shutdown_waits_for_the_others() -> None:
    gate, began = threading.Event(), threading.Event()

    def use(pool: ringcast.Pool) -> list[Any]:
        _GATES["test"] = gate, began
        first = pool.submit(_wait_at_gate)
        rest = [pool.submit(abs, -n) for n in range(5)]
        assert began.wait(patience(20))
        while not first.running():
            time.sleep(0.001)
        assert (first.cancel(), rest[0].cancel(), rest[0].cancel()) == (False, True, True)
        pool.shutdown(wait=False, cancel_futures=True)
        done, _ = wait(rest, patience(20))
        assert len(done) == 5
        with pytest.raises(ringcast.UsageError, match="shut down"):
            pool.submit(abs, 1)
        gate.set()
        return [first.result(patience(20)), *(future.cancelled() for future in rest)]

    assert on_threads(1, use) == ["passed", *[True] * 5]


_GATES: dict[str, tuple[threading.Event, threading.Event]] = {}


def _wait_at_gate() -> str:
    gate, began = _GATES["test"]
    began.set()
    assert gate.wait(patience(20))
    return "passed"


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="n=0"):
        ringcast.Pool(0)
    with pytest.raises(TypeError):
        ringcast.Pool(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initializer"):
        ringcast.Pool(1, initializer=3)  # type: ignore[arg-type]
    with pytest.raises(
        ringcast.TaskError, match="the initializer of the pool does not travel: TypeError: cannot pickle"
    ):
        ringcast.Pool(1, initializer=print, initargs=[threading.Lock()])
    with pytest.raises(ValueError, match="retries"):
        ringcast.Pool(1, retries=-1)
    with pytest.raises(ValueError, match="either"):
        ringcast.Pool(1, hosts="h0")
    with pytest.raises(ValueError, match="hosts="):
        ringcast.Pool(hosts="-o:2")
    with pytest.raises(ringcast.RunFailed, match="two ranks"):
        ringcast.run(ringcast.Pool, 1, backend="threads")


@pytest.fixture(scope="module")
def pool() -> Iterator[ringcast.Pool]:
    with ringcast.Pool(2) as made:
        yield made


@pytest.mark.live
@pytest.mark.smoke
def test_workers_are_processes() -> None:
    with ringcast.Pool(2, retries=0) as pool:
        array = np.arange(100_000)
        assert list(pool.map(lambda n: int(array[n]), range(100))) == list(range(100))
        assert len({*pool.submit_ranks(2, lambda comm: os.getpid()).result()} | {os.getpid()}) == 3
    assert repr(pool) == "<Pool: 2 workers, ended>"


@pytest.mark.live
def test_workers_of_a_number_are_on_this_machine_within_an_allocation_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "elsewhere[1-2]")
    with ringcast.Pool(1) as pool:
        assert pool.submit(os.uname).result(patience(20)).nodename == os.uname().nodename


@pytest.mark.live
def test_large_arrays_are_in_memory_that_the_workers_of_a_host_share(pool: ringcast.Pool) -> None:
    array = np.random.default_rng(1).random(1 << 17)

    def inode(where: np.ndarray) -> str:
        begin = where.__array_interface__["data"][0]
        with open("/proc/self/maps") as file:
            for line in file:
                first, last = (int(each, 16) for each in line.split()[0].split("-"))
                if first <= begin < last:
                    return line.split()[4]
        return "none"

    places = pool.submit_ranks(2, lambda comm: inode(array)).result()
    assert places[0] == places[1] != "0"


def kill_once(mark: str) -> str:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "again"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@pytest.mark.live
def test_a_task_whose_worker_is_killed_runs_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ringcast.Pool(2) as pool:
        pool.submit(abs, 1).result()
        begin = time.monotonic()
        assert pool.submit(kill_once, str(tmp_path / "mark")).result(patience(20)) == "again"
        assert time.monotonic() - begin < patience(2)
        assert pool.size == 1
        assert list(pool.map(abs, range(-50, 0))) == list(range(50, 0, -1))
        with pytest.raises(ringcast.PoolBroken, match="no worker is left: rank"):
            pool.submit(_kill_myself).result(patience(20))


def _kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.live
def test_without_retries_a_task_whose_worker_is_killed_fails_and_names_it() -> None:
    with ringcast.Pool(2, retries=0) as pool:
        begin = time.monotonic()
        error = pool.submit(_kill_myself).exception(patience(20))
        assert time.monotonic() - begin < patience(2)
        assert isinstance(error, ringcast.WorkerDied)
        assert (error.attempts, error.host) == (1, os.uname().nodename)
        assert error.rank in (1, 2)
        assert causes.names(error.cause, "killed by SIGKILL")
        assert pool.submit(abs, -1).result(patience(20)) == 1


@pytest.mark.live
def test_a_task_of_ranks_runs_again_when_one_of_them_is_killed(tmp_path: Path) -> None:
    def work(comm: ringcast.Communicator, mark: str) -> int:
        if comm.rank == 1:
            kill_once(mark)
        return comm.allreduce(1)

    with ringcast.Pool(3) as pool:
        assert pool.submit_ranks(2, work, str(tmp_path / "mark")).result(patience(20)) == [2, 2]
        assert pool.size == 2


@pytest.mark.live
def test_a_broadcast_goes_on_without_a_worker_that_is_killed(tmp_path: Path) -> None:
    array = np.arange(1 << 20)

    with ringcast.Pool(3) as pool:
        pids = {pool.submit(os.getpid).result() for _ in range(30)}
        victim = pids.pop()
        os.kill(victim, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
        assert list(pool.map(lambda n: int(array[n]), range(300))) == list(range(300))


@pytest.mark.live
def test_a_limit_of_time(pool: ringcast.Pool) -> None:
    with pytest.raises(TooLate):
        list(pool.map(time.sleep, [5], timeout=0.1))
    with pytest.raises(TooLate):
        list(pool.imap_unordered(time.sleep, [5], timeout=0.1))


PROGRAM = """
import os, sys, time, ringcast
pool = ringcast.Pool(2)
print("pids", *{pool.submit(os.getpid).result() for _ in range(100)}, flush=True)
"""


def run(text: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program with a pool; return it, and the pids of workers."""
    handler = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = subprocess.Popen(
        [sys.executable, "-c", handler + PROGRAM + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(program.stdout.fileno(), 1)):
        line += byte  # what is behind it stays for `communicate`
    return program, [int(pid) for pid in line.split()[1:]]


def gone(pids: list[int]) -> bool:
    """Wait until processes are gone; return whether they are."""
    until = time.monotonic() + patience(20)
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_program_is_ended(number: signal.Signals) -> None:
    program, pids = run("print('now', flush=True); [f.result() for f in [pool.submit(time.sleep, 1000) for _ in '12']]")
    with program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(number)
        program.wait(patience(20))
        assert pids
        assert gone(pids)


@pytest.mark.live
def test_an_interrupt_while_the_end_of_the_block_waits_ends_the_tasks() -> None:
    program, pids = run(
        """
import signal, threading
class Begun(ringcast.Pool):
    def shutdown(self, *args, **kwargs):
        threading.Thread(target=signal.pthread_kill, args=(threading.main_thread().ident, signal.SIGINT)).start()
        super().shutdown(*args, **kwargs)
try:
    with Begun(1) as other:
        future = other.submit(time.sleep, 1000)
except KeyboardInterrupt:
    print(other, type(future.exception(0)).__name__)
"""
    )
    said, errors = program.communicate(timeout=patience(60))
    assert (said, errors, program.returncode) == ("<Pool: 1 worker, ended> PoolBroken\n", "", 0)
    assert gone(pids)


@pytest.mark.live
def test_a_program_ends_after_its_tasks() -> None:
    program, pids = run("pool.submit(time.sleep, 0.2).add_done_callback(lambda _: print('done', flush=True))")
    said, errors = program.communicate(timeout=patience(60))
    assert (said, errors, program.returncode) == ("done\n", "", 0)
    assert gone(pids)


@pytest.mark.live
def test_a_forked_copy_of_a_program_has_no_pool() -> None:
    program, _ = run(
        """
if os.fork() == 0:
    try:
        pool.submit(abs, 1)
    except ringcast.UsageError as error:
        print(error, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
print(pool.submit(abs, -2).result())
"""
    )
    said, errors = program.communicate(timeout=patience(60))
    assert said.endswith("\n0\n2\n"), (said, errors)
    assert "this one is a copy" in said
    assert errors == ""
