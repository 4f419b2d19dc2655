"""`ringcast-launch --profile`: jobs that end well, that fail, on several hosts, and the program of the examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringcast.wire.flight import PROFILE
from ringcast_launcher.run.profile import parts_in
from support.fleets import Fleet
from support.patience import of_patient_launcher, patience
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")

SLOW = """
import sys, time
import numpy as np, ringcast
comm = ringcast.init(); comm.barrier()  # ranks start at different times
for _ in range(20):
    if comm.rank == int(sys.argv[1]):
        time.sleep(float(sys.argv[2]))
    comm.allreduce(np.ones(10))
"""
KILLED = """
import os, signal, time
import numpy as np, ringcast
comm = ringcast.init()
end = time.monotonic() + 2
while time.monotonic() < end or comm.rank != 1:
    comm.allreduce(np.ones(10))
os.kill(os.getpid(), signal.SIGKILL)
"""
APART = """
import sys, time
import numpy as np, ringcast
comm = ringcast.init()
for _ in range(20):
    comm.barrier()  # else messages that wait make up for the sleep of a rank that is slow to start
    if comm.rank == 0:
        time.sleep(float(sys.argv[2]))
        comm.bcast(np.ones(10)) if sys.argv[1] == "bcast" else comm.send(1, 1)
    else:
        comm.bcast(None) if sys.argv[1] == "bcast" else comm.recv(0)
"""
ONCE = """
import os, signal
from pathlib import Path
import ringcast
comm = ringcast.init()
if comm.rank == 1 and not Path("restarted").exists():
    Path("restarted").touch()
    os.kill(os.getpid(), signal.SIGKILL)
comm.barrier()
"""


EARLY = """
import os, signal
import ringcast
comm = ringcast.init()
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
comm.barrier()
"""


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringcast_launcher", *arguments]
    environment = {**os.environ, **of_patient_launcher(), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience(100))


def profile(folder: Path) -> Any:
    return json.loads((folder / "p.json").read_text())


@pytest.mark.parametrize("rank", [0, 2])
def test_the_rank_and_the_line_to_blame_are_named(tmp_path: Path, rank: int) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    done = launch(tmp_path, "-n", "3", "--profile", "p.json", "slow.py", str(rank), str(patience(0.01)))
    assert done.returncode == 0, done.stderr
    said = rf"^ringcast-launch: the profile is in .*/p\.json: .*\bRank {rank} is late in "
    assert re.search(said, done.stderr, re.MULTILINE)
    assert "of allreduce at slow.py:8: others wait" in done.stderr
    assert profile(tmp_path)["ranks"][rank]["blamed"] > 0.3


@pytest.mark.parametrize("call", ["bcast", "recv"])
def test_a_rank_is_to_blame_for_what_it_does_before_another_line(tmp_path: Path, call: str) -> None:
    (tmp_path / "apart.py").write_text(APART)
    done = launch(tmp_path, "-n", "2", "--profile", "p.json", "apart.py", call, str(patience(0.05)))
    assert done.returncode == 0, done.stderr
    found = [one["text"] for one in profile(tmp_path)["advice"] if one["rule"] == "imbalance"]
    often = {"bcast": r"in \d+ of 20 calls of bcast", "recv": r"for \d+ of its 20 messages of recv"}[call]
    assert any(re.match(rf"Rank 0 is late {often} at apart.py:11: ", text) for text in found)


def test_a_profile_on_the_terminal_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    done = launch(tmp_path, "-n", "2", "--profile", "-", "slow.py", "1", str(patience(0.01)))
    assert done.returncode == 0
    assert "allreduce at slow.py:8" in done.stderr
    assert os.listdir(tmp_path) == ["slow.py"]


@pytest.mark.live
def test_a_page_is_written_for_the_example(tmp_path: Path) -> None:
    done = launch(tmp_path, "-n", "4", "--profile", "report.html", str(ROOT / "examples/jacobi.py"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "jacobi.py" in page
    assert "<script src" not in page


def test_a_job_that_fails_has_a_profile_with_the_failure(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    done = launch(tmp_path, "-n", "3", "--profile", "p.json", "killed.py")
    assert done.returncode == 137
    report = profile(tmp_path)
    assert "rank 1" in report["failure"]
    assert "SIGKILL" in report["failure"]
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert "The last seconds of rank 1 are missing" in " ".join(report["notes"])
    assert report["ranks"][1]["error"] == "killed by SIGKILL"
    assert "the profile is in" in done.stderr


def test_a_job_that_was_restarted_has_a_profile_of_its_last_attempt(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    done = launch(tmp_path, "-n", "2", "--on-failure", "restart", "--profile", "p.json", "once.py")
    assert done.returncode == 0, done.stderr
    assert profile(tmp_path)["failure"] == ""
    assert "this is restart 1 of the job: the attempt before it is left out" in profile(tmp_path)["notes"]


def test_a_rank_that_was_killed_at_once_is_named_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    done = launch(tmp_path, "-n", "2", "--profile", "-", "once.py")
    assert done.returncode == 137
    assert "Nothing is known of rank 1." in done.stderr
    assert "failed: killed by SIGKILL" in done.stderr


def test_a_rank_that_was_killed_after_its_first_call_has_a_part(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    done = launch(tmp_path, "-n", "2", "--profile", "p.json", "early.py")
    assert done.returncode == 137
    report = profile(tmp_path)
    assert (report["missing"], report["ranks"][1]["calls"]) == ([], 1)


def test_a_job_without_a_rank_says_so(tmp_path: Path) -> None:
    done = launch(tmp_path, "-n", "2", "--profile", "p.json", "true")
    assert done.returncode == 0
    assert "there is no profile: no rank has called ringcast.init" in done.stderr


@pytest.mark.live
def test_parts_come_from_other_hosts(hosts: Fleet) -> None:
    file = hosts.folder / "p.json"
    done = hosts.launch("-H", "h0,h1", "--profile", str(file), hosts.program(SLOW), "1", str(patience(0.01)))
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert [host["ranks"] for host in report["hosts"]] == [[0], [1]]
    assert report["sites"][0]["blame"][0][0] == 1


def test_a_part_that_is_not_whole_is_missing(tmp_path: Path) -> None:
    good = {"rank": 1}
    (tmp_path / PROFILE.format(rank=0)).write_text('{"rank": 0')
    (tmp_path / PROFILE.format(rank=1)).write_text(json.dumps(good))
    (tmp_path / PROFILE.format(rank=2)).write_bytes(b"\xff")
    assert list(parts_in(str(tmp_path), 4)) == [good]


@pytest.mark.live
@pytest.mark.parametrize("slow", [0, 2])
def test_the_line_and_the_rank_are_named_when_one_rank_of_the_example_is_slow(slow: int, tmp_path: Path) -> None:
    loop = "        for step in range(1, steps + 1):\n"
    text = (ROOT / "examples/jacobi.py").read_text()
    assert text.count(loop) == 1
    sleep = f"            __import__('time').sleep({patience(0.01)} * (self.grid.comm.rank == {slow}))\n"
    (tmp_path / "jacobi.py").write_text(text.replace(loop, loop + sleep))
    done = launch(tmp_path, "-n", "4", "--profile", "report.html", "jacobi.py")
    assert done.returncode == 0, done.stderr
    receives = next(n for n, line in enumerate(text.splitlines(), 2) if "comm.irecv(" in line)
    named = rf"Rank {slow} is late for \d+ of its \d+ messages of irecv at jacobi.py:{receives}"
    assert re.search(named, (tmp_path / "report.html").read_text())
