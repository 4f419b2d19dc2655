"""Real jobs that lose ranks to SIGKILL and go on, or are started afresh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience
from support.places import EXAMPLES

pytestmark = pytest.mark.usefixtures("nothing_left")

SURVIVE = str(EXAMPLES / "survive.py")
LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
GO_ON = "--on-failure", "continue"
AFRESH = "--on-failure", "restart"

HEAD = """
import os, signal, sys, time
import ringcast
comm = ringcast.init()
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def until_it_fails(comm):
    try:
        while True:
            comm.allreduce(1)
    except (ringcast.PeerFailed, ringcast.Revoked):
        comm.revoke()
"""


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """A short one: the directories of jobs are looked for in it."""
    return short_path


def launch(folder: Path, *arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
    """Run the launcher to its end; no directory of sockets may stay."""
    sockets = folder / "sockets"
    sockets.mkdir()
    if program:
        (folder / "program.py").write_text(HEAD + program)
        arguments = (*arguments, str(folder / "program.py"))
    environment = {**os.environ, "TMPDIR": str(sockets)}
    done = subprocess.run([*LAUNCH, *arguments], env=environment, capture_output=True, text=True, timeout=patience(60))
    assert list(sockets.iterdir()) == []
    return done


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(line.split()[2] for line in done.stderr.splitlines() if " failed: killed by SIGKILL" in line)


@pytest.mark.parametrize(
    ("transport", "lost"),
    [
        pytest.param("ipc", (0,), marks=pytest.mark.smoke),
        *(("ipc", lost) for lost in [(), (2,), (0, 3), (1, 0, 2)]),
        ("shm", (0, 3)),
        ("tcp", (1, 3)),
    ],
)
def test_the_example_survives(tmp_path: Path, transport: str, lost: tuple[int, ...]) -> None:
    wishes = [word for rank in lost for word in ("--lose", str(rank))]
    done = launch(tmp_path, "-n", "4", "--transport", transport, *GO_ON, SURVIVE, *wishes)
    alive = [rank for rank in range(4) if rank not in lost]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"4 ranks began, {len(alive)} finished: {', '.join(map(str, alive))}",
        "the centres are those that one process finds",
    ]
    assert failures(done) == sorted(map(str, lost))


def test_the_example_survives_without_a_launcher(tmp_path: Path) -> None:
    """Rank 0 has started the control plane, which outlives it."""
    settings = {"SIZE": "3", "DIR": str(tmp_path), "NONCE": "7", "CONTROL": f"ipc://{tmp_path}/control"}
    environment = {**os.environ, **{f"RINGCAST_{name}": value for name, value in settings.items()}}
    ranks = [
        subprocess.Popen(
            [sys.executable, SURVIVE, "--lose", "0"],
            env={**environment, "RINGCAST_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=patience(60))[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [-signal.SIGKILL, 0, 0]
    assert said[1].startswith("3 ranks began, 2 finished: 1, 2\n")


def test_the_example_alone() -> None:
    done = subprocess.run([sys.executable, SURVIVE], capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "1 ranks began, 1 finished: 0")


def test_without_the_wish_to_go_on_the_job_ends_with_the_rank(tmp_path: Path) -> None:
    assert launch(tmp_path, "-n", "3", SURVIVE, "--lose", "1").returncode == 137


@pytest.mark.parametrize("verb", ["shrink", "agree"])
def test_ranks_that_die_while_the_others_agree(tmp_path: Path, verb: str) -> None:
    """Rank 1 dies in a call, rank 3 when it learns that, rank 4 (killed by rank 0) when it votes or before."""
    program = f"""
if comm.rank == 4:
    comm.sendrecv(os.getpid(), 0, None)
if comm.rank == 0:
    victim = comm.sendrecv(None, None, 4)
    comm.sendrecv("go", 1, None)
if comm.rank == 1:
    comm.sendrecv(None, None, 0)
    die()
until_it_fails(comm)
if comm.rank == 3:
    die()
if comm.rank == 0:
    os.kill(victim, signal.SIGKILL)
    while 4 not in comm.get_failed():
        time.sleep(0.01)
while True:
    try:
        if "{verb}" == "agree":
            comm.agree(comm.rank | 8)
        new = comm.shrink()
        result = new.allreduce([new.members])
        break
    except (ringcast.PeerFailed, ringcast.Revoked):
        comm.ack_failed()
if new.rank == 0:
    print(new.members)
"""
    done = launch(tmp_path, "-n", "5", *GO_ON, program=program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(0, 2)\n"
    assert failures(done) == ["1", "3", "4"]


def test_a_rank_whose_link_one_other_has_lost_is_failed_for_all(tmp_path: Path) -> None:
    program = """
world, failures = comm, 0
if comm.rank == 0:
    comm._group.endpoint.protocol.lose(2, "the link is lost")
while failures < 100:
    try:
        comm.barrier()
        break
    except (ringcast.PeerFailed, ringcast.Revoked):
        failures, comm = failures + 1, comm.shrink()
if world.rank == 0:
    print(comm.members)
"""
    done = launch(tmp_path, "-n", "3", *GO_ON, program=program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(0, 1)\n"
    assert " failed: the link is lost\n" in done.stderr


def test_survivors_that_give_up_are_not_a_job_that_is_well(tmp_path: Path) -> None:
    done = launch(tmp_path, "-n", "3", *GO_ON, program="if comm.rank == 1: die()\ncomm.barrier()")
    assert done.returncode == 137
    assert "rank 1 (" in done.stderr.splitlines()[-1]


def test_a_survivor_that_is_not_content_says_so_by_its_exit_code(tmp_path: Path) -> None:
    program = """
if comm.rank == 1: die()
until_it_fails(comm)
comm.shrink().barrier()
sys.exit(3 if comm.rank == 0 else 0)
"""
    assert launch(tmp_path, "-n", "3", *GO_ON, program=program).returncode != 0


def test_a_job_is_started_afresh_until_it_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    program = """
attempt = int(os.environ["RINGCAST_RESTART"])
print(f"rank {comm.rank}, attempt {attempt}")
comm.barrier()
if comm.rank == 1 and attempt < 2: die()
print("sum", comm.allreduce(1))
"""
    done = launch(tmp_path, "-n", "3", *AFRESH, program=program)
    assert done.returncode == 0, done.stderr
    for attempt in range(3):
        assert [f"rank {r}, attempt {attempt}" in done.stdout.splitlines() for r in range(3)] == [True] * 3
    assert done.stdout.splitlines().count("sum 3") == 3  # what different ranks print has no order
    assert done.stderr.count("ringcast-launch: rank 1 (") == 2
    assert "starting the job afresh (restart 1 of 3)" in done.stderr
    assert "starting the job afresh (restart 2 of 3)" in done.stderr
    assert "restart 3" not in done.stderr
    assert done.stderr.count("the ranks share the cores") == 1


@pytest.mark.parametrize("restarts", [0, 1])
def test_the_last_failure_decides_the_exit_code(tmp_path: Path, restarts: int) -> None:
    program = """
print("begun")
comm.barrier()
if comm.rank == 1: sys.exit(5 + int(os.environ["RINGCAST_RESTART"]))
comm.barrier()
"""
    output = "--output", f"dir={tmp_path}/out"
    done = launch(tmp_path, "-n", "2", *AFRESH, "--max-restarts", str(restarts), *output, program=program)
    assert done.returncode == 5 + restarts
    assert done.stderr.count("afresh") == restarts
    told = (tmp_path / "out" / "rank-0.out").read_text()
    assert told.count("begun") == restarts + 1  # what the first attempt said is still there


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_never_restarts(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "program.py").write_text(HEAD + "comm.barrier()\nprint('ready')\nwhile True: time.sleep(1)")
    command = [*LAUNCH, "-n", "2", *AFRESH, str(tmp_path / "program.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.send_signal(number)
        _, said = launcher.communicate(timeout=patience(30))
    assert launcher.returncode == 128 + number
    assert "afresh" not in said


def test_the_time_of_the_job_is_that_of_all_attempts(tmp_path: Path) -> None:
    program = "time.sleep(1)\nif comm.rank == 1: die()\ncomm.barrier()"
    done = launch(tmp_path, "-n", "2", "--timeout", "4", *AFRESH, "--max-restarts", "1000", program=program)
    assert done.returncode == 124


@pytest.mark.parametrize(
    "wrong",
    [
        ("--on-failure", "despair"),
        ("--max-restarts", "2"),
        (*GO_ON, "--max-restarts", "2"),
        (*AFRESH, "--max-restarts", "-1"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    assert launch(tmp_path, "-n", "1", *wrong, SURVIVE).returncode == 2


TASKS = """
any_source, how, p = sys.argv[1] == "any", sys.argv[2], comm.size
if comm.rank == 0:
    status, results, busy, caught = ringcast.Status(), {}, {}, 0
    tasks, idle = list(range(6 * (p - 1))), list(range(1, p))

    def lost():
        comm.ack_failed()
        for worker in comm.get_failed():
            if worker in busy:
                tasks.append(busy.pop(worker))
            if worker in idle:
                idle.remove(worker)
        return 1

    while tasks or busy:
        try:
            while tasks and idle:
                worker = idle.pop()
                busy[worker] = tasks.pop()
                comm.send(busy[worker], worker)
            result = comm.recv(source=ringcast.ANY_SOURCE if any_source else next(iter(busy)), status=status)
        except ringcast.PeerFailed:
            caught += lost()
            continue
        results[busy.pop(status.source)] = result
        idle.append(status.source)
    right, failed = results == {task: 10 * task for task in range(6 * (p - 1))}, comm.get_failed()
    for worker in range(1, p):
        if worker not in failed:
            comm.send(None, worker)
    print(right, failed, caught, comm.is_revoked)
else:
    while (task := comm.recv(source=0)) is not None:
        if comm.rank == p - 1:
            if how == "kill":
                die()
            raise ValueError("a bad task")
        comm.send(10 * task, 0)
"""


@pytest.mark.parametrize("transport", ["shm", "ipc", "sockets", "tcp"])
@pytest.mark.parametrize("source", ["one", "any"])
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_workers_go_on_with_the_master_when_one_of_them_is_lost(
    tmp_path: Path, transport: str, source: str, how: str
) -> None:
    (tmp_path / "program.py").write_text(HEAD + TASKS)
    arguments = "-n", "4", "--transport", transport, *GO_ON, str(tmp_path / "program.py"), source, how
    done = launch(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True (3,) 1 False\n"
    assert done.stderr.count(" failed: ") == 1


def test_a_rank_that_is_lost_in_a_collective_ends_the_receives_of_the_others(tmp_path: Path) -> None:
    done = launch(
        tmp_path,
        *("-n", "4", *GO_ON),
        program="""
try:
    if comm.rank == 0:
        comm.send(0, 2)
        comm.allreduce(1)
    elif comm.rank == 2:
        comm.recv(source=0)
        die()
    else:
        comm.recv(source=0 if comm.rank == 1 else 1)
except (ringcast.PeerFailed, ringcast.Revoked):
    pass
comm = comm.shrink()
print(comm.allreduce(1))
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3"] * 3


@pytest.mark.parametrize("last", ["agree", "shrink", "revoke"])
def test_ranks_that_wait_for_each_other_meet_again(tmp_path: Path, last: str) -> None:
    """Rank 0 has lost rank 2 and does not answer rank 1 any more."""
    done = launch(
        tmp_path,
        *("-n", "3", *GO_ON),
        program=f"""
error = None
try:
    if comm.rank == 2:
        die()
    comm.recv(source=2 if comm.rank == 0 else 0)
except ringcast.RingcastError as caught:
    error = type(caught).__name__
if comm.rank == 0:
    comm.ack_failed()
    if "{last}" == "agree":
        try:
            comm.agree(1)
        except ringcast.CollectiveTimeout as caught:
            assert "deadlock" in str(caught)
    elif "{last}" == "revoke":
        comm.revoke()
print(comm.rank, error)
print(comm.shrink().size)
""",
    )
    found = {"agree": "CollectiveTimeout", "shrink": "PeerFailed", "revoke": "Revoked"}[last]
    assert sorted(done.stdout.splitlines()) == ["0 PeerFailed", f"1 {found}", "2", "2"]


def test_an_error_of_a_signals_handler_gives_up_the_call_that_it_interrupts(tmp_path: Path) -> None:
    """Else a receive that has ended would take the next message."""
    done = launch(
        tmp_path,
        *("-n", "3", *GO_ON),
        program="""
if comm.rank == 2:
    die()
if comm.rank == 0:
    signal.signal(signal.SIGALRM, lambda *_: comm.recv(source=2))
    while not comm.get_failed():
        pass
    signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    comm.recv(source=1 - comm.rank)
except (ringcast.PeerFailed, ringcast.Revoked):
    print(comm.is_revoked)
print(comm.shrink().size)
""",
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["2", "2", "True", "True"]
