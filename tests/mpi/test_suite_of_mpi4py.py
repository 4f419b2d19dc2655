"""mpi4py's own tests, and other people's packages for it, run unmodified on ringcast.MPI."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience
from support.places import ROOT

COLLECTIVES = [
    "buf",
    "nb_buf",
    "nb_vec",
    "ngh_buf",
    "ngh_obj",
    "obj",
    "pr_buf",
    "pr_ngh_buf",
    "pr_vec",
    "vec",
    "buf_inter",
    "obj_inter",
    "vec_inter",
]


def run(script: str, *arguments: str) -> None:
    command = [sys.executable, str(ROOT / "docs/scripts" / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.live
@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_collectives_of_mpi4pys_suite_pass_on_three_ranks(name: str) -> None:
    run("mpi4py_suite.py", f"test_cco_{name}", "-n", "3")


EXECUTOR = """
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    MPIPoolExecutor().submit(int).result()
"""


@pytest.mark.live
def test_an_executor_of_mpi4py_that_has_no_ranks_ends_the_program(tmp_path: Path) -> None:
    suite = runpy.run_path(str(ROOT / "docs/scripts/mpi4py_suite.py"))
    sources = suite["fetched"](suite["NAME"], suite["VERSION"], suite["DIGEST"]) / "src"
    program = tmp_path / "program.py"
    program.write_text(EXECUTOR)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (sources, ROOT / "launcher", ROOT)))}
    alone = [sys.executable, "-m", "ringcast.mpi4py", str(program)]
    launched = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "--as-mpi4py", str(program)]
    for command in (alone, launched):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=patience(60), check=False
        )
        assert (done.returncode, "start the program with -m mpi4py.futures" in done.stderr) == (1, True)


@pytest.mark.long
@pytest.mark.timeout(480)
def test_packages_for_mpi4py_run_without_a_library_of_mpi() -> None:
    run("mpi4py_packages.py")
