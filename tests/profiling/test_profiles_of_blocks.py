"""Profiles of blocks of a program, and of a cluster: where they begin and end, and what is left of one that fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.errors import RunFailed, UsageError
from ringcast.profiling import attach as attaching
from ringcast.profiling.attach import attach, begin_block, detach
from ringcast.profiling.files import read
from ringcast.profiling.part import part_of
from support.patience import of_patient_launcher
from support.profiled_runs import PHASES, profiled, site


def test_one_profile_at_a_time() -> None:
    with ringcast.profile() as profile:
        with pytest.raises(UsageError, match="a profile of another block is under way"), ringcast.profile():
            pass
        ringcast.init().allreduce(1)
    assert profile.report is not None
    assert [one["name"] for one in profile.report["sites"]] == ["allreduce"]
    assert group_of(ringcast.init()).endpoint.profiler is None


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_block_of_a_job_that_is_profiled_has_a_profile_too(backend: str, tmp_path: Path) -> None:
    """The job's goes on, and has all of the block."""

    def work(comm: Communicator) -> None:
        for part in range(3):
            with ringcast.profile(tmp_path / f"{part}.json"):
                for _ in range(10 * part):
                    comm.allreduce(np.ones(100_000))
                if part == 1:
                    comm.barrier()
                comm.send(part, 1) if comm.rank == 0 else comm.recv()
            comm.bcast(0)

    report = profiled(work, 2, tmp_path, backend)
    assert site(report, "allreduce")["calls"] == 30
    assert (site(report, "barrier")["calls"], site(report, "bcast")["calls"]) == (1, 3)
    places = {one["file"] for one in report["sites"] if one["name"] == "allreduce"}
    assert {one["file"] for one in report["sites"] if one["name"] == "profile"} == places  # of its calls at its end
    few, first, second = (read(tmp_path / f"{part}.json") for part in range(3))
    messages = {"send": 1, "recv": 1}
    assert {one["name"]: one["calls"] for one in few["sites"]} == messages
    assert {one["name"]: one["calls"] for one in first["sites"]} == {"allreduce": 10, "barrier": 1} | messages
    assert {one["name"]: one["calls"] for one in second["sites"]} == {"allreduce": 20} | messages
    assert first["bytes"] == [[0, 1, pytest.approx(8_000_000, rel=0.1)], [1, 0, pytest.approx(8_000_000, rel=0.1)]]
    for block, calls in ((first, 10), (second, 20)):
        found = site(block, "allreduce")
        assert [found["bytes_out"], found["bytes_in"]] == pytest.approx([calls * 1_600_000] * 2, rel=0.1)
    for block in (few, first, second):
        assert block["span"] < report["span"]
        for rank in block["ranks"]:
            assert sum(rank[phase] for phase in PHASES) == pytest.approx(rank["span"], rel=0.02, abs=1e-4)
            assert all(rank[phase] >= 0 for phase in PHASES)
        for one in block["sites"]:
            assert 0 < one["slowest"] < block["span"]
            assert sum(count for _, count in one["histogram"]) == sum(calls for _, calls, *_ in one["by_rank"])
        assert all(0 <= began <= ended <= block["span"] for _, _, began, ended, _ in block["timeline"]["events"])


@pytest.mark.parametrize("of_job", [False, True])
def test_a_block_begins_when_the_part_before_it_is_made_and_other_threads_are_kept_out(
    of_job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(ringcast.init())
    endpoint, made = group.endpoint, []

    class Watched:
        inside = False

        def __enter__(self) -> None:
            self.inside = True

        def __exit__(self, *_: object) -> None:
            self.inside = False

    def watched(*arguments: Any) -> Any:
        assert gate.inside
        part = part_of(*arguments)
        made.append(endpoint.transport.clock())
        return part

    gate = Watched()
    if of_job:
        attach(group)
    with monkeypatch.context() as patch:
        patch.setattr(endpoint, "gate", gate)
        patch.setattr(attaching, "part_of", watched)
        end = begin_block(group)
        before = endpoint.transport.clock()
        part = end()
    assert max(made[:-1], default=0.0) <= part["start"] <= before
    assert part["outside"] == pytest.approx(part["end"] - part["start"])
    if of_job:
        detach(group)


@pytest.mark.parametrize("path", ["/no/such/folder/p.html", "p.txt", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_block(path: str) -> None:
    with pytest.raises(ValueError, match="profile: "), ringcast.profile(path):
        raise AssertionError
    with pytest.raises(ValueError, match="profile: "):
        ringcast.run(lambda _: None, 2, backend="threads", profile=path)


@pytest.mark.parametrize("name", ["p.json", "p.html", "P.HTML"])
def test_it_says_where_it_is(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    with ringcast.profile(path) as profile:
        ringcast.init().allreduce(1)
    assert profile.report is not None
    line = f"ringcast: the profile is in {path}: {profile.report['summary']}\n"
    assert capsys.readouterr() == ("", line)
    ringcast.run(lambda comm: comm.allreduce(1), 2, backend="threads", profile=path)
    assert f"the profile is in {path}: " in capsys.readouterr().err
    capsys.readouterr()
    profile.write(path)
    with ringcast.cluster(2, backend="threads") as cluster, cluster.profile(path):
        cluster.run(lambda comm: comm.allreduce(1))
    assert f"the profile is in {path}: " in capsys.readouterr().err
    assert path.read_text()[0] == ("{" if name == "p.json" else "<")


def test_a_dash_is_a_table_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with ringcast.profile("-") as profile:
        ringcast.init().allreduce(1)
    assert capsys.readouterr() == ("", str(profile))


def test_an_error_in_the_block_is_in_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(ZeroDivisionError), ringcast.profile(path):
        ringcast.init().allreduce(1 / 0)
    assert "ZeroDivisionError" in read(path)["failure"]


@pytest.mark.parametrize("end", ["error", "finalize"])
def test_a_block_that_a_rank_has_left_early_has_the_part_of_rank_0(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in of_patient_launcher().items():
        monkeypatch.setenv(name, value)

    def work(comm: Communicator) -> None:
        with ringcast.profile(tmp_path / "p.json"):
            comm.allreduce(np.ones(10))
            if end == "finalize":
                comm.finalize()
            elif comm.rank == 1:
                raise RuntimeError("out of luck")

    with pytest.raises(RunFailed, match={"error": "out of luck", "finalize": "was finalized"}[end]):
        ringcast.run(work, 2, backend="processes")
    report = read(tmp_path / "p.json")
    assert {"error": "rank 1", "finalize": "was finalized"}[end] in report["failure"]
    assert (report["missing"], site(report, "allreduce")["calls"]) == ([1], 1)
    assert report["ranks"][0]["sent"] > 0


def test_a_fork_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    try:
        with ringcast.profile(path):
            pid = os.fork()
            if not pid:
                raise SystemExit
            os.waitpid(pid, 0)
            assert not path.exists()
    except SystemExit:  # the child has left the block
        os._exit(0)
    assert path.exists()


def test_a_cluster_shows_a_profile() -> None:
    with ringcast.cluster(2, backend="threads") as cluster:
        with cluster.profile() as profile:
            cluster.run(lambda comm: comm.allreduce(1))
        assert profile.report is not None
        assert "allreduce" in {one["name"] for one in profile.report["sites"]}
        assert "<iframe" in profile._repr_html_()
        assert "allreduce" in str(profile)
        json.dumps(profile.report)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_cluster_has_a_profile_of_a_run_that_failed(backend: str, tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            raise RuntimeError("out of luck")
        comm.barrier()

    with ringcast.cluster(2, backend=backend) as cluster:
        with pytest.raises(RunFailed), cluster.profile(tmp_path / "p.json"):
            cluster.run(work)
        report = read(tmp_path / "p.json")
        assert "out of luck" in report["failure"]
        assert "\n" not in report["failure"]
        with cluster.profile(), pytest.raises(UsageError, match="another block"), cluster.profile():
            raise AssertionError
        with cluster.profile() as profile:
            pass
        assert profile.report is not None
        assert profile.report["failure"] == ""


def test_a_cluster_that_has_ended_has_no_profile_and_says_so() -> None:
    cluster = ringcast.cluster(2, backend="processes")
    with pytest.raises(RunFailed) as caught, cluster.profile():
        cluster.run(lambda comm: os._exit(3))
    assert cluster.closed
    assert any("there is no profile" in note for note in caught.value.__notes__)


def test_a_block_without_a_call_is_all_outside() -> None:
    with ringcast.profile() as profile:
        sum(range(100_000))
    assert profile.report is not None
    (rank,) = profile.report["ranks"]
    assert rank["program"] == pytest.approx(rank["span"])


def test_a_block_counts_its_own_bytes_alone(tmp_path: Path) -> None:
    def work(comm: Communicator) -> Any:
        comm.allreduce(np.ones(100_000))
        with ringcast.profile() as made:
            comm.allreduce(np.ones(1000))
        return made.report

    report = ringcast.run(work, 2, backend="threads")[0]
    assert sum(nbytes for *_, nbytes in report["bytes"]) < 50_000
