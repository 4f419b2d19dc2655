"""`--version` says whether the compiled part is used, and why not; a wrong one is not used, and breaks nothing."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringcast.control import version
from ringcast.protocol import compiled
from support import needs
from support.places import ROOT

PURE = os.environ.get("RINGCAST_PURE") == "1"


def said(module: str = "ringcast", path: Path | None = None, **variables: str) -> str:
    """Return what `--version` of a module prints, found in the directory `path`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")} | variables
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-m", module, "--version"]
    return subprocess.run(command, env=environment, cwd=path, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("module", "name"), [("ringcast", "ringcast"), ("ringcast_launcher", "ringcast-launch")])
def test_the_version_says_whether_the_compiled_part_is_used(module: str, name: str) -> None:
    variables = {"RINGCAST_PURE": "1"} if PURE else {}
    assert said(module, **variables) == f"{name} {version()}, {compiled.build()}\n"
    assert said(module, RINGCAST_PURE="1") == f"{name} {version()}, pure Python (RINGCAST_PURE=1)\n"


def test_tests_run_with_the_compiled_part() -> None:
    needs.compiler()
    assert compiled.build() == ("pure Python (RINGCAST_PURE=1)" if PURE else "compiled")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package without the compiled part."""
    shutil.copytree(ROOT / "ringcast", tmp_path / "ringcast", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def test_without_the_module_it_is_said(copy: Path) -> None:
    assert said(path=copy).endswith(", pure Python (the compiled part is not installed)\n")


def test_a_module_of_another_source_is_not_used(copy: Path) -> None:
    needs.compiler()
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    build["compile_module"](copy / build["SOURCE"], copy / build["MODULE"])
    assert said(path=copy).endswith(", compiled\n")
    with open(copy / build["SOURCE"], "a") as source:
        source.write("\n")
    assert "pure Python (the compiled part is older than its source: python hatch_build.py " in said(path=copy)
    (copy / build["SOURCE"]).unlink()  # as in an installation
    assert said(path=copy).endswith(", compiled\n")


def test_a_module_that_cannot_be_loaded_is_not_used(copy: Path) -> None:
    (copy / "ringcast/protocol/_lane.abi3.so").write_bytes(b"of another machine")
    assert "pure Python (the compiled part cannot be loaded: " in said(path=copy)


def test_both_know_the_same_platforms() -> None:
    platforms = runpy.run_path(str(ROOT / "hatch_build.py"))["PLATFORMS"]
    assert platforms == tuple(f"linux-{machine}" for machine in compiled.MACHINES)
