"""Real jobs of many small calls, in which one rank dies at any instruction: all others get its name, and none hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs
from support.lane_ends import BUILDS, need
from support.patience import patience, slowness
from support.places import SUPPORT, TESTS

pytestmark = needs.shared_memory

PROGRAM = SUPPORT / "programs" / "small_calls.py"
TALK = SUPPORT / "programs" / "small_messages.py"
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
FEW, MANY, ENDLESS = 2000, 100_000, 1_000_000  # calls
KILLED = 128 + 14  # the exit code of a job in which SIGALRM has killed a rank


def check(build: str, seed: int, size: int, calls: int, folder: Path) -> None:
    """Run a job whose victim dies after so many calls at most."""
    need(build)
    pure = {"RINGCAST_PURE": "1"} if build == "python" else {}
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), str(PROGRAM), str(seed), str(calls), folder]
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **QUIET, **pure, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=patience(60 + calls / 1000),
    )
    survivors = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert done.returncode == KILLED, done.stderr
    assert len(survivors) == size - 1, done.stderr
    for survivor in survivors:
        assert survivor["type"] in ("PeerFailed", "Revoked"), survivor
        assert f"rank {survivor['victim']}" in survivor["text"]
        assert survivor["messages"] > calls // 4  # of half of the calls at least
        assert survivor["not predicted"] < survivor["messages"], "no message was predicted"
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ringcast-launch: rank {survivors[0]['victim']} ")
    assert "killed by SIGALRM" in last


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))])
def test_the_others_know_a_rank_that_dies(build: str, size: int, seed: int, tmp_path: Path) -> None:
    check(build, seed, size, FEW, tmp_path)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("size", "calls"),
    [(2, MANY), pytest.param(4, MANY, marks=pytest.mark.long), pytest.param(2, ENDLESS, marks=pytest.mark.long)],
)
def test_the_others_know_a_rank_that_dies_after_many_calls(size: int, calls: int, tmp_path: Path) -> None:
    check("compiled", size, size, calls, tmp_path)


# Messages between two ranks.

WITHOUT = {"RINGCAST_DIRECT": "0"}


def talk(size: int, seed: int, items: int, variables: dict[str, str], *options: str) -> list[float]:
    """Run a job whose ranks talk; return which share of its messages each rank has predicted."""
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), *options, str(TALK), str(seed), str(items)]
    done = subprocess.run(
        command,
        env={**os.environ, **QUIET, "PYTHONPATH": str(TESTS), **variables},
        capture_output=True,
        text=True,
        timeout=patience(60 + items),
    )
    assert done.returncode == 0, done.stderr
    return [float(line.split()[1]) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("variables", [{}, {"RINGCAST_PURE": "1"}, WITHOUT], ids=["compiled", "python", "engine"])
@pytest.mark.parametrize("options", [(), ("--transport", "sockets")], ids=["memory", "sockets"])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_ranks_that_talk_understand_each_other(
    size: int, seed: int, options: tuple[str, ...], variables: dict[str, str]
) -> None:
    """However their messages go; and the rank that gets many has most by prediction, where that is not off."""
    shares = talk(size, seed, 300, variables, *options)
    assert len(shares) == size
    # A message that a rank has waited for long counts as not predicted: on a busy machine there are more of these.
    assert (max(shares) > max(0.1, 0.5 / slowness())) == (variables is not WITHOUT)
