"""Run other people's packages for mpi4py on ringcast.MPI, unmodified: the list of packages in mpi4py.md.

python docs/scripts/mpi4py_packages.py --write        all, and their list into docs/use/mpi4py.md
python docs/scripts/mpi4py_packages.py schwimmbad     those of this package, on standard output alone

The packages come from the package index, at their newest versions, into a virtual environment of their own, which is
kept in the user's cache. There is no library of MPI in it. Tests come with the packages' source distributions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import mpi4py_suite as suite

BEGIN, END = "<!-- packages: begin -->", "<!-- packages: end -->"
PACKAGES = ("mpi4py", "pylops-mpi", "schwimmbad", "zeus-mcmc", "ptmcmcsampler", "emcee")
OTHERS = ("dill", "pytest<9")  # for their tests; those of pylops-mpi write a name that pytest 9 does not let them
LIMIT = 240  # seconds for a job

OF_EMCEE = """
import sys
import emcee
import numpy as np
from schwimmbad import MPIPool

def log_density(x):
    return -0.5 * np.sum(x**2)

with MPIPool() as pool:
    if not pool.is_master():
        pool.wait()
        sys.exit(0)
    start = np.random.default_rng(1).normal(size=(16, 3))
    sampler = emcee.EnsembleSampler(16, 3, log_density, pool=pool)
    sampler.run_mcmc(start, 100)
    assert abs(sampler.get_chain(flat=True).std() - 1) < 0.5
"""
OF_ZEUS = """
import numpy as np
import zeus

def log_density(x):
    return -0.5 * np.sum(x**2)

with zeus.ChainManager(2) as manager:
    start = np.random.default_rng(manager.get_rank).normal(size=(16, 3))
    sampler = zeus.EnsembleSampler(16, 3, log_density, pool=manager.get_pool, verbose=False)
    sampler.run_mcmc(start, 40, progress=False)
    chains = manager.gather(sampler.get_chain(flat=True), root=0)
    if manager.get_rank == 0:
        assert abs(np.concatenate(chains).std() - 1) < 0.5
"""

# Those that take seconds; others take minutes, and those of FFTs need packages that are compiled for a library of MPI.
OF_PYLOPS = tuple(
    f"test_{name}.py"
    for name in ("blockdiag", "distributedarray", "fredholm", "halo", "linearop", "matrixmult", "solver", "stack")
)


@dataclass(frozen=True)
class Case:
    """Something of a package that is run: its tests or a program, in a folder of its source distribution."""

    package: str
    what: str
    size: int
    command: Sequence[str]
    folder: str = "."
    text: str = ""  # of `program.py`, after the package's documentation, where its distribution has none


CASES = (
    Case("mpi4py", "tests of `mpi4py.futures`", 3, ("-m", "mpi4py.futures", "test_futures.py"), "demo/futures"),
    Case("pylops-mpi", f"its tests: {', '.join(OF_PYLOPS)}", 3, ("-m", "pytest", "-q", *OF_PYLOPS), "tests"),
    Case("schwimmbad", "`test_mpi.py`", 4, ("test_mpi.py",), "tests"),
    Case("schwimmbad", "`test_mpi_with_dill.py`", 4, ("test_mpi_with_dill.py",), "tests"),
    Case("ptmcmcsampler", "`simple.py`: parallel tempering", 2, ("simple.py",), "examples"),
    Case("emcee", "a sampler with schwimmbad's MPIPool", 3, ("program.py",), text=OF_EMCEE),
    Case("zeus-mcmc", "two samplers, each with a pool, by ChainManager", 4, ("program.py",), text=OF_ZEUS),
)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="these packages (default: all)")
    parser.add_argument("--write", action="store_true", help="write the list into docs/use/mpi4py.md")
    options = parser.parse_args()
    python = environment()
    rows, failed = [], False
    for case in CASES:
        if options.packages and case.package not in options.packages:
            continue
        version = version_of(python, case.package)
        begin = time.perf_counter()
        code, result, output = run(python, case, version)
        failed |= code != 0
        print(f"{case.package} {version}, {case.what}: {result}, {time.perf_counter() - begin:.1f} s", flush=True)
        if code:
            print(output)
        rows.append(f"| {case.package} {version} | {case.what} | {case.size} | {result} |")
    if options.write:
        suite.put(BEGIN, "\n".join(["| package | what runs | n | result |", "|---|---|---|---|", *rows]), END)
    sys.exit(failed)


def environment() -> Path:
    """Return the interpreter of an environment that has the packages at their newest versions.

    Raises:
        SystemExit: they cannot be installed.
    """
    folder = suite.cache() / "mpi4py-packages"
    python = folder / "bin/python"
    if not python.exists() or subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode:
        venv.create(folder, clear=True, with_pip=True)  # there was none, or one that was broken off
    command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", "--disable-pip-version-check"]
    made = subprocess.run([*command, "-e", str(suite.ROOT), *PACKAGES, *OTHERS], capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"the packages cannot be installed from the package index:\n{made.stderr}")
    return python


def version_of(python: Path, package: str) -> str:
    """Return the version of a package that is installed."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(python: Path, case: Case, version: str) -> tuple[int, str, str]:
    """Run a case; return its exit code, its result in a few words, and what it printed."""
    with TemporaryDirectory() as place:
        folder = Path(place, "it")
        if case.text:
            folder.mkdir()
            Path(folder, "program.py").write_text(case.text)
        else:
            copytree(suite.fetched(case.package.replace("-", "_"), version), folder)
        launcher = [str(python), "-m", "ringcast_launcher", "-n", str(case.size), "--output", "none"]
        job = subprocess.run(
            [*launcher, "--as-mpi4py", "--timeout", str(LIMIT), "python", *case.command],
            env={**os.environ, "PYTHONPATH": f"{suite.ROOT}/launcher", "MPLBACKEND": "agg"},
            cwd=folder / case.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    found = re.findall(r"\d+ passed|Ran \d+ tests", job.stdout)
    result = found[0] if found else "runs"
    return job.returncode, result if job.returncode == 0 else f"**failed**: {result}", job.stdout


if __name__ == "__main__":
    main()
