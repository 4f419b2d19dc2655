"""Emulated hosts for tests, and programs that run on all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ringcast.commands.bench.bed import Bed, BedError, parse
from ringcast.commands.bench.workers import start_workers
from support.patience import patience

PROGRAMS = Path(__file__).parent / "on_hosts"
SWITCH = -1  # its place after the hosts
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def make_bed(text: str) -> Bed:
    """Return a bed such as "4x100mbit"; skip the test where there can be none, but fail it in CI."""
    try:
        return Bed(*parse(text))
    except BedError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def run_on(
    bed: Bed, host: int, command: Sequence[str], timeout: float = 60.0, env: Mapping[str, str] = ENVIRONMENT
) -> subprocess.CompletedProcess[str]:
    """Run a command on a host to its end and return what it did; it is killed at the timeout, which raises."""
    files = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(bed.argv(host, command), timeout=patience(timeout), env=dict(env), check=False, **files)


def on(bed: Bed, host: int, *command: str) -> str:
    """Run a command on a host, which must succeed, and return what it printed."""
    done = run_on(bed, host, command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_link(bed: Bed, host: int, state: str) -> None:
    """Let the link of a host be "up" or "down"."""
    on(bed, host, "ip", "link", "set", "e0", state)


def set_rate(bed: Bed, host: int, rate: str) -> None:
    """Let the link of a host carry so much in both directions, as "10mbit"."""
    for where, device in (host, "e0"), (SWITCH, f"p{host}"):
        on(
            bed,
            where,
            "tc",
            "qdisc",
            "replace",
            "dev",
            device,
            "root",
            *f"tbf rate {rate} burst 64kb limit 4mb".split(),
        )


def slow_way(bed: Bed, host: int, dest: int, rate: str, others: str) -> None:
    """Let a host send so much to one other host, and `others` to the rest."""
    classes = (f"class add dev e0 parent 1: classid 1:{i} htb rate {r} burst 64kb" for i, r in ((1, others), (2, rate)))
    match = f"filter add dev e0 parent 1: protocol ip u32 match ip dst {bed.hosts[dest].address}/32 flowid 1:2"
    for command in "qdisc replace dev e0 root handle 1: htb default 1", *classes, match:
        on(bed, host, "tc", *command.split())


def drop(bed: Bed, host: int, address: str) -> None:
    """Let what a host sends to an address go nowhere, as if a firewall dropped it."""
    on(bed, host, "ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", "e0", "nud", "permanent")


def run_ranks(bed: Bed, program: str, *arguments: str, hosts: Sequence[int] = (), timeout: float = 60.0) -> list[str]:
    """Run a program of `on_hosts` as one job, a rank on every host or on those named; return what each rank printed.

    A rank that fails makes all of them fail, with what they printed.
    """
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return outputs(start_workers(bed, command, ENVIRONMENT, hosts, **files), timeout)


def outputs(processes: list[subprocess.Popen[str]], timeout: float = 60.0) -> list[str]:
    """Wait for processes that must succeed and return what each printed."""
    deadline = time.monotonic() + patience(timeout)
    try:
        printed = [process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        said = [process.communicate()[0] for process in processes]
        raise AssertionError("\n".join([f"not finished after {timeout:g} s", *said])) from None
    codes = [process.returncode for process in processes]
    assert not any(codes), "\n".join([f"exit codes {codes}", *printed])
    return printed
