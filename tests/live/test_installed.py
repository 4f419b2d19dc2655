"""The wheel, installed: all of it works without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ringcast.version import __version__
from support.patience import patience
from support.places import ROOT

pytestmark = pytest.mark.live

SOURCES = {"ringcast": ROOT / "ringcast", "ringcast_launcher": ROOT / "launcher" / "ringcast_launcher"}


def run(*argv: str | Path, cwd: Path) -> str:
    """Return the standard output of a program that inherits no variable of Python's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment with the wheel, which takes what the wheel depends on from this environment."""
    at = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", at, ROOT, cwd=at)
    run(sys.executable, "-m", "venv", "--without-pip", at / "venv", cwd=at)
    scripts = at / "venv" / "bin"
    run(*pip, "--python", scripts / "python", "install", "--no-deps", "--no-index", *at.glob("*.whl"), cwd=at)
    # Python does not read the .pth files of a directory that a .pth file names, so the source tree stays unknown.
    packages = sysconfig.get_path("purelib", vars={"base": str(at / "venv")})
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return scripts


@pytest.mark.parametrize("name", SOURCES)
def test_every_file_of_a_package_is_installed(scripts: Path, name: str, tmp_path: Path) -> None:
    installed = Path(run(scripts / "python", "-c", f"import {name}; print(*{name}.__path__)", cwd=tmp_path).strip())
    assert installed.is_relative_to(scripts.parent)
    assert files_of(installed) == files_of(SOURCES[name])


def files_of(package: Path) -> set[Path]:
    return {path.relative_to(package) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_a_job_runs(scripts: Path, tmp_path: Path) -> None:
    program = "import ringcast; comm = ringcast.init(); print(comm.allreduce(comm.rank + 1), ringcast.__version__)"
    output = run(scripts / "ringcast-launch", "-n", "2", scripts / "python", "-c", program, cwd=tmp_path)
    assert sorted(output.splitlines()) == [f"[0] 3 {__version__}", f"[1] 3 {__version__}"]


def test_commands_run(scripts: Path, tmp_path: Path) -> None:
    assert f"ringcast         {__version__} " in run(scripts / "ringcast", "doctor", cwd=tmp_path)
    assert "bcast by " in run(scripts / "ringcast", "explain", "bcast", "-n", "5", cwd=tmp_path)
