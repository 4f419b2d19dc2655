"""`ringcast.run`, with threads and with real processes: results, errors of every kind, nothing left behind."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcast import ArgumentError, Communicator, Revoked, RunFailed, RunTimeout, run
from support.patience import patience

BACKENDS = ("threads", pytest.param("processes", marks=pytest.mark.live))

pytestmark = pytest.mark.usefixtures("nothing_left", "no_folder_left")


@pytest.fixture
def no_folder_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Give the test a temporary directory of its own, which must be empty in the end."""
    short = tempfile.mkdtemp(prefix="rc-")  # paths of sockets have to be short
    monkeypatch.setenv("TMPDIR", short)
    monkeypatch.setattr(tempfile, "tempdir", short)
    for name in [name for name in os.environ if name.startswith("RINGCAST_")]:
        monkeypatch.delenv(name)
    yield
    left = os.listdir(short)
    assert left == []
    os.rmdir(short)


@pytest.mark.parametrize(
    ("backend", "n"),
    [("threads", 1), ("threads", 3), ("processes", 3), pytest.param("processes", 1, marks=pytest.mark.live)],
)
def test_results_come_by_rank(backend: str, n: int) -> None:
    offset = np.arange(3)

    def work(comm: Communicator, factor: int, text: str) -> dict[str, Any]:
        return {"sum": comm.allreduce(comm.rank * factor + offset), "text": text * comm.rank, "size": comm.size}

    for rank, result in enumerate(run(work, n, args=(10, "x"), backend=backend)):
        assert result["sum"].tolist() == [10 * n * (n - 1) // 2 + n * i for i in range(3)]
        assert (result["text"], result["size"]) == ("x" * rank, n)
    if n > 1:
        assert run(lambda comm: comm.rank, n, backend=backend) == list(range(n))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_names_the_rank_and_shows_its_traceback(backend: str) -> None:
    def work(comm: Communicator) -> Any:
        if comm.rank == 1:
            raise KeyError("of all things")
        return comm.allreduce(np.ones(3))

    with pytest.raises(RunFailed) as info:
        run(work, 3, backend=backend)
    error = info.value
    assert error.rank == 1
    assert error.cause == "KeyError: 'of all things'"
    assert "in work" in error.remote_traceback
    assert 'raise KeyError("of all things")' in error.remote_traceback or backend == "processes"
    assert str(error).startswith("rank 1: KeyError: 'of all things'\nTraceback")
    if backend == "threads":
        assert isinstance(error.__cause__, KeyError)


@pytest.mark.live
def test_a_failure_is_shown_by_the_exception_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def work(comm: Communicator) -> Any:
        print(f"rank {comm.rank} warns", file=sys.stderr)
        comm.barrier()
        if comm.rank == 1:
            raise KeyError("of all things")
        return comm.allreduce(1)

    with pytest.raises(RunFailed) as info:
        run(work, 3)
    shown = [line for line in capsys.readouterr().err.splitlines() if "share the cores" not in line]
    assert sorted(shown) == [f"[{rank}] rank {rank} warns" for rank in range(3)]
    assert str(info.value).count("Traceback") == 1
    (note,) = info.value.__notes__
    assert "Traceback" not in note
    assert "ringcast-launch: rank 1: raised KeyError" in note


@pytest.mark.live
def test_a_process_that_dies_is_told_by_the_exception_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def work(comm: Communicator) -> Any:
        comm.barrier()
        if comm.rank == 1:
            os._exit(5)
        return comm.allreduce(1)

    with pytest.raises(RunFailed, match=r"^rank 1: exit code 5\n(.*\n)*ringcast-launch: rank 1 .* failed: exit code 5"):
        run(work, 2)
    assert [line for line in capsys.readouterr().err.splitlines() if "share the cores" not in line] == []


@pytest.mark.live
def test_what_a_rank_writes_after_its_traceback_is_not_lost() -> None:
    def work(comm: Communicator) -> None:
        atexit.register(print, f"rank {comm.rank} says goodbye", file=sys.stderr)
        raise KeyError("of all things")

    with pytest.raises(RunFailed) as info:
        run(work, 1)
    assert "rank 0 says goodbye" in info.value.__notes__[0]


@pytest.mark.live
def test_ordinary_errors_are_shown_while_the_job_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Screen:
        def write(self, line: str) -> None:
            if "go on" in line:
                (tmp_path / "seen").touch()

        def flush(self) -> None:
            pass

    def work(comm: Communicator) -> bool:
        print("go on", file=sys.stderr, flush=True)
        until = time.monotonic() + patience(60)
        while not (tmp_path / "seen").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return (tmp_path / "seen").exists()

    monkeypatch.setattr(sys, "stderr", Screen())
    assert run(work, 1) == [True]


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_inside_ringcast_are_folded(backend: str) -> None:
    with pytest.raises(RunFailed) as info:
        run(lambda comm: comm.bcast(1, 7), 2, backend=backend)
    assert "frames inside ringcast" in info.value.remote_traceback
    assert "ringcast/communicator/" not in info.value.remote_traceback


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_cause_is_told_not_what_follows_from_it(backend: str) -> None:
    def work(comm: Communicator) -> None:
        comm.allreduce(np.ones(3), lambda a, b: a / "x" if comm.rank == 2 else a)

    with pytest.raises(RunFailed, match=r"^rank 2: TypeError: ") as info:
        run(work, 4, backend=backend)
    assert "/ " in info.value.remote_traceback or backend == "processes"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_library_error_is_passed_on(backend: str) -> None:
    with pytest.raises(RunFailed, match=r"rank [01]: ArgumentError: rank [01]: bcast: argument root") as info:
        run(lambda comm: comm.bcast(1, 7), 2, backend=backend)
    if backend == "threads":
        assert isinstance(info.value.__cause__, ArgumentError)


@pytest.mark.live
@pytest.mark.parametrize("debug", ["", "info"])
def test_frames_inside_ringcast_are_shown_on_demand(monkeypatch: pytest.MonkeyPatch, debug: str) -> None:
    monkeypatch.setenv("RINGCAST_DEBUG", debug)
    with pytest.raises(RunFailed) as info:
        run(lambda comm: comm.bcast(1, 7), 2, backend="processes")
    assert ("inside ringcast" in info.value.remote_traceback) == (not debug)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_limit_ends_a_run_as_a_whole(backend: str) -> None:
    def work(comm: Communicator) -> None:
        while comm.rank:  # many calls, each of them short
            comm.sendrecv(1, 3 - comm.rank, 3 - comm.rank)
        comm.barrier()

    seconds = 0.5 if backend == "threads" else 5.0  # processes have to start
    with pytest.raises(RunTimeout, match=rf"rank 0: the run did not finish within {seconds:g} s") as caught:
        run(work, 3, backend=backend, timeout=seconds)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.ranks, caught.value.running) == ((0, 1, 2), ())


def test_a_time_limit_names_the_threads_that_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    threads = []

    def work(comm: Communicator) -> None:
        threads.append(threading.current_thread())
        if comm.rank == 0:
            comm.recv(1)
        go_on.wait(patience(60))

    monkeypatch.setattr("ringcast.bootstrap.run.GRACE", 3.0)  # it passes in full; a thread that may run does within it
    with pytest.raises(RunTimeout, match=r"rank 0, 1 had not ended; rank 1 still runs\n(.*\n)*.*JobAborted") as caught:
        run(work, 2, backend="threads", timeout=0.2)
    assert caught.value.running == (1,)
    go_on.set()
    for thread in threads:
        thread.join(patience(60))


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "3"])
def test_a_time_limit_that_is_none(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"timeout=.*: expected a number of seconds above 0"):
        run(lambda comm: 0, 1, backend="threads", timeout=timeout)


def test_a_swapped_call_is_told() -> None:
    with pytest.raises(TypeError, match="fn=3: expected a function, before the number of ranks"):
        run(3, lambda _: 1, backend="threads")


@pytest.mark.parametrize("backend", BACKENDS)
def test_sys_exit_is_a_failure(backend: str) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            sys.exit(3)
        comm.barrier()

    with pytest.raises(RunFailed, match=r"^rank 1: SystemExit: 3") as info:
        run(work, 2, backend=backend)
    assert info.value.rank == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_sys_exit_without_a_code_is_a_failure_too(backend: str) -> None:
    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            sys.exit(0)

    with pytest.raises(RunFailed) as info:
        run(work, 2, backend=backend)
    assert info.value.rank == 1


@pytest.mark.live
@pytest.mark.parametrize("how", ["exit 5", "exit 0", "kill"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_worker_that_dies(how: str, n: int) -> None:
    def work(comm: Communicator) -> Any:
        comm.barrier()
        if comm.rank == comm.size - 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(int(how[-1]))
        return comm.allreduce(1)

    with pytest.raises(RunFailed) as info:
        run(work, n)
    assert info.value.rank == n - 1, info.value


@pytest.mark.live
@pytest.mark.parametrize("rank", [0, 1])
def test_a_result_that_cannot_be_pickled(rank: int) -> None:
    with pytest.raises(RunFailed, match=f"^rank {rank}: TypeError: cannot pickle"):
        run(lambda comm: threading.Lock() if comm.rank == rank else None, 2)


def test_a_function_that_cannot_be_pickled() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        run(lambda comm: lock, 2)
    assert run(lambda comm: lock, 2, backend="threads") == [lock, lock]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [0, -1])
def test_no_ranks(backend: str, n: int) -> None:
    with pytest.raises(ValueError, match=f"n={n}: expected 1 rank or more"):
        run(lambda comm: 0, n, backend=backend)


@pytest.mark.parametrize("n", ["2", 2.0, None])
def test_a_number_of_ranks_that_is_no_integer(n: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        run(lambda comm: 0, n)


def test_an_unknown_backend() -> None:
    with pytest.raises(ValueError, match="backend='gpu': expected 'processes' or 'threads'"):
        run(lambda comm: 0, 2, backend="gpu")


def test_what_workers_print_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def work(comm: Communicator) -> None:
        print(f"rank {comm.rank} is here")
        os.write(1, b"\xff is not text\n")

    run(work, 2)
    shown = capsys.readouterr().out
    assert "rank 0 is here" in shown
    assert "rank 1 is here" in shown
    assert "is not text" in shown


def test_the_communicator_of_a_thread_is_closed_in_the_end() -> None:
    kept = run(lambda comm: comm, 2, backend="threads")
    assert all(comm.closed for comm in kept)


@pytest.mark.live
def test_a_rank_may_return_before_the_others_have_its_messages() -> None:
    def work(comm: Communicator) -> Any:
        if comm.rank == 0:
            return comm.sendrecv("last words", 1, None)
        return comm.sendrecv(None, None, 0)

    for backend in ("threads", "processes"):
        assert run(work, 2, backend=backend) == [None, "last words"]


def test_a_rank_that_waits_for_one_that_returned_is_told() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.sendrecv(None, None, 0)

    with pytest.raises(RunFailed, match=r"^rank 1: PeerFailed: .*finished"):
        run(work, 2, backend="threads")
    with pytest.raises(RunFailed, match=r"^rank 0: exited with code 0 while rank 1 still communicated with it"):
        run(work, 2)


@pytest.mark.parametrize("n", [2, 3])
def test_an_interrupt_ends_the_threads(n: int) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        comm.sendrecv(None, None, (comm.rank + 1) % n)

    with pytest.raises(KeyboardInterrupt):
        run(work, n, backend="threads")


def test_an_interrupt_does_not_wait_for_a_thread_that_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    threads = []

    def work(comm: Communicator) -> None:
        threads.append(threading.current_thread())
        if comm.rank == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        go_on.wait(patience(60))

    monkeypatch.setattr("ringcast.bootstrap.run.GRACE", 0.2)
    with pytest.raises(KeyboardInterrupt):
        run(work, 2, backend="threads")
    assert any(thread.is_alive() for thread in threads)
    go_on.set()
    for thread in threads:
        thread.join(patience(60))


def test_an_interrupt_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        def write(self, line: str) -> None:
            if "ready" in line:
                raise KeyboardInterrupt

        def flush(self) -> None:
            pass

    def work(comm: Communicator) -> None:
        print("ready", flush=True)
        comm.sendrecv(None, None, 1 - comm.rank)

    monkeypatch.setattr(sys, "stdout", Screen())
    with pytest.raises(KeyboardInterrupt):
        run(work, 2)


def test_many_threads() -> None:
    def work(comm: Communicator) -> Any:
        return [int(comm.allreduce(np.arange(i + 1))[-1]) for i in range(20)]

    assert run(work, 40, backend="threads") == [[40 * i for i in range(20)]] * 40


def test_an_error_that_follows_is_told_when_there_is_no_other() -> None:
    def work(comm: Communicator) -> None:
        raise Revoked(comm.rank, "no reason")

    with pytest.raises(RunFailed, match=r"rank [01]: Revoked: "):
        run(work, 2, backend="threads")


def test_a_message_that_nobody_takes_fails_the_threads() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.sendrecv(1, dest=1, source=None)

    with pytest.raises(RunFailed, match="rank 1: it finished without taking a message of rank 0") as caught:
        run(work, 2, backend="threads")
    assert caught.value.rank == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_different_roots_never_end_well(backend: str) -> None:
    """Every rank gets some value, and returns: only the messages that are left over tell that something was wrong."""
    with pytest.raises(RunFailed, match=r"another root|root differs|root 0, theirs 1|without taking a message"):
        run(lambda comm: comm.bcast(comm.rank, root=comm.rank % 2), 4, backend=backend)


@pytest.mark.live
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
def test_a_process_without_standard_streams_gets_results(tmp_path: Path, closed: str) -> None:
    program = """
import sys
import ringcast


def work(comm):
    print("out")
    print("err " * 100_000, file=sys.stderr)  # more than a pipe holds
    return comm.allreduce(1)


open(sys.argv[1], "w").write(str(ringcast.run(work, 2)))
"""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program, str(tmp_path / "results")]
    assert subprocess.run(command, timeout=patience(60), capture_output=True).returncode == 0
    assert (tmp_path / "results").read_text() == "[2, 2]"


@pytest.mark.live
def test_a_standard_error_that_the_program_has_closed_is_an_error(tmp_path: Path) -> None:
    program = """
import sys
import ringcast

sys.stderr.close()
try:
    ringcast.run(lambda comm: print("err " * 100_000, file=sys.stderr), 2)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=patience(60), stdout=subprocess.PIPE, text=True)
    assert done.stdout.startswith("I/O operation on closed file")


@pytest.mark.live
def test_functions_of_modules_beside_the_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def work(comm):\n    return comm.allreduce(comm.rank)\n")
    (tmp_path / "script.py").write_text(
        "import helper, ringcast\nif __name__ == '__main__':\n    print(ringcast.run(helper.work, 2))\n"
    )
    script = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(script, cwd="/", capture_output=True, text=True, timeout=patience(60))
    assert done.stdout.splitlines()[-1] == "[1, 1]", done.stderr


@pytest.mark.live
def test_shared_cores_are_told_of_once_in_a_session() -> None:
    program = """
import ringcast
for size in 2, 2, 2:
    ringcast.run(lambda comm: comm.barrier(), size)
"""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    unset = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", program], env=unset, capture_output=True, text=True, timeout=patience(60)
    )
    assert (done.returncode, done.stderr.count("the ranks share the cores")) == (0, 1)


def test_an_exceeded_time_limit_can_be_pickled() -> None:
    error = RunTimeout((2, 1), 5.0, "trace", (1,), first=1, waits="rank 2 waits for rank 1")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
