"""`ringcast.fetch` on emulated hosts: one rank reads, each host writes one copy, and its ranks share that."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from support.beds import on
from support.fleets import Fleet

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

THERE = "/dev/shm/fetched"  # each host has a /dev/shm of its own, all other files are those of the machine
PROGRAM = """
import sys

import ringcast

comm = ringcast.init()
path = ringcast.fetch(sys.argv[1], sys.argv[2])
seen = comm.allgather((str(path), path.stat().st_ino, path.stat().st_size))
if comm.rank == 0:
    print(len({path for path, _, _ in seen}), [one == other for one, other in zip(seen[::2], seen[1::2])])
"""


def test_every_host_gets_one_copy_from_the_first(hosts: Fleet, tmp_path: Path) -> None:
    program, source = tmp_path / "program.py", tmp_path / "model.bin"
    program.write_text(PROGRAM)
    source.write_bytes(random.Random(1).randbytes(3_000_000))
    expected = hashlib.sha256(source.read_bytes()).hexdigest()
    try:
        for again in False, True:
            before = hosts.bed.carried(0)[0]
            done = hosts.launch("-H", "h0:2,h1:2,h2:2", "--output", "none", str(program), str(source), f"{THERE}/")
            assert (done.returncode, done.stdout) == (0, "1 [True, True, True]\n"), done.stderr
            assert (hosts.bed.carried(0)[0] - before < 2_000_000) == again
            for host in range(3):
                assert on(hosts.bed, host, "sha256sum", f"{THERE}/model.bin").split()[0] == expected
                assert on(hosts.bed, host, "ls", "-A", THERE).split() == ["model.bin"]
    finally:
        for host in range(4):
            on(hosts.bed, host, "rm", "-rf", THERE)
