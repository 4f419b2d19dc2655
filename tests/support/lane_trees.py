"""Copies of ringcast and its tests whose compiled lane is another one, and the lane's tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.patience import patience
from support.places import ROOT

PARTS = ("ringcast", "launcher", "tests")
HERE = (sys.executable,)


def build(tree: Path, **variables: str) -> None:
    """Copy this checkout into `tree`, and compile the lane there by these variables of `hatch_build.py`."""
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in "hatch_build.py", "pyproject.toml":
        shutil.copy(ROOT / name, tree)
    said = run(tree, HERE, "hatch_build.py", **variables)
    assert not said, said


def run(tree: Path, python: Sequence[str], *words: str, **variables: str) -> str:
    """Return the output of a Python in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), **variables}
    command, output = [*python, *words], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=tree, env=environment, **output, text=True, timeout=patience(600))
    assert done.returncode == 0, f"code {done.returncode}\n{done.stdout}"
    return done.stdout


def run_tests(tree: Path, python: Sequence[str], *words: str, **variables: str) -> str:
    """Return the output of the lane's tests in a tree, but for the long ones."""
    tests = sorted(str(path.relative_to(tree)) for path in (tree / "tests" / "protocol").glob("test_lane*.py"))
    return run(tree, python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long", *words, *tests, **variables)
