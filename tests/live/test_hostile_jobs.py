"""Jobs of processes whose errors cannot be shown, or arise before init: the last line names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, RunTimeout
from support.hostile import ERRORS
from support.patience import patience

LIMIT = 120.0  # seconds; a job takes some
TESTS = str(Path(__file__).parents[1])
NAMES = ["ValueError of an argument", "Exits in str", "Attributes that refuse", "SyntaxError of hostile parts", "Falsy"]
PROGRAM = """
import signal, sys, threading
sys.path.insert(0, {tests!r})
from support.hostile import ERRORS
from support.patience import patience
def fail(*_):
    raise ERRORS[{name!r}]()
{before}
import ringcast
comm = ringcast.init()
{after}
comm.barrier()
"""
PLACES = {
    "before init": ("fail()", ""),
    "program": ("", "if comm.rank == 1: fail()"),
    "operator": ("", "comm.allreduce([comm.rank], fail)"),
    "signal": ("", "signal.signal(signal.SIGALRM, fail)\nif comm.rank == 1: signal.alarm(1)\ncomm.recv(source=1)"),
    "finally": ("", "try: comm.allreduce([1], fail)\nfinally: fail()"),
}


def job(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", *options, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(LIMIT), check=False)


CASES = [(place, name) for place in PLACES for name in NAMES]
CASES.remove(("before init", "Attributes that refuse"))  # of that Python itself prints no line with its name


@pytest.mark.parametrize(("place", "name"), CASES)
def test_the_last_line_names_an_error_that_cannot_be_shown(place: str, name: str, tmp_path: Path) -> None:
    before, after = PLACES[place]
    done = job(tmp_path, PROGRAM.format(tests=TESTS, name=name, before=before, after=after))
    assert done.returncode == 1, done.stderr
    assert f" failed: {name.split()[0]}" in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize("output", [(), ("--output", "none")])
@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("import ringcast, nosuch", "failed: ModuleNotFoundError: No module named 'nosuch'"),
        ("x = = 3", "failed: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(1)", "failed: exit code 1"),
    ],
)
def test_an_error_before_init_is_named(program: str, last: str, output: tuple[str, ...], tmp_path: Path) -> None:
    done = job(tmp_path, program, *output)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(last)


def _raising(comm: Communicator, name: str) -> None:
    if comm.rank == 1:
        raise ERRORS[name]()
    comm.barrier()


@pytest.mark.smoke
def test_processes_name_an_error_that_cannot_be_shown() -> None:
    name = NAMES[0]
    with pytest.raises(RunFailed) as found:
        ringcast.run(_raising, 2, args=(name,), timeout=patience(LIMIT))
    assert not isinstance(found.value, RunTimeout)
    assert found.value.cause == "ValueError: <exception str() failed>"


def test_a_cluster_names_every_error_and_goes_on() -> None:
    with ringcast.cluster(2) as cluster:
        for name in ERRORS:
            with pytest.raises(RunFailed) as found:
                cluster.run(_raising, name, timeout=patience(LIMIT))
            assert not isinstance(found.value, RunTimeout), name
            assert found.value.cause.startswith(name.split()[0]), name
        assert cluster.run(lambda comm: comm.allreduce(1)) == [2, 2]
