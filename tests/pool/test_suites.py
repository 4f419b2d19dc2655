"""Tests of others, on a pool: mpi4py's of its executors, and joblib's of its backends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import needs
from support.places import ROOT


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", ["joblib", "mpi4py"])
def test_suites_of_others(suite: str) -> None:
    needs.package("joblib")
    command = [sys.executable, str(ROOT / "docs/scripts/pool_suites.py"), suite]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
