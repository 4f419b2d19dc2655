"""`ringcast ps` of a job on several hosts, in which the launcher asks all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringcast.monitoring import live
from ringcast.monitoring.jobs import INQUIRIES
from ringcast_launcher.hosts.messages import AskStates
from ringcast_launcher.run.ps_server import PsServer
from ringcast_launcher.run.query_all import Query
from support.beds import run_on
from support.fleets import Fleet, finished, until

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
def test_ps_shows_the_ranks_of_all_hosts_where_the_launcher_is(hosts: Fleet, tmp_path: Path) -> None:
    go = tmp_path / "go"
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


@pytest.mark.usefixtures("nothing_on_hosts")
def test_a_job_without_ranks_on_the_launchers_host_is_shown_there(hosts: Fleet, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with hosts.started("-H", "h1,h2", hosts.program(UNTIL_GO.format(go=go))) as process:
        job = until(lambda: seen(hosts, 0, 0, 1))
        assert [state["host"] for state in job["ranks"]] == ["h1", "h2"]
        assert job["pids"] == []
        go.touch()
        assert finished(process).returncode == 0


@pytest.mark.long
@pytest.mark.usefixtures("nothing_on_hosts")
def test_a_directory_in_which_there_can_be_no_socket_stops_no_job(hosts: Fleet) -> None:
    folder = hosts.temporary / ("é" * (75 - len(str(hosts.temporary))))  # as text it is short enough
    folder.mkdir()
    try:
        done = hosts.launch("-H", "h1", "-v", hosts.program("print('there')"), TMPDIR=str(folder))
    finally:
        folder.rmdir()
    assert (done.returncode, done.stdout) == (0, "[0] there\n")


def ask(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(30)
        asker.connect(str(path))
        _, files, _, _ = socket.recv_fds(asker, 1, 1)
        return live._content(files[0])


def test_all_that_ask_get_the_same_answer_and_nobody_is_waited_for(tmp_path: Path) -> None:
    path, told = tmp_path / INQUIRIES, []
    large = b"x" * 10_000_000
    with closing(PsServer(str(tmp_path))) as inquiries, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        assert not inquiries.come()
        idle.connect(str(path))  # never reads
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(path))
        assert inquiries.come()
        askers = [threading.Thread(target=lambda: told.append(ask(path))) for _ in range(3)]
        for asker in askers:
            asker.start()
        until(lambda: (inquiries.come() and inquiries.answer(large)) or len(told) == 3, 30)
        for asker in askers:
            asker.join()
        assert told == [large] * 3
        assert not inquiries.come()
    assert inquiries.files == []


def test_where_no_file_can_be_made_whoever_asks_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "memfd_create", full)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with closing(PsServer(str(tmp_path))) as inquiries, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.connect(str(tmp_path / INQUIRIES))
        assert inquiries.come()
        inquiries.answer(b"told")
        assert not inquiries.come()
        asker.settimeout(30)
        assert asker.recv(1) == b""


def test_a_path_that_no_socket_can_have_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too long"):
        PsServer(str(long))
    assert len(os.listdir("/proc/self/fd")) == before


class Hosts:
    """Hosts that count the queries."""

    def __init__(self, *hosts: int) -> None:
        self.numbers, self.asked = set(hosts), 0

    def send_all(self, _: object) -> None:
        self.asked += 1


def test_a_late_answer_is_not_one_to_the_next_question() -> None:
    hosts = Hosts(0, 1)
    query = Query[str](hosts, AskStates(), 3.0)
    assert query.result(0.0) is None
    query.ask(1.0)
    query.ask(1.5)  # is part of the first
    query.hear(0, "first of 0")
    assert (query.result(2.0), query.due, hosts.asked) == (None, 4.0, 1)
    assert query.result(4.0) == ["first of 0"]
    query.ask(5.0)
    query.hear(1, "first of 1")
    query.hear(0, "second of 0")
    assert query.result(5.0) is None
    query.hear(1, "second of 1")
    assert query.result(5.0) == ["second of 0", "second of 1"]
    assert (query.result(9.0), query.due) == (None, float("inf"))
    query.ask(10.0)
    query.hear(0, "third of 0")
    hosts.numbers.remove(1)  # lost
    assert query.result(10.0) == ["third of 0"]
