"""Python's debugger in ranks, at a real terminal."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience
from support.terminals import LAUNCH, LIMIT, on_terminal

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

STOPS = """
import ringcast
comm = ringcast.init()
if comm.rank in STOPPED:
    mine = comm.rank + 40
    breakpoint()
print("sum", comm.allreduce(comm.rank))
"""
PLAIN = """
import ringcast
comm = ringcast.init()
value = comm.allreduce(comm.rank + 1)
assert value != WRONG
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_breakpoint_has_the_terminal_and_the_others_wait(program: Path) -> None:
    program.write_text(STOPS.replace("STOPPED", "(1,)"))
    with on_terminal("-n", "2", str(program)) as job:
        job.wait_for(r"\(Pdb rank 1\) ")
        job.type("p mine + 1000\n")
        job.wait_for(r"1041\r\n")
        job.type('__import__("sys").stdout.write_through\n')
        job.wait_for(r"False\r\n")  # else output of others may come into its lines
        job.type("c\n")
        assert job.end() == 0
    assert b"[0] sum 1" in job.data
    assert b"\nsum 1" in job.data  # of the rank that was stopped, which has the terminal itself


def test_ranks_that_stop_have_the_terminal_in_turn(program: Path) -> None:
    program.write_text(STOPS.replace("STOPPED", "(0, 1)"))
    with on_terminal("-n", "2", str(program)) as job:
        job.wait_for(r"\(Pdb rank [01]\) ")
        job.type("p mine + 1000\n")
        job.wait_for(r"104[01]\r\n")
        job.type("c\n")
        job.wait_for(r"\(Pdb rank 0\) (.|\n|\r)*\(Pdb rank 1\) |\(Pdb rank 1\) (.|\n|\r)*\(Pdb rank 0\) ")
        job.type("c\n")
        assert job.end() == 0


def test_debug_stops_at_the_first_line(program: Path) -> None:
    program.write_text(PLAIN.replace("WRONG", "7"))
    with on_terminal("-n", "2", "--debug", "1", str(program)) as job:
        job.wait_for(r"-> import ringcast\r\n(.|\n|\r)*\(Pdb rank 1\) ")
        job.type("b 5\n")
        job.wait_for(r"Breakpoint 1 at")
        job.type("c\n")
        job.wait_for(r"-> assert value")
        job.type("p value + 1000\n")
        job.wait_for(r"1003\r\n")
        job.type("c\n")
        assert job.end() == 0


def test_debug_stops_where_an_exception_ends_the_program(program: Path) -> None:
    program.write_text(PLAIN.replace("WRONG", "3"))
    with on_terminal("-n", "2", "--debug", "0", str(program)) as job:
        job.wait_for(r"\(Pdb rank 0\) ")
        job.type("c\n")
        job.wait_for(r"AssertionError\r\n(.|\n|\r)*-> assert value != 3\r\n(.|\n|\r)*\(Pdb rank 0\) ")
        job.type("p value + 1000\n")
        job.wait_for(r"1003\r\n")
        job.type("q\n")
        assert job.end() == 1
    assert b"failed: AssertionError" in job.data


PATHS = """
import sys
print(sys.path[0], flush=True)
import helper
"""


@pytest.mark.parametrize("how", ["script", "module"])
@pytest.mark.parametrize("safe", ["", "1"])
def test_debug_gives_a_program_the_path_that_python_does_and_runs_nothing_from_the_working_directory(
    tmp_path: Path, how: str, safe: str
) -> None:
    """The directory of a script comes first, for -m the working directory; our own modules are not from there."""
    there, own = tmp_path / "working", tmp_path / "own"
    for folder in there, own:
        folder.mkdir()
        (folder / "program.py").write_text(PATHS)
        (folder / "helper.py").write_text("print('helped', __file__, flush=True)\n")
    for name in "ringcast", "numpy", "zmq", "bdb", "pdb":
        (there / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'a').write({name!r})\n")
    (tmp_path / "link.py").symlink_to(own / "program.py")
    program, first = (["-m", "program"], there) if how == "module" else ([str(tmp_path / "link.py")], own)
    if safe:
        first = tmp_path / "path"
        shutil.copytree(own, first)
    launch = ["env", "-C", str(there), sys.executable, "-P", *LAUNCH[1:]]
    named = {"PYTHONSAFEPATH": safe, "PYTHONPATH": str(tmp_path / "path")}
    with on_terminal("-n", "1", "--debug", "0", *program, command=launch, **named) as job:
        job.wait_for(r"\(Pdb rank 0\) ")
        job.type("c\n")
        assert job.end() == 0, job.data
    assert f"{first}\r\nhelped {first}/helper.py\r\n".encode() in job.data
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()


def test_ctrl_c_at_the_prompt_ends_the_job_and_leaves_the_terminal_as_it_was(program: Path) -> None:
    program.write_text(STOPS.replace("STOPPED", "(1,)"))
    with on_terminal("-n", "2", str(program)) as job:
        job.wait_for(r"\(Pdb rank 1\) ")
        job.type("\x03")
        assert job.end() == 130
    assert job.modes_at_the_end == job.modes
    assert b"ringcast-launch: ended by SIGINT" in job.data


def test_without_a_terminal_breakpoint_is_an_error_that_says_so(program: Path) -> None:
    program.write_text(STOPS.replace("STOPPED", "(1,)"))
    done = subprocess.run([*LAUNCH, "-n", "2", str(program)], capture_output=True, text=True, timeout=patience(LIMIT))
    assert done.returncode == 1
    assert "UsageError: breakpoint(): rank 1 has no terminal: the debugger needs a launcher" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--debug", "0", "-m", "timeit"], "--debug 0: standard error is no terminal, which the debugger needs\n"),
        (
            ["--debug", "2", "-m", "timeit"],
            "--debug 2: a job of 2 has no such rank; ranks of this host can be debugged\n",
        ),
        (
            ["--debug", "0", "true"],
            "--debug 0: only a script *.py, or a module with -m, can be run in Python's debugger\n",
        ),
    ],
)
def test_what_cannot_be_debugged_is_refused(arguments: list[str], text: str) -> None:
    done = subprocess.run([*LAUNCH, "-n", "2", *arguments], capture_output=True, text=True, timeout=patience(LIMIT))
    assert (done.returncode, done.stderr) == (2, f"ringcast-launch: {text}")
