"""`--version` says which build is installed, and the compiled one has all modules that are to be compiled."""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

import pytest

from ringcast.control import version
from ringcast.protocol import machine
from support.places import ROOT


@pytest.mark.parametrize(("module", "name"), [("ringcast", "ringcast"), ("ringcast_launcher", "ringcast-launch")])
def test_the_version_says_which_build_it_is(module: str, name: str) -> None:
    words = "pure Python" if machine.__file__.endswith(".py") else "compiled"
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} {version()}, {words}\n"


def test_all_modules_that_are_to_be_compiled_are_of_the_same_build() -> None:
    modules = runpy.run_path(str(ROOT / "hatch_build.py"))["COMPILED"]
    found = {module: find_spec(f"ringcast.{module.replace('/', '.')}") for module in modules}
    compiled = {module: str(spec and spec.origin).endswith(tuple(EXTENSION_SUFFIXES)) for module, spec in found.items()}
    assert "protocol/machine" in compiled
    assert len(set(compiled.values())) == 1, compiled
