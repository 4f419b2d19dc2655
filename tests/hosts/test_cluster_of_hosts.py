"""A cluster whose ranks are on several hosts, by ssh: calls, output, arrays once per host, failures, the end."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringcast.commands.bench.bed import Bed
from ringcast.monitoring import jobs
from support import sshd
from support.beds import on, run_on
from support.fleets import until
from support.patience import patience

BEGIN = """
import os, signal, threading, time
import numpy as np, ringcast

def names(comm, word):
    print(word, comm.rank, flush=True)
    return os.uname().nodename, comm.allreduce(comm.rank)
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Bed]:
    """Hosts; h2 accepts no key."""
    with sshd.ssh_bed("3", refused=[2]) as made:
        yield made


def run(bed: Bed, folder: Path, program: str) -> str:
    """Return the output of a program on h0."""
    (folder / "program.py").write_text(BEGIN + textwrap.dedent(program))
    return on(bed, 0, sys.executable, str(folder / "program.py"))


def processes(bed: Bed, host: int) -> str:
    return run_on(bed, host, ["sh", "-c", "ps -A -o args= | grep [r]ingcast.bootstrap.cluster || true"]).stdout


@pytest.mark.parametrize("hosts", ['"h0:1,h1:2"', '["h1:2", "h0:1"]', '"h1:3"'])
def test_functions_run_on_all_hosts_and_output_comes_back(three: Bed, tmp_path: Path, hosts: str) -> None:
    said = run(
        three,
        tmp_path,
        f"""
        with ringcast.cluster(hosts={hosts}) as ranks:
            for word in "one", "two":
                print("got", ranks.run(names, word))
            try:
                ranks.run(lambda comm: 1 // (comm.rank - 1))
            except ringcast.RunFailed as error:
                print("failed", error.rank, error.cause)
            print("size", ranks.size, ranks.run(lambda comm: comm.size))
        """,
    )
    lines = said.splitlines()
    where = {'"h0:1,h1:2"': ["h0", "h1", "h1"], '["h1:2", "h0:1"]': ["h1", "h1", "h0"], '"h1:3"': ["h1"] * 3}[hosts]
    for word in "one", "two":
        assert {f"[{rank}] {word} {rank}" for rank in range(3)} <= set(lines)
    assert lines.count(f"got {[(host, 3) for host in where]}") == 2
    assert "failed 1 ZeroDivisionError: integer division or modulo by zero" in lines
    assert "size 3 [3, 3, 3]" in lines
    assert processes(three, 0) == processes(three, 1) == ""


def test_an_array_travels_to_a_host_once_and_is_mapped_by_its_ranks(three: Bed, tmp_path: Path) -> None:
    said = run(
        three,
        tmp_path,
        """
        def received():
            with open("/proc/net/dev") as file:
                return sum(int(line.split(":")[1].split()[0]) for line in file if ":" in line and "lo:" not in line)

        def work(comm, array):
            array += comm.rank
            return int(array[0]), received(), any("ringcast-call" in line for line in open("/proc/self/maps"))

        with ringcast.cluster(hosts="h1:4") as ranks:
            before = ranks.run(lambda comm: received())[0]
            large = np.full(1 << 21, 5)  # 16 MB
            found = ranks.run(work, large)
            print([value for value, _, _ in found], all(mapped for _, _, mapped in found))
            print("times", round((max(bytes for _, bytes, _ in found) - before) / large.nbytes, 1))
        """,
    )
    assert "[5, 6, 7, 8] True" in said
    assert 1.0 <= float(said.split("times ")[1]) <= 1.3  # ssh may compress nothing; 4 copies would be 4


def test_an_interrupt_ends_the_functions_and_the_cluster_stays(three: Bed, tmp_path: Path) -> None:
    said = run(
        three,
        tmp_path,
        """
        def endless(comm):
            print("running", flush=True)
            while True: time.sleep(0.01)

        from ringcast.bootstrap.cluster import processes
        processes.GRACE = 60  # in which all end, on a busy machine too

        with ringcast.cluster(hosts="h0,h1:2") as ranks:
            try:
                ranks.run(endless, timeout=3)
            except ringcast.RunTimeout as error:
                print("late", error.running)
            threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                ranks.run(endless)
            except KeyboardInterrupt:
                print("interrupted", ranks.run(lambda comm: comm.allreduce(1)))
        """,
    )
    assert "late ()" in said
    assert "interrupted [3, 3, 3]" in said


def test_a_killed_rank_elsewhere_is_named_and_closes_the_cluster(three: Bed, tmp_path: Path) -> None:
    said = run(
        three,
        tmp_path,
        """
        ranks = ringcast.cluster(hosts="h0,h1:2")
        try:
            ranks.run(lambda comm: os.kill(os.getpid(), signal.SIGKILL) if comm.rank == 2 else comm.barrier())
        except ringcast.RunFailed as error:
            print("failed", error.rank, error.cause, ranks.closed)
        """,
    )
    assert "failed 2 killed by SIGKILL True" in said
    assert processes(three, 0) == processes(three, 1) == ""


def test_a_host_that_cannot_be_reached_is_named(three: Bed, tmp_path: Path) -> None:
    said = run(
        three,
        tmp_path,
        """
        try:
            ringcast.cluster(hosts="h0,h2:2")
        except ringcast.RunFailed as error:
            print("failed", error)
        """,
    )
    assert "h2" in said
    assert "Permission denied" in said
    assert processes(three, 0) == ""


def folders() -> set[Path]:
    """Return the folders of clusters; the hosts share their file systems."""
    return {folder for base in jobs.places() for folder in Path(base).glob("ringcast-cluster-*")}


@pytest.mark.parametrize("hosts", ["h0,h1:2", "h1:3"])
def test_a_caller_that_is_killed_leaves_nothing_on_any_host(three: Bed, tmp_path: Path, hosts: str) -> None:
    before = folders()
    (tmp_path / "program.py").write_text(
        BEGIN
        + textwrap.dedent(f"""
        ranks = ringcast.cluster(hosts="{hosts}")
        ranks.run(lambda comm: os.kill(os.getppid(), 0) or comm.barrier())
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    assert run_on(three, 0, [sys.executable, str(tmp_path / "program.py")]).returncode != 0
    for host in 0, 1:
        gone = "while ps -A -o args= | grep -q '[r]ingcast.bootstrap.cluster'; do sleep 0.1; done"
        assert run_on(three, host, ["timeout", str(patience(60)), "sh", "-c", gone]).returncode == 0
    left = folders() - before
    until(lambda: not any(folder.exists() for folder in left))  # other tests beside this one have clusters too
