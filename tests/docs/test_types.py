"""A type checker knows what calls return: mypy and pyright, both strict, accept the programs of docs and examples.

The python blocks of a page are one program, as they are for `test_readme.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.test_readme import BLOCKS, FILE, PAGES, path_of
from support.places import EXAMPLES, ROOT

pytestmark = pytest.mark.live  # the type checkers take half a minute

STUBS = [f"ringcast.{room}.{form}" for room in ("communicator", "topology") for form in ("nonblocking", "persistent")]
OTHERS = re.compile(r"^ *(from|import) (mpi4py|ray|torch|joblib|lightgbm|xgboost|parallel)\b", re.MULTILINE)
TYPED_CALLS = ROOT / "tests/communicator/typed_calls.py"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with all programs; on line n of one is line n of its page.

    Those for mpi4py, Ray, torch and joblib are left out: the types there are those of these libraries.
    """
    folder = tmp_path_factory.mktemp("programs")
    for page in PAGES:
        lines = [""] * page.read_text().count("\n")
        name = re.sub(r"\W", "_", path_of(page))
        for block in BLOCKS:
            if block.page != page or block.language != "python":
                continue
            if file := FILE.match(block.text):
                (folder / f"{name}_{file[1]}").write_text(block.text)
            else:
                lines[block.line - 1 : block.line - 1 + block.text.count("\n")] = block.text.splitlines()
        if any(lines):
            (folder / f"{name}.py").write_text("\n".join(lines) + "\n")
    for file_ in (TYPED_CALLS, *EXAMPLES.glob("*.py")):
        (folder / file_.name).write_text(file_.read_text())
    for path in folder.glob("*.py"):
        if OTHERS.search(path.read_text()):
            path.unlink()
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    return folder


def check(folder: Path, checker: str, *arguments: str) -> None:
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_all_programs(programs: Path) -> None:
    check(programs, "mypy", "--strict", "--allow-redefinition", *(str(path) for path in programs.glob("*.py")))


def test_the_stubs_of_forms_are_as_the_forms() -> None:
    check(ROOT, "mypy.stubtest", "--mypy-config-file", "pyproject.toml", "--ignore-disjoint-bases", *STUBS)


def test_pyright_accepts_all_programs(programs: Path) -> None:
    check(programs, "pyright", "--pythonpath", sys.executable)
