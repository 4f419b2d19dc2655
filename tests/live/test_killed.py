"""Real jobs in which one rank comes to a bad end: the others learn its name in time; nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from support.patience import patience
from support.places import SUPPORT
from support.programs.doomed import SIZE, End, end_of

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
PROGRAM = SUPPORT / "programs" / "doomed.py"
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
AT_ONCE = 4
SOON, LATE = 3.0, 15.0  # seconds until all know of an end, and of one that only silence shows; the machine is busy
CALL = 5.0  # seconds a call may take where nothing but that can end it

CODES = {
    "kill": 137,
    "stop": 1,
    "raise": 1,
    "exit 3": 3,
    "exit 0": 1,
    "hard exit 0": 1,
    "hard exit 3": 3,
    "abort": 134,
    "segfault": 139,
    "spin": 1,
}
CAUSES = {
    "kill": "killed by SIGKILL",
    "stop": r"it was stopped \(state T\)",
    "raise": "KeyError: 'doomed'",
    "exit 3": "exit code 3",
    "exit 0": "exited with code 0 while rank . still communicated with it",
    "hard exit 0": "exited with code 0 without finishing",
    "hard exit 3": "exit code 3",
    "abort": "killed by SIGABRT",
    "segfault": "killed by SIGSEGV",
    "memory": "MemoryError",
    "spin": "CollectiveTimeout: .* did not finish within {call:g} s|waited {call:g} s for it",
}


def run(seed: int) -> None:
    """Run the job of this seed and look at all that it leaves."""
    end, limit = end_of(seed), patience(CALL)
    with tempfile.TemporaryDirectory(prefix="rc-doomed-") as name:
        folder, jobs = Path(name), Path(name) / "jobs"
        jobs.mkdir()
        limits = {"RINGCAST_TIMEOUT": f"{limit:g}"} if end.way == "spin" else {}
        done = subprocess.run(
            [*LAUNCH, "-n", str(SIZE), "--timeout", f"{patience(60):g}", str(PROGRAM), str(seed), name],
            env={**os.environ, **QUIET, **limits, "TMPDIR": str(jobs)},
            capture_output=True,
            text=True,
            timeout=patience(100),
        )
        try:
            survivors = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*"))]
            check_survivors(end, survivors, float((folder / "end").read_text()), limit)
            check_verdict(end, done, limit)
            assert not list(jobs.iterdir())
            assert not living(survivors[0]["nonce"])
        except BaseException as error:
            error.add_note(f"seed {seed}: {end}; exit code {done.returncode}\n{done.stderr}")
            raise


def check_survivors(end: End, survivors: list[dict[str, object]], ended: float, call: float) -> None:
    assert len(survivors) == SIZE - 1
    limit = call + patience(SOON) if end.way == "spin" else patience(LATE if end.way == "stop" else SOON)
    for survivor in survivors:
        assert survivor["time"] - ended < limit, f"{survivor['time'] - ended:g} s"
        if end.way == "spin":  # computes, for all that can be known: whoever waits for whom, nobody is accused
            assert survivor["type"] in ("CollectiveTimeout", "Revoked", "PeerFailed"), survivor
            continue
        assert survivor["type"] in ("PeerFailed", "Revoked"), survivor
        assert re.search(rf"\brank {end.victim}\b", str(survivor["text"])), survivor
        if survivor["type"] == "PeerFailed":
            assert survivor["peer"] == end.victim, survivor


def check_verdict(end: End, done: subprocess.CompletedProcess[str], call: float) -> None:
    *_, before, last = done.stderr.splitlines()  # an error of Python stands, with its traceback, before the last line
    if end.way == "memory":  # without any even the interpreter's own end may fail, and say so after the error
        assert done.returncode > 0
        assert re.search(CAUSES[end.way], done.stderr)
    else:
        assert done.returncode == CODES[end.way]
        assert re.search(CAUSES[end.way].format(call=call), f"{before}\n{last}")
    if end.way != "spin":
        assert last.startswith(f"ringcast-launch: rank {end.victim} ")


def living(nonce: str) -> list[int]:
    """Return the processes that belong to a job."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RINGCAST_NONCE") == nonce:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def run_all(seeds: range) -> None:
    """Run these jobs, a few at the same time: some only wait."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(run, seed) for seed in seeds]:
            future.result()


@pytest.mark.parametrize("part", [0, 1])
def test_every_survivor_hears_of_an_end_in_time(part: int) -> None:
    run_all(range(6 * part, 6 * part + 6))


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_every_survivor_hears_of_any_end_in_time(part: int) -> None:
    run_all(range(1000 + 8 * part, 1008 + 8 * part))


def compute(folder: Path, work: str) -> None:
    """Run a job in which rank 1 does some work while the others wait for it."""
    program = folder / "program.py"
    program.write_text(f"""
import re, time
import numpy as np, ringcast
comm = ringcast.init()
comm.barrier()
began = time.monotonic()
if comm.rank == 1:
{work}
    print(time.monotonic() - began, flush=True)
assert (comm.allreduce(np.full(1000, comm.rank + 1)) == 10).all()
""")
    command = [*LAUNCH, "-n", str(SIZE), str(program)]
    done = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, timeout=patience(300))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) > 20
    # On a busy machine it takes more than a minute, and then a line says so.
    assert all(line.endswith("s but computes; it is waited for") for line in done.stderr.splitlines()), done.stderr


@pytest.mark.long
@pytest.mark.timeout(400)  # of a processor that others use as well
def test_who_computes_in_c_and_holds_the_interpreter_is_not_accused(tmp_path: Path) -> None:
    # One call that takes 24 s of a processor: its steps are a polynomial of degree 4 in the length of the text.
    compute(
        tmp_path,
        """
    def match(length):
        return re.match("a*a*a*a*b", "a" * length)
    start = time.process_time()
    match(400)
    match(int(400 * (24 / (time.process_time() - start)) ** 0.25))
""",
    )


@pytest.mark.long
@pytest.mark.timeout(400)
def test_who_computes_half_a_minute_in_python_is_not_accused(tmp_path: Path) -> None:
    compute(
        tmp_path,
        """
    while time.monotonic() < began + 30:
        sum(range(1000))
""",
    )
