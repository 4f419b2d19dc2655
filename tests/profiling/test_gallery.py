"""Programs of the gallery: the advice names the fault of each, and not where it is mended.

In `slow_rank.py` the fault is time of a processor, which other programs here take away as they like: a rank that sleeps
stands for it in `test_profiled_jobs.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.patience import patience
from support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

PROGRAMS = ROOT / "docs/scripts/profile_gallery"
FAULTS = {  # the rule that finds it, and the collective whose call is to blame
    "small_calls": ("small calls", "allreduce"),
    "objects": ("objects", "allgather"),
    "root": ("root", "gather"),
}


def profile(folder: Path, program: str, *arguments: str) -> Any:
    file = folder / "p.json"
    command = [sys.executable, "-m", "ringcast_launcher", "-q", "-n", "3", "--profile", str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(PROGRAMS / f"{program}.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("program", FAULTS)
def test_the_fault_is_named_and_its_mending_is_silent(program: str, tmp_path: Path) -> None:
    rule, call = FAULTS[program]
    report = profile(tmp_path, program)
    found = [one for one in report["advice"] if one["rule"] == rule]
    assert [report["sites"][one["site"]]["name"] for one in found] == [call], report["advice"]
    assert rule not in [one["rule"] for one in profile(tmp_path, program, "--mended")["advice"]]
