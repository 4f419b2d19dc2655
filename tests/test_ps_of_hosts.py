"""`ringcast ps` of a job on several hosts, in which the launcher asks all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from beds import run_on
from fleets import Fleet, finished, until

from ringcast.jobs import INQUIRIES
from ringcast_launcher.inquiries import Inquiries

UNTIL_GO = """
import os, time, ringcast
comm = ringcast.init()
comm.barrier()
while not os.path.exists("{go}"):
    time.sleep(0.05)
"""


def ps(hosts: Fleet, host: int, *arguments: str) -> str:
    command = [sys.executable, "-m", "ringcast", "ps", *arguments]
    return run_on(hosts.bed, host, command, 60, hosts.environment).stdout


def seen(hosts: Fleet, host: int, *ranks: int) -> dict[str, Any] | None:
    """Return the job of which ps tells these ranks, if all of them have had their barrier."""
    for job in json.loads(ps(hosts, host, "--json") or "[]"):
        if [state["rank"] for state in job["ranks"]] == list(ranks):
            return job if all(state["state"] == "done" for state in job["ranks"]) else None
    return None


@pytest.mark.usefixtures("nothing_on_hosts")
def test_ps_shows_the_ranks_of_all_hosts_where_the_launcher_is(hosts: Fleet) -> None:
    go = hosts.folder / "go"
    with hosts.started("-H", "h0,h1:2", hosts.program(UNTIL_GO.format(go=go))) as process:
        job = until(lambda: seen(hosts, 0, 0, 1, 2))
        assert [state["host"] for state in job["ranks"]] == ["h0", "h1", "h1"]
        assert all(state["operation"] == "#1 barrier" and state["memory"] > 1e6 for state in job["ranks"])
        assert (job["size"], len(job["pids"])) == (3, 1)
        heading, columns, *rows = ps(hosts, 0, job["job"]).splitlines()
        assert heading.startswith(f"job {job['job']}: 3 ranks for ")
        assert columns.split()[:3] == ["rank", "host", "pid"]
        assert [row.split()[1] for row in rows] == ["h0", "h1", "h1"]
        # Elsewhere the part that is there is shown, and so it is here while the launcher is stopped.
        there = until(lambda: seen(hosts, 1, 1, 2))
        heading, columns, *_ = ps(hosts, 1, there["job"]).splitlines()
        assert "2 of 3 ranks" in heading
        assert columns.split()[:2] == ["rank", "pid"]
        process.send_signal(signal.SIGSTOP)
        assert "1 of 3 ranks" in ps(hosts, 0, job["job"])
        process.send_signal(signal.SIGCONT)
        os.kill(process.pid, signal.SIGCONT)  # nsenter stops with its command, but does not go on with it
        go.touch()
        assert finished(process).returncode == 0


def ask(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(30)
        asker.connect(str(path))
        with asker.makefile("rb") as told:
            return told.read()


def test_all_that_ask_get_the_same_answer_and_nobody_is_waited_for(tmp_path: Path) -> None:
    path, told = tmp_path / INQUIRIES, []
    with Inquiries(str(tmp_path)) as inquiries, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        assert stat.S_ISSOCK(path.stat().st_mode)
        idle.connect(str(path))  # never reads
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(path))
        askers = [threading.Thread(target=lambda: told.append(ask(path))) for _ in range(3)]
        for asker in askers:
            asker.start()
        until(lambda: inquiries.answer(lambda: b"x" * 1_000_000) or len(told) == 3, 30)
        for asker in askers:
            asker.join()
        assert set(told) == {b"x" * 1_000_000}
        inquiries.answer(lambda: pytest.fail("nobody has asked"))
    assert not path.exists()
