"""mpi4py's own tests, and other people's packages for it, run unmodified on ringcast.MPI."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.long
@pytest.mark.timeout(480)
def test_packages_for_mpi4py_run_without_a_library_of_mpi() -> None:
    run("mpi4py_packages.py")
