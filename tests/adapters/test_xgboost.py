"""XGBoost among the ranks of a communicator makes the model of its own tracker, and ends when a rank does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

import ringcast
import ringcast.xgboost
from ringcast.errors import RunFailed
from support import causes, needs
from support.patience import of_patient_launcher, patience
from support.places import SUPPORT

LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]


@pytest.fixture(autouse=True)
def _xgboost() -> None:
    needs.package("xgboost")


def launch(n: int, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCH, "-n", str(n), str(SUPPORT / "programs/trees.py"), what],
        env={**os.environ, **of_patient_launcher()},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def check_models(n: int) -> None:
    done = launch(n, "models")
    assert done.returncode == 0, done.stderr
    (both, *others) = json.loads(done.stdout.splitlines()[-1])
    own, ours = both
    assert own == ours
    assert others == [both] * (n - 1)


@pytest.mark.live
def test_the_model_is_the_one_of_its_own_tracker() -> None:
    check_models(3)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 4, 5, 7])
def test_every_model_is_the_one_of_its_own_tracker(n: int) -> None:
    check_models(n)


def told(how: str, n: int = 4) -> tuple[dict[int, dict[str, Any]], str]:
    """Return what each rank said of the bad end of a rank, or of a mistake, and the output of the job."""
    done = launch(n, how)
    ranks: dict[int, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            ranks.setdefault(said["rank"], {}).update(said)
    return ranks, done.stderr


@pytest.mark.live
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_is_named_by_the_others_which_train_on_without_it(victim: int) -> None:
    ranks, stderr = told(f"kill {victim}")
    last = stderr.splitlines()[-1]
    assert re.match(rf"ringcast-launch: rank {victim} .* failed: killed by SIGKILL", last), stderr
    # A call of XGBoost's may never return (`ringcast.boosting.cut`); then the launcher ends its rank.
    returned = {rank for rank, said in ranks.items() if "error" in said}
    assert returned, stderr
    for rank in returned:
        assert ranks[rank]["error"] == "PeerFailed", stderr
        assert f"peer rank {victim} " in ranks[rank]["text"]
        assert causes.names(ranks[rank]["text"], "killed by SIGKILL")
        assert ranks[rank]["time"] - ranks[victim]["ends"] < patience(2)
        assert len(returned) < 3 or ranks[rank]["left"] == 3, stderr


REVOKED = "Revoked: .* rank {} left XGBoost's network: {}"
MISTAKES = {  # error and text of the victim, and of the others
    "raise": ("KeyError: 'doomed'", REVOKED.format(1, "KeyError: 'doomed'")),
    "keep": ("KeyError: 'doomed'", REVOKED.format(1, "KeyError: 'doomed'")),
    "never come": ("KeyError: 'doomed'", REVOKED.format(1, "KeyError: 'doomed'")),
    "leave early": (REVOKED.format(".", "XGBoostError"), "XGBoostError: .*|" + REVOKED.format(".", "XGBoostError")),
    "twice": 2 * ("UsageError: rank .: this thread has a communicator of XGBoost's already",),
    "wrong parameter": 2 * ("(XGBoostError: |Revoked: .*)Invalid Input: 'none such'",),
    "other version": 2 * ("UsageError: rank 1 has XGBoost 3.1.0, rank 0 has 3.2.0; install one version",),
    "too old": 2 * ("UsageError: rank .: XGBoost 2.1.4 is too old, 3.0 is needed; pip install 'xgboost>=3'",),
    "one too old": 2 * ("UsageError: rank 1: XGBoost 2.1.4 is too old, 3.0 is needed",),
    "one without": 2 * (r"UsageError: rank 1: XGBoost cannot be imported \(ModuleNotFoundError: .*\); pip install",),
}


@pytest.mark.live
@pytest.mark.parametrize("how", MISTAKES)
def test_a_mistake_is_an_error_on_all_ranks_and_they_can_train_afterwards(how: str) -> None:
    ranks, stderr = told(how)
    for rank in range(4):
        said = f"{ranks[rank]['error']}: {ranks[rank]['text']}"
        assert re.match(MISTAKES[how][rank != 1], said), said
        assert ranks[rank]["left"] == 4, stderr


def test_ranks_that_are_threads_are_refused() -> None:
    def work(comm: ringcast.Communicator) -> None:
        with ringcast.xgboost.network(comm):
            pass

    with pytest.raises(RunFailed, match="XGBoost needs ranks that are processes"):
        ringcast.run(work, 2, backend="threads")


def test_a_world_of_one_trains_as_without_the_context() -> None:
    import xgboost

    with ringcast.init() as comm, ringcast.xgboost.network(comm):
        assert not xgboost.collective.is_distributed()
