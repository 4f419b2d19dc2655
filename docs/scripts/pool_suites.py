"""Run tests of others on `ringcast.Pool`: the tables of pools.md.

python docs/scripts/pool_suites.py mpi4py [--source FOLDER]    mpi4py's demo/futures/test_futures.py, executor: Pool
python docs/scripts/pool_suites.py joblib                      test_parallel.py of installed joblib, backend: ringcast

mpi4py's sources are fetched as mpi4py_suite.py does, unless they are in FOLDER. The files are run from copies; joblib's
has one more name in its list of backends of processes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

NOT_OURS = {  # beginnings of names of tests, and why they say nothing of a pool
    "ProcessPoolInitTest.test_init_kwargs": "options of mpi4py's spawn",
    "ProcessPoolInitTest.test_init_pyargs": "options of mpi4py's spawn",
    "ProcessPoolInitTest.test_init_sys_flags": "options of mpi4py's spawn",
    "ProcessPoolInitTest.test_init_globals": "options of mpi4py's spawn",
    "ProcessPoolInitTest.test_run_name": "mpi4py's name of the main module",
    "ProcessPoolInitTest.test_use_pkl5": "mpi4py's way of pickling",
    "ProcessPoolInitTest.test_get_comm_workers": "a task of submit_ranks has one instead",
    "ProcessPoolBootupTest.test_bootup_shutdown_nowait": "mpi4py's own threads",
    "ProcessPoolShutdownTest.test_shutdown": "mpi4py's own threads",
    "ProcessPoolShutdownTest.test_init_bootup_shutdown": "mpi4py's own threads",
    "ProcessPoolShutdownTest.test_context_manager_shutdown": "mpi4py's own threads",
    "ProcessPoolShutdownTest.test_del_shutdown": "mpi4py's own threads",
    "ProcessPoolExecutorTest.test_map_buffersize": "an argument of Python 3.14, which a Pool lacks",
    "ProcessPoolSubmitTest.test_mpi_serialized_support": "mpi4py's own threads",
    "ProcessPoolSubmitTest.test_shared_executors": "mpi4py's shared pool",
    "ProcessPoolPickleTest.test_bad": "the future has a TaskError, with the error of pickle as its cause",
    "ProcessPoolPickleTest.test_exc": "the future has a TaskError, with the error of pickle as its cause",
    "SharedPoolInitTest": "mpi4py's shared pool",
    "MPICommExecutorTest": "communicators of MPI; `Pool(comm)` is tested in tests/pool",
    "ThreadPoolTest": "threads",
    "ThenTest": "mpi4py's own futures",
    "CollectTest": "mpi4py's own futures",
    "ComposeTest": "mpi4py's own futures",
}
NOT_JOBLIBS = {  # of joblib's tests, by parts of their names
    "test_error_capture": "joblib's workers are started anew after each error, ringcast's where some still run",
    "test_dispatch_multiprocessing": "multiprocessing's manager admits only its own children",
    "test_initializer": "multiprocessing's manager admits only its own children",
    "memmap": "files that joblib maps into memory; ringcast shares arrays in memory",
}


def main() -> None:
    """Run the suite that the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=("mpi4py", "joblib"))
    parser.add_argument("--source", type=Path, help="a folder with mpi4py's sources")
    parser.add_argument("-k", dest="pattern", default="", help="only tests with this in their name")
    options = parser.parse_args()
    run = run_joblib if options.suite == "joblib" else partial(run_mpi4py, options.source)
    sys.exit(run(options.pattern))


def run_mpi4py(source: Path | None, pattern: str) -> int:
    """Run mpi4py's tests of executors in this process."""
    if source is None:
        from mpi4py_suite import DIGEST, NAME, VERSION, fetched  # type: ignore[import-not-found]  # beside this file

        source = fetched(NAME, VERSION, DIGEST)
    sys.modules |= stand_ins()
    text = (source / "demo/futures/test_futures.py").read_text()
    module = types.ModuleType("test_futures")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_futures.py")
        file.write_text(text)
        sys.modules["test_futures"] = module
        module.__file__ = str(file)
        exec(compile(text, str(file), "exec"), vars(module))
        cloudpickle.register_pickle_by_value(module)  # workers cannot import it
        tests = [test for test in each(unittest.defaultTestLoader.loadTestsFromModule(module)) if pattern in test.id()]
        counts = Counter[str]()
        for test in tests:
            name = test.id().removeprefix("test_futures.")
            why = next((why for start, why in NOT_OURS.items() if name.startswith(start)), "")
            if why:
                counts["skipped"] += 1
                print(f"skipped {name}: {why}")
                continue
            result = unittest.TestResult()
            test.run(result)
            bad = [*result.failures, *result.errors]
            outcome = "failed" if bad else "skipped" if result.skipped else "passed"
            counts[outcome] += 1
            print(f"{outcome} {name}", *(told for _, told in bad), *(told for _, told in result.skipped), flush=True)
    print(f"mpi4py: {counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed")
    return int(bool(counts["failed"]))


def each(suite: Any) -> Any:
    """Yield the tests of a suite."""
    for test in suite:
        if isinstance(test, unittest.TestCase):
            yield test
        else:
            yield from each(test)


def stand_ins() -> dict[str, types.ModuleType]:
    """Return modules in the place of mpi4py's, with a pool as its executor."""
    import ringcast

    class Executor(ringcast.Pool):
        """A Pool with the few names that mpi4py's executors have more."""

        def __init__(self, max_workers: int | None = None, initializer: Any = None, initargs: Any = ()) -> None:
            if max_workers is None:
                max_workers = int(os.environ.get("MPI4PY_FUTURES_MAX_WORKERS", 2))
            super().__init__(max_workers, initializer=initializer, initargs=initargs)

        @property
        def num_workers(self) -> int:
            return self.size if self.usable else 0

        _max_workers = num_workers

        def bootup(self, wait: bool = True) -> Executor:  # noqa: ARG002
            if not self.usable and self._client.broken is None:
                raise RuntimeError("the pool was shut down")
            return self

        def map(self, fn: Any, *iterables: Any, unordered: bool = False, **options: Any) -> Any:
            if not unordered:
                return super().map(fn, *iterables, **options)
            return self.imap_unordered(lambda args: fn(*args), zip(*iterables, strict=False), **options)

    mpi4py, mpi, futures = (types.ModuleType(name) for name in ("mpi4py", "mpi4py.MPI", "mpi4py.futures"))
    core, aplus, util = (
        types.ModuleType(name) for name in ("mpi4py.futures._core", "mpi4py.futures.aplus", "mpitestutil")
    )
    vars(mpi).update(
        COMM_WORLD=types.SimpleNamespace(Get_size=lambda: 1), COMM_SELF=None, get_vendor=lambda: ("ringcast", (0,))
    )
    names = {name: getattr(concurrent.futures, name) for name in concurrent.futures.__all__}
    vars(futures).update(names, MPIPoolExecutor=Executor, MPICommExecutor=None, _core=core)
    vars(core).update(SharedPool=None, MAIN_RUN_NAME="")
    vars(aplus).update(ThenableFuture=None)
    vars(util).update(disable_mpi_spawn=lambda: False)
    vars(mpi4py).update(MPI=mpi, futures=futures, __path__=[])
    return {each.__name__: each for each in (mpi4py, mpi, futures, core, aplus, util)}


def run_joblib(pattern: str) -> int:
    """Run joblib's tests whose backend is ringcast's."""
    import joblib

    source = Path(joblib.__file__).parent / "test"
    without = "".join(f" and not {part}" for part in NOT_JOBLIBS)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source, Path(folder, "suite"))
        file = Path(folder, "suite/test_parallel.py")
        before = 'PROCESS_BACKENDS = ["multiprocessing", "loky"]'
        text = file.read_text()
        if before not in text:
            sys.exit(f"the tests of joblib {joblib.__version__} have another list of backends")
        file.write_text(text.replace(before, before.replace("]", ', "ringcast"]')))
        Path(folder, "sitecustomize.py").write_text("import ringcast.joblib\n")  # for the scripts of the tests too
        chosen = f"(ringcast or Ringcast){without}" + (f" and {pattern}" if pattern else "")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", chosen]
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        done = subprocess.run([*command, "test_parallel.py"], cwd=file.parent, env=os.environ | {"PYTHONPATH": path})
    print(f"joblib {joblib.__version__}, left out:")
    for part, why in NOT_JOBLIBS.items():
        print(f"  {part}: {why}")
    return done.returncode


if __name__ == "__main__":
    main()
