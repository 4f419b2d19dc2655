"""The recording of a rank: bounded memory, times that add up, names as the program has them."""

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
from ringcast.engine.profiler import Profiler, is_kept
from ringcast.engine.recorder import Recorder, encoded
from ringcast.engine.tally import ends_of
from ringcast.errors import RunFailed, RunTimeout
from ringcast.profiling import part as parts
from ringcast.profiling.attach import attach, detach
from ringcast.profiling.files import read
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Call
from ringcast.wire.header import STAGES
from support.patience import patience
from support.profiled_runs import PHASES, profiled, site

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

    over, seconds = threading.Event(), patience(0.5)
    try:
        with pytest.raises(RunTimeout):
            ringcast.run(work, 3, backend="threads", timeout=seconds, profile=tmp_path / "p.json")
    finally:
        over.set()
    report = read(tmp_path / "p.json")
    assert f"within {seconds:g} s" in report["failure"]
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


def test_a_part_stays_as_it_is_while_its_rank_goes_on(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        group = group_of(comm)
        comm.allreduce(np.ones(3))
        part = parts.part_of(group.endpoint, group.endpoint.profiler, group.network)
        text = json.dumps(part)
        for _ in range(3):
            comm.allreduce(np.ones(3))
            comm.sendrecv(1, dest=1 - comm.rank, source=1 - comm.rank)
        assert json.dumps(part) == text

    profiled(work, 2, tmp_path)


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
