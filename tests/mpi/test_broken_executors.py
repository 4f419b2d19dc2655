"""Executors whose ranks cannot be prepared, or whose tasks cannot travel: every future gets an error that says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = pytest.mark.live
LIMIT = 120.0  # seconds; a job takes a few
LAUNCH = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "--output", "none", "--as-mpi4py"]
TESTS = str(Path(__file__).parents[1])
PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
from concurrent.futures import BrokenExecutor
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor
from ringcast.wire.error_text import in_a_line
from support.hostile import ERRORS, Hostile
ready = False
class NoLicence(Exception):
    def __init__(self, server, code):
        super().__init__(server)
def unread():
    raise NoLicence("host", 7)
def hostile(name):
    raise ERRORS[name]()
def connect(*_):
    global ready
    ready = True
    return lambda: open
def task(number):
    return ready
def outcomes(**options):
    with {made} as executor:
        return None if executor is None else [outcome(executor, number) for number in range(6)]
def outcome(executor, number):
    try:
        return executor.submit(task, number).result(timeout=60)
    except BaseException as error:
        return type(error).__name__, str(error)
def give(name):
    return ERRORS[name]()
def taken(function, *args, **options):
    with {made} as executor:
        if executor is not None:
            try:
                return str(executor.submit(function, *args).result(timeout=60))
            except BaseException as error:
                return in_a_line(error)
if __name__ == "__main__":
    cases = {cases}
    found = {{name: outcomes(**options) for name, options in cases.items()}}
    tasks = {{name: taken(hostile, name) for name in ERRORS}}
    others = [taken(*call) for call in ((task, Hostile()), (Hostile,), (connect,), (lambda: 1,), (unread,))]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps([found, tasks, others]))
"""
CASES = """{
    "unread": {"initializer": unread},
    "lambda": {"initializer": lambda: None},
    "arguments": {"initializer": connect, "initargs": (lambda: None,)},
    "hostile argument": {"initializer": connect, "initargs": (Hostile(),)},
    "variables": {"globals": {"variable": lambda: None}},
    "returns": {"initializer": connect},
    **{name: {"initializer": hostile, "initargs": (name,)} for name in ERRORS},
}"""
WAYS = {
    "pool": ("MPIPoolExecutor(**options)", ["-m", "mpi4py.futures"]),
    "communicator": ("MPICommExecutor(MPI.COMM_WORLD, 0, **options)", []),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_task_runs_on_a_rank_that_was_not_initialised_and_every_future_ends(way: str, tmp_path: Path) -> None:
    made, options = WAYS[way]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=TESTS, made=made, cases=CASES))
    done = subprocess.run(
        [*LAUNCH, *options, str(program)], capture_output=True, text=True, timeout=patience(LIMIT), check=False
    )
    assert done.returncode == 0, done.stderr
    found, tasks, others = json.loads(done.stdout)
    for name, line in tasks.items():
        assert name.split()[0] in line, (name, line)
    assert all(":" in line for line in others), others
    assert found.pop("returns") == [True] * 6
    assert len(found) > 20
    for name, outcomes in found.items():
        assert [kind for kind, _ in outcomes] == ["BrokenExecutor"] * 6, name
        assert len({text for _, text in outcomes}) == 1, (name, outcomes)  # that of the rank which failed first
    shown = {name: name.split()[0] for name in found if name[0].isupper()} | {"unread": "NoLicence: host"}
    for name, error in shown.items():
        assert all(text.startswith("the initializer failed on rank ") for _, text in found[name]), name
        assert all(error in text for _, text in found[name]), name
