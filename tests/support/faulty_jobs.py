"""Jobs of four ranks in allreduce, one of which meets with a fault: how long until each of the others knows?

`PYTHONPATH=tests python -m support.faulty_jobs -r 10` prints a table. The victim writes the time just before the fault,
every survivor when it has its error; the monotonic clock is the machine's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringcast.config.worker import WorkerConfig
from support.patience import patience
from support.places import TESTS

SIZE, VICTIM = 4, 1
FOUND = {"PYTHONPATH": str(TESTS)}  # by the ranks, which run this module
LIMIT = 60  # seconds that the whole job may take


def _raise() -> None:
    raise ValueError("bad luck")


FAULTS: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exception": _raise,
    "sys.exit(3)": lambda: sys.exit(3),
    "sys.exit(0)": lambda: sys.exit(0),
    "os._exit(0)": lambda: os._exit(0),
    "os.abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "deadlock": lambda: ctypes.PyDLL(None).sleep(3600),  # with the interpreter's lock
}
SILENT = ("SIGSTOP", "deadlock")  # those that only their silence tells of


@dataclass(frozen=True)
class Heard:
    """The error that a survivor got, and its time in seconds after the fault."""

    seconds: float
    error: str
    peer: int
    cause: str
    host: str
    pid: int
    traceback: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: its survivors, and the output of the launcher."""

    heard: dict[int, Heard]
    pid: int  # of the victim
    code: int
    stderr: str


def run(fault: str, *, hosted: bool = True, transport: str = "auto") -> Outcome:
    """Run a job with this fault to its end; with a launcher if it is `hosted`, over `transport` then."""
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        worker = ["-m", "support.faulty_jobs", "--work", fault, folder]
        code, stderr = _launched(["--transport", transport, *worker], folder) if hosted else _alone(worker, folder)
        at, pid = json.loads(Path(folder, "fault").read_text())
        heard = {}
        for rank in range(SIZE):
            file = Path(folder, f"heard-{rank}")
            if file.exists():
                told = json.loads(file.read_text())
                heard[rank] = Heard(told.pop("time") - at, **told)
        return Outcome(heard, pid, code, stderr)


def _launched(worker: list[str], folder: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(SIZE), *worker]
    environment = {**os.environ, **FOUND, "TMPDIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(LIMIT), env=environment)
    return done.returncode, done.stderr


def _alone(worker: list[str], folder: str) -> tuple[int, str]:
    """Start the ranks by hand; return the victim's exit code and what it said."""
    ranks: list[subprocess.Popen[str]] = []
    nonce = secrets.randbits(64)
    try:
        for rank in range(SIZE):
            settings = WorkerConfig(rank, SIZE, f"ipc://{folder}/control", nonce=nonce)
            environment = {**os.environ, **FOUND, **settings.environment()}
            ranks.append(
                subprocess.Popen([sys.executable, *worker], env=environment, stderr=subprocess.PIPE, text=True)
            )
        said = [process.communicate(timeout=patience(LIMIT))[1] for process in ranks]
        return ranks[VICTIM].returncode, said[VICTIM]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def work(fault: str, folder: Path) -> None:
    """Be a rank."""
    import ringcast

    comm = ringcast.init()
    data = np.ones(1000)
    try:
        for turn in range(10**9):
            if turn == 3 and comm.rank == VICTIM:
                (folder / "fault").write_text(json.dumps([time.monotonic(), os.getpid()]))
                FAULTS[fault]()
            comm.allreduce(data)
    except ringcast.RingcastError as error:
        told = {"time": time.monotonic(), "error": type(error).__name__}
        told |= {name: getattr(error, name, "") for name in ("peer", "cause", "host", "pid")}
        told["traceback"] = getattr(error, "remote_traceback", "")
        (folder / f"heard-{comm.rank}").write_text(json.dumps(told))
        sys.exit(1)  # that it was an error of others is told all the same


def main() -> None:
    """Measure, or be a rank of what is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-r", dest="repetitions", type=int, default=10)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], Path(options.work[1]))
        return
    print(f"{'fault':<12} {'median':>8} {'max':>8}  seconds until a survivor knows; what it is told")
    for fault in FAULTS:
        heard = [heard for _ in range(options.repetitions) for heard in run(fault).heard.values()]
        times = [h.seconds for h in heard]
        said = sorted({f"{h.error}: {h.cause}" for h in heard})
        print(f"{fault:<12} {statistics.median(times):8.3f} {max(times):8.3f}  {'; '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
