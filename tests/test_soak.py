"""The soak (tests/soak) for some minutes, from a fixed seed; and that it would notice what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from soak import SECONDS, SEEDS, calls, jobs
from soak.driver import soak

import ringcast

THREADS, TCP, ONE = 18, 239, 258  # seeds of small jobs: of two ranks, and of one

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("seed", [THREADS, TCP])
def test_a_random_job(seed: int) -> None:
    assert not soak("jobs", jobs.play, seed, 0)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 2 * jobs.LIMIT)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_jobs(seed: int) -> None:
    assert not soak("jobs", jobs.play, seed, SECONDS / len(SEEDS))


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
