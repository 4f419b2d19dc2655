"""`read_file` on emulated hosts: each byte leaves the source once, and ranks that are killed leave no gap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import needs
from support.fleets import Fleet
from support.places import TESTS
from support.s3 import CREDENTIALS, URL

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

SIZE, RATE = 4_000_000, 400_000
PROGRAM = """
import os
import signal
import sys

import ringcast
from ringcast.transfer import shares
from ringcast.transfer.rounds import Rounds

shares._STALLED = 10**9  # ms; on a busy machine a reader may get no byte for a second
url, victim, place, shared = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
comm = ringcast.init()
rank, rounds = comm.rank, [0]
begin = Rounds._begin

def begun(self, sent):
    begin(self, sent)
    rounds[0] += 1
    if rank == victim and rounds[0] == place:
        os.kill(os.getpid(), signal.SIGKILL)

Rounds._begin = begun
if rank == victim and rank % 2:  # which is no reader, and dies at the begin, or while it waits
    signal.setitimer(signal.ITIMER_REAL, place**4 / 1000)
data = comm.read_file(url, shared=shared)
assert data.size == int(sys.argv[5]) and not data.any(), data.size
comm = comm.shrink()
total = comm.allreduce(1)
if comm.rank == 0:
    print("whole on", total, flush=True)
"""


@contextmanager
def served(hosts: Fleet, program: str = "store", *options: str) -> Iterator[str]:
    """Serve zeros on the fourth host; return the address."""
    command = [sys.executable, str(TESTS / f"support/{program}.py"), "8000", str(SIZE), *options]
    process = hosts.bed.start(3, command, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        yield f"http://{hosts.bed.hosts[3].address}:8000"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read(
    hosts: Fleet,
    tmp_path: Path,
    url: str,
    victim: int = -1,
    place: int = 0,
    shared: bool = True,
    exports: Sequence[str] = (),
) -> str:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["-H", "h0:2,h1:2,h2:2", "--output", "none", "--on-failure", "continue", *exports]
    done = hosts.launch(*options, str(program), url, str(victim), str(place), str(shared), str(SIZE))
    assert done.returncode == 0 or victim >= 0, done.stderr
    return done.stdout + done.stderr


def test_each_byte_leaves_the_source_about_once(hosts: Fleet, tmp_path: Path) -> None:
    with served(hosts, "store", str(RATE), "0") as url:
        before = hosts.bed.carried(3)[0]
        assert read(hosts, tmp_path, url).startswith("whole on 6\n")
        assert hosts.bed.carried(3)[0] - before < 1.3 * SIZE


def test_an_object_of_s3_is_read_by_the_environment_of_each_host(hosts: Fleet, tmp_path: Path) -> None:
    needs.package("moto")
    needs.package("s3fs")
    with served(hosts, "s3", "3") as endpoint:
        variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
        exports = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
        before = hosts.bed.carried(3)[0]
        assert read(hosts, tmp_path, URL, exports=exports).startswith("whole on 6\n")
        assert hosts.bed.carried(3)[0] - before < 1.5 * SIZE


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("place", [1, 4])
@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_rank_that_is_killed_leaves_no_gap(
    victim: int, place: int, shared: bool, hosts: Fleet, tmp_path: Path
) -> None:
    with served(hosts, "store", str(RATE), "0") as url:
        found = read(hosts, tmp_path, url, victim, place, shared)
    assert found.startswith("whole on 5\n"), found
