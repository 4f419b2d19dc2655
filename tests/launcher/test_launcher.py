"""The launcher with real processes: exit codes, last words, signals, output, and that nothing is left."""

import contextlib
import doctest
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from ringcast_launcher import cli
from ringcast_launcher.decide import verdict
from ringcast_launcher.output import output
from ringcast_launcher.plan import job
from ringcast_launcher.plan.job import THREAD_VARIABLES
from support.patience import of_patient_launcher, patience
from support.processes import alive

Launch = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("nothing_left")

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 30  # seconds; nothing here takes nearly as long

JOIN = """
import os, sys, threading, zmq
from ringcast.config.worker import from_environment
from ringcast.control import ControlClient
from ringcast.wire.codec import decode
from ringcast.wire.control_messages import NOTICES, Abort, Failed, Failing, Finished
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
settings = from_environment()
rank, context, failed = settings.rank, zmq.Context(), threading.Event()
def inject(frames):
    match decode(frames[1], NOTICES):
        case Failed(failure=Failure(cause)) | Abort(cause):
            failed.cause = cause
            failed.set()
client = ControlClient(settings, EndpointCard(f"data{rank}"), inject, context)
client.join(settings.start_timeout)
def leave(code=0):
    if code == 0:
        client.send(Finished(rank, {}))
    client.close()
    context.term()
    sys.exit(code)
"""


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """A short one: the directories of jobs are looked for in it."""
    return short_path


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that runs ringcast-launch to its end; program text becomes a script. No directory may stay."""

    def run(*arguments: str, program: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        jobs = tmp_path / "jobs"
        jobs.mkdir(exist_ok=True)
        if program:
            (tmp_path / "program.py").write_text(program)
            arguments = (*arguments, str(tmp_path / "program.py"))
        done = subprocess.run(
            [*LAUNCH, *arguments],
            env={**os.environ, "TMPDIR": str(jobs), **environment},
            capture_output=True,
            text=True,
            timeout=patience(LIMIT),
        )
        assert list(jobs.iterdir()) == []
        return done

    return run


@pytest.mark.parametrize("module", [cli, job, output, verdict])
def test_the_examples_in_docstrings_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_every_rank_gets_its_environment(launch: Launch) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE PYTHONUNBUFFERED RINGCAST_SIZE RINGCAST_HOSTED MINE"
    done = launch("-n", "3", "-x", "MINE=yes", program=f"import os\nprint(*map(os.environ.get, {names.split()}))")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {r} 3 {r} 3 1 3 1 yes" for r in range(3)]


@pytest.mark.live
def test_secrets_are_in_no_command_line_and_no_output(launch: Launch) -> None:
    done = launch("-v", "-n", "2", "--transport", "tcp", program="""
import os, psutil
key = os.environ["RINGCAST_KEY"]
assert len(key) == 40
assert key not in " ".join(psutil.Process().cmdline() + psutil.Process(os.getppid()).cmdline())
print(key)
""")  # fmt: skip
    assert done.returncode == 0
    keys = {line.split()[1] for line in done.stdout.splitlines()}
    assert len(keys) == 1
    assert keys.pop() not in done.stderr


@pytest.mark.parametrize(
    "transport", ["auto", *(pytest.param(kind, marks=pytest.mark.live) for kind in ("ipc", "tcp"))]
)
def test_a_job_that_ends_well_says_nothing(launch: Launch, transport: str) -> None:
    done = launch("-n", "3", "--transport", transport, program=JOIN + "leave()", OMP_NUM_THREADS="1",
                  OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_exit_code_and_rank_of_the_first_failure(launch: Launch) -> None:
    done = launch("-n", "4", program=JOIN + """
if rank == 2:
    print("pid", os.getpid())
    leave(3)
failed.wait(20)
leave(4)
""", **of_patient_launcher())  # fmt: skip
    pid = re.search(r"\[2\] pid (\d+)", done.stdout)[1]
    assert done.returncode == 3
    assert re.fullmatch(rf"ringcast-launch: rank 2 \(.+, pid {pid}\) failed: exit code 3", last_line(done))


@pytest.mark.live
def test_the_traceback_of_an_exception_stands_at_the_end_and_only_there(
    launch: Launch,
) -> None:
    done = launch("-n", "3", program="""
import os, time
def inner():
    raise ValueError("bad value")
if os.environ["RANK"] == "1":
    inner()
time.sleep(30)
""")  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-10:]
    assert done.stderr.count("Traceback") == 1
    start = last.index("[1] Traceback (most recent call last):")
    assert last[start:][-2] == "[1] ValueError: bad value"
    assert any("in inner" in line for line in last[start:])
    assert "rank 1 " in last[-1]


@pytest.mark.live
def test_a_reported_traceback_comes_first(launch: Launch) -> None:
    done = launch("-n", "2", program=JOIN + """
if rank == 1:
    client.send(Failing(rank, Failure("ValueError: told", "Traceback (as told)\\nValueError: told\\n")))
    leave(1)
failed.wait(20)
assert failed.cause == "ValueError: told", failed.cause
leave()
""")  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-3:-1] == ["[1] Traceback (as told)", "[1] ValueError: told"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_by_a_signal(launch: Launch, number: signal.Signals) -> None:
    done = launch("-n", "2", program=JOIN + f"""
if rank == 1:
    os.kill(os.getpid(), {int(number)})
failed.wait(20)
assert failed.cause == "killed by {number.name}", failed.cause
client.send(Failing(rank, Failure("PeerFailed: rank 1", blames=(1,))))
leave(1)
""")  # fmt: skip
    assert done.returncode == 128 + number
    assert last_line(done).endswith(f"failed: killed by {number.name}")


@pytest.mark.live
def test_leaving_without_finishing_is_a_failure_even_with_code_0(
    launch: Launch,
) -> None:
    done = launch("-n", "3", program=JOIN + """
if rank == 1:
    os._exit(0)
failed.wait(20)
client.send(Failing(rank, Failure("PeerFailed: rank 1", blames=(1,))))
leave(7)
""")  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"rank 1 \(.*\) failed: it exited with code 0 without finishing$", last_line(done))


@pytest.mark.live
def test_a_rank_that_left_while_others_needed_it_is_named(
    launch: Launch,
) -> None:
    done = launch("-n", "2", program=JOIN + """
if rank == 1:
    leave()
client.send(Failing(rank, Failure("PeerFailed: rank 1 has left", blames=(1,))))
leave(7)
""")  # fmt: skip
    assert done.returncode == 1
    assert re.search(
        r"rank 1 \(.*\) exited with code 0 while rank 0 still communicated with it; every rank has to", last_line(done)
    )


@pytest.mark.live
def test_a_rank_that_never_joins_ends_the_start_for_the_others(
    launch: Launch,
) -> None:
    done = launch("-n", "3", program='import os, sys\nif os.environ["RANK"] == "2": sys.exit(0)\n' + JOIN)
    assert done.returncode == 1
    assert "rank 2 ended before all ranks had joined: it exited with code 0 without joining" in done.stderr
    assert re.search(r"rank 2 \(.*\) exited with code 0 without joining$", last_line(done))


@pytest.mark.live
def test_start_timeout_names_the_missing(launch: Launch) -> None:
    program = 'import os, time\nif os.environ["RANK"] == "1": time.sleep(30)\n' + JOIN
    done = launch("-n", "2", "--start-timeout", "0.5", program=program)
    assert done.returncode == 1
    assert "the job could not start: rank 1 of 2 did not join within 0.5 s" in last_line(done)


def test_timeout(launch: Launch) -> None:
    done = launch("-n", "2", "--timeout", "0.5", "sleep", "30")
    assert done.returncode == 124
    assert last_line(done).endswith("the job did not end within 0.5 s; still running: ranks 0, 1")


@pytest.mark.live
def test_who_ignores_sigterm_is_killed(launch: Launch) -> None:
    done = launch("-n", "2", program="""
import os, signal, sys, time
if os.environ["RANK"] == "0":
    sys.exit(5)
signal.signal(signal.SIGTERM, lambda *_: print("asked"))
for _ in range(30):
    time.sleep(1)
""")  # fmt: skip
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-n", "0", "true"], 2, "-n 0: at least one rank is needed"),
        (["-n", "2", "missing.py"], 2, "there is no script missing.py in "),
        (["-n", "2", "no-such-program"], 127, "there is no program no-such-program"),
        (["-n", "2", "./no-such-program"], 127, "there is no program ./no-such-program"),
        (["true"], 2, "how many ranks?"),
        (["-n", "2"], 2, "nothing to run"),
        (["-n", "2", "-m"], 2, "nothing to run"),
        (["-n", "1", "--wdir", "/nowhere", "true"], 2, "--wdir /nowhere: there is no such directory"),
        (["-n", "1", "-x", "NO_SUCH_VARIABLE", "true"], 2, "-x NO_SUCH_VARIABLE: there is no such variable"),
        (["-n", "1", "--flight-recorder", "/nowhere/x", "true"], 2, "--flight-recorder /nowhere/x: no file can be"),
        (["-n", "1", "--profile", "/nowhere/x.html", "true"], 2, "--profile /nowhere/x.html: no file can be"),
        (["-n", "1", "--profile", "x.txt", "true"], 2, "--profile x.txt: expected a file *.html or *.json"),
        (["-n", "1", "--placement", "block", "true"], 2, "--placement: only with hosts"),
        (["-n", "1", "--rsh-agent", "ssh", "true"], 2, "--rsh-agent: only with hosts"),
        (["-n", "1", "--output", "file=/proc/nowhere/x", "true"], 2, "--output file=/proc/nowhere/x: "),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    assert cli.command(arguments, {**os.environ, **environment}) == code
    said = capfd.readouterr().err
    assert said.startswith(f"ringcast-launch: {words}")
    assert said.count("\n") == 1


def test_a_working_directory_that_was_removed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    assert cli.command(["-n", "1", "true"], environment) == 2
    assert capfd.readouterr().err == (
        "ringcast-launch: the working directory was removed; go to another one, or name one by --wdir\n"
    )
    assert cli.command(["-n", "1", "--wdir", str(tmp_path), "true"], environment) == 0


@pytest.mark.parametrize("arguments", [["-n", "x", "true"], ["-n", "1", "--timeout", "0", "true"],
    ["-n", "1", "--output", "everywhere", "true"], ["-n", "1", "--json-report", "/nowhere/file", "true"],
    ["-n", "1", "--nonsense", "true"]])  # fmt: skip
def test_wrong_options_are_usage_errors(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.command(arguments, os.environ)
    assert ended.value.code == 2
    assert "ringcast-launch: " in capsys.readouterr().err


def test_a_program_that_cannot_be_executed(launch: Launch, tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF but not really")
    program.chmod(0o755)
    done = launch("-n", "2", str(program))
    assert done.returncode == 126
    assert "broken cannot be started: " in last_line(done)


def test_what_follows_the_program_is_its_own(launch: Launch) -> None:
    code = "import sys; print(*sys.argv[1:])"
    done = launch("-n", "1", "--output", "none", "python", "-c", code, "-n", "7", "--", "--version", "-m")
    assert done.stdout == "-n 7 -- --version -m\n"
    done = launch("-n1", "--output=none", "--", "python3", "-c", code, "-x")
    assert done.stdout == "-x\n"


@pytest.mark.live
def test_modules_run_like_python_dash_m(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text("import sys, os\nprint(__name__, sys.argv[1:], os.getcwd())")
    done = launch("-np", "1", "--wdir", str(tmp_path), "--output", "none", "-m", "some_module", "--timeout", "1")
    assert done.stdout == f"__main__ ['--timeout', '1'] {tmp_path}\n"


@pytest.mark.live
def test_threads_are_shared_out_and_that_is_said_once(launch: Launch) -> None:
    cores = len(os.sched_getaffinity(0))
    program = 'import os\nprint(os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"])'
    clean = {"OMP_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "", "MKL_NUM_THREADS": ""}
    done = launch("-n", "2", program=program, **clean)
    each = max(1, cores // 2)
    assert done.stderr.count(f"OMP_NUM_THREADS={each}") == 1
    assert sorted(done.stdout.splitlines()) == [f"[0] {each} {each}", f"[1] {each} {each}"]
    done = launch("-n", "2", program=program, **{**clean, "OMP_NUM_THREADS": "7"})
    assert "OMP" not in done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[0] 7 {each}", f"[1] 7 {each}"]


@pytest.mark.live
def test_what_the_user_tells_the_workers_arrives(launch: Launch) -> None:
    program = 'import os\nprint(*(os.environ[f"RINGCAST_{n}"] for n in ("TIMEOUT", "START_TIMEOUT")))'
    done = launch("-n", "1", "-x", "RINGCAST_TIMEOUT=5", program=program)
    assert done.stdout == "[0] 5.0 60.0\n"
    done = launch("-n", "1", "--start-timeout", "9", program=program, RINGCAST_TIMEOUT="never")
    assert done.returncode == 2
    assert "RINGCAST_TIMEOUT='never': must be a number of seconds" in done.stderr


@pytest.mark.live
def test_large_output_of_many_ranks_arrives_whole(launch: Launch) -> None:
    done = launch("-n", "3", program="""
import os, sys
mark = "abc"[int(os.environ["RANK"])]
for i in range(40):
    sys.stdout.write(mark * 100_000 + "\\n")
    sys.stderr.write(mark * 7 + "\\n")
sys.stdout.write(mark * 1_000_000 + " unfinished")
""")  # fmt: skip
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for rank, mark in enumerate("abc"):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] " + mark * 100_000] * 40 + [f"[{rank}] " + mark * 1_000_000 + " unfinished"]
        assert done.stderr.count(f"[{rank}] {mark * 7}\n") == 40
    assert len(lines) == 3 * 41


@pytest.mark.live
def test_output_to_files(launch: Launch, tmp_path: Path) -> None:
    program = 'import os, sys\nprint("out", os.environ["RANK"])\nprint("err", file=sys.stderr)\nsys.exit(1)'
    done = launch("-n", "2", "--output", f"dir={tmp_path}/logs", program=program)
    assert done.stdout == ""
    for rank in range(2):
        assert (tmp_path / f"logs/rank-{rank}.out").read_text() in (f"out {rank}\n", "")
    assert (tmp_path / f"logs/rank-{re.search('rank ([01])', last_line(done))[1]}.err").read_text() == "err\n"
    launch("-n", "1", "--output", f"file={tmp_path}/%h/rank-%R", program=program)
    (log,) = tmp_path.glob("*/rank-0")
    assert sorted(log.read_text().splitlines()) == ["err", "out 0"]


def test_the_report_for_programs_tells_of_the_job_and_of_every_rank(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = launch("-n", "3", "--json-report", str(file), program=JOIN + """
if rank == 1:
    client.send(Failing(rank, Failure("ValueError: told", "Traceback (as told)\\nValueError: told\\n")))
    leave(1)
failed.wait(20)
client.send(Finished(rank, {}, failure=Failure("", blames=(1,))))
leave(7)
""", **of_patient_launcher())  # fmt: skip
    report = json.loads(file.read_text())
    ranks = report.pop("ranks")
    (pid,) = re.findall(r"rank 1 \(.*, pid (\d+)\) failed", last_line(done))
    assert report == {
        "exit_code": 1, "cause": "failed: ValueError: told", "rank": 1, "host": socket.gethostname(), "pid": int(pid),
        "traceback": "Traceback (as told)\nValueError: told\n", "unusable_hosts": {},
    }  # fmt: skip
    assert [(r["rank"], r["status"], r["joined"], r["finished"], r["failure"], r["error"]) for r in ranks] == [
        (0, 7, True, True, "exit code 7", ""),
        (1, 1, True, False, "ValueError: told", "ValueError: told"),
        (2, 7, True, True, "exit code 7", ""),
    ]
    assert len({r["pid"] for r in ranks}) == 3
    assert ranks[1]["traceback"] == report["traceback"]


@pytest.mark.parametrize(("program", "code"), [("true", 0), ("no-such-program", 127)])
def test_the_report_is_written_whatever_happened(tmp_path: Path, program: str, code: int) -> None:
    file = tmp_path / "report.json"
    assert cli.command(["-n", "2", "--json-report", str(file), program], os.environ) == code
    report = json.loads(file.read_text())
    assert report["exit_code"] == code
    assert len(report["ranks"]) == (2 if code == 0 else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


# Signals, and what must not be left behind.

SLEEPERS = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "60"])
print(os.getpid(), child.pid, flush=True)
time.sleep(60)
"""


class Running:
    """A launcher with two ranks, each of which has told its pid and the pids of its children, if it has some."""

    def __init__(self, tmp_path: Path, program: str) -> None:
        (tmp_path / "program.py").write_text(program)
        self.jobs = tmp_path / "jobs"
        self.jobs.mkdir()
        self.launcher = subprocess.Popen(
            [*LAUNCH, "-n", "2", str(tmp_path / "program.py")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(self.jobs)}, bufsize=0,
        )  # fmt: skip
        told = [self.line().split()[1:] for _ in range(2)]
        self.workers = [psutil.Process(int(pids[0])) for pids in told]
        self.children = [psutil.Process(int(pid)) for pids in told for pid in pids[1:]]

    def line(self) -> str:
        assert select.select([self.launcher.stdout], [], [], patience(LIMIT))[0]
        return self.launcher.stdout.readline().decode()

    def end(self) -> tuple[int, str]:
        _, stderr = self.launcher.communicate(timeout=patience(LIMIT))
        return self.launcher.returncode, stderr.decode().splitlines()[-1]

    def kill(self) -> None:
        """Make an end of everything, whatever became of the test."""
        for process in [*self.workers, *self.children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.launcher.kill()
        self.launcher.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    """Return a function that starts a job which is ended with the test."""
    jobs: list[Running] = []

    def run(program: str) -> Running:
        jobs.append(Running(tmp_path, program))
        return jobs[-1]

    yield run
    for started in jobs:
        started.kill()


def assert_gone(processes: list[psutil.Process], timeout: float = 0.0) -> None:
    running = psutil.wait_procs(processes, timeout=patience(timeout))[1]
    assert [process for process in running if alive(process)] == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_a_signal_to_the_launcher_ends_everything(
    start: Callable[[str], Running], number: signal.Signals, code: int
) -> None:
    job = start(SLEEPERS)
    job.launcher.send_signal(number)
    assert job.end() == (code, f"ringcast-launch: ended by {number.name}")
    assert_gone(job.workers + job.children)
    assert list(job.jobs.iterdir()) == []


@pytest.mark.live
def test_a_second_interrupt_kills_at_once(start: Callable[[str], Running]) -> None:
    job = start("""
import os, signal, time
def refuse(*_):
    print("no", flush=True)
signal.signal(signal.SIGINT, refuse)
print(os.getpid(), flush=True)
while True:
    time.sleep(1)
""")  # fmt: skip
    job.launcher.send_signal(signal.SIGINT)
    assert {job.line().split()[1], job.line().split()[1]} == {"no"}
    job.launcher.send_signal(signal.SIGINT)
    assert job.end()[0] == 130
    assert_gone(job.workers)


@pytest.mark.live
def test_no_worker_outlives_a_killed_launcher(start: Callable[[str], Running]) -> None:
    job = start(SLEEPERS)
    job.launcher.kill()
    assert_gone(job.workers, timeout=10)


@pytest.mark.live
def test_children_of_workers_are_ended_with_the_job(launch: Launch) -> None:
    done = launch("-n", "2", "sh", "-c", "sleep 60 & echo $!")
    assert done.returncode == 0
    pids = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(pids) == 2
    assert_gone([process for process in psutil.process_iter() if process.pid in pids])


# A child that left the session, and a grandchild that has not even the environment, and whose parent has ended.
AWAY = """
import os, subprocess, sys, time
away = subprocess.Popen(["sleep", "60"], start_new_session=True)
"""
BARE = """
hide = ["env", "-i", "setsid", "-f", "sh", "-c", "echo $$; exec sleep 60 >&- 2>&-"]
print(os.getpid(), away.pid, subprocess.check_output(hide).decode().strip(), flush=True)
"""


@pytest.mark.live
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_no_grandchild_outlives_the_job(launch: Launch, end: str) -> None:
    done = launch("-n", "2", program=AWAY + BARE + end)
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 137)
    pids = [int(pid) for line in done.stdout.splitlines() for pid in line.split()[2:]]
    assert len(pids) >= 2
    assert_gone([process for process in psutil.process_iter() if process.pid in pids])


@pytest.mark.live
def test_a_killed_launcher_leaves_nothing(start: Callable[[str], Running]) -> None:
    job = start(AWAY + "print(os.getpid(), away.pid, flush=True)\ntime.sleep(60)")
    begin = time.monotonic()
    job.launcher.kill()
    assert_gone(job.workers + job.children, timeout=5)
    while list(job.jobs.iterdir()):
        assert time.monotonic() - begin < patience(5)
        time.sleep(0.01)


@pytest.mark.live
def test_a_stopped_launcher_stops_its_workers_and_goes_on_with_them(
    start: Callable[[str], Running], tmp_path: Path
) -> None:
    job = start(f"""
import os, time
print(os.getpid(), flush=True)
while not os.path.exists("{tmp_path}/go"):
    time.sleep(0.02)
""")  # fmt: skip
    job.launcher.send_signal(signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(job.launcher.pid, os.WUNTRACED)[1])
    deadline = time.monotonic() + patience(LIMIT)  # a process stops when it next meets the kernel
    while any(process.status() != psutil.STATUS_STOPPED for process in job.workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "go").touch()
    job.launcher.send_signal(signal.SIGCONT)
    job.launcher.communicate(timeout=patience(LIMIT))
    assert job.launcher.returncode == 0


@pytest.mark.live
def test_a_message_that_nobody_takes_fails_the_job(launch: Launch) -> None:
    program = """
import ringcast, numpy
comm = ringcast.init()
if comm.rank != 1:
    comm.sendrecv(numpy.arange(3), dest=1, source=None)
comm.barrier()  # rank 1 leaves after they were sent
"""
    done = launch("-n", "3", program=program)
    assert done.returncode == 1
    assert "failed: it finished without taking a message of rank" in last_line(done)


@pytest.mark.live
def test_what_was_sent_before_the_end_is_delivered(launch: Launch) -> None:
    done = launch("-n", "2", program="""
import ringcast, numpy
with ringcast.init() as comm:
    for i in range(100):
        if comm.rank == 0:
            comm.sendrecv(numpy.full(500, i), dest=1, source=None)
        else:
            assert (comm.sendrecv(None, dest=None, source=0) == i).all()
ringcast.finalize()
""")  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.live
def test_the_next_launcher_removes_what_a_killed_one_left(start: Callable[[str], Running]) -> None:
    running = start(SLEEPERS)
    (alive,) = os.listdir(running.jobs)
    another = {"args": [*LAUNCH, "-n", "1", "true"], "env": {**os.environ, "TMPDIR": str(running.jobs)}}
    assert subprocess.run(**another, timeout=patience(LIMIT)).returncode == 0
    assert os.listdir(running.jobs) == [alive]  # its launcher lives
    running.launcher.kill()
    running.launcher.wait()
    assert subprocess.run(**another, timeout=patience(LIMIT)).returncode == 0
    assert os.listdir(running.jobs) == []
