"""Ranks and hosts of a job over ssh come to a bad end: it ends, in time, by name, and nothing stays on any host."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringcast_launcher.hosts.agent import PATIENCE
from ringcast_launcher.hosts.remote_host import SILENCE
from support.beds import PROGRAMS, drop, on, set_link
from support.causes import names
from support.fleets import AGENT, Fleet, finished, last_line, until
from support.patience import patience
from support.places import EXAMPLES

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

FOREVER = str(PROGRAMS / "without_end.py")
SLEEP = "import time\nprint('running', flush=True)\ntime.sleep(1000)"
LOST = SILENCE + 15  # seconds until a job on a busy machine has ended that has lost a host
SLACK = 4.0  # seconds that a busy machine adds to the agent's patience


def named(rank: int, host: str, how: str) -> str:
    return rf"ringcast-launch: rank {rank} \({host}, pid \d+\) {how}"


FAILS = """
import os, signal, sys, time
def inner():
    raise ValueError("bad value")
if os.environ["RANK"] == "2":
    {way}
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("way", "code", "how"),
    [
        ("inner()", 1, "failed: ValueError: bad value"),
        ("os.kill(0, signal.SIGKILL)", 137, "failed: killed by SIGKILL"),
        ("sys.exit(3)", 3, "failed: exit code 3"),
    ],
)
def test_a_rank_of_another_host_is_named(hosts: Fleet, way: str, code: int, how: str) -> None:
    report = hosts.folder / "report.json"
    arguments = ["-H", "h0:2,h1:2", "--json-report", str(report), hosts.program(FAILS.format(way=way))]
    done = hosts.launch(*arguments)
    assert done.returncode == code
    assert re.fullmatch(named(2, "h1", how), last_line(done))
    assert ("[2] ValueError: bad value" in done.stderr.splitlines()) == (code == 1)
    found = json.loads(report.read_text())
    assert (found["exit_code"], found["rank"], found["host"]) == (code, 2, "h1")
    assert [each["host"] for each in found["ranks"]] == ["h0", "h0", "h1", "h1"]
    assert f"pid {found['pid']})" in last_line(done)
    assert found["ranks"][2]["pid"] == found["pid"]


def running(hosts: Fleet, count: int, program: str = "") -> None:
    """Wait until all workers of a job run their program."""

    def up() -> bool:
        workers = [pid for i in range(len(hosts.bed.hosts)) for pid in hosts.workers(i)]
        return len(workers) == count and all("-m ringcast" not in hosts.processes().get(pid, "") for pid in workers)

    until(up)


SAVE = """
import os, signal, sys, time
came = []
for number in signal.SIGTERM, signal.SIGUSR1:
    signal.signal(number, lambda number, frame: came.append(number))
print("running", flush=True)
while not came:
    time.sleep(0.01)
print("saving", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print("saved", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("everywhere", [False, True])
def test_ranks_of_all_hosts_save_their_state(
    hosts: Fleet, tmp_path: Path, number: signal.Signals, everywhere: bool
) -> None:
    """The signal is sent to the launcher, or to its agents as well, as Slurm does."""
    arguments = ("--output", "none", "-H", "h0,h1,h2", hosts.program(SAVE), str(tmp_path / "go"))
    with hosts.started(*arguments) as process:
        assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3
        for host in (1, 2) if everywhere else ():
            os.kill(hosts.pid_of(host, AGENT), number)
        process.send_signal(number)
        assert [process.stdout.readline() for _ in range(3)] == ["saving\n"] * 3
        (tmp_path / "go").touch()
        done = finished(process)
    assert done.stdout == "saved\n" * 3
    assert done.returncode == (143 if number == signal.SIGTERM else 0)


def test_a_host_that_is_shut_down_lets_its_ranks_save_and_the_others_go_on(hosts: Fleet, tmp_path: Path) -> None:
    how = ("--on-failure", "continue", "--output", "none")
    with hosts.started(*how, "-H", "h0,h1,h2", hosts.program(SAVE), str(tmp_path / "go")) as process:
        assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3
        os.kill(hosts.pid_of(1, AGENT), signal.SIGTERM)
        assert process.stdout.readline() == "saving\n"
        (tmp_path / "go").touch()
        assert process.stdout.readline() == "saved\n"
        until(lambda: not hosts.workers(1), 10)  # an interpreter that ends has no handlers any more
        os.kill(hosts.pid_of(2, AGENT), signal.SIGUSR1)  # to all that run
        done = finished(process)
    assert sorted(done.stdout.split()) == ["saved", "saved", "saving", "saving"]
    assert done.returncode == 0


def test_an_agent_that_is_killed(hosts: Fleet) -> None:
    with hosts.started("--output", "none", "-H", "h0,h1:2,h2", hosts.program(SLEEP)) as process:
        # What a rank has printed comes after the report that it runs: processes are there before the launcher knows.
        assert [process.stdout.readline() for _ in range(4)] == ["running\n"] * 4
        os.kill(hosts.pid_of(1, AGENT), signal.SIGKILL)
        until(lambda: not hosts.workers(1), 10)
        done = finished(process)
    assert done.returncode == 1
    assert re.match(named(1, "h1", "failed: the agent on its host h1 ended, killed by SIGKILL"), last_line(done))


@pytest.mark.long
@pytest.mark.parametrize("end", ["ssh", "sshd"])
def test_an_end_of_the_connection_that_is_killed_is_no_end_of_the_agent(hosts: Fleet, end: str) -> None:
    with hosts.started("--output", "none", "-H", "h0,h1", hosts.program(SLEEP)) as process:
        # What a rank has printed comes after the report that it runs: processes are there before the launcher knows.
        assert [process.stdout.readline() for _ in range(2)] == ["running\n"] * 2
        for pid in [hosts.pid_of(0, "ssh -oBatchMode=yes h1")] if end == "ssh" else hosts.sessions(1):
            os.kill(pid, signal.SIGKILL)
        start = time.monotonic()
        until(lambda: not hosts.workers(1), 15)
        done = finished(process)
    assert time.monotonic() - start > SILENCE - 2  # the agent might have lived that long
    assert done.returncode == 1
    assert re.match(named(1, "h1", "failed: the connection to its host h1 was lost"), last_line(done)), done.stderr


WATCHED = """
import os, sys, time, ringcast
comm = ringcast.init()
comm.barrier()
print("running", flush=True)
folder, me = sys.argv[1], os.environ["RANK"]
if me == "1":
    while True:
        with open(f"{folder}/alive", "w") as file:
            file.write(str(time.monotonic()))
        os.rename(f"{folder}/alive", f"{folder}/last")
        time.sleep(0.02)
try:
    comm.barrier()
except ringcast.RingcastError as error:
    with open(f"{folder}/told-{me}", "w") as file:
        file.write(f"{time.monotonic()} {type(error).__name__}: {error}")
    raise
"""


CUT = "(nothing was heard of|the connection to) its host h1"


def lose(hosts: Fleet, cut: Callable[[], None], mend: Callable[[], None], how: str = CUT) -> None:
    """Lose h1 in the middle of a job; its rank must have ended before any other one is told that it failed."""
    folder = hosts.folder / f"watched-{time.monotonic_ns()}"
    folder.mkdir()
    with hosts.started("--output", "none", "-H", "h0,h1,h2", hosts.program(WATCHED), str(folder)) as process:
        assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3
        start = time.monotonic()
        cut()
        done = finished(process, LOST + 30)
        took = time.monotonic() - start
        until(lambda: not hosts.workers(1), 1)
        mend()
    assert took < patience(LOST), done.stderr
    last = float((folder / "last").read_text())
    assert last - start < PATIENCE + 3 + patience(SLACK)
    told = {file.name: file.read_text().split(" ", 1) for file in folder.glob("told-*")}
    assert told.keys() == {"told-0", "told-2"}
    for when, what in told.values():
        assert last < float(when), (last, told)
        assert "rank 1" in what
    assert re.match(named(1, "h1", f"failed: {how}"), last_line(done))
    assert done.returncode == 1


@pytest.mark.long
def test_an_agent_that_is_stopped_has_a_watchdog_who_ends_its_workers_before_the_others_are_told(hosts: Fleet) -> None:
    def stop() -> None:
        os.kill(hosts.pid_of(1, AGENT), signal.SIGSTOP)

    lose(hosts, stop, lambda: None, "the agent on its host h1 ended, killed by SIGKILL")


@pytest.mark.long
def test_a_host_whose_cable_is_cut_ends_its_workers_before_the_others_are_told(hosts: Fleet) -> None:
    lose(hosts, lambda: set_link(hosts.bed, 1, "down"), lambda: set_link(hosts.bed, 1, "up"))


@pytest.mark.long
def test_a_host_that_hears_but_is_not_heard_ends_its_workers_too(hosts: Fleet) -> None:
    address = hosts.bed.hosts[0].address
    lose(
        hosts,
        lambda: drop(hosts.bed, 1, address),
        lambda: on(hosts.bed, 1, "ip", "neigh", "del", address, "dev", "e0") and None,
    )


@pytest.mark.long
def test_a_cable_cut_in_the_middle_of_a_collective(hosts: Fleet) -> None:
    with hosts.started("--output", "none", "-H", "h0,h1:2,h2", FOREVER, "allreduce", "500000", "0") as process:
        assert [process.stdout.readline() for _ in range(4)] == ["running\n"] * 4
        start = time.monotonic()
        set_link(hosts.bed, 2, "down")
        done = finished(process, LOST + 30)
        assert time.monotonic() - start < patience(LOST)
        until(lambda: not hosts.workers(2), 1)
        set_link(hosts.bed, 2, "up")
    assert done.returncode != 0
    assert re.match(named(3, "h2", "failed: "), last_line(done))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_on_all_hosts(hosts: Fleet, number: signal.Signals) -> None:
    with hosts.started("-H", "h0,h1,h2", hosts.program(SLEEP)) as process:
        running(hosts, 3)
        process.send_signal(number)
        done = finished(process)
    assert (done.returncode, last_line(done)) == (128 + number, f"ringcast-launch: ended by {number.name}")


def test_a_launcher_that_is_killed_leaves_nothing_on_any_host(hosts: Fleet) -> None:
    with hosts.started("-H", "h0,h1,h2", hosts.program(SLEEP)) as process:
        running(hosts, 3)
        process.kill()
        process.communicate()
        hosts.assert_empty(15)


ORPHANS = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); print('grandchild'); time.sleep(1000)"],
                 stdout=sys.stderr)
print("up", flush=True)
if os.environ["RANK"] == "1": sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", ["0", "3"])
def test_what_workers_leave_behind_is_ended_on_all_hosts(hosts: Fleet, code: str) -> None:
    done = hosts.launch("-H", "h0,h1", hosts.program(ORPHANS), code)
    assert done.returncode == int(code)


@pytest.mark.long
def test_a_rank_of_another_host_that_is_stopped_is_found(hosts: Fleet) -> None:
    recorder = hosts.folder / "flight.json"
    arguments = ["-H", "h0,h1,h2", "--output", "none", "--flight-recorder", str(recorder), FOREVER, "barrier", "8", "0"]
    with hosts.started(*arguments) as process:
        assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3
        process.send_signal(signal.SIGRTMIN + 5)
        table = [process.stderr.readline() for _ in range(4)]
        (worker,) = hosts.workers(2)
        os.kill(worker, signal.SIGSTOP)
        done = finished(process)
    assert [line.split()[:2] for line in table] == [["rank", "host"], ["0", "h0"], ["1", "h1"], ["2", "h2"]]
    assert all("barrier" in line for line in table[1:])
    assert done.returncode == 1
    assert re.match(named(2, "h2", r"failed: it was stopped \(state T\)"), last_line(done))
    assert {each["rank"] for each in json.loads(recorder.read_text())["ranks"]} == {0, 1, 2}


@pytest.mark.long
def test_a_timeout_shows_the_stacks_of_all_hosts(hosts: Fleet) -> None:
    program = hosts.program("""
import os, time, ringcast
comm = ringcast.init()
def where_it_waits():
    time.sleep(1000)
where_it_waits()
""")
    with hosts.started("-H", "h0,h1:2", "--timeout", f"{patience(15):g}", program) as process:
        done = finished(process)
    assert done.returncode == 124
    assert re.search(r"^ranks 0, 1, 2:\n.* in <module>\n.* in where_it_waits$", done.stderr, re.MULTILINE), done.stderr


def test_the_others_go_on_without_a_rank_of_another_host(hosts: Fleet) -> None:
    arguments = ["--on-failure", "continue", "-H", "h0,h1:2,h2", str(EXAMPLES / "survive.py"), "--lose", "2"]
    done = hosts.launch("--output", "none", *arguments)
    assert done.returncode == 0, done.stderr
    assert "4 ranks began, 3 finished: 0, 1, 3" in done.stdout
    said = re.search(r"rank 2 \(h1, pid \d+\) failed: .*", done.stderr)
    assert said is not None, done.stderr
    assert names(said[0], "killed by SIGKILL")


def test_a_job_starts_afresh_on_all_hosts(hosts: Fleet) -> None:
    program = hosts.program("""
import os, sys
print(os.environ["RINGCAST_RESTART"], os.environ["RANK"], flush=True)
sys.exit(4 if os.environ["RANK"] + os.environ["RINGCAST_RESTART"] == "10" else 0)
""")
    arguments = ["--on-failure", "restart", "--max-restarts", "2", "-H", "h0,h1", "--output", "none", program]
    done = hosts.launch(*arguments)
    assert done.returncode == 0
    assert {"0 1", "1 0", "1 1"} <= set(done.stdout.splitlines())
    assert re.search(named(1, "h1", "failed: exit code 4"), done.stderr)
    assert "starting the job afresh (restart 1 of 2)" in done.stderr


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_slow_reader_loses_nothing_and_memory_is_bounded(hosts: Fleet) -> None:
    program = hosts.program("for i in range(1000): print(i, 'x' * 100_000)")
    with hosts.started("-H", "h1", "--output", "none", program) as process:
        until(lambda: hosts.workers(1))
        still, seen = 0, -1
        while still < 20:  # until nothing moves any more: all are full
            now = sum(map(memory, hosts.processes()))
            still, seen = (still + 1 if now == seen else 0), now
            time.sleep(0.05)
        assert all(memory(pid) < 90 << 20 for pid in hosts.processes())
        lines = finished(process).stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [str(i) for i in range(1000)]
    assert {line.partition(" ")[2] for line in lines} == {"x" * 100_000}


@pytest.mark.long
def test_a_job_that_is_paused_for_longer_than_silence_goes_on(hosts: Fleet) -> None:
    with hosts.started("--output", "none", "-H", "h0,h1,h2", FOREVER, "allreduce", "8000", "3000") as process:
        assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3
        process.send_signal(signal.SIGTSTP)
        launcher = hosts.pid_of(0, rf"{re.escape(sys.executable)} -m ringcast_launcher ")
        until(lambda: state(launcher) == "T")
        until(lambda: all(state(pid) == "T" for i in range(3) for pid in hosts.workers(i)))
        time.sleep(SILENCE + 3)  # the time in which nobody hears of anybody is what is tested
        process.send_signal(signal.SIGCONT)
        os.kill(process.pid, signal.SIGCONT)  # nsenter stops with its command, but does not go on with it
        done = finished(process)
    assert (done.returncode, done.stdout) == (0, "null\n" * 3), done.stdout + done.stderr


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
