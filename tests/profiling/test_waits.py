"""Lateness on real ranks. A sleep is the work of a rank that is late; its length grows with the load of the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed
from ringcast.profiling.files import read
from support.patience import patience
from support.profiled_runs import profiled, site


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


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_time_of_the_program_belongs_to_the_request_after_it(backend: str, tmp_path: Path) -> None:
    """Also where the request is begun again, by prediction."""

    def work(comm: Communicator) -> None:
        for _ in range(20):
            time.sleep(0.02)  # the program's own time, which is measured
            comm.iallreduce(np.ones(3)).wait()
        comm.barrier()

    found = site(profiled(work, 2, tmp_path, backend), "iallreduce")
    assert min(seconds for _, seconds in found["before"]) >= 20 * 0.02


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


def test_the_time_of_a_failed_call_is_a_wait_for_the_rank_that_did_not_come(tmp_path: Path) -> None:
    over, timeout = threading.Event(), patience(0.3)

    def work(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            over.wait()
            return
        try:
            comm.recv(1, timeout=timeout)
        finally:
            over.set()

    with pytest.raises(RunFailed):
        ringcast.run(work, 2, backend="threads", profile=str(tmp_path / "p.json"))
    report = read(tmp_path / "p.json")
    assert (site(report, "recv")["failed"], site(report, "recv")["missed"]) == (1, [1])
    assert report["ranks"][0]["late"] >= timeout
    assert report["ranks"][0]["python"] < 0.1 * report["ranks"][0]["late"]
    assert "The job failed while ranks waited for rank 1 in recv at test_waits.py" in report["summary"]


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
    pause = patience(0.05)

    def work(comm: Communicator) -> None:
        turned = comm.split(0, key=-comm.rank)
        for _ in range(3):
            comm.barrier()
            if comm.rank == 2:
                time.sleep(pause)
                turned.send(np.ones(3), 2, tag=5)
            elif comm.rank == 0:
                turned.recv(tag=5)
            comm.barrier()
            if comm.rank == 2:
                time.sleep(pause)
            turned.sendrecv(comm.rank, (turned.rank + 1) % 3, (turned.rank - 1) % 3)

    report = profiled(work, 3, tmp_path, backend)
    for name in "recv", "sendrecv":
        rank, _, seconds = site(report, name)["blame"][0]
        assert rank == 2
        assert pause < seconds <= site(report, name)["time"]


def test_a_message_of_mpi_is_awaited_from_the_rank_that_sends_it(tmp_path: Path) -> None:
    pause = patience(0.05)

    def work(comm: Communicator) -> None:
        from ringcast import MPI

        world = MPI.COMM_WORLD
        turned, status = world.Split(0, -world.rank), MPI.Status()
        for tag in range(3):
            world.Barrier()
            if world.rank == 2:
                time.sleep(pause)
                turned.Send(np.ones(3), 2, tag)
            elif world.rank == 0:
                turned.Recv(np.ones(3), MPI.ANY_SOURCE, MPI.ANY_TAG, status)
                assert (status.source, status.tag) == (0, tag)
            world.Barrier()
            if world.rank == 2:
                time.sleep(pause)
            turned.sendrecv(1, (turned.rank + 1) % 3, 4, source=(turned.rank - 1) % 3, recvtag=4)

    report = profiled(work, 3, tmp_path, "processes")
    for name in "Recv", "sendrecv":
        rank, _, seconds = site(report, name)["blame"][0]
        assert rank == 2
        assert pause < seconds <= site(report, name)["time"]


@pytest.mark.parametrize("size", [3, 4])
def test_a_rank_that_is_kept_by_another_one_is_not_to_blame(size: int, tmp_path: Path) -> None:
    """The last rank is slow; rank 0 hands out work when it has its result, so that others wait for rank 0."""
    pause = patience(0.03)

    def work(comm: Communicator) -> None:
        last = comm.size - 1
        for _ in range(10):
            if comm.rank == 0:
                for other in range(1, comm.size):
                    comm.recv(other)
                for other in range(1, comm.size):
                    comm.send(1, other)
            else:
                time.sleep(pause * (comm.rank == last))
                comm.send(comm.rank, 0)
                comm.recv(0)

    report = profiled(work, size, tmp_path, "threads")
    blamed = {rank["rank"]: rank["blamed"] for rank in report["ranks"]}
    assert blamed[size - 1] >= 8 * pause
    assert sum(blamed.values()) - blamed[size - 1] < 3 * pause
    assert report["summary"].count(f"Rank {size - 1} is late for ") == 1
    assert {one["rank"] for one in report["advice"] if one["rule"] == "imbalance"} == {size - 1}


@pytest.mark.parametrize("count", [1, 500_000])
@pytest.mark.parametrize("call", ["irecv", "iallreduce"])
def test_a_wait_for_a_request_is_no_python(call: str, count: int, tmp_path: Path) -> None:
    """Rank 1 is late; rank 0 waits for it, by prediction or in the engine."""
    pause = patience(0.01)

    def work(comm: Communicator) -> None:
        data, waited = np.ones(count), 0.0
        for _ in range(20):
            if comm.rank == 1:
                time.sleep(pause)
            if call == "irecv" and comm.rank == 1:
                comm.send(data, 0)
                continue
            request = comm.irecv(1) if call == "irecv" else comm.iallreduce(data)
            began = time.monotonic()
            request.wait()
            waited += time.monotonic() - began
        if comm.rank == 0:
            (tmp_path / "waited").write_text(str(waited))

    report = profiled(work, 2, tmp_path, "processes")
    mine, waited = report["ranks"][0], float((tmp_path / "waited").read_text())
    assert mine["late"] + mine["awaited"] >= 0.8 * waited
    assert mine["late"] >= 0.5 * min(waited, 20 * pause)
    assert mine["python"] <= 0.3 * mine["span"]
    assert report["ranks"][1]["blamed"] >= 0.5 * min(waited, 20 * pause)


def test_a_rank_that_waits_for_a_request_is_not_to_blame(tmp_path: Path) -> None:
    """Rank 0 is slow; each other one waits for the rank before it, and makes the rank after it wait."""
    pause = patience(0.1)

    def work(comm: Communicator) -> None:
        for _ in range(5):
            if comm.rank == 0:
                time.sleep(pause)
            else:
                comm.irecv(comm.rank - 1).wait()
            if comm.rank < comm.size - 1:
                comm.send(1, comm.rank + 1)
            comm.barrier()

    report = profiled(work, 4, tmp_path)
    blamed = [rank["blamed"] for rank in report["ranks"]]
    assert blamed[0] >= 4 * pause
    assert sum(blamed[1:]) < 2 * pause


def test_nothing_waits_for_a_message_that_comes_while_the_receiver_computes(tmp_path: Path) -> None:
    pause = patience(0.1)

    def work(comm: Communicator) -> None:
        for _ in range(5):
            comm.barrier()
            if comm.rank == 1:
                request = comm.irecv(0)
                time.sleep(3 * pause)
                request.wait()
            else:
                time.sleep(pause)
                comm.send(1, 1)

    report = profiled(work, 2, tmp_path)
    found = site(report, "irecv")
    assert found["late"] < pause
    assert sum(calls for _, calls, _ in found["blame"]) <= 2
    assert found["hidden"] >= 5 * pause


def test_requests_that_are_awaited_in_turn_have_their_own_lateness(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1, computes, and then waits for rank 2, which has sent by then, but for a little."""
    pause = patience(0.1)

    def work(comm: Communicator) -> None:
        for _ in range(3):
            comm.barrier()
            if comm.rank == 0:
                first, second = comm.irecv(1), comm.irecv(2)
                first.wait()
                time.sleep(3 * pause)
                second.wait()
            else:
                time.sleep(4 * pause if comm.rank == 1 else 8 * pause)
                comm.send(1, 0)

    cost = {rank: seconds for rank, _, seconds in site(profiled(work, 3, tmp_path), "irecv")["blame"]}
    assert 3 * 3 * pause <= cost[1] <= 3 * 5 * pause
    assert cost.get(2, 0.0) <= 3 * 2 * pause


def of_ringcast(comm: Communicator) -> Callable[[], object]:
    """Return a call among the neighbours in a ring, in which ranks are others than in the job."""
    ring = comm.split(0, key=-comm.rank).cart(comm.size, True)
    return lambda: ring.neighbor_allgather(np.ones(3))


def of_mpi(comm: Communicator) -> Callable[[], object]:
    from ringcast import MPI

    ring = MPI.COMM_WORLD.Split(0, -comm.rank).Create_cart([comm.size], [True])
    return lambda: ring.Ineighbor_allgather(np.ones(3), np.empty(6)).Wait()


@pytest.mark.parametrize(
    ("made", "name", "backend"),
    [
        (of_ringcast, "neighbor_allgather", "threads"),
        (of_ringcast, "neighbor_allgather", "processes"),
        (of_mpi, "Ineighbor_allgather", "processes"),
    ],
)
def test_collectives_among_neighbours_wait_for_the_neighbour_that_is_late(
    made: Callable[[Communicator], Callable[[], object]], name: str, backend: str, tmp_path: Path
) -> None:
    """Rank 2 of the job is slow."""
    pause = patience(0.1)

    def work(comm: Communicator) -> None:
        call = made(comm)
        for _ in range(5):
            comm.barrier()
            if comm.rank == 2:
                time.sleep(pause)
            call()

    report = profiled(work, 5, tmp_path, backend)
    found = site(report, name)
    (rank, calls, seconds), *_ = found["blame"]
    assert rank == 2
    assert calls >= 4
    assert 3 * 2 * pause <= seconds <= found["late"] <= found["time"]
    late = {rank: seconds for rank, _, _, seconds in found["by_rank"]}
    assert max(late[0], late[2], late[4]) < min(late[1], late[3])


def test_a_call_among_neighbours_that_one_has_not_made_is_no_error_of_the_profile(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        ring = comm.cart(comm.size, True)
        for i in range(3):
            if comm.rank == 1 and i == 2:
                ring.comm.barrier()
            else:
                ring.neighbor_allgather(np.ones(3))

    with pytest.raises(RunFailed, match="CollectiveMismatch"):
        ringcast.run(work, 3, backend="threads", profile=tmp_path / "p.json")
    assert "CollectiveMismatch" in read(tmp_path / "p.json")["failure"]


def test_ranks_without_neighbours_make_the_call_too(tmp_path: Path) -> None:
    """Rank 2 has no edge, and may give something else."""

    def work(comm: Communicator) -> None:
        near = comm.graph([1 - comm.rank] if comm.rank < 2 else [])
        for _ in range(3):
            near.neighbor_allgather(np.ones(3) if comm.rank < 2 else [])

    found = site(profiled(work, 3, tmp_path), "neighbor_allgather")
    assert found["calls"] == 3
