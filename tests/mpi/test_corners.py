"""Calls of MPI with nothing to move give the same in all their forms; MPICH is the oracle in test_against_mpich.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

PROGRAM = Path(__file__).parents[1] / "support/programs/mpi_corners.py"
LIMIT = 60.0  # seconds; the job takes a few
REFUSED = ("one", "ones", "no count", "no counts")  # with elements, or a number of them, of the null datatype
pytestmark = pytest.mark.live


@pytest.mark.parametrize("p", [1, 2, pytest.param(3, marks=pytest.mark.smoke), 5])
def test_calls_with_nothing_to_move_succeed_in_all_forms(p: int) -> None:
    launch = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--as-mpi4py", "--output", "none"]
    command = [*launch, sys.executable, str(PROGRAM), "all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(LIMIT), check=False)
    assert done.returncode == 0, done.stderr
    for outcomes in json.loads(done.stdout):
        for key, outcome in outcomes.items():
            name, _, form = key.rpartition(" ")
            assert outcome == outcomes.get(f"{name} ", outcome), (name, form)
            if not name.removesuffix(" to nobody").endswith(REFUSED):
                assert outcome.startswith("ok"), name
