"""A real Slurm of two nodes: srun starts ranks that find each other by themselves."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest
import slurm

from ringcast.control import new_key

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent
SUM = "import ringcast; comm = ringcast.init(); print(comm.rank, comm.size, comm.allreduce(comm.rank))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    needs.programs(slurm.missing(), "slurm-wlm")
    with slurm.cluster() as started:
        yield started


@pytest.fixture
def home() -> Iterator[dict[str, str]]:
    """What a user's session has; afterwards nothing is left in it."""
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:  # short: sockets are made in there
        for name in "home", "tmp":
            Path(folder, name).mkdir(mode=0o700)
        yield {"HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp"}
        deadline = time.monotonic() + 10
        while left := [path for path in Path(folder).rglob("*") if path.name not in ("home", "tmp", ".ringcast")]:
            assert time.monotonic() < deadline, left  # the control plane's process is the last one
            time.sleep(0.05)


def srun(cluster: slurm.Cluster, *arguments: str, code: int = 0, **variables: str) -> str:
    done = cluster.run("srun", *arguments, **variables)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{cluster.logs()}"
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_srun_prints_the_right_table(nodes: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    limits = ("--limit", "40", "--top", "3")
    said = srun(
        cluster, "-N", nodes, "-n", "4", sys.executable, str(ROOT / "examples" / "identifiers.py"), *limits, **home
    )
    assert "shared by 4 ranks" in said
    assert said.count("shared by") == 1
    assert said.endswith("equal to the one-process count\n")


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_all_ranks_are_in_one_job(nodes: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    said = srun(cluster, "-N", nodes, "-n", "3", sys.executable, "-c", SUM, **home)
    assert sorted(said.splitlines()) == ["0 3 3", "1 3 3", "2 3 3"]


def test_with_a_key_nothing_is_shared_but_the_network(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    given = home | {"HOME": "/nowhere", "RINGCAST_KEY": new_key(), "RINGCAST_TRANSPORT": "tcp"}
    here = {"RINGCAST_CONTROL": f"tcp://127.0.0.1:{slurm.free_ports(1)[0]}"}  # the nodes' names mean nothing here
    for nodes, variables in ("1", given), ("2", given | here):
        said = srun(cluster, "-N", nodes, "-n", "2", sys.executable, "-c", SUM, **variables)
        assert sorted(said.splitlines()) == ["0 2 1", "1 2 1"]


@pytest.mark.parametrize("place", range(3))
def test_the_commands_of_the_page_work(place: int, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    commands = re.findall(r"^srun .*$", (ROOT / "docs/engines.md").read_text(), re.MULTILINE)
    assert len(commands) == 3
    program = cluster.folder / "program.py"
    program.write_text(SUM)
    ranks = int(commands[place].split("-n ")[1].split()[0])
    words = [sys.executable if word == "python" else word for word in commands[place].split()[1:]]
    said = srun(cluster, *words, **home)
    assert sorted(said.splitlines()) == [f"{rank} {ranks} {sum(range(ranks))}" for rank in range(ranks)]


def test_steps_of_one_job_are_worlds_of_their_own(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    step = f"srun --overlap -n 2 {sys.executable} -c '{SUM}'"
    (cluster.folder / "steps.sh").write_text(f"#!/bin/sh\n{step} >first &\n{step} >second\nwait\n")
    done = cluster.run("sbatch", "--wait", "-n", "4", "steps.sh", **home)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.logs()}"
    for name in "first", "second":
        assert sorted((cluster.folder / name).read_text().splitlines()) == ["0 2 1", "1 2 1"]


def test_a_batch_script_is_one_process(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    (cluster.folder / "alone.sh").write_text(f"#!/bin/sh\n{sys.executable} -c '{SUM}' >alone\n")
    done = cluster.run("sbatch", "--wait", "-n", "4", "alone.sh", **home)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.logs()}"
    assert (cluster.folder / "alone").read_text() == "0 1 0\n"


def test_tasks_that_are_to_be_alone_say_so(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    said = srun(cluster, "-n", "3", sys.executable, "-c", SUM, RINGCAST_SIZE="1", **home)
    assert said.splitlines() == ["0 1 0"] * 3


def test_a_rank_that_dies_ends_the_others(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    program = "import os, ringcast\ncomm = ringcast.init()\nif comm.rank == 1: os._exit(3)\ncomm.barrier()"
    before = time.monotonic()
    said = srun(cluster, "-N", "2", "-n", "2", sys.executable, "-c", program, code=3, **home)
    assert "PeerFailed: rank 0: peer rank 1" in said
    assert time.monotonic() - before < 60


def test_a_home_that_is_not_shared_is_said_to_be_the_cause(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    own = 'export HOME="$HOME/$SLURMD_NODENAME"; exec "$0" "$@"'
    for node in slurm.NODES:
        Path(home["HOME"], node).mkdir()
    program = (sys.executable, "-c", SUM)
    said = srun(cluster, "-N2", "-n2", "sh", "-c", own, *program, code=1, **home, RINGCAST_START_TIMEOUT="3")
    assert "rank 1: rank 0 has not written" in said
    assert "export RINGCAST_KEY=$(python" in said
    for node in slurm.NODES:
        os.rmdir(Path(home["HOME"], node, ".ringcast"))
        os.rmdir(Path(home["HOME"], node))
