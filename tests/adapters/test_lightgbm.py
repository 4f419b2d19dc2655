"""LightGBM over a communicator makes, bit for bit, the model that LightGBM makes over its own sockets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import causes, needs
from support.patience import of_patient_launcher, patience
from support.places import SUPPORT, TESTS

LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
SMALL = {"rows": 1500, "columns": 6, "rounds": 8, "num_leaves": 15}
FLOAT, QUANTIZED = {"use_quantized_grad": False}, {"use_quantized_grad": True}


@pytest.fixture(autouse=True)
def _lightgbm() -> None:
    needs.package("lightgbm")


def launch(n: int, program: str | Path, *arguments: str, transport: str = "auto") -> subprocess.CompletedProcess[str]:
    patient = of_patient_launcher()
    path = os.pathsep.join([patient["PYTHONPATH"], str(TESTS)])
    return subprocess.run(
        [*LAUNCH, "-n", str(n), "--transport", transport, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={**os.environ, **patient, "PYTHONPATH": path},
        check=False,
    )


def check_models(n: int, parameters: dict[str, Any], transport: str = "auto") -> None:
    done = launch(n, SUPPORT / "programs/boosted.py", json.dumps(parameters), transport=transport)
    assert done.returncode == 0, done.stderr
    models = json.loads(done.stdout.splitlines()[-1])
    assert len({model for both in models for model in both}) == 1, models


@pytest.mark.live
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("gradients", [FLOAT, QUANTIZED], ids=["float", "quantized"])
def test_the_model_is_the_one_of_its_own_sockets(n: int, gradients: dict[str, Any]) -> None:
    check_models(n, SMALL | gradients)


@pytest.mark.live
@pytest.mark.parametrize("gradients", [FLOAT, QUANTIZED], ids=["float", "quantized"])
def test_it_is_so_where_ranks_share_no_memory(gradients: dict[str, Any]) -> None:
    check_models(3, SMALL | {"columns": 40} | gradients, "sockets")


KINDS = {
    "regression": {},
    "binary": {"objective": "binary", "bagging_fraction": 0.7, "bagging_freq": 1},
    "part of the columns": {"feature_fraction": 0.5},
    "outliers": {"objective": "regression_l1"},
    "many bins": {"rows": 20_000, "columns": 40, "rounds": 4, "max_bin": 1023, "num_leaves": 63},
    "around a ring": {"rows": 20_000, "columns": 200, "rounds": 1, "max_bin": 4095, "num_leaves": 4},
}


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 5, 6])
@pytest.mark.parametrize("gradients", [FLOAT, QUANTIZED], ids=["float", "quantized"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_is_the_one_of_its_own_sockets(n: int, gradients: dict[str, Any], kind: str) -> None:
    check_models(n, SMALL | gradients | KINDS[kind])


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("gradients", [FLOAT, QUANTIZED], ids=["float", "quantized"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_is_so_where_ranks_share_no_memory(n: int, gradients: dict[str, Any], kind: str) -> None:
    check_models(n, SMALL | gradients | KINDS[kind], "sockets")


def told(how: str, n: int = 3) -> tuple[dict[int, dict[str, Any]], subprocess.CompletedProcess[str]]:
    """Return what each rank said of the bad end of a rank, or of a mistake, and the job."""
    done = launch(n, SUPPORT / "programs/boosted_badly.py", how)
    ranks: dict[int, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            ranks.setdefault(said["rank"], {}).update(said)
    return ranks, done


@pytest.mark.live
def test_a_rank_that_is_killed_is_named_by_the_others_which_train_on_without_it() -> None:
    ranks, done = told("kill")
    assert re.search(r"rank 1 .* failed: killed by SIGKILL", done.stderr), done.stderr
    for rank in (0, 2):
        assert ranks[rank]["error"] == "PeerFailed", done.stderr
        assert "peer rank 1 " in ranks[rank]["text"]
        assert causes.names(ranks[rank]["text"], "killed by SIGKILL")
        assert ranks[rank]["time"] - ranks[1]["ends"] < patience(2)
        assert ranks[rank]["left"] == 2, done.stderr


MISTAKE = "(UsageError: |Revoked: .* UsageError: )LightGBM "
MISTAKES = {  # error and text of the victim, of the others, and whether all can train afterwards
    "raise": ("KeyError: 'doomed'", "Revoked: .* rank 1 left LightGBM's network: KeyError: 'doomed'"),
    "interrupt": ("KeyboardInterrupt: by the timer", "Revoked: .* rank 1 left LightGBM's network: KeyboardInterrupt"),
    "leave early": ("CollectiveMismatch: .*free|Revoked", "CollectiveMismatch: .*free|Revoked"),
    # A rank that is still in the last call before the mistake hears of the mistake of another one.
    "alone": 2 * (MISTAKE + "would train alone, .* num_machines=1 and tree_learner=serial, among 3 ranks",),
    "own sockets": 2 * (MISTAKE + "has a network over a communicator here: leave out `machines`",),
    "twice": 2 * ("UsageError: rank .: this thread has a network of LightGBM's already",),
    "other version": 2 * ("UsageError: rank 1 has LightGBM 4.6.0, rank 0 has 4.7.0; install one version",),
    "too old": 2 * ("UsageError: rank .: LightGBM 3.3.5 is too old, 4.0 is needed; pip install 'lightgbm>=4'",),
    "one too old": 2 * ("UsageError: rank 1: LightGBM 3.3.5 is too old, 4.0 is needed",),
    "one without": 2 * (r"UsageError: rank 1: LightGBM cannot be imported \(ModuleNotFoundError: .*\); pip install",),
}


@pytest.mark.live
@pytest.mark.parametrize("how", MISTAKES)
def test_a_mistake_is_an_error_on_all_ranks_and_they_can_train_afterwards(how: str) -> None:
    ranks, done = told(how)
    for rank in range(3):
        said = f"{ranks[rank]['error']}: {ranks[rank]['text']}"
        assert re.match(MISTAKES[how][rank != 1], said), said
        assert ranks[rank]["left"] == 3, done.stderr
