"""Progress bars, readers that end, and Ctrl-C, of real jobs on a real terminal."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.patience import patience
from support.terminals import LAUNCH, LIMIT, SHARED, on_terminal

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

# Each rank redraws a line; the next state is written once the file of that name exists.
BARS = """
import os, sys, time
from pathlib import Path
rank = os.environ["RANK"]
for state in "a", "b", "c":
    print(f"\\r{rank} is at {state}", end="", file=sys.stderr, flush=True)
    while not Path(sys.argv[1], state).exists():
        time.sleep(0.01)
    print(f"line after {state} of {rank}", flush=True)
print(file=sys.stderr)
"""


@pytest.fixture
def bars(tmp_path: Path) -> str:
    (tmp_path / "bars.py").write_text(BARS)
    return str(tmp_path / "bars.py")


def test_a_bar_is_redrawn_on_the_last_line_and_never_mixed_with_output(bars: str, tmp_path: Path) -> None:
    with on_terminal("-n", "2", bars, str(tmp_path)) as job:
        for state in "abc":
            job.wait_for(rf"\r\x1b\[K\[0\] 0 is at {state}")
            (tmp_path / state).touch()
        assert job.end() == 0
    told = [f"[{rank}] line after {state} of {rank}" for rank in (0, 1) for state in "abc"]
    lines = [line for line in job.lines if "no rank called ringcast.init" not in line]
    assert sorted(lines) == sorted(["", *told, "[0] 0 is at c", "[1] 1 is at c"])
    assert re.search(rb"\[0\] 0 is at a\r\x1b\[K\[[01]\] line after a", job.data)  # erased before output


def test_a_question_is_seen_before_it_is_answered(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text("""
import ringcast
comm = ringcast.init()
n = comm.bcast(input("how many? ") if comm.rank == 0 else None)
print("got", n)
""")
    with on_terminal("-n", "2", "--stdin", "0", str(tmp_path / "ask.py")) as job:
        job.wait_for(r"\[0\] how many\? ")
        job.type("7\n")
        assert job.end() == 0
    assert b"[1] got 7\r\n" in job.data
    assert b"got 7\r\n" in job.data.replace(b"[1] got 7\r\n", b"")


def test_without_input_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text("import ringcast\ncomm = ringcast.init()\ninput()\n")
    with on_terminal("-n", "1", str(tmp_path / "ask.py")) as job:
        assert job.end() == 1
    assert b"ringcast-launch --stdin RANK gives it" in job.data


def test_a_log_has_only_the_last_state_of_a_bar(bars: str, tmp_path: Path) -> None:
    for state in "abc":
        (tmp_path / state).touch()
    done = subprocess.run(
        [*LAUNCH, "-n", "1", bars, str(tmp_path)], capture_output=True, text=True, timeout=patience(LIMIT), check=True
    )
    assert done.stderr == "[0] 0 is at c\n"


def test_with_ci_set_no_bar_is_drawn_on_a_terminal(bars: str, tmp_path: Path) -> None:
    for state in "abc":
        (tmp_path / state).touch()
    with on_terminal("-n", "1", bars, str(tmp_path), CI="1") as job:
        assert job.end() == 0
    assert b"\x1b" not in job.data
    assert b"is at b" not in job.data
    assert b"[0] 0 is at c\r\n" in job.data


def first_line(program: str) -> tuple[str, str]:
    """Return what comes of a job of which one line is read, with the launcher's exit code; and its standard error."""
    command = f"{shlex.join(LAUNCH)} -n 2 --output none -- {program} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, **SHARED}, capture_output=True, text=True, timeout=patience(LIMIT)
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("program", ["seq 1 1000000; sleep 1000", "while echo 1; do sleep 0.1; done"])
def test_a_reader_that_ends_ends_the_job_with_the_code_of_sigpipe(program: str) -> None:
    assert first_line(f"sh -c '{program}'") == ("1\n141\n", "")


def test_a_job_of_ringcast_of_which_the_reader_ends_says_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ringcast\ncomm = ringcast.init()\nwhile True:\n    print(comm.allreduce(1))\n    comm.barrier()\n"
    )
    assert first_line(str(program)) == ("2\n141\n", "")


# A module that takes the place of one of ours, and tells that our imports have come so far.
SLOW = """
import os, sys, time
open(os.environ["SEEN"], "w").close()
time.sleep(1000)
"""


def test_ctrl_c_while_the_launcher_is_imported_prints_one_line(tmp_path: Path) -> None:
    (tmp_path / "zmq.py").write_text(SLOW)
    os.mkfifo(tmp_path / "seen")
    with on_terminal("-n", "2", "true", PYTHONPATH=str(tmp_path), SEEN=str(tmp_path / "seen")) as job:
        open(tmp_path / "seen").close()
        job.type("\x03")
        assert job.end() == 130
    assert job.data.replace(b"^C", b"") == b"ringcast-launch: ended by SIGINT\r\n"


def test_ctrl_c_while_the_ranks_are_imported_prints_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SLOW)
    os.mkfifo(tmp_path / "seen")
    with on_terminal("-n", "1", str(tmp_path / "program.py"), SEEN=str(tmp_path / "seen")) as job:
        open(tmp_path / "seen").close()
        job.type("\x03")
        assert job.end() == 130
    told = job.data.replace(b"^C", b"").decode()
    assert told.endswith("ringcast-launch: ended by SIGINT\r\n")
    assert "ringcast_launcher" not in told  # no traceback of the launcher, however late this was
