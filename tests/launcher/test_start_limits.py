"""The start of a job is bounded, also where hosts do not answer; a starter on this machine stands for them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.patience import patience
from support.places import python
from support.ports import free_port

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 100.0  # seconds that a job may take on a busy machine
SLEEP = ["sleep", "1000"]
# Says hello as an agent does, and starts no worker.
MUTE = """
import platform, socket, sys
from ringcast.control import version
from ringcast_launcher.hosts.framing import MARK, encode
from ringcast_launcher.hosts.messages import AgentHello
from ringcast.wire.codec import plain
out = sys.stdout.buffer
out.write(MARK + encode(plain(AgentHello(version(), platform.python_version(), socket.gethostname(), "127.0.0.1"))))
out.flush()
"""

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]


def starter(tmp_path: Path, text: str) -> list[str]:
    """Return the options for a starter that has host and command as $1 and $2."""
    path = tmp_path / "starter"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return ["--rsh-agent", shlex.quote(str(path))]


def launch(*arguments: str, launcher: Sequence[str] = LAUNCH) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the launcher; return how that ended, and how long it took."""
    start = time.monotonic()
    environment = {**os.environ, "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22"}
    command = [*launcher, *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patience(LIMIT), check=False
    )
    return done, time.monotonic() - start


def test_the_timeout_of_the_job_counts_while_a_host_is_missing(tmp_path: Path) -> None:
    never = starter(tmp_path, "exec sleep 1000")
    done, took = launch("--timeout", "2", "--start-timeout", "60", *never, "-H", "localhost,h1.test", *SLEEP)
    text = "timeout: the job did not end within 2 s; not started yet: host h1.test"
    assert (done.returncode, done.stderr) == (124, f"ringcast-launch: {text}\n")
    assert took < patience(30)


def test_the_timeout_of_the_job_counts_while_a_node_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_KEY", "k" * 40)
    options = ["--nnodes", "3", "--node-rank", "0", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    done, took = launch("--timeout", "2", "--start-timeout", "60", *options, *SLEEP)
    text = "timeout: the job did not end within 2 s; not started yet: node 1, node 2"
    assert (done.returncode, done.stderr) == (124, f"ringcast-launch: {text}\n")
    assert took < patience(30)


@pytest.mark.parametrize(
    ("endpoint", "key"),
    [("127.0.0.1:{}", "k" * 40), ("127.0.0.1:{}", ""), ("[fe80::1%nowhere]:{}", "")],
    ids=["it does not answer", "it has not told its key", "it has no address"],
)
def test_the_timeout_of_the_job_counts_while_node_0_is_missing(
    endpoint: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That an interface is not there is found without asking any name server, which might not answer."""
    monkeypatch.setenv("RINGCAST_KEY", key)
    monkeypatch.setenv("HOME", str(tmp_path))
    options = ["--nnodes", "3", "--node-rank", "1", "--rdzv-endpoint", endpoint.format(free_port())]
    done, took = launch("--timeout", "2", "--start-timeout", "60", *options, *SLEEP)
    text = "timeout: the job did not end within 2 s; not started yet: node 0"
    assert (done.returncode, done.stderr) == (124, f"ringcast-launch: {text}\n")
    assert took < patience(30)


@pytest.mark.parametrize(
    ("option", "seconds", "code", "words"),
    [
        ("--timeout", 2, 124, "timeout: the job did not end within {} s; not started yet: host h1.test"),
        ("--start-timeout", 5, 1, "host h1.test: its workers were not started within {} s"),
    ],
)
def test_a_host_that_starts_no_workers(tmp_path: Path, option: str, seconds: float, code: int, words: str) -> None:
    lives = "while sys.stdin.buffer.read1(): out.write(encode(None)); out.flush()\n"  # else it is lost after a while
    (tmp_path / "mute.py").write_text(MUTE + lives)
    silent = starter(tmp_path, f"exec {python(tmp_path / 'mute.py')}")
    limit = f"{patience(seconds):g}"
    done, took = launch(option, limit, *silent, "-H", "localhost,h1.test", *SLEEP)
    assert (done.returncode, done.stderr) == (code, f"ringcast-launch: {words.format(limit)}\n")
    assert took < patience(30)


def test_an_agent_that_ends_while_another_host_starts(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE + "sys.exit('no room')\n")
    leaving = starter(tmp_path, '[ "$1" = h2.test ] && exec sleep 1000; exec ' + python(tmp_path / "mute.py"))
    done, _ = launch(*leaving, "-H", "h1.test,h2.test", *SLEEP)
    assert done.returncode == 1
    assert done.stderr.startswith("ringcast-launch: the job cannot start: host h1.test: its agent has ended: no room\n")


def test_hosts_that_cannot_start_are_told_before_long(tmp_path: Path) -> None:
    """Those that have not said anything yet are not waited for: also if they do not end with their input."""
    both = starter(tmp_path, '[ "$1" = h1.test ] && { echo no way >&2; exit 255; }; exec sleep 1000')
    patient = [
        sys.executable,
        "-c",
        "from ringcast_launcher import cli; from ringcast_launcher.hosts import ssh; ssh.END = 60; cli.main()",
    ]
    done, took = launch(*both, "-H", "h1.test,h2.test", *SLEEP, launcher=patient)
    assert done.returncode == 1
    assert re.match(r"ringcast-launch: the job cannot start: host h1\.test: .*: no way\n", done.stderr)
    assert "host h2.test: its agent has not started yet" in done.stderr
    assert took < patience(30)


def test_what_a_watchdog_says_of_the_end_of_an_agent_tells_more_than_what_a_shell_says(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    words = "ringcast: process 7 stood still"
    dies = starter(tmp_path, f"{python(tmp_path / 'mute.py')}; echo {words} >&2; echo Killed >&2; exit 137")
    done, _ = launch(*dies, "-H", "localhost,h1.test", *SLEEP)
    assert done.returncode == 1
    assert f"the agent on its host h1.test ended, killed by SIGKILL: {words}\n" in done.stderr
