"""Wheels and editable installations with the compiled part and without, each in an environment of its own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support import needs
from support.patience import patience
from support.places import ROOT

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OWN = ["--no-deps", "--no-index", "--no-build-isolation"]  # what ringcast and its build need is in this environment
NOTICE = "ringcast is installed without its compiled part, so small messages within a host take longer: "
PROGRAM = """
import ringcast
from ringcast.protocol.compiled import build

comm = ringcast.init()
for _ in range(3):
    total = comm.allreduce(comm.rank + 1.0)
print(total, build())
"""
NOT_INSTALLED = "pure Python (the compiled part is not installed)"


def run(*argv: str | Path, cwd: Path, **variables: str) -> str:
    """Return the output of a program that inherits no variable of Python's, of ringcast's or of a compiler's."""
    others = "PYTHON", "RINGCAST_", "CC", "CFLAGS", "LDFLAGS"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)} | variables
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The scripts of an empty environment, which takes other packages from this one."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    # Python does not read the .pth files of a directory that a .pth file names, so this source tree stays unknown.
    packages = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")})
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return tmp_path / "venv" / "bin"


@pytest.fixture
def job(scripts: Path, tmp_path: Path) -> Callable[..., set[str]]:
    """Runs two ranks, and returns the builds that they say they are of."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run_job(*prefix: str, **variables: str) -> set[str]:
        command = [*prefix, str(scripts / "python"), "-c", PROGRAM]
        output = run(scripts / "ringcast-launch", "-n", "2", *command, cwd=elsewhere, **variables)
        lines = [line.partition(" 3.0 ") for line in output.splitlines() if line.startswith("[")]
        assert sorted(rank for rank, _, _ in lines) == ["[0]", "[1]"], output
        return {build for _, _, build in lines}

    return run_job


@pytest.mark.parametrize(
    ("variables", "tag", "build", "notice"),
    [
        ({}, "cp311-abi3-linux_", "compiled", None),
        ({"CC": "/bin/false"}, "py3-none-any", NOT_INSTALLED, "/bin/false failed, with code 1"),
        ({"CC": "/no/compiler"}, "py3-none-any", NOT_INSTALLED, "/no/compiler: No such file or directory"),
        ({"CFLAGS": "-include missing.h"}, "py3-none-any", NOT_INSTALLED, "/cc failed, with code 1: "),
        ({"PATH": "/no/programs"}, "py3-none-any", NOT_INSTALLED, "there is no C compiler; install gcc"),
        ({"RINGCAST_PURE": "1"}, "py3-none-any", NOT_INSTALLED, None),
    ],
    ids=["cc", "failing", "missing", "errors", "none", "pure"],
)
def test_a_wheel_has_the_compiled_part_where_it_can_be_made(
    variables: dict[str, str], tag: str, build: str, notice: str | None, scripts: Path, job: Callable[..., set[str]],
    tmp_path: Path,
) -> None:  # fmt: skip
    needs.compiler()
    said = run(*PIP, "wheel", "-v", *OWN, "--wheel-dir", tmp_path, ROOT, cwd=tmp_path, **variables)
    assert (notice is None) == (NOTICE not in said)
    assert notice is None or notice in said.partition(NOTICE)[2].splitlines()[0]
    (wheel,) = tmp_path.glob("*.whl")
    assert tag in wheel.name
    run(*PIP, "--python", scripts / "python", "install", *OWN[:2], wheel, cwd=tmp_path)
    assert job() == {build}


@pytest.mark.parametrize(
    ("each", "kinds"),
    [
        ("", {"Lane compiled"}),
        ("RINGCAST_PURE=1", {"PythonLane pure Python (RINGCAST_PURE=1)"}),
        ("RINGCAST_DIRECT=0", {"NoneType not predicted (RINGCAST_DIRECT=0)"}),
        ("RINGCAST_PURE=$RINGCAST_RANK", {"Lane compiled", "PythonLane pure Python (RINGCAST_PURE=1)"}),
        ("RINGCAST_DIRECT=$RINGCAST_RANK", {"Lane compiled", "NoneType not predicted (RINGCAST_DIRECT=0)"}),
    ],
)
def test_a_rank_says_how_it_sends_small_messages(each: str, kinds: set[str], tmp_path: Path) -> None:
    needs.compiler()
    program = (
        "import ringcast\ncomm = ringcast.init()\nassert [comm.allreduce(comm.rank) for _ in range(3)] == [1] * 3\n"
    )
    program += "print('lane', type(comm._group.endpoint.protocol._lane).__name__)"
    rank = ["/bin/sh", "-c", f'{each} exec "$@"', "sh", sys.executable, "-c", program]
    output = run(sys.executable, "-P", "-m", "ringcast_launcher", "-v", "-n", "2", *rank, cwd=tmp_path)
    lanes = dict(re.findall(r"^\[(\d)\] lane (\w+)$", output, re.MULTILINE))
    said = dict(re.findall(r"rank (\d) joined: .*; small messages: (.*)$", output, re.MULTILINE))
    assert {f"{lanes[number]} {said[number]}" for number in "01"} == kinds


def test_an_editable_installation_has_it_beside_the_source(
    scripts: Path, job: Callable[..., set[str]], tmp_path: Path
) -> None:
    needs.compiler()
    (archive,) = made(tmp_path)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.glob("ringcast-*/")
    build = runpy.run_path(str(tree / "hatch_build.py"))
    assert not (tree / build["MODULE"]).exists()
    install = [*PIP, "--python", scripts / "python", "install", *OWN, "-e", tree]
    run(*install, cwd=tmp_path)
    assert job() == {"compiled"}
    with open(tree / build["SOURCE"], "a") as source:
        source.write("/* changed */\n")
    (stale,) = job()
    assert stale.startswith("pure Python (the compiled part is older than its source")
    assert run(scripts / "python", "hatch_build.py", cwd=tree) == ""
    assert job() == {"compiled"}
    run(*install, cwd=tmp_path, RINGCAST_PURE="1")
    assert job() == {NOT_INSTALLED}


def made(place: Path) -> list[Path]:
    """Return the source distribution, made in `place`."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", place, cwd=ROOT)
    return [*place.glob("*.tar.gz")]


@pytest.mark.long
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    """For aarch64 `tests/protocol/test_lane_emulated.py` compiles it so, by the headers of that."""
    needs.compiler()
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    include = ["-I", sysconfig.get_path("include"), "-DSOURCE=1", "-Wall", "-Wextra", "-Werror"]
    run("cc", *build["FLAGS"], *include, ROOT / build["SOURCE"], "-o", tmp_path / "module.so", cwd=tmp_path)
