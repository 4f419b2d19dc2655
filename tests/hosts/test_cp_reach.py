"""`ringcast cp` where hosts cannot be reached, are lost, or have something in the way: each is named, the others go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.beds import on, run_on
from support.fleets import LIMIT, Fleet, finished, fleet, until

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

CP = [sys.executable, "-m", "ringcast", "cp"]
THERE = "/dev/shm/data"  # each host has a /dev/shm of its own, all other files are those of the machine


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Hosts of which h3 refuses every key, and h4 has no sshd."""
    with fleet("5", tmp_path_factory.mktemp("hosts"), refused=[3], silent=[4]) as made:
        yield made


@pytest.fixture
def nothing_on_hosts(hosts: Fleet) -> Iterator[None]:
    yield
    for host in range(5):
        on(hosts.bed, host, "rm", "-rf", THERE)
    try:
        hosts.assert_empty()
    finally:
        hosts.clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(os.urandom(3_000_000))
    return tmp_path / "source"


def cp(hosts: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_on(hosts.bed, 0, [*CP, *arguments], LIMIT, hosts.environment)


def has(hosts: Fleet, host: int, source: Path, path: str = f"{THERE}/source") -> bool:
    """Return whether a host has the content of the source, as cmp sees it."""
    return run_on(hosts.bed, host, ["cmp", str(source), path]).returncode == 0


def errors(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what is said of each host; it must be one line each."""
    lines = [line.removeprefix("ringcast cp: ").partition(": ") for line in done.stderr.splitlines()]
    assert len(lines) == len({host for host, _, _ in lines}), done.stderr
    return {host: why for host, _, why in lines}


REASONS = {
    "h3": "Permission denied (publickey)",
    "h4": "Connection refused",
    "h9": "Could not resolve hostname h9",
}


def test_all_hosts_that_cannot_be_reached_are_named(hosts: Fleet, source: Path) -> None:
    done = cp(hosts, str(source), "-H", f"h[1-4,9]:{THERE}/")
    assert (done.returncode, done.stdout) == (1, "")
    said = errors(done)
    assert said.keys() == REASONS.keys()
    assert all(words in said[host] for host, words in REASONS.items())
    assert not has(hosts, 1, source)


def test_the_others_get_all_with_keep_going(hosts: Fleet, source: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--keep-going", "--json-report", str(report), str(source), "-H", f"h9,h1,h3,h2,h4:{THERE}/"]
    done = cp(hosts, *arguments)
    assert done.returncode == 1
    first, _, rest = done.stderr.partition("\n")
    assert first == "ringcast cp: trying once more: h9, h3, h4"
    said = errors(subprocess.CompletedProcess([], 1, "", rest))
    assert said.keys() == REASONS.keys()
    assert all(words in said[host] for host, words in REASONS.items())
    assert done.stdout.startswith("2 of 5 hosts have 1 files")
    assert [has(hosts, host, source) for host in (1, 2)] == [True, True]
    told = json.loads(report.read_text())
    assert not told["ok"]
    assert [host["host"] for host in told["hosts"]] == ["h9", "h1", "h3", "h2", "h4"]
    assert {host["host"]: host["error"] for host in told["hosts"] if host["error"]} == said
