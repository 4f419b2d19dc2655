"""ringcast as a backend of torch.distributed. The ranks are processes of their own: torch is imported there alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs
from support.patience import patience
from support.places import ROOT, TESTS

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
PROGRAMS = TESTS / "support/programs"


@pytest.fixture(autouse=True)
def _torch() -> None:
    needs.package("torch")


def module(name: str, *arguments: str) -> str:
    """Return what a module of `support` prints."""
    command = [sys.executable, "-W", "ignore", "-m", f"support.{name}", *arguments]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=patience(200), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("beside", ["ringcast 1 2 3 5", "cpu:ringcast,cuda:gloo 3"])
def test_every_call_gives_what_torch_computes_alone(beside: str) -> None:
    module("torch_oracle", *beside.split())


@pytest.mark.parametrize("backend", ["ringcast", "cpu:ringcast,cuda:gloo"])
def test_the_public_calls_work_by_the_name_of_the_backend(backend: str) -> None:
    module("torch_collectives", backend)


def test_ranks_with_different_dtypes_of_one_size_have_an_error_with_both_names() -> None:
    made = re.findall(r"rank \d: (\d+) calls", module("torch_dtypes"))
    assert len(made) == 2
    assert len(set(made)) == 1


def test_threads_meet_through_a_store_and_end_each_others_calls() -> None:
    module("torch_threads")


@pytest.mark.parametrize("sizes", ["2 3", pytest.param("5", marks=pytest.mark.long)])
def test_training_by_ddp_and_fsdp_is_that_of_one_process(sizes: str) -> None:
    module("torch_training", "ringcast", *sizes.split())


def test_a_rank_that_fails_is_named_by_all_others_and_in_time() -> None:
    found: dict[str, dict[int, tuple[str, str, float]]] = {}
    for line in re.findall(r"\[.*\]", module("torch_faults")):
        fault, rank, kind, text, seconds = json.loads(line)
        found.setdefault(fault, {})[rank] = kind, text, seconds
    for fault in "SIGKILL", "SIGKILL-call":
        assert found[fault].keys() == {0, 2}
        for kind, text, seconds in found[fault].values():
            assert kind in ("DistBackendError", "RuntimeError")
            assert "peer rank 1" in text
            assert seconds < patience(1)
    late = "; waiting for rank "  # 1, or 0, which waits for 1 itself: the first one to give up tells the others
    stopped = found["SIGSTOP"]
    assert stopped.keys() == {0, 2}
    assert any(late in text for _, text, _ in stopped.values())
    assert all(3 <= seconds < patience(10) for *_, seconds in stopped.values())
    for fault in "limit", "limit-async", "limit-several":
        assert found[fault].keys() == {0, 2}
        assert any(late in text for _, text, _ in found[fault].values())
        assert all(1 <= seconds < patience(2.5) for *_, seconds in found[fault].values())
    reason = "gather: argument outputs: expected 2 items of rank 0, got 1"
    for rank, kind in enumerate(["ValueError", "DistBackendError", "DistBackendError"]):
        assert found["uneven"][rank][0] == kind
        assert reason in found["uneven"][rank][1]
    for fault, reason in {"destroy": "rank 1 finished", "abort": "rank 1 called abort()"}.items():
        for rank in 0, 2:
            kind, text, _ = found[fault][rank]
            assert (kind, reason in text) == ("DistBackendError", True), text
    differences = {"mismatch": "shape", "renamed": "shape", "dtypes": "SUM of bfloat16 as float32", "operators": "AVG"}
    for fault, difference in differences.items():
        assert {kind for kind, *_ in found[fault].values()} == {"DistBackendError"}
        texts = [text for _, text, _ in found[fault].values()]
        assert all(re.search("differs?[:;]", text) for text in texts), texts
        whole = [text for text in texts if len(re.findall(r"\) at torch_faults\.py:\d+", text)) == 2]
        assert whole, texts  # in those of others the call of the other rank may have come too late
        assert all(difference in text for text in whole), whole


@pytest.mark.parametrize("launcher", [["ringcast-launch", "-n", "3"], ["torchrun", "--nproc-per-node", "3"]])
def test_a_launcher_starts_the_ranks(launcher: list[str]) -> None:
    command = [str(Path(sys.executable).parent / launcher[0]), *launcher[1:], str(PROGRAMS / "torch_groups.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(200), check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d of 3 is done", done.stdout)) == [
        f"rank {rank} of 3 is done" for rank in range(3)
    ]


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_suite_of_pytorch_itself_passes(tmp_path: Path) -> None:
    module("torch_suite", "--json", str(tmp_path / "outcomes"))
    outcomes = json.loads((tmp_path / "outcomes").read_text())
    assert len(outcomes) > 100


@pytest.mark.long
def test_the_process_groups_of_torchft_pass_its_own_tests() -> None:
    needs.package("torchft")
    command = [sys.executable, "-W", "ignore", str(ROOT / "docs/scripts/torchft_suite.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(200), check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"torchft .*: 23 passed, 0 failed", done.stdout)
