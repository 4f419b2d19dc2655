"""The tests of the compiled lane, on one that sanitizers watch: of addresses and undefined behaviour, and of threads.

Python itself is as it is: they see what the lane does, and locks, threads and memory of the whole process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs
from support.patience import patience
from support.places import ROOT

pytestmark = [needs.shared_memory, pytest.mark.long]

PARTS = ("ringcast", "launcher", "tests")
FLAGS = {
    "address": "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all",
    "thread": "-O1 -g -fsanitize=thread -Wno-tsan",  # which warns that it does not know fences
}
LIBRARIES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
OPTIONS = {
    "PYTHONMALLOC": "malloc",  # else Python's own pools hide what lies beyond an object
    "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves objects at its end
    "TSAN_OPTIONS": "exitcode=66",
}


def run(tree: Path, *words: str, **variables: str) -> str:
    """Return the output of Python in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), **variables}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, timeout=patience(600)
    )
    assert done.returncode == 0, f"code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_a_sanitizer_finds_nothing(sanitizer: str, tmp_path: Path) -> None:
    needs.compiler()
    found = [needs.runtime(name) for name in LIBRARIES[sanitizer]]
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in "hatch_build.py", "pyproject.toml":
        shutil.copy(ROOT / name, tmp_path)
    run(tmp_path, "hatch_build.py", CFLAGS=FLAGS[sanitizer])
    watched = {**OPTIONS, "LD_PRELOAD": ":".join(found)}
    where = run(tmp_path, "-c", "from ringcast.protocol import _lane; print(_lane.__file__)", **watched)
    assert Path(where.strip()).parent == tmp_path / "ringcast" / "protocol"
    tests = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "tests" / "protocol").glob("test_lane*.py"))
    run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long", "-k", "compiled", *tests, **watched)
