"""Programs for mpi4py as they are, where it is installed and where it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringcast_launcher.decide.job_report import JobReport
from support.patience import patience
from support.places import ROOT

LAUNCH = (sys.executable, "-m", "ringcast_launcher", "-n", "3", "--output", "none", "--as-mpi4py")
ALONE = (sys.executable, "-m", "ringcast.mpi4py")
EXECUTORS = ("-m", "mpi4py.futures")


@pytest.fixture(autouse=True)
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An mpi4py that is installed beside the tests would be found before the package that stands in for it."""
    sources = [ROOT / "launcher", ROOT]
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    if any(Path(entry, "mpi4py").exists() for entry in packages):
        pytest.fail("these tests need an environment without mpi4py")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sources)))
    monkeypatch.chdir(tmp_path)


def output(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return sorted(done.stdout.splitlines())


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


WHO = """
import sys
from mpi4py import MPI
import mpi4py.MPI
assert mpi4py.MPI is MPI is sys.modules["ringcast.MPI"]
def test_it():
    print(MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size(), *sys.argv[1:])
if __name__ == "__main__":
    test_it()
"""


@pytest.mark.live
def test_a_program_gets_our_mpi_however_it_is_started() -> None:
    write("test_who.py", WHO)
    ranks = [f"{rank} 3 a -n" for rank in range(3)]
    assert output(*LAUNCH, "test_who.py", "a", "-n") == ranks
    assert output(*LAUNCH, "-m", "test_who", "a", "-n") == ranks
    assert output(*LAUNCH, *EXECUTORS, "test_who.py", "a", "-n") == ["0 3 a -n"]
    assert output(*ALONE, "test_who.py", "a", "-n") == output(*ALONE, "-m", "test_who", "a", "-n") == ["0 1 a -n"]
    assert output(*ALONE, "-m", "mpi4py", "test_who.py", "a", "-n") == ["0 1 a -n"]
    assert output(*LAUNCH, "-m", "mpi4py.run", "test_who.py", "a", "-n") == ranks
    assert output(*ALONE, "-c", "import test_who, sys; test_who.test_it()", "a", "-n") == ["0 1 a -n"]
    assert output(*ALONE, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_who.py")


def test_helloworld_has_a_line_of_each_rank() -> None:
    lines = output(*LAUNCH, "-m", "mpi4py.bench", "helloworld")
    assert [line.rpartition(" on ")[0] for line in lines] == [
        f"Hello, World! I am process {rank} of 3" for rank in range(3)
    ]
    other = subprocess.run(
        [*ALONE, "-m", "mpi4py.bench", "pingpong"], capture_output=True, text=True, timeout=patience(60)
    )
    assert (other.returncode, "pip install mpi4py" in other.stderr) == (1, True)


def test_a_command_line_without_a_program_gets_the_usage() -> None:
    for module in ("ringcast.mpi4py", "mpi4py", "mpi4py.futures"):
        command = ALONE if module == "ringcast.mpi4py" else (*ALONE, "-m", module)
        usage = f"usage: python -m {module} (PROGRAM"
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
        assert (done.returncode, done.stderr.startswith(usage)) == (1, True)
    assert any(line.startswith("usage: python -m ringcast.mpi4py") for line in output(*ALONE, "--help"))
    many = subprocess.run(
        [*ALONE, "-n", "3", "x.py"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert (many.returncode, "ringcast-launch -n N" in many.stderr) == (1, True)
    assert output(*ALONE, "-m", "mpi4py", "--version") == ["mpi4py 4.1.2"]


ABSENT = """
import importlib
for name in ("typing", "util.dtlib", "util.pool", "util.sync", "util.unknown"):
    try:
        importlib.import_module(f"mpi4py.{name}")
    except ImportError as error:
        print(error)
try:
    from mpi4py.util import pkl5, dtlib
except ImportError as error:
    print(error)
"""


def test_modules_that_an_installed_mpi4py_has_are_named() -> None:
    hint = "is not in the small mpi4py of ringcast (pip install mpi4py: its Python parts work on ringcast)"
    named = [f"mpi4py.{name} {hint}" for name in ("typing", "util.dtlib", "util.dtlib", "util.pool", "util.sync")]
    assert output(*ALONE, write("absent.py", ABSENT)) == sorted([*named, "No module named 'mpi4py.util.unknown'"])


THREADS = """
import sys, threading
from mpi4py import MPI
if "interactive" in sys.argv:
    sys.ps1 = ""
def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()
def caught():
    try:
        MPI.COMM_SELF.Spawn("program")
    except NotImplementedError:
        print("caught")
start(caught)
start(int, "x")
start(MPI.COMM_SELF.Spawn, "program")
print("goes on")
"""


def test_what_we_do_not_have_ends_the_program_from_its_threads_too() -> None:
    command = [*ALONE, write("threads.py", THREADS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert (done.returncode, done.stdout) == (1, "caught\n")
    assert "ValueError: invalid literal" in done.stderr
    assert "ringcast has no MPI dynamic processes; with MPIPoolExecutor" in done.stderr.splitlines()[-1]
    assert output(*command, "interactive") == ["caught", "goes on"]


PICKLES = """
from mpi4py import MPI
from mpi4py.util.pkl5 import Pickle, Status, pickle
assert Pickle is MPI.Pickle and pickle.PROTOCOL == 5 and Status is MPI.Status
assert hasattr(MPI.Pickle, "PROTOCOL") and MPI.Pickle(protocol=2).dumps(1)[1] == 2
pickle.PROTOCOL = 0
print(pickle.loads(pickle.dumps("as before")))
"""


def test_the_pickles_of_pkl5_are_those_of_mpi() -> None:
    assert output(*ALONE, write("pickles.py", PICKLES)) == ["as before"]


INSTALLED = """
from . import other
class rc: initialize = True
"""


def test_an_installed_mpi4py_keeps_all_but_its_mpi() -> None:
    folder = Path("installed/mpi4py")
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(INSTALLED)
    (folder / "other.py").write_text("from . import MPI")
    (folder / "MPI.py").write_text("raise ImportError('cannot load MPI library')")
    (folder / "__main__.py").write_text("from .other import MPI; print(MPI.get_vendor()[0])")
    os.environ["PYTHONPATH"] += f"{os.pathsep}installed"  # of this test alone, as the fixture has set it
    assert output(*ALONE, "-m", "mpi4py") == ["ringcast"]
    assert output(*ALONE, "-c", "import mpi4py; print(mpi4py.other.MPI.get_vendor()[0])") == ["ringcast"]


OPTIONS = """
import mpi4py
mpi4py.rc(initialize=False, threads=False)
mpi4py.rc.recv_mprobe = False
for refused in (lambda: mpi4py.rc(unknown=1), lambda: setattr(mpi4py.rc, "unknown", 1)):
    try:
        refused()
    except TypeError:
        print("refused")
for refused in (mpi4py.get_include, mpi4py.get_config):
    try:
        refused()
    except NotImplementedError as error:
        print(error)
from mpi4py import MPI
print(MPI.Is_initialized())
MPI.Init()
print(MPI.Is_initialized(), MPI.COMM_WORLD.Get_size())
"""


def test_options_are_set_before_mpi_is_imported() -> None:
    reason = "this mpi4py runs on ringcast, without a library of MPI that code could be compiled for"
    assert output(*ALONE, write("options.py", OPTIONS)) == sorted(
        ["refused"] * 2 + [f"mpi4py.get_{what}: {reason}" for what in ("include", "config")] + ["False", "True 1"]
    )


CHILDREN = """
import concurrent.futures, multiprocessing, subprocess, sys
from mpi4py import MPI

def size(_):
    return MPI.COMM_WORLD.allreduce(1)

if __name__ == "__main__":
    for method in "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(size, range(2)))
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            print(list(pool.map(size, range(2))))
    code = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    print(MPI.COMM_WORLD.allreduce(1))
"""


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "ipc", "sockets", "tcp"])
def test_a_process_that_a_rank_starts_is_alone_and_harms_nobody(transport: str) -> None:
    printed = output(*LAUNCH, "--transport", transport, write("children.py", CHILDREN))
    assert printed == ["1"] * 3 + ["3"] * 3 + ["[1, 1]"] * 3 * 4


POOL = """
import os, sys, time
from mpi4py import MPI
from mpi4py.futures import (
    BrokenExecutor, Future, MPICommExecutor, MPIPoolExecutor, as_completed, collect, compose, get_comm_workers
)

FACTOR = 2 if __name__ in ("__main__", "__worker__") else 0

def double(x):
    return FACTOR * x

def fail(x):
    raise KeyError(x)

def add(x, y):
    return x + y

def bad():
    raise RuntimeError("no")

class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("cannot be pickled")

def raises_unpicklable():
    raise Unpicklable

class Own(Exception):
    pass

def returns(x):
    return Own(x)

def raises(x):
    raise Own(x)

def set_factor(own):
    global FACTOR
    FACTOR, = own.args

def workers(_):
    return get_comm_workers().Get_size()

def rank(_):
    time.sleep(0.01)
    return MPI.COMM_WORLD.Get_rank()

def check(executor):
    assert list(executor.map(double, range(50))) == list(range(0, 100, 2))
    assert list(executor.map(double, range(50), chunksize=7)) == list(range(0, 100, 2))
    assert sorted(executor.map(double, range(9), chunksize=2, unordered=True)) == list(range(0, 18, 2))
    assert list(executor.starmap(add, [(1, 2), (3, 4)])) == [3, 7]
    try:
        list(executor.map(time.sleep, [0.02] * 20, timeout=0.1))
        raise AssertionError
    except TimeoutError:  # of all together
        pass
    futures = {executor.submit(double, x): x for x in range(9)}
    assert all(future.result() == 2 * futures[future] for future in as_completed(futures))
    error = executor.submit(fail, 7).exception()
    assert isinstance(error, KeyError) and error.args == (7,) and "raise KeyError(x)" in error.__notes__[0]
    if MPI.COMM_WORLD.Get_size() > 1:
        assert isinstance(executor.submit(raises_unpicklable).exception(), TypeError)
        assert executor.submit(lambda: 1).exception() is not None
    assert executor.submit(double, 4).result() == 8
    assert type(executor.submit(returns, 1).result()) is type(executor.submit(raises, 1).exception()) is Own
    assert set(executor.map(workers, range(9))) == {max(1, MPI.COMM_WORLD.Get_size() - 1)}
    check_combined(executor)
    assert set(executor.map(rank, range(40))) == (set(range(1, MPI.COMM_WORLD.Get_size())) or {0})

def check_combined(executor):
    squares = [executor.submit(pow, x, 2) for x in range(4)]
    assert collect(squares).result() == [0, 1, 4, 9] and collect([]).result() == []
    assert type(collect([*squares, executor.submit(raises, 1)]).exception()) is Own
    first, second = Future(), Future()
    assert collect([first, second]).cancel() and first.cancelled() and second.cancelled()
    first, second = Future(), Future()
    whole = collect([first, second])
    first.set_exception(KeyError())
    assert isinstance(whole.exception(), KeyError) and second.cancelled()
    assert compose(squares[3]).result() == 9 and compose(squares[3], str).result() == "9"
    assert isinstance(compose(squares[3], lambda x: x / 0).exception(), ZeroDivisionError)
    failed = executor.submit(raises, 5)
    assert compose(failed, str).exception().args == (5,)
    assert compose(failed, None, lambda error: error.args).result() == (5,)
    assert isinstance(compose(failed, None, lambda error: KeyError()).exception(), KeyError)
    first = Future()
    assert compose(first, str).cancel() and first.cancelled()

def broken(made):
    with made(initializer=bad) as executor:
        try:
            assert isinstance(executor.submit(double, 1).exception(), BrokenExecutor)
        except BrokenExecutor:
            pass

if __name__ == "__main__":
    if sys.argv[1] == "pool":
        with MPIPoolExecutor() as executor:
            check(executor)
        try:
            executor.submit(double, 1)
        except RuntimeError:
            print("closed")
        with MPIPoolExecutor(max_workers=1) as one, MPIPoolExecutor() as other:
            assert one.submit(double, 1).result() + other.submit(double, 2).result() == 6
        broken(MPIPoolExecutor)
        with MPICommExecutor(MPI.COMM_WORLD) as executor:
            check(executor)
        with MPIPoolExecutor(initializer=set_factor, initargs=(Own(3),)) as executor:
            assert set(executor.map(double, [1] * 20)) == {3}
        late = MPIPoolExecutor(max_workers=1)
        futures = [late.submit(time.sleep, 0.01) for _ in range(9)]
        late.shutdown(wait=False)
        late.shutdown(cancel_futures=True)
        assert all(future.done() for future in futures)
        left_open = MPIPoolExecutor()
        left_open.submit(double, 1)
    elif sys.argv[1] == "comm":
        with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
            assert (executor is None) == (MPI.COMM_WORLD.Get_rank() != 0)
            if executor is not None:
                check(executor)
        print(MPI.COMM_WORLD.allreduce(1))
    else:
        try:
            MPIPoolExecutor()
        except NotImplementedError as error:
            print(error)
"""


@pytest.mark.live
def test_executors_run_functions_on_other_ranks() -> None:
    write("pool.py", POOL)
    assert output(*LAUNCH, *EXECUTORS, "pool.py", "pool") == ["closed"]
    assert output(*ALONE, *EXECUTORS, "pool.py", "pool") == ["closed"]
    assert output(*LAUNCH, "pool.py", "comm") == ["3"] * 3
    assert output(*ALONE, "pool.py", "comm") == ["1"]
    assert output(*ALONE, "pool.py", "neither") == [
        "MPIPoolExecutor: ranks cannot be added to a job; "
        "start the program with -m mpi4py.futures, or use MPICommExecutor"
    ]


UNGUARDED = """
from mpi4py.futures import MPICommExecutor

def double(x):
    return 2 * x

with MPICommExecutor() as executor:
    if executor is not None:
        print(list(executor.map(double, range(3))))
"""


@pytest.mark.live
def test_ranks_that_load_a_program_wait_in_no_executor_of_it() -> None:
    assert output(*LAUNCH, *EXECUTORS, write("unguarded.py", UNGUARDED)) == ["[0, 2, 4]"]


UNGUARDED_POOL = """
from mpi4py.futures import MPIPoolExecutor

def double(x):
    return 2 * x

def nested(x):
    with MPIPoolExecutor() as executor:
        return executor.submit(double, x).result()

executor = MPIPoolExecutor()
print(list(executor.map(double, range(3))))
assert executor.submit(nested, 2).result() == 4
"""


@pytest.mark.live
def test_executors_of_ranks_that_serve_have_only_their_own_rank() -> None:
    printed = output(*LAUNCH, *EXECUTORS, write("unguarded.py", UNGUARDED_POOL))
    assert set(printed) == {"[0, 2, 4]"}
    assert 2 <= len(printed) <= 3  # ranks without a task do not load the program
    assert output(*ALONE, *EXECUTORS, "unguarded.py") == ["[0, 2, 4]"]


FAILING = """
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    MPIPoolExecutor().submit(int).result()
    raise KeyError(7)
"""


@pytest.mark.live
def test_a_program_that_fails_beside_executors_ends_the_job() -> None:
    write("failing.py", FAILING)
    done = subprocess.run(
        [*LAUNCH, *EXECUTORS, "failing.py"], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert done.returncode == 1
    assert "failed: KeyError: 7" in done.stderr
    assert re.search(r"^stopped at .*mpi4py/futures/__main__.py:\d+: PeerFailed", done.stderr, re.MULTILINE)


INITIALIZER = """
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor
def read():
    raise OSError("no table")
with MPICommExecutor(MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank == 0), initializer=read) as executor:
    if MPI.COMM_WORLD.rank == 1:
        executor.submit(int).result()
"""
LOADED = """
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__worker__":
    raise KeyError(7)
MPIPoolExecutor().submit(int).result()
"""


@pytest.mark.live
def test_an_executor_that_cannot_be_used_says_why() -> None:
    def last(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
        return done.stderr.splitlines()[-1].partition("failed: ")[2]

    initializer, loaded = write("initializer.py", INITIALIZER), write("loaded.py", LOADED)
    assert last(*LAUNCH, initializer) == "BrokenExecutor: the initializer failed on rank 2: OSError: no table"
    told = last(*LAUNCH, *EXECUTORS, loaded)
    assert re.fullmatch(r"BrokenExecutor: loading the program failed on rank [12]: KeyError: 7", told)


UNREAD = """
from mpi4py import MPI
if MPI.COMM_WORLD.Get_rank() == 0:
    MPI.COMM_WORLD.send("nobody takes it", dest=1)
"""


@pytest.mark.live
def test_a_message_that_nobody_takes_is_no_failure() -> None:
    assert output(*LAUNCH, write("unread.py", UNREAD)) == []


BUFFERED = """
from mpi4py import MPI
comm, large = MPI.COMM_WORLD, 20_000_000
if comm.Get_rank() == 0:
    MPI.Attach_buffer(bytearray(large + MPI.BSEND_OVERHEAD))
    comm.Bsend(bytes(large), dest=1)
elif comm.Get_rank() == 1:
    comm.Recv(bytearray(large), source=0)
    print("came")
"""


@pytest.mark.live
def test_the_end_of_a_program_waits_for_its_buffered_sends() -> None:
    assert output(*LAUNCH, write("buffered.py", BUFFERED)) == ["came"]


def test_no_library_of_mpi_is_loaded() -> None:
    code = "from mpi4py import MPI; print('libmpi' in open('/proc/self/maps').read())"
    assert output(*ALONE, "-c", code) == ["False"]


def errors_of(program: str) -> list[str]:
    """Return the lines that a program whose job fails leaves on standard error."""
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "--as-mpi4py", write("failing.py", program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()


RAISES = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 1: [][1]
comm.barrier()
"""
EXITS = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.barrier()
if comm.rank == 0: sys.exit("no input file")
comm.bcast(None)
"""


@pytest.mark.live
def test_the_rank_that_is_the_cause_is_named_and_shown() -> None:
    lines = errors_of(RAISES)
    assert sum("Traceback" in line for line in lines) == 1
    assert "[1] IndexError: list index out of range" in lines
    assert re.fullmatch(r"ringcast-launch: rank 1 \(.*\) failed: IndexError: list index out of range", lines[-1])
    lines = errors_of(EXITS)
    assert not any("Traceback" in line for line in lines)
    assert "[0] no input file" in lines
    assert re.fullmatch(r"ringcast-launch: rank 0 \(.*\) failed: exit code 1", lines[-1])


def test_where_mpi4py_is_missing_the_option_for_it_is_named() -> None:
    def said(module: str) -> list[str]:
        error = f"ModuleNotFoundError: No module named {module!r}"
        return JobReport(1, "failed: exit code 1", 0, "here", 7, error).last_words().splitlines()

    assert "--as-mpi4py" in said("mpi4py")[1]
    assert said("mpi4py")[2:] == said("other")[1:] == ["ringcast-launch: rank 0 (here, pid 7) failed: exit code 1"]


@pytest.mark.live
@pytest.mark.parametrize("module", ["mpi4py", "mpi4py.bench"])
def test_where_a_module_of_mpi4py_is_missing_the_option_for_it_is_named(module: str) -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "-m", module, "helloworld"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert (done.returncode, sum("No module named" in line for line in done.stderr.splitlines())) == (1, 1)
    assert "--as-mpi4py (alone: python -m ringcast.mpi4py)" in done.stderr.splitlines()[-2]
