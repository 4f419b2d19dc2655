"""The recording of a rank: bounded memory, times that add up, names as the program has them, one profile at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.engine import profiler as recording
from ringcast.engine.profiler import Profiler, ends_of, is_kept
from ringcast.engine.recorder import Recorder, encoded
from ringcast.errors import RunFailed, RunTimeout, UsageError
from ringcast.profiling import attach as attaching
from ringcast.profiling import part as parts
from ringcast.profiling.attach import attach, begin_block, detach
from ringcast.profiling.files import read
from ringcast.profiling.part import part_of
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Call
from ringcast.wire.header import STAGES
from support.patience import patience

PHASES = ("program", "late", "moving", "link", "combining", "python", "awaited")
THREADS = """
import threading, time
import numpy as np, ringcast
comm = ringcast.init(threads="multiple")
def work(mine):
    if comm.rank == 1:
        time.sleep(0.3)
    mine.allreduce(np.ones(10))
threads = [threading.Thread(target=work, args=(comm.dup(),)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def profiled(fn: Any, size: int, folder: Path, backend: str = "threads") -> dict[str, Any]:
    ringcast.run(fn, size, backend=backend, profile=str(folder / "p.json"))
    return read(folder / "p.json")


def site(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in report["sites"] if one["name"] == name]
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_times_of_a_rank_add_up_to_its_life(size: int, backend: str, tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        for count in (1, 0, 100_000):
            for _ in range(4):
                comm.allreduce(np.ones(count))
                comm.bcast({"an": "object"}, size - 1)
        request = comm.iallreduce(np.ones(1000))
        request.wait()
        if size > 1 and comm.rank < 2:
            comm.sendrecv(np.ones(3), 1 - comm.rank, 1 - comm.rank)

    report = profiled(work, size, tmp_path, backend)
    assert [rank["rank"] for rank in report["ranks"]] == list(range(size))
    for rank in report["ranks"]:
        assert sum(rank[phase] for phase in PHASES) == pytest.approx(rank["span"], rel=0.02)
        assert all(rank[phase] >= 0 for phase in PHASES)
    assert site(report, "allreduce")["calls"] == site(report, "bcast")["calls"] == 12
    assert site(report, "iallreduce")["kind"] == "request"


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_time_of_the_program_belongs_to_the_call_after_it(backend: str, tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        for _ in range(3):
            comm.allreduce(np.ones(3))
            time.sleep(0.05)
            comm.barrier()
            request = comm.ibarrier()
            time.sleep(0.05 * comm.rank)
            request.wait()

    report = profiled(work, 2, tmp_path, backend)
    for rank in range(2):
        before = {one["name"]: dict(one["before"])[rank] for one in report["sites"]}
        assert before["barrier"] >= 0.15
        assert before["allreduce"] >= 0.1 * rank  # beside the request, and so the call after it is late
        assert 0.15 + 0.1 * rank <= sum(before.values()) <= report["ranks"][rank]["program"] - 0.05 * rank


def test_calls_of_threads_take_no_longer_than_their_rank(tmp_path: Path) -> None:
    job = tmp_path / "threads.py"
    job.write_text(THREADS)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", "--profile", "p.json", str(job)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=patience(100))
    report = read(tmp_path / "p.json")
    for rank in report["ranks"]:
        assert sum(rank[phase] for phase in PHASES) == pytest.approx(rank["span"], rel=0.02)
    assert "Threads of rank" in " ".join(report["notes"])


@pytest.mark.parametrize("count", [3, 1000, 200_000])
def test_a_call_of_two_stages_counts_once(count: int, tmp_path: Path) -> None:
    """The receivers learn from the first stage what comes in the second."""

    def work(comm: Communicator) -> None:
        for _ in range(30):
            comm.bcast(np.ones(count) if comm.rank == 0 else None)

    report = profiled(work, 3, tmp_path, "processes")
    assert [calls for _, calls, *_ in site(report, "bcast")["by_rank"]] == [30] * 3


def test_bytes_are_known_by_their_ends(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.send(np.zeros(1000), 2)
        elif comm.rank == 2:
            comm.recv(0)

    assert profiled(work, 3, tmp_path)["bytes"] == [[0, 2, pytest.approx(8000, abs=200)]]


def test_many_calls_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_MOMENTS", 64)
    monkeypatch.setattr(recording, "MOST_TALLIES", 10)
    clock = iter(range(10**9))
    profiler = Profiler(Recorder(0, 1), 1, lambda: float(next(clock)))
    call = encoded(Call("barrier"))
    for number in range(1, 5001):
        op = Operation(1, STAGES * number, Call("barrier"), False, 1, ("prog.py", number % 100))
        profiler.begin(op, call)
        profiler.done(op)
    assert len(profiler.moments) <= 64
    assert all(is_kept(number // STAGES, profiler.stride) for _, number, *_ in profiler.moments)
    assert len(profiler.tallies) == 11
    assert sum(tally.calls for tally in profiler.tallies) == 5000


def test_further_arguments_and_communicators_of_a_line_share_a_tally(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        for count in range(1, 101):
            comm.allreduce(np.ones(count))
        for _ in range(40):
            comm.split(0).bcast(np.ones(3), 0)
        for _ in range(5):
            comm.gather(comm.rank)
        comm.barrier()

    report = profiled(work, 2, tmp_path)
    assert [site(report, name)["calls"] for name in ("allreduce", "bcast", "gather", "barrier")] == [100, 40, 5, 1]
    assert site(report, "allreduce")["variants"] == 17
    assert site(report, "allreduce")["sampled"] == 16
    assert site(report, "barrier")["sampled"] == 1
    (note,) = (note for note in report["notes"] if "lateness of all calls" in note)
    assert "allreduce at test_profiler.py:" in note
    assert "gather" not in note


def test_messages_are_counted_where_they_share_a_tally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the ends of later ones would not find each other."""
    monkeypatch.setattr(recording, "MOST_TALLIES", 16)
    clock = iter(range(10**9))
    for name, shape in (("send", "(to 1, tag {})"), ("recv", "(from 1, tag {})")):
        profiler = Profiler(Recorder(0, 2), 2, lambda: float(next(clock)))
        for line, tag in [*((1, tag) for tag in range(12)), (1, 11), (2, 11)]:
            op = Operation(1, 0, Call(name), False, 1, ("prog.py", line))
            op.met = (1, tag) if name == "recv" else None
            profiler.begin(op, encoded(Call(name), shape.format(tag)))
            profiler.done(op)
        assert max(profiler.moments[-1][1:3]) == 3
        assert len(profiler.moments) == 5


def test_members_of_many_communicators_are_forgotten() -> None:
    profiler = Profiler(Recorder(0, 4), 4, time.monotonic)
    call = Call("barrier")
    profiler.begin(Operation(7, STAGES, call, False, 1, ("prog.py", 1)), encoded(call))
    for context in range(5000):
        profiler.made(context, (0, 1))
        assert context in profiler.members
    assert 7 in profiler.members
    assert len(profiler.members) <= 2 * recording.COMMUNICATORS


def test_tallies_of_all_ranks_are_bounded() -> None:
    for size in (1, 100, 1000):
        profiler = Profiler(Recorder(0, 1), size, time.monotonic)
        call = Call("barrier")
        for line in range(1, 6000):
            profiler.begin(Operation(1, STAGES, call, False, 1, ("prog.py", line)), encoded(call))
        assert size * (len(profiler.tallies) - 1) <= recording.TALLIES


def test_the_messages_of_a_plan_are_computed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn, made = parts.drawn_messages, list[Any]()

    def counted(*facts: Any) -> Any:
        made.append(facts)
        return drawn(*facts)

    def work(comm: Communicator) -> None:
        comm.allreduce(np.ones(1000))
        profiler = group_of(comm).endpoint.profiler
        assert profiler is not None
        for _ in range(3):
            profiler.save()

    monkeypatch.setattr(parts, "drawn_messages", counted)
    parts._messages.cache_clear()
    assert site(profiled(work, 2, tmp_path), "allreduce")["rounds"]["messages"]
    assert len(made) == 1


@pytest.mark.parametrize(
    ("shape", "ends"),
    [
        ("(to 3, tag 0)", ("3", "", "0")),
        ("(from 1, tag 7)", ("", "1", "7")),
        ("(to 3, from 1, tag 7)", ("3", "1", "7")),
        ("(from any, any tag)", ("", "any", "")),
        ("(3, 4)", None),
        ("", None),
    ],
)
def test_the_ends_of_a_message_are_in_its_record(shape: str, ends: tuple[str, str, str] | None) -> None:
    assert ends_of(encoded(Call("send"), shape)) == ends


def test_names_of_mpi_are_kept(tmp_path: Path) -> None:
    def work(_: Communicator) -> None:
        from ringcast import MPI

        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, np.ones(3))
        MPI.COMM_WORLD.allgather("text")

    names = {one["name"] for one in profiled(work, 2, tmp_path, "processes")["sites"]}
    assert {"Allreduce", "allgather"} <= names


def test_calls_that_are_prepared_or_made_by_ringcast_have_the_places_of_the_program(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        total = comm.allreduce_init(np.ones(3))
        for _ in range(3):
            total.start()
            total.wait()
        with ringcast.Pool(comm) as pool:
            if comm.rank == 0:
                assert [*pool.map(abs, [-1, 2])] == [1, 2]

    report = profiled(work, 3, tmp_path)
    assert site(report, "allreduce_init")["kind"] == "persistent"
    assert site(report, "allreduce_init")["calls"] == 3
    assert {one["file"] for one in report["sites"] if one["name"] in ("Pool", "allreduce_init")} == {__file__}


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


def test_a_wait_that_failed_is_no_lateness_of_the_calls_before(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        for i in range(20):
            if comm.rank == 1 and i == 19:
                over.wait()
                return
            try:
                comm.recv(1, timeout=0.5) if comm.rank == 0 else comm.send(i, 0)
            except ringcast.CollectiveTimeout:
                over.set()
                raise

    over = threading.Event()
    with pytest.raises(RunFailed):
        ringcast.run(work, 2, backend="threads", profile=tmp_path / "p.json")
    found = site(read(tmp_path / "p.json"), "recv")
    assert found["lost"] >= 0.5
    assert sum(seconds for *_, seconds in found["blame"]) <= found["late"] - found["lost"] + 1e-9


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
def test_a_block_that_a_rank_has_left_early_has_the_part_of_rank_0(end: str, tmp_path: Path) -> None:
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


def test_a_failed_run_has_a_profile(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            raise RuntimeError("out of luck")
        comm.barrier()

    for backend in ("threads", "processes"):
        with pytest.raises(RunFailed):
            ringcast.run(work, 3, backend=backend, profile=str(tmp_path / "p.json"))
        report = read(tmp_path / "p.json")
        assert "out of luck" in report["failure"]
        assert report["missing"] == []


def test_a_run_that_takes_too_long_has_a_profile(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank < 2:
            comm.recv(comm.rank + 1)
        over.wait()

    over = threading.Event()
    try:
        with pytest.raises(RunTimeout):
            ringcast.run(work, 3, backend="threads", timeout=0.5, profile=tmp_path / "p.json")
    finally:
        over.set()
    report = read(tmp_path / "p.json")
    assert "within 0.5 s" in report["failure"]
    assert (site(report, "barrier")["calls"], report["missing"]) == (1, [])
    assert site(report, "recv")["missed"] == [2]  # rank 1 waits itself


def test_an_interrupted_run_has_a_profile(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 0:
            signal.pthread_kill(main, signal.SIGINT)
        comm.recv(1 - comm.rank)

    main = threading.main_thread().ident
    assert main is not None
    with pytest.raises(KeyboardInterrupt):
        ringcast.run(work, 2, backend="threads", profile=tmp_path / "p.json")
    report = read(tmp_path / "p.json")
    assert "KeyboardInterrupt" in report["failure"]
    assert site(report, "barrier")["calls"] == 1


def test_the_thread_of_a_rank_is_profiled(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        assert group_of(comm).endpoint.profiler.thread == threading.get_native_id()

    profiled(work, 2, tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"format": "ringcast profile 0"}', '{"format": "ringcast profile 1"}']
)
def test_a_file_that_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ValueError, match="expected"):
        read(tmp_path / "p.json")


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


def test_bytes_of_requests_at_once_count_once(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        for request in [comm.iallreduce(np.ones(100_000)) for _ in range(4)]:
            request.wait()
        if comm.rank == 0:
            for _ in range(5):
                comm.send(np.ones(10), 1)
        elif comm.rank == 1:
            for _ in range(5):
                comm.recv(0)

    report = profiled(work, 2, tmp_path)
    sent = sum(nbytes for *_, nbytes in report["bytes"])
    for way in "bytes_out", "bytes_in":
        assert sum(one[way] for one in report["sites"]) <= sent
        assert site(report, "iallreduce")[way] >= 4 * 2 * 800_000
    send, recv = site(report, "send"), site(report, "recv")
    assert send["bytes_out"] == recv["bytes_in"] >= 5 * 80
    assert send["bytes_in"] == recv["bytes_out"] == 0


def test_the_time_of_a_failed_call_is_a_wait_for_the_rank_that_did_not_come(tmp_path: Path) -> None:
    over = threading.Event()

    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            over.wait()
            return
        try:
            comm.recv(1, timeout=0.3)
        finally:
            over.set()

    with pytest.raises(RunFailed):
        ringcast.run(work, 2, backend="threads", profile=str(tmp_path / "p.json"))
    report = read(tmp_path / "p.json")
    assert (site(report, "recv")["failed"], site(report, "recv")["missed"]) == (1, [1])
    assert report["ranks"][0]["late"] >= 0.3
    assert report["ranks"][0]["python"] < 0.1 * report["ranks"][0]["late"]
    assert "The job failed while ranks waited for rank 1 in recv at test_profiler.py" in report["summary"]


def test_requests_of_an_earlier_profile_are_none_of_a_later_one() -> None:
    comm = ringcast.init()
    with ringcast.profile():
        comm.barrier()
        request = comm.irecv(0)
    with ringcast.profile() as profile:
        comm.send(np.ones(3), 0)
        request.wait()
    assert profile.report is not None
    assert [one["name"] for one in profile.report["sites"]] == ["send"]


def test_a_profile_begun_later_has_members_and_plans_of_calls_made_before(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        odd = comm.split(comm.rank % 2)
        for i in range(10):
            if i == 5:
                attach(group_of(comm))
            odd.allreduce(np.ones(3))
        part = detach(group_of(comm))
        (tally,) = part["tallies"]
        assert part["contexts"][str(tally["context"])] == [comm.rank % 2, comm.rank % 2 + 2]
        assert tally["predicted"] is not None

    ringcast.run(work, 4, backend="threads")


def test_no_room_for_a_part_ends_no_program() -> None:
    def full(_: Profiler) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    profiler = Profiler(Recorder(0, 1), 1, lambda: 0.0, full)
    profiler.save()
    profiler.close()


def test_code_of_any_name_is_a_call_site() -> None:
    code = compile("comm.allreduce(1)", "\ud800\udcff.py", "exec")
    with ringcast.profile() as profile:
        exec(code, {"comm": ringcast.init()})
    assert profile.report is not None
    assert [one["file"] for one in profile.report["sites"]] == ["??.py"]


def test_a_block_without_a_call_is_all_outside() -> None:
    with ringcast.profile() as profile:
        sum(range(100_000))
    assert profile.report is not None
    (rank,) = profile.report["ranks"]
    assert rank["program"] == pytest.approx(rank["span"])


def test_the_beginning_of_a_request_is_none_of_the_program(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        from ringcast import MPI

        for _ in range(300):
            comm.iallreduce(np.ones(3)).wait()

        for _ in range(300):
            MPI.COMM_WORLD.Iallreduce(MPI.IN_PLACE, np.ones(3)).Wait()

    report = profiled(work, 1, tmp_path, "processes")
    for name in ("iallreduce", "Iallreduce"):
        found = site(report, name)
        assert found["python"] > 0
        assert found["python"] == pytest.approx(found["time"], rel=0.5)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_message_is_awaited_from_the_rank_that_sends_it(backend: str, tmp_path: Path) -> None:
    """Rank 2 of the job is late; in the communicator it has another rank."""

    def work(comm: Communicator) -> None:
        turned = comm.split(0, key=-comm.rank)
        for _ in range(3):
            comm.barrier()
            if comm.rank == 2:
                time.sleep(0.05)
                turned.send(np.ones(3), 2, tag=5)
            elif comm.rank == 0:
                turned.recv(tag=5)
            comm.barrier()
            if comm.rank == 2:
                time.sleep(0.05)
            turned.sendrecv(comm.rank, (turned.rank + 1) % 3, (turned.rank - 1) % 3)

    report = profiled(work, 3, tmp_path, backend)
    for name in "recv", "sendrecv":
        rank, _, seconds = site(report, name)["blame"][0]
        assert rank == 2
        assert 0.05 < seconds <= site(report, name)["time"]


def test_a_message_of_mpi_is_awaited_from_the_rank_that_sends_it(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        from ringcast import MPI

        world = MPI.COMM_WORLD
        turned, status = world.Split(0, -world.rank), MPI.Status()
        for tag in range(3):
            world.Barrier()
            if world.rank == 2:
                time.sleep(0.05)
                turned.Send(np.ones(3), 2, tag)
            elif world.rank == 0:
                turned.Recv(np.ones(3), MPI.ANY_SOURCE, MPI.ANY_TAG, status)
                assert (status.source, status.tag) == (0, tag)
            world.Barrier()
            if world.rank == 2:
                time.sleep(0.05)
            turned.sendrecv(1, (turned.rank + 1) % 3, 4, source=(turned.rank - 1) % 3, recvtag=4)

    report = profiled(work, 3, tmp_path, "processes")
    for name in "Recv", "sendrecv":
        rank, _, seconds = site(report, name)["blame"][0]
        assert rank == 2
        assert 0.05 < seconds <= site(report, name)["time"]


@pytest.mark.parametrize("size", [3, 4])
def test_a_rank_that_is_kept_by_another_one_is_not_to_blame(size: int, tmp_path: Path) -> None:
    """The last rank is slow; rank 0 hands out work when it has its result, so that others wait for rank 0."""

    def work(comm: Communicator) -> None:
        last = comm.size - 1
        for _ in range(10):
            if comm.rank == 0:
                for other in range(1, comm.size):
                    comm.recv(other)
                for other in range(1, comm.size):
                    comm.send(1, other)
            else:
                time.sleep(0.03 * (comm.rank == last))
                comm.send(comm.rank, 0)
                comm.recv(0)

    report = profiled(work, size, tmp_path, "threads")
    blamed = {rank["rank"]: rank["blamed"] for rank in report["ranks"]}
    assert blamed[size - 1] >= 0.25
    assert sum(blamed.values()) - blamed[size - 1] < 0.1
    assert report["summary"].count(f"Rank {size - 1} is late for ") == 1
    assert {one["rank"] for one in report["advice"] if one["rule"] == "imbalance"} == {size - 1}


def test_a_block_counts_its_own_bytes_alone(tmp_path: Path) -> None:
    def work(comm: Communicator) -> Any:
        comm.allreduce(np.ones(100_000))
        with ringcast.profile() as made:
            comm.allreduce(np.ones(1000))
        return made.report

    report = ringcast.run(work, 2, backend="threads")[0]
    assert sum(nbytes for *_, nbytes in report["bytes"]) < 50_000


@pytest.mark.parametrize("count", [1, 500_000])
@pytest.mark.parametrize("call", ["irecv", "iallreduce"])
def test_a_wait_for_a_request_is_no_python(call: str, count: int, tmp_path: Path) -> None:
    """Rank 1 is late; rank 0 waits for it, by prediction or in the engine."""

    def work(comm: Communicator) -> None:
        for _ in range(20):
            if comm.rank == 1:
                time.sleep(0.01)
            if call == "iallreduce":
                comm.iallreduce(np.ones(count)).wait()
            elif comm.rank == 1:
                comm.send(np.ones(count), 0)
            else:
                comm.irecv(1).wait()

    report = profiled(work, 2, tmp_path, "processes")
    mine, whole = report["ranks"][0], 20 * 0.01
    assert mine["late"] + mine["awaited"] >= 0.8 * whole
    assert mine["late"] >= 0.5 * whole
    assert mine["python"] <= 0.3 * mine["span"]
    assert report["ranks"][1]["blamed"] >= 0.5 * whole
