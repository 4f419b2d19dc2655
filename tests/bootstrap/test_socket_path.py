"""Jobs start with any TMPDIR: where sockets in it would have paths that are too long, they lie elsewhere."""

from __future__ import annotations

import doctest
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringcast._util import socket_path
from ringcast.bootstrap.rendezvous import private
from ringcast.config.worker import from_environment
from ringcast.errors import ConfigError
from ringcast.monitoring import jobs
from support.fleets import QUIET
from support.patience import patience
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LENGTHS = range(60, 201)
LIMITS = range(78, 82)  # lengths beyond which sockets lie elsewhere
PROGRAM = """
import os, ringcast
comm = ringcast.init()
assert comm.allreduce(1) == comm.size
if comm.rank == 0:
    print(os.environ["RINGCAST_DIR"], flush=True)
comm.barrier()
"""
WAITS = PROGRAM + "import time\ntime.sleep(100)"


@pytest.fixture
def short() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def long(short: Path, length: int) -> Path:
    """Make a directory below `short` whose path has this length in bytes."""
    folder = short / ("x" * (length - len(os.fsencode(short)) - 1))
    folder.mkdir(exist_ok=True)
    assert len(os.fsencode(folder)) == length
    return folder


def environment(temporary: str | Path) -> dict[str, str]:
    return {**os.environ, **QUIET, "TMPDIR": str(temporary)}


def launch(temporary: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, "--output", "none", *arguments]
    return subprocess.run(command, env=environment(temporary), capture_output=True, text=True, timeout=patience(60))


def waiting(temporary: str | Path) -> tuple[subprocess.Popen[str], str]:
    """Start a job that waits; return its launcher, and its directory."""
    command = [*LAUNCH, "--output", "none", "-n", "2", "python", "-c", WAITS]
    launcher = subprocess.Popen(command, env=environment(temporary), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    return launcher, launcher.stdout.readline().strip()


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(socket_path).failed == 0


def test_the_paths_of_all_sockets_fit_whatever_the_length(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    kept = 0
    for length in LENGTHS:
        folder = long(short, length)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        base = jobs.bases()[0]
        made = Path(tempfile.mkdtemp(prefix=jobs.PREFIX, dir=base))
        try:
            assert stat.S_IMODE(made.stat().st_mode) == 0o700
            assert all(socket_path.fits(f"{made}/{name}") for name in ("control", jobs.INQUIRIES, "rank-999999"))
            assert base in jobs.places()
        finally:
            made.rmdir()
        kept += base == str(folder)
        step = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        meeting = from_environment({**step, "SLURM_STEP_NUM_NODES": "1", "TMPDIR": str(folder), "HOME": "/"})
        assert socket_path.fits(f"{meeting.directory}/rank-999999")
    assert 10 < kept < 20  # the user's own directory is taken as long as that is possible


@pytest.mark.parametrize("name", ["two\nlines", os.fsdecode(b"\xff"), "é" * 40])
def test_a_directory_that_cannot_be_told_is_not_taken(short: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", os.path.join(short, name))
    assert jobs.bases()[0] == "/tmp"


def test_who_could_rename_our_directories_is_not_trusted(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short / ("x" * 100)))
    for mode, found in (0o700, True), (0o755, True), (0o777, False), (0o1777, True), (0o770, False):
        short.chmod(mode)
        assert (str(short) in socket_path.everywhere(str(short))) is found
    assert "relative" not in socket_path.everywhere("relative")


@pytest.mark.live
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize(
    "length",
    [
        pytest.param(n, marks=() if n in LIMITS else pytest.mark.long)
        for n in LENGTHS
        if n in LIMITS or (n < 110 and n % 10 == 0)
    ],
)
def test_a_job_runs_and_leaves_nothing(short: Path, length: int, transport: str) -> None:
    folder = long(short, length)
    done = launch(folder, "-n", "2", "--transport", transport, "python", "-c", PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("length", range(110, 201, 30))
def test_a_job_runs_however_long_the_name_is(short: Path, length: int) -> None:
    test_a_job_runs_and_leaves_nothing(short, length, "ipc")


@pytest.mark.live
@pytest.mark.parametrize("name", ["with blank", "two\nlines", "é" * 30, os.fsdecode(b"\xff")])
def test_a_job_runs_whatever_the_name_is(short: Path, name: str) -> None:
    folder = os.path.join(short, name)
    os.mkdir(folder)
    done = launch(folder, "-n", "2", "python", "-c", PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()
    assert os.listdir(folder) == []


@pytest.mark.live
def test_ringcast_ps_finds_it(short: Path) -> None:
    launcher, directory = waiting(long(short, 150))
    asked = [sys.executable, "-m", "ringcast", "ps", "--json", str(launcher.pid)]
    done = subprocess.run(
        asked, env=environment(long(short, 150)), capture_output=True, text=True, timeout=patience(60)
    )
    assert [job["launcher"] for job in json.loads(done.stdout)] == [launcher.pid]
    launcher.terminate()
    launcher.communicate(timeout=patience(60))
    assert not Path(directory).exists()


@pytest.mark.live
def test_the_next_launcher_removes_it_if_the_watchdog_was_killed_too(short: Path) -> None:
    launcher, directory = waiting(long(short, 100))
    children = psutil.Process(launcher.pid).children()
    (watchdog,) = [child for child in children if "ringcast_launcher.system.watchdog" in " ".join(child.cmdline())]
    watchdog.kill()
    launcher.kill()
    launcher.communicate(timeout=patience(60))
    psutil.wait_procs(children, timeout=patience(60))
    assert launch(short, "-n", "1", "true").returncode == 0
    assert not Path(directory).exists()


@pytest.mark.live
def test_a_launcher_that_is_killed_leaves_nothing(short: Path) -> None:
    launcher, directory = waiting(long(short, 100))
    (watchdog,) = [
        p
        for p in psutil.Process(launcher.pid).children()
        if "ringcast_launcher.system.watchdog" in " ".join(p.cmdline())
    ]
    launcher.kill()
    launcher.communicate(timeout=patience(60))
    psutil.wait_procs([watchdog], timeout=patience(60))
    assert not Path(directory).exists()


@pytest.mark.live
def test_a_tmpdir_that_is_not_there_is_one_sentence(short: Path) -> None:
    for name in ("none", "x" * 100):
        done = launch(short / name, "-n", "2", "true")
        assert done.returncode == 1
        assert done.stderr == (
            f"ringcast-launch: TMPDIR={short}/{name}: there is no such directory; "
            "set TMPDIR to a directory in which you can make files, or unset it\n"
        )


def test_a_tmpdir_without_permission_is_one_sentence(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert socket_path.reason_not(str(short)).startswith(f"TMPDIR={short}: no permission to write there; set TMPDIR to")


@pytest.mark.parametrize("above", [False, True])
def test_a_tmpdir_in_which_all_can_rename_our_directories_is_refused(short: Path, above: bool) -> None:
    (short / "open" / "below").mkdir(parents=True)
    (short / "open").chmod(0o777)
    named = short / "open" / "below" if above else short / "open"
    done = launch(named, "-n", "2", "true")
    assert done.returncode == 1
    assert done.stderr == (
        f"ringcast-launch: TMPDIR={named}: all users can rename what is in {short}/open (chmod +t it); "
        "set TMPDIR to a directory in which you can make files, or unset it\n"
    )
    (short / "open").chmod(0o1777)
    assert socket_path.reason_not("") == ""
    assert not socket_path.open_to_all(named)


@pytest.mark.parametrize("fit", [["/dev/shm", "/tmp"], []])
def test_where_the_systems_own_directory_is_open_to_all_another_one_is_named(
    short: Path, monkeypatch: pytest.MonkeyPatch, fit: list[str]
) -> None:
    short.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    monkeypatch.setattr(socket_path, "elsewhere", lambda session: fit)
    advice = "set TMPDIR to a directory in which you can make files" + (", as /dev/shm" if fit else "")
    assert socket_path.reason_not("") == f"{short}: all users can rename what is in {short} (chmod +t it); {advice}"


def test_ranks_do_not_meet_where_all_can_rename_their_directory(short: Path) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o777)
    meeting = Path(short, "open", "job")
    with pytest.raises(ConfigError, match=r"all users can rename what is in .*/open; before the job: export"):
        private(meeting)
    assert not meeting.exists()


def test_a_tmpdir_that_takes_no_files_is_one_sentence() -> None:
    done = launch("/proc", "-n", "2", "true")  # a directory in which nobody can make anything, not even root
    why = "no permission to write there" if os.geteuid() else "no file can be made there"
    assert done.returncode == 1
    assert done.stderr == (
        f"ringcast-launch: TMPDIR=/proc: {why}; set TMPDIR to a directory in which you can make files, or unset it\n"
    )


@pytest.mark.parametrize("folder", [".", "/tmp"])
def test_ci_gives_the_tests_an_empty_temporary_directory(folder: str) -> None:
    script = ROOT / ".ci" / "fresh-tmp"
    asked = "import tempfile, os; t = tempfile.gettempdir(); open(t + '/left', 'w'); print(t, *os.listdir(t))"
    command = [str(script), sys.executable, "-c", asked]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(60))
    path, *names = done.stdout.split()
    assert names == ["left"], done.stderr
    assert not Path(path, "left").exists()
    failing = [str(script), "sh", "-c", "exit 3"]
    assert subprocess.run(failing, cwd=folder, timeout=patience(60)).returncode == 3
