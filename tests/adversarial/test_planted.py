"""Other users of the machine: what they plant in directories that they can write to is neither run nor written through.

The directories in which they do so are those where a program is started, or leaves its files: /tmp is such a one.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ringcast
import ringcast_launcher
from ringcast.bootstrap import rendezvous
from ringcast.config import cluster
from ringcast.config.worker import WorkerConfig, from_environment
from ringcast.errors import ConfigError
from support import needs
from support.fleets import QUIET
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

SOMEBODY = 65534  # a user that is not us
# Modules of ours, of Python and of others, each of which would tell that it was run.
PLANTED = "ringcast", "ringcast_launcher", "numpy", "zmq", "cloudpickle", "json", "pickle", "msgpack", "helper", "runpy"
SCRIPT = """
import sys
import helper
import ringcast
assert ringcast.run(helper.work, 2) == [1, 1]
assert ringcast.run(lambda comm: (comm.rank, helper.work(comm), sys.path), 1) == [(0, 0, sys.path)]
"""
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "1"}
RANK = "import ringcast; comm = ringcast.init(); print(comm.rank, comm.allreduce(1), flush=True)"


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:  # where another user can come, too
        yield Path(name)


def environment(**own: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RINGCAST_", "SLURM_"))}
    return {**ours, **QUIET, **own}


def plant(folder: Path, sign: Path) -> None:
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(sign)!r}, 'a').write({name!r})\n")


OF_THE_USER = "worker_argv"  # makes the command of a program as Python itself would run it


def interpreters(tree: ast.AST) -> Iterator[list[str]]:
    """Yield the options of each command of an interpreter in a source, up to its -m or -c."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == OF_THE_USER)
    others = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.List) and node not in others:
            words = [each.value if isinstance(each, ast.Constant) else "" for each in node.elts]
            at = next((at for at, word in enumerate(words) if word in ("-m", "-c")), 0)
            if at and words[0] != "sh":
                yield words[:at]


def test_every_interpreter_that_we_start_has_the_working_directory_off_its_path() -> None:
    sources = [path for root in (ringcast, ringcast_launcher) for path in Path(root.__path__[0]).rglob("*.py")]
    found = {path: list(interpreters(ast.parse(path.read_text()))) for path in sources}
    assert sum(map(len, found.values())) > 10
    assert not [path for path in sources if any({"-P", "-I"}.isdisjoint(options) for options in found[path])]


@pytest.mark.live
@pytest.mark.parametrize("how", ["script", "module"])
def test_run_executes_nothing_that_lies_in_the_working_directory(short: Path, how: str) -> None:
    plant(short / "planted", short / "run")
    (short / "own").mkdir()
    (short / "own" / "helper.py").write_text("def work(comm):\n    return comm.allreduce(comm.rank)\n")
    (short / "own" / "script.py").write_text(SCRIPT)
    command = [str(short / "own" / "script.py")] if how == "script" else ["-P", "-m", "script"]
    own = {} if how == "script" else {"PYTHONPATH": str(short / "own")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=short / "planted",
        env=environment(**own),
        capture_output=True,
        text=True,
        timeout=patience(100),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (short / "run").exists(), (short / "run").read_text()


def test_who_has_the_working_directory_on_its_path_can_use_functions_from_there(short: Path) -> None:
    (short / "helper.py").write_text("def work(comm):\n    return comm.allreduce(comm.rank)\n")
    command = [sys.executable, "-c", "import helper, ringcast; print(ringcast.run(helper.work, 2))"]
    done = subprocess.run(command, cwd=short, env=environment(), capture_output=True, text=True, timeout=patience(100))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 1]\n", "")


@pytest.mark.live
@pytest.mark.parametrize("option", ["--json-report", "--flight-recorder"])
@pytest.mark.parametrize("there", [True, False])
def test_files_of_the_launcher_are_not_written_through_a_link(short: Path, option: str, there: bool) -> None:
    victim, file = short / "victim", short / "file"
    if there:
        victim.write_text("kept")
    file.symlink_to(victim)
    program = "import ringcast; comm = ringcast.init(); comm.barrier(); raise SystemExit(3)"
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", option, str(file), "python", "-c", program]
    done = subprocess.run(
        command, env=environment(TMPDIR=str(short)), capture_output=True, text=True, timeout=patience(100)
    )
    assert done.returncode == 3, done.stderr
    assert not file.is_symlink()
    assert file.stat().st_size > 100
    assert victim.exists() is there
    if there:
        assert victim.read_text() == "kept"


@pytest.mark.parametrize("name", ["/dev/stdout", "pipe"])
def test_a_report_still_goes_into_a_pipe(short: Path, name: str) -> None:
    os.mkfifo(short / "pipe")
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "1", "--json-report", name, "true"]
    pipe = subprocess.PIPE
    launcher = subprocess.Popen(command, cwd=short, env=environment(TMPDIR=str(short)), stdout=pipe, text=True)
    told = (short / "pipe").read_text() if name == "pipe" else ""
    said = launcher.communicate(timeout=patience(100))[0]
    assert json.loads(told or said)["exit_code"] == launcher.returncode == 0


def squat(path: str, mode: int = 0o700) -> None:
    """Let another user make a directory."""
    make = [sys.executable, "-c", f"import os; os.setuid({SOMEBODY}); os.mkdir({path!r}, {mode})"]
    subprocess.run(make, check=True, timeout=patience(60))


@pytest.mark.live
@pytest.mark.parametrize("taken", [1, 3])
def test_ranks_meet_elsewhere_if_another_user_has_taken_their_directory(short: Path, taken: int) -> None:
    needs.root()
    short.chmod(0o1777)
    own = environment(**STEP, TMPDIR=str(short), HOME=str(short))
    named = from_environment({**own, "SLURM_PROCID": "0"}).directory
    for number in range(taken):
        squat(f"{named}-{number}" if number else named, (0o700, 0o777)[number % 2])
    command = [sys.executable, "-c", RANK]
    start = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, env={**own, "SLURM_PROCID": str(rank)}, **start) for rank in range(3)]
    said = [rank.communicate(timeout=patience(100)) for rank in ranks]
    assert said == [(f"{rank} 3\n", "") for rank in range(3)]


def meet(short: Path) -> WorkerConfig:
    config = WorkerConfig(1, 2, f"ipc://{short}/job/control", directory=f"{short}/job", temporary=True)
    with rendezvous.rendezvous(config) as met:
        return met.config


def test_all_names_that_others_left_are_tried_and_then_there_is_advice(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.root()
    short.chmod(0o1777)
    monkeypatch.setattr(cluster, "NAMES", 3)
    squat(f"{short}/job")
    (short / "somewhere").mkdir()
    (short / "job-1").symlink_to(short / "somewhere")
    os.lchown(short / "job-1", SOMEBODY, SOMEBODY)
    assert meet(short) == replace(
        meet(short), directory=f"{short}/job-2", control=f"ipc://{short}/job-2/control", temporary=True
    )
    os.rmdir(short / "job-2")
    squat(f"{short}/job-2")
    with pytest.raises(ConfigError, match=r"the 2 names that are tried after it .*export RINGCAST_DIR=\$\(mktemp -d\)"):
        meet(short)


def test_what_is_ours_and_not_private_is_still_an_error(short: Path) -> None:
    (short / "job").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="remove it, or chmod 700"):
        meet(short)
