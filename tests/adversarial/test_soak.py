"""The soak (tests/soak) for some minutes, from a fixed seed; and that it would notice what is wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ringcast
from soak import SECONDS, SEEDS, calls, faults, jobs, steady
from soak.driver import soak
from soak.fault import HOSTS, Fault
from support.fleets import Fleet, fleet

THREADS, TCP, ONE = 18, 239, 258  # seeds of small jobs: of two ranks, and of one
MIXED = 100_000  # calls of all ranks, which are many of all kinds

nothing_left = pytest.mark.usefixtures("nothing_left")


@nothing_left
@pytest.mark.parametrize("seed", [THREADS, TCP])
def test_a_random_job(seed: int) -> None:
    assert not soak("jobs", jobs.play, seed, 0)


@nothing_left
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 2 * jobs.LIMIT)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_jobs(seed: int) -> None:
    assert not soak("jobs", jobs.play, seed, SECONDS / len(SEEDS))


@nothing_left
@pytest.mark.long
def test_what_threads_hold_does_not_grow() -> None:
    ringcast.run(steady.check, 3, args=(MIXED,), backend="threads")


@nothing_left
@pytest.mark.long
def test_what_processes_hold_does_not_grow(tmp_path: Path) -> None:
    jobs.launch("soak.steady", MIXED, tmp_path, "-n", "3", "--transport", "ipc")


@nothing_left
def test_a_wrong_result_is_noticed_and_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit of what all ranks gather is another than it should be."""
    right = ringcast.Communicator.allgatherv

    def wrong(comm: ringcast.Communicator, *given: object, **how: object) -> object:
        result = right(comm, *given, **how)
        if isinstance(result, np.ndarray) and result.nbytes:
            result.view(np.uint8).reshape(-1)[-1] ^= 1
        return result

    monkeypatch.setattr(calls, "MAKERS", (calls.allgatherv,))
    monkeypatch.setattr(ringcast.Communicator, "allgatherv", wrong)
    assert soak("jobs", jobs.play, THREADS, 0) == [THREADS]
    said = capsys.readouterr()
    assert "allgatherv(" in said.err
    assert "numpy says" in said.err
    assert f"again: python -m tests.soak jobs --seed {THREADS} --seconds 0\n" in said.err
    assert said.out.endswith(f"1 failed: seeds {THREADS}\n")


def test_nothing_may_be_left(tmp_path: Path) -> None:
    (tmp_path / "left").touch()
    with pytest.raises(AssertionError, match="left"):
        jobs.play(ONE, tmp_path)


# Faults.


@pytest.fixture(scope="module")
def many_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(str(HOSTS), tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 2 * faults.START)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults(many_hosts: Fleet, seed: int) -> None:
    assert not soak("faults", faults.Faults(many_hosts).play, seed, SECONDS / len(SEEDS))


SLOTS = (3, 1), (7, 2)  # rank 0 on h3, ranks 1 and 2 on h7
KILLED = "ringcast-launch: rank 1 (h7, pid 9) failed: killed by SIGKILL\n"
LEFT = "0 (0, 2)\n2 (0, 2)\n"


def judged(go_on: bool, code: int, out: str, err: str) -> None:
    faults.judge(Fault(SLOTS, 1, "SIGKILL", 5, 0, go_on), subprocess.CompletedProcess([], code, out, err))


def test_the_right_end_of_a_job() -> None:
    judged(False, 137, "", KILLED)
    judged(True, 0, LEFT, KILLED)


@pytest.mark.parametrize(
    ("go_on", "code", "out", "err"),
    [
        (False, 0, "", KILLED),
        (False, 1, "", KILLED),
        (False, 137, "", KILLED.replace("rank 1", "rank 2")),
        (False, 137, "", f"{KILLED}more\n"),
        (False, 137, "", ""),
        (True, 137, LEFT, KILLED),
        (True, 0, LEFT.replace("2 (0, 2)\n", ""), KILLED),
        (True, 0, LEFT.replace("(0, 2)", "(0,)"), KILLED),
        (True, 0, LEFT, KILLED.replace("rank 1", "rank 0")),
    ],
)
def test_a_wrong_end_of_a_job(go_on: bool, code: int, out: str, err: str) -> None:
    with pytest.raises(AssertionError):
        judged(go_on, code, out, err)
