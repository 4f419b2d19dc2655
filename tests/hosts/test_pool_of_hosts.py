"""A pool whose workers are on several hosts, by ssh: a closure travels once, deaths, the end."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from ringcast.commands.bench.bed import Bed
from support import sshd
from support.beds import on, run_on

BEGIN = """
import os, signal, sys, time
import numpy as np, ringcast

def received():
    with open("/proc/net/dev") as file:
        return sum(int(line.split(":")[1].split()[0]) for line in file if ":" in line and "lo:" not in line)

def host(comm):
    return os.uname().nodename

def kill_once(name):
    if os.uname().nodename == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.uname().nodename
"""


def run(bed: Bed, folder: Path, program: str) -> str:
    """Return the output of a program on h0."""
    (folder / "program.py").write_text(BEGIN + textwrap.dedent(program))
    return on(bed, 0, sys.executable, str(folder / "program.py"))


def processes(bed: Bed, host: int) -> str:
    return run_on(bed, host, ["sh", "-c", "ps -A -o args= | grep [r]ingcast.pool || true"]).stdout


def test_workers_on_hosts_with_and_without_the_callers_own(tmp_path: Path) -> None:
    with sshd.ssh_bed("3") as bed:
        said = run(
            bed,
            tmp_path,
            """
            for hosts in "h1:2", "h2:1,h0:1,h1:1":
                with ringcast.Pool(hosts=hosts) as pool:
                    print(pool.size, pool.submit_ranks(pool.size, host).result())
                    print(list(pool.map(abs, range(-3, 3))))
            with ringcast.Pool(hosts="h0:1,h1:1") as pool:
                begin = time.monotonic()
                print(pool.submit(kill_once, "h0").result(), pool.submit(kill_once, "h0").result(), pool.size)
                error = pool.submit(kill_once, "h1").exception()
                print(type(error).__name__, error)
            """,
        )
        lines = said.splitlines()
        assert lines[:2] == ["2 ['h1', 'h1']", "[3, 2, 1, 0, 1, 2]"]
        assert lines[2:4] == ["3 ['h0', 'h2', 'h1']", "[3, 2, 1, 0, 1, 2]"]
        assert lines[4] in ("h1 h1 1", "h1 h1 2")
        assert lines[5].startswith("PoolBroken") or lines[5].startswith("WorkerDied")
        assert "(h1)" in lines[5]
        assert [processes(bed, host) for host in range(3)] == [""] * 3


def test_a_closure_comes_to_each_host_once(tmp_path: Path) -> None:
    with sshd.ssh_bed("4") as bed:
        said = run(
            bed,
            tmp_path,
            """
            data = np.random.default_rng(1).integers(0, 255, 4_000_000, dtype=np.uint8)
            with ringcast.Pool(hosts="h0:1,h1:2,h2:2,h3:2") as pool:
                names = pool.submit_ranks(pool.size, host).result()
                before = pool.submit_ranks(pool.size, lambda comm: received()).result()
                assert list(pool.map(lambda n: data[n], range(300), chunksize=1)) == [data[n] for n in range(300)]
                after = pool.submit_ranks(pool.size, lambda comm: received()).result()
                for name, b, a in zip(names, before, after):
                    print(name, a - b)
            """,
        )
        came = dict(line.split() for line in said.splitlines())
        assert all(4_000_000 <= int(came[name]) < 5_500_000 for name in ("h1", "h2", "h3")), came
