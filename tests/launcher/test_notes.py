"""Notes of the launcher: what it says of a job that goes well, what `--quiet` leaves out, and hints beside errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringcast_launcher.decide.job_report import isolated
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

NEVER = "no rank called ringcast.init: 2 processes ran the program, each by itself"
SHARED = "the ranks share the cores"
JOINS = "import ringcast; print(ringcast.init().allreduce(1))"
FAILS = "import ringcast; ringcast.init(); raise ValueError('no data')"


def launch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringcast_launcher", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(60), check=False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-n", "2", "python", "-c", "pass"), True),
        (("-n", "2", "python", "-c", JOINS), False),
        (("-n", "1", "python", "-c", "pass"), False),
        (("-n", "2", "python", "-c", "raise SystemExit(3)"), False),
    ],
    ids=["never", "called", "one rank", "failed"],
)
def test_a_job_in_which_no_rank_calls_init_is_told(arguments: tuple[str, ...], told: bool) -> None:
    assert (NEVER in launch(*arguments).stderr) == told


def test_quiet_leaves_notes_out_and_shows_errors() -> None:
    misspelled = {"RINGCAST_TIMOUT": "3"}
    loud, quiet = (launch(*how, "-n", "2", "python", "-c", FAILS, **misspelled).stderr for how in ((), ("-q",)))
    assert SHARED in loud
    assert "warning: RINGCAST_TIMOUT is no variable of ringcast; did you mean RINGCAST_TIMEOUT?" in loud
    assert SHARED not in quiet
    assert "RINGCAST_TIMOUT" not in quiet
    assert "ValueError: no data" in quiet.splitlines()[-1]
    assert launch("--quiet", "-n", "2", "python", "-c", "pass").stderr == ""


def test_quiet_and_verbose_exclude_each_other() -> None:
    done = launch("-q", "-v", "-n", "1", "true")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr


@pytest.mark.parametrize(
    ("option", "named"),
    [("-I", ", but not with python -I"), ("-E", ", but not with python -E"), ("-B", "")],
    ids=["-I", "-E", "neither"],
)
def test_the_option_of_python_that_ignores_as_mpi4py_is_named(option: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\", name='mpi4py')")
    done = launch("--as-mpi4py", "-n", "1", "python", option, str(tmp_path / "program.py"))
    assert f"puts ringcast in its place{named}\n" in done.stderr


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["python", "-I", "a.py"], "-I"),
        (["/usr/bin/python3.12", "-B", "-sE", "a.py"], "-E"),
        (["python", "-Wignore", "-c", "-I"], ""),
        (["python", "-X", "importtime", "-I"], "-I"),
        (["python", "-mInside"], ""),
        (["python"], ""),
        (["bash", "-c", "python -I a.py"], "-I or -E"),
        ([], "-I or -E"),
    ],
    ids=str,
)
def test_an_option_is_found_where_python_would_read_it(argv: list[str], option: str) -> None:
    assert isolated(argv) == option
