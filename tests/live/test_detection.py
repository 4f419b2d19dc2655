"""Every fault of a rank reaches every other rank as an error that tells what happened, within a bounded time."""

from __future__ import annotations

import socket

import pytest

from support import causes
from support.faulty_jobs import SILENT, SIZE, VICTIM, run
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

BUSY = 3  # times as long as it takes on a machine that has nothing else to do
FINISHED = "rank 1 finished (it left the job), but this rank still communicates with it"
EXITS = {
    "SIGKILL": ("killed by SIGKILL", 137),
    "exception": ("ValueError: bad luck", 1),
    "sys.exit(3)": (FINISHED, 3),
    "sys.exit(0)": (FINISHED, 1),
    "os._exit(0)": ("it exited with code 0 without finishing", 1),
    "os.abort": ("killed by SIGABRT", 134),
    "segfault": ("killed by SIGSEGV", 139),
}


@pytest.mark.parametrize("fault", list(EXITS))
def test_the_end_of_a_rank_is_known_to_all_within_a_second(fault: str) -> None:
    cause, code = EXITS[fault]
    outcome = run(fault)
    assert set(outcome.heard) == set(range(SIZE)) - {VICTIM}
    for heard in outcome.heard.values():
        assert heard.seconds < patience(1 * BUSY)
        assert causes.names(heard.cause, cause)
        if cause != FINISHED:  # else the communicator may have been given up by one who needed the victim
            assert (heard.error, heard.peer) == ("PeerFailed", VICTIM)
    assert outcome.code == code
    last = outcome.stderr.splitlines()[-1]
    assert last.startswith(f"ringcast-launch: rank {VICTIM} ({socket.gethostname()}, pid {outcome.pid}) ")


def test_the_traceback_of_a_rank_reaches_the_others_and_the_launcher() -> None:
    outcome = run("exception")
    for heard in outcome.heard.values():
        assert (heard.host, heard.pid) == (socket.gethostname(), outcome.pid)
        assert heard.traceback.startswith("Traceback (most recent call last):")
        assert "in _raise" in heard.traceback
        assert heard.traceback.rstrip().endswith("ValueError: bad luck")
    assert outcome.stderr.splitlines()[-2] == "[1] ValueError: bad luck"


@pytest.mark.long
@pytest.mark.parametrize("fault", SILENT)
def test_a_rank_that_does_not_move_any_more_is_known_to_all_within_ten_seconds(fault: str) -> None:
    outcome = run(fault)
    assert set(outcome.heard) == set(range(SIZE)) - {VICTIM}
    for heard in outcome.heard.values():
        assert heard.seconds < patience(10 * BUSY)
        assert ("it was stopped" if fault == "SIGSTOP" else "its interpreter does not move") in heard.cause
    assert outcome.code == 1


@pytest.mark.parametrize("transport", ["shm", "ipc", "sockets", "tcp"])
@pytest.mark.parametrize("fault", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.long)])
def test_a_killed_and_a_stopped_rank_are_known_on_every_transport(fault: str, transport: str) -> None:
    outcome = run(fault, transport=transport)
    cause, seconds, code = ("it was stopped", 10, 1) if fault == "SIGSTOP" else ("killed by SIGKILL", 1, 137)
    assert set(outcome.heard) == set(range(SIZE)) - {VICTIM}
    for heard in outcome.heard.values():
        assert (heard.error, heard.peer) == ("PeerFailed", VICTIM)
        assert heard.seconds < patience(seconds * BUSY)
        assert causes.names(heard.cause, cause)
    assert cause in outcome.stderr
    assert outcome.code == code


@pytest.mark.long
@pytest.mark.parametrize("fault", [*SILENT, "SIGKILL", "exception"])
def test_without_a_launcher_all_know_within_ten_seconds(fault: str) -> None:
    outcome = run(fault, hosted=False)
    assert set(outcome.heard) == set(range(SIZE)) - {VICTIM}
    for heard in outcome.heard.values():
        assert (heard.error, heard.peer) == ("PeerFailed", VICTIM)
        assert heard.seconds < patience(10 * BUSY)
