"""`ringcast.progress`, on real terminals and elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringcast
from support.patience import patience
from support.terminals import LAUNCH, LIMIT, on_terminal

pytestmark = pytest.mark.usefixtures("nothing_left")

PROGRAM = """
import sys
import ringcast
comm = ringcast.init()
for i in ringcast.progress(range(8), description="steps"):
    comm.barrier()
    if i == 3:
        print("half", flush=True)
print("done")
"""
BAR = r"steps [ ━╸╺]+ {percent}% \S+"


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


@pytest.mark.live
def test_rank_0_draws_on_the_terminal_of_the_launcher(program: str) -> None:
    with on_terminal("-n", "2", program) as job:
        assert job.end() == 0
    (bar,) = [line for line in job.lines if "steps" in line]
    assert re.fullmatch(r"\[0\] " + BAR.format(percent=100), bar), bar
    others = [line for line in job.lines if "steps" not in line]
    assert sorted(others) == ["", "[0] done", "[0] half", "[1] done", "[1] half"]


@pytest.mark.live
def test_a_loop_that_takes_longer_is_seen_to_move(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys, time, ringcast\nfrom pathlib import Path\n"
        "for i in ringcast.progress(range(2), description='steps'):\n"
        "    while not Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    )
    with on_terminal("-n", "1", str(tmp_path / "program.py"), str(tmp_path / "go")) as job:
        job.wait_for(r"\r\x1b\[K\[0\] " + BAR.format(percent="0"))
        (tmp_path / "go").touch()
        assert job.end() == 0
    assert re.fullmatch(r"\[0\] " + BAR.format(percent=100), job.lines[0])


@pytest.mark.live
@pytest.mark.parametrize("how", ["pipe", "CI"])
def test_elsewhere_nothing_is_drawn(program: str, how: str) -> None:
    if how == "CI":
        with on_terminal("-n", "2", program, CI="1") as job:
            assert job.end() == 0
        told = job.data.replace(b"\r\n", b"\n").decode()
    else:
        done = subprocess.run([*LAUNCH, "-n", "2", program], capture_output=True, text=True, timeout=patience(LIMIT))
        assert not re.search("steps|\r|\x1b", done.stderr)
        told = done.stdout
    assert sorted(told.splitlines()) == ["[0] done", "[0] half", "[1] done", "[1] half"]


@pytest.mark.live
@pytest.mark.parametrize(
    ("end", "code", "told"),
    [("break", 0, ""), ("raise SystemExit('ended')", 1, "ended"), ("raise KeyError(i)", 1, "KeyError: 1")],
)
def test_a_bar_ends_with_the_loop(tmp_path: Path, end: str, code: int, told: str) -> None:
    program = f"import ringcast\nfor i in ringcast.progress(range(4), None, 'steps'):\n    if i == 1: {end}\n"
    (tmp_path / "program.py").write_text(program)
    with on_terminal("-n", "1", str(tmp_path / "program.py")) as job:
        assert job.end() == code
    assert [line for line in job.lines if re.fullmatch(r"\[0\] " + BAR.format(percent=25), line)]
    assert told in job.data.decode()


@pytest.mark.live
def test_a_program_started_alone_draws_on_its_own_terminal(program: str) -> None:
    with on_terminal(program, command=[sys.executable]) as job:
        assert job.end() == 0
    assert re.search(r"steps.*100%", job.data.decode())
    assert b"done\r\n" in job.data


def test_items_come_unchanged_on_ranks_that_are_threads(capfd: pytest.CaptureFixture[str]) -> None:
    def count(comm: ringcast.Communicator) -> list[int]:
        return list(ringcast.progress(iter(range(comm.rank, 3))))

    assert ringcast.run(count, 3, backend="threads") == [[0, 1, 2], [1, 2], [2]]
    assert capfd.readouterr() == ("", "")
