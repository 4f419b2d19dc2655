"""A job that is started with signals blocked, or SIGCHLD ignored, as some batch systems do, is like every other."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.patience import patience
from support.places import python

pytestmark = [
    pytest.mark.live,
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="masks of signals are read from /proc"),
]

LIMIT = 60  # seconds; nothing here takes nearly as long
STARTS = {
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
}
BOTH = "; ".join(STARTS.values())
MASKS = "grep -hE ^Sig(Blk|Ign) /proc/self/status"
RUN = """
import ringcast
def masks(comm):
    with open("/proc/self/status") as status:
        return [line for line in status if line.startswith("SigBlk")]
def fails(comm):
    import os
    if comm.rank == 1:
        os._exit(3)
    comm.barrier()
if __name__ == "__main__":
    for (told,) in ringcast.run(masks, 2):
        assert int(told.split()[1], 16) == 0, told
    try:
        ringcast.run(fails, 2)
    except ringcast.RunFailed as error:
        assert error.rank == 1, error
        print("failed")
"""


@contextmanager
def start(how: str, *arguments: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments from a process that has done this to its signals."""
    become = f"import os, signal, sys; {how}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", become, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()  # it may be deaf to all else
            raise


def launched(how: str, *arguments: str, **options: object) -> tuple[int, str, str]:
    """Return how `ringcast-launch` ends that is started so."""
    with start(how, "-m", "ringcast_launcher", *arguments, **options) as process:
        out, err = process.communicate(timeout=patience(LIMIT))
    return process.returncode, out, err


def check_masks(out: str, ranks: int) -> None:
    """Assert that all ranks tell of no blocked signal, and do not ignore SIGCHLD."""
    told = [line.split()[1:] for line in out.splitlines()]
    blocked = [int(value, 16) for name, value in told if name == "SigBlk:"]
    ignored = [int(value, 16) for name, value in told if name == "SigIgn:"]
    assert blocked == [0] * ranks
    assert [value >> (signal.SIGCHLD - 1) & 1 for value in ignored] == [0] * ranks


@pytest.mark.parametrize("how", STARTS)
def test_workers_start_without_blocked_signals(how: str) -> None:
    code, out, _ = launched(STARTS[how], "-n", "2", "--", *MASKS.split())
    assert code == 0
    check_masks(out, 2)


def test_so_do_those_of_an_agent(tmp_path: Path) -> None:
    starter = tmp_path / "starter"
    become = "os.execv(sys.executable, [sys.executable, '-m', 'ringcast_launcher.hosts.agent'])"
    starter.write_text(f"#!/bin/sh\nexec {python('-c', f'import os, signal, sys; {BOTH}; {become}')}\n")
    starter.chmod(0o755)
    environment = {**os.environ, "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22"}
    hosts = "--rsh-agent", shlex.quote(str(starter)), "-H", "h1.test:2"
    code, out, errors = launched("pass", *hosts, "--", *MASKS.split(), env=environment)
    assert code == 0, errors
    check_masks(out, 2)


@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize("p", [1, 3])
def test_a_rank_that_fails_is_noticed(how: str, p: int) -> None:
    # The others wait for a signal that only the launcher sends.
    program = f"[ $RANK = {p - 1} ] && exit 3; exec sleep 1000"
    code, _, errors = launched(STARTS[how], "-n", str(p), "--", "sh", "-c", program)
    assert code == 3
    assert errors.splitlines()[-1].startswith(f"ringcast-launch: rank {p - 1} (")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job(number: signal.Signals) -> None:
    # SIGHUP stays ignored where it is, as under nohup; here it is only blocked.
    command = "-m", "ringcast_launcher", "-n", "2", "--", "sh", "-c", "echo here; exec sleep 1000"
    with start(BOTH, *command) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] here\n", "[1] here\n"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=patience(LIMIT))
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1] == f"ringcast-launch: ended by {number.name}"


def test_the_watchdog_blocks_nothing() -> None:
    command = "-m", "ringcast_launcher", "-n", "1", "--", "sh", "-c", "echo here; exec sleep 1000"
    with start(BOTH, *command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[0] here\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        statuses = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in [*children, str(process.pid)]]
        process.terminate()
        process.communicate(timeout=patience(LIMIT))
    assert len(statuses) == 3  # the watchdog, the worker, the launcher
    assert [line.split()[1] for status in statuses for line in status if line.startswith("SigBlk")] == ["0" * 16] * 3


def test_run_and_its_ranks_are_as_always(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RUN)
    with start(BOTH, str(tmp_path / "program.py")) as process:
        out, errors = process.communicate(timeout=patience(LIMIT))
    assert (process.returncode, out) == (0, "failed\n"), errors


def test_run_believes_what_the_launcher_wrote_where_its_status_is_lost() -> None:
    from ringcast.bootstrap.launched import read_report

    assert read_report("")["exit_code"] == 1
    assert read_report(json.dumps({"exit_code": 3}))["exit_code"] == 3
