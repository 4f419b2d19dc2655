"""The examples are real programs: run as a user runs them, on one rank and on several."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.patience import patience
from support.places import EXAMPLES
from support.sources import check_table, write_tree
from support.store import store

pytestmark = pytest.mark.live


def run(*command: str, expect: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def launch(n: int, example: str, *arguments: str, expect: int = 0) -> str:
    launcher = (sys.executable, "-m", "ringcast_launcher", "-n", str(n), "--output", "none")
    return run(*launcher, str(EXAMPLES / example), *arguments, expect=expect)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path)
    return tmp_path


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_a_plate_is_that_of_one_process(n: int) -> None:
    for options in ((), ("--plain", "--points", "7")):
        text = launch(n, "jacobi.py", *options, "--steps", "100")
        assert text.startswith("100 steps on ")


@pytest.mark.parametrize("n", [1, 4])
def test_a_program_for_mpi4py_finds_the_same_plate_on_any_number_of_ranks(n: int) -> None:
    launcher = (sys.executable, "-m", "ringcast_launcher", "-n", str(n), "--output", "none", "--as-mpi4py")
    text = run(*launcher, str(EXAMPLES / "mpi4py_program.py"))
    assert text == "residual below 1e-8: True, hottest 4.298224\n"  # as with MPICH


@pytest.mark.parametrize("n", [1, 4])
def test_a_network_learns_what_it_does_on_one_process(n: int) -> None:
    assert launch(n, "sgd.py", "--steps", "30").endswith("as with one process\n")


@pytest.mark.parametrize("n", [1, 3])
def test_weights_are_those_that_safetensors_loads(n: int, tmp_path: Path) -> None:
    told = f"on {n} ranks: as safetensors loads them\n"
    assert launch(n, "weights.py") == f"16 tensors, 8,396,800 bytes, {told}"
    save_file({"one": np.arange(3), "none": np.empty((0, 2), np.float16)}, tmp_path / "own", {"format": "np"})
    assert launch(n, "weights.py", "--file", str(tmp_path / "own")) == f"2 tensors, 24 bytes, {told}"
    with store((tmp_path / "own").read_bytes()) as served:
        assert launch(n, "weights.py", "--file", f"{served.root}/own") == f"2 tensors, 24 bytes, {told}"


def test_weights_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "safetensors.py").write_text("raise ImportError")
    program = str(EXAMPLES / "weights.py")
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", "-x", f"PYTHONPATH={tmp_path}", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 1
    assert "[0-1] ImportError: this example needs safetensors: pip install safetensors" in done.stderr


@pytest.mark.parametrize("n", [1, 3, 4])
def test_stumps_are_those_of_one_process(n: int) -> None:
    text = launch(n, "histograms.py", "--rounds", "20")
    assert re.fullmatch(rf"20 stumps on {n} ranks: loss [\d.]+, as with one process\n40 calls took [\d.]+ s\n", text)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_tasks_are_done_by_whoever_is_free(n: int) -> None:
    assert launch(n, "tasks.py") == f"{n} ranks began, {n} finished 60 tasks: 11301 primes\n"


@pytest.mark.parametrize("lost", [[2], [1, 3], [1, 2, 3]])
def test_the_tasks_of_workers_that_die_are_done_again(lost: list[int]) -> None:
    launcher = (sys.executable, "-m", "ringcast_launcher", "-n", "4", "--output", "none", "--on-failure", "continue")
    options = [option for rank in lost for option in ("--lose", str(rank))]
    text = run(*launcher, str(EXAMPLES / "tasks.py"), *options)
    assert text == f"4 ranks began, {4 - len(lost)} finished 60 tasks: 11301 primes\n"


@pytest.mark.parametrize("n", [1, 3, 4])
def test_identifiers_finds_the_numbers_that_are_there(n: int, tree: Path) -> None:
    text = launch(n, "identifiers.py", "--path", str(tree), "--top", "3")
    check_table(text, tree, n)


def test_identifiers_counts_in_the_library_without_a_launcher() -> None:
    text = run(sys.executable, str(EXAMPLES / "identifiers.py"), "--limit", "40")
    assert text.endswith("equal to the one-process count\n")


def test_identifiers_with_more_ranks_than_files(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("one = 1\n")
    assert launch(4, "identifiers.py", "--path", str(tmp_path)).endswith("equal to the one-process count\n")


def test_identifiers_says_that_there_is_nothing_to_count(tmp_path: Path) -> None:
    launch(3, "identifiers.py", "--path", str(tmp_path), expect=1)


def test_identifiers_fails_when_the_counts_differ(tree: Path) -> None:
    program = tree.parent / "wrong.py"
    program.write_text(LOSES_A_NAME)
    command = (sys.executable, "-m", "ringcast_launcher", "-n", "3", "-x", f"PYTHONPATH={EXAMPLES}", "--output", "none")
    text = run(*command, str(program), "--path", str(tree), expect=1)
    assert "rank 1, 2: not the one-process count" in text
    assert "equal to" not in text


LOSES_A_NAME = """
from collections import Counter

import identifiers

merge = identifiers.merge
identifiers.merge = lambda comm, mine: merge(comm, mine) - Counter(rare=comm.rank)
identifiers.main()
"""


@pytest.mark.parametrize("n", [1, 3, 4])
def test_matrix_vector(n: int) -> None:
    assert launch(n, "matrix_vector.py").endswith("largest eigenvalue: 1199.995633\n")


@pytest.mark.parametrize(("n", "side"), [(1, 1), (3, 1), (4, 2), (9, 3)])
def test_matrix_vector_2d(n: int, side: int) -> None:
    grid = f"{side} x {side} ranks, {n - side * side} idle"
    assert launch(n, "matrix_vector_2d.py") == f"{grid}, largest eigenvalue: 1199.995633\n"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_gathered_schedules(n: int) -> None:
    assert launch(n, "gathered_schedules.py").endswith(f"the same schedules of {n} ranks\n")


@pytest.mark.parametrize("n", [1, 3, 4])
def test_transpose(n: int) -> None:
    size = 300 * n
    assert launch(n, "transpose.py") == f"{size} x {size} numbers on {n} ranks: transposed, and back again\n"


def test_threads_in_a_notebook() -> None:
    assert run(sys.executable, str(EXAMPLES / "threads_in_a_notebook.py")).startswith("5 ranks agree")


def test_a_progress_bar_on_a_terminal_only(tree: Path) -> None:
    ours, theirs = pty.openpty()
    launcher = (sys.executable, "-m", "ringcast_launcher", "-n", "2", str(EXAMPLES / "identifiers.py"))
    with subprocess.Popen((*launcher, "--path", str(tree)), stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b"".join(iter(partial(read_terminal, ours), b""))
        assert process.stdout is not None
        assert b"counting" not in process.stdout.read()
    os.close(ours)
    assert b"counting on rank 0" in seen
    assert process.returncode == 0
    assert "counting on" not in launch(2, "identifiers.py", "--path", str(tree))


def read_terminal(file: int) -> bytes:
    try:
        return os.read(file, 4096)
    except OSError:  # nobody has the other end open any more
        return b""
