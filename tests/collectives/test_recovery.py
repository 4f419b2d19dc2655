"""Going on after a failure, on threads and on real sockets: whoever dies, the others go on, with numpy's answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations, count
from typing import Any

import numpy as np
import pytest

from ringcast.communicator import Communicator
from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    JobAborted,
    PeerFailed,
    Revoked,
    UsageError,
)
from ringcast.ops import SUM
from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure
from ringcast.wire.flight import Entry, decode
from support.cases import crossed
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

KINDS = ("threads", "shm", "sockets")


@contextmanager
def job_of(kind: str, size: int) -> Iterator[Job]:
    """A job of its own: one in which a rank died is of no use to another test."""
    job = Job(kind, size)
    try:
        yield job
    finally:
        job.close()


def run(kind: str, size: int, fn: Callable[[Communicator], Any]) -> list[Any]:
    """Return the results of all ranks; an error of one is raised, the first rank's that is no consequence."""
    with job_of(kind, size) as job:
        return job.ask(fn, timeout=patience(20))


def die(comm: Communicator, cause: str = "killed") -> str:
    """End as the control plane would tell it to the others; the rank takes part in nothing any more."""
    endpoint = comm._group.endpoint
    endpoint.control.send(Failing(endpoint.rank, Failure(cause, "Traceback of the dead")))
    return "dead"


def until_it_fails(comm: Communicator, calls: int | None = None) -> PeerFailed | Revoked | None:
    """Communicate until that cannot go on, or this has made so many calls; return what ended it."""
    for _ in count() if calls is None else range(calls):
        try:
            comm.allreduce(np.ones(3))
        except (PeerFailed, Revoked) as error:
            return error
    return None


def acknowledge(comm: Communicator, rank: int) -> int:
    """Wait until it is known that a rank failed, which may come later than the revocation, and acknowledge."""
    while rank not in comm.get_failed():
        comm._group.endpoint.progress(None)
    return comm.ack_failed()


def go_on(comm: Communicator) -> Communicator:
    comm.revoke()
    return comm.shrink()


def everything(comm: Communicator) -> None:
    """Call every collective, small and large, with counts, roots and objects; compare with numpy."""
    p, me = comm.size, comm.rank
    for n in 3, 30_000:
        rows = [np.arange(n) * 3 + member for member in comm.members]  # every rank knows what each rank has
        mine, total = rows[me], np.sum(rows, axis=0)
        root = p - 1
        np.testing.assert_array_equal(comm.allreduce(mine), total)
        np.testing.assert_array_equal(comm.allgather(mine), rows)
        np.testing.assert_array_equal(comm.bcast(mine if me == root else None, root), rows[root])
        np.testing.assert_array_equal(comm.scan(mine), np.sum(rows[: me + 1], axis=0))
        np.testing.assert_array_equal(comm.shift(mine, 1), rows[me - 1])
        for got, expected in (
            (comm.reduce(mine, SUM, root), total),
            (comm.gather(mine, root), rows),
            (comm.gatherv(mine[: me + 2], root=root), np.concatenate([rows[r][: r + 2] for r in range(p)])),
        ):
            assert (got is None) == (me != root)
            if got is not None:
                np.testing.assert_array_equal(got, expected)
        before = comm.exscan(mine)
        assert (before is None) == (me == 0)
        if before is not None:
            np.testing.assert_array_equal(before, np.sum(rows[:me], axis=0))
        np.testing.assert_array_equal(
            comm.allgatherv(mine[: me + 1]), np.concatenate([rows[r][: r + 1] for r in range(p)])
        )
        np.testing.assert_array_equal(comm.merge_sorted(mine), np.sort(np.concatenate(rows)))
        np.testing.assert_array_equal(comm.scatter(rows if me == root else None, root), mine)
        np.testing.assert_array_equal(comm.scatterv(total if me == 0 else None), np.array_split(total, p)[me])
        np.testing.assert_array_equal(comm.reduce_scatter(mine), np.array_split(total, p)[me])
        table = np.arange(p * 4).reshape(p, 4) + 1000 * me
        np.testing.assert_array_equal(
            comm.alltoall(table), [np.arange(4) + 4 * me + 1000 * source for source in range(p)]
        )
        counts = [(me + r) % 3 for r in range(p)]
        np.testing.assert_array_equal(
            comm.alltoallv(np.full(sum(counts), me), counts), np.repeat(np.arange(p), [(me + r) % 3 for r in range(p)])
        )
        np.testing.assert_array_equal(comm.sendrecv(mine, (me + 1) % p, (me - 1) % p, 5), rows[me - 1])
    assert comm.allgather({"rank": me}) == [{"rank": r} for r in range(p)]
    comm.barrier()


def recovered(comm: Communicator, dying: tuple[int, ...], after: int) -> object:
    """Lose the ranks `dying` after some calls, go on without them; return the members and what was raised."""
    error = until_it_fails(comm, after if comm.rank in dying else None)
    if comm.rank in dying:
        return die(comm)
    new = go_on(comm)
    assert new.members[new.rank] == comm.rank
    assert comm.is_revoked
    assert not new.is_revoked
    assert new.get_failed() == ()
    total = new.allreduce(np.array([1, new.rank, comm.rank]))
    return new.members, type(error), total.tolist()


@pytest.mark.parametrize(("kind", "job"), crossed(KINDS, [(2, 0), (3, 1), (5, 0), (5, 2)]))
def test_whichever_rank_dies_the_others_go_on(kind: str, job: tuple[int, int]) -> None:
    p, after = job
    for dying in [*combinations(range(p), 1), *combinations(range(p), 2)]:
        if len(dying) < p:
            check_survivors(kind, p, dying, after)


FIRST_MIDDLE_LAST = 0, 16, 32


@pytest.mark.parametrize(
    ("kind", "dying"),
    [
        *(pytest.param("threads", r, marks=[pytest.mark.long] * (r not in FIRST_MIDDLE_LAST)) for r in range(33)),
        *(("ipc", r) for r in FIRST_MIDDLE_LAST),
    ],
)
def test_one_of_many(kind: str, dying: int) -> None:
    check_survivors(kind, 33, (dying,), 1)


def check_survivors(kind: str, p: int, dying: tuple[int, ...], after: int) -> None:
    results = run(kind, p, lambda comm: recovered(comm, dying, after))
    alive = tuple(rank for rank in range(p) if rank not in dying)
    sums = [len(alive), sum(range(len(alive))), sum(alive)]
    for rank, result in enumerate(results):
        if rank in dying:
            assert result == "dead"
        else:
            members, kind_of_error, total = result
            assert members == alive, f"{dying=} {rank=}"
            assert kind_of_error in (PeerFailed, Revoked)
            assert total == sums


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("p", "dying"), [(2, 0), (3, 1), (6, 2)])
def test_every_collective_works_on_a_shrunk_communicator(kind: str, p: int, dying: int) -> None:
    def work(comm: Communicator) -> object:
        if comm.rank == dying:
            return die(comm)
        until_it_fails(comm)
        everything(go_on(comm))
        return None

    run(kind, p, work)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 5]))
def test_shrinking_without_a_failure_keeps_all(kind: str, p: int) -> None:
    def work(comm: Communicator) -> object:
        new = comm.shrink()
        everything(new)
        everything(comm)
        return new.members, new.rank

    assert run(kind, p, work) == [(tuple(range(p)), rank) for rank in range(p)]


@pytest.mark.parametrize("kind", KINDS)
def test_shrinking_again_and_again_until_one_is_left(kind: str) -> None:
    p, order = 5, (2, 0, 4, 1)

    def work(comm: Communicator) -> object:
        me = comm.rank
        for dying in order:
            if me == dying:
                return die(comm)
            until_it_fails(comm)
            comm = go_on(comm)
        everything(comm)
        return comm.members

    assert run(kind, p, work) == ["dead", "dead", "dead", (3,), "dead"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["agree", "shrink"])
def test_a_rank_that_dies_while_the_others_agree(kind: str, verb: str) -> None:
    """Rank 3 dies first; rank 1 dies when all the others have voted, and never votes itself."""
    with job_of(kind, 5) as job:
        voted = threading.Barrier(4)

        def work(comm: Communicator) -> object:
            if comm.rank == 3:
                return die(comm)
            until_it_fails(comm)
            acknowledge(comm, 3)
            voted.wait(patience(30))
            if comm.rank == 1:
                return die(comm, "a second failure")
            if verb == "shrink":
                return comm.shrink().members
            with pytest.raises(PeerFailed, match=r"rank 1 .*a second failure") as caught:
                comm.agree(6 | 1 << comm.rank)
            assert comm.get_failed() == (1, 3)
            assert comm.ack_failed() == 2
            return caught.value.ranks, caught.value.flag, comm.agree(~(1 << comm.rank))

        results = job.ask(work)
    expected = (0, 2, 4) if verb == "shrink" else ((1,), 6, ~0b10101)
    assert results == [expected, "dead", expected, "dead", expected]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, 5])
def test_agree_without_a_failure(kind: str, p: int) -> None:
    flags = [-1 << r for r in range(p)]
    results = run(kind, p, lambda comm: [comm.agree(flags[comm.rank]), comm.agree(), comm.agree(comm.rank == 0)])
    assert results == [[-1 << p - 1, 1, int(p == 1)]] * p


@pytest.mark.parametrize("kind", KINDS)
def test_agree_works_on_a_revoked_communicator_and_raises_alike_until_all_have_acknowledged(kind: str) -> None:
    def work(comm: Communicator) -> object:
        if comm.rank == 1:
            return die(comm)
        until_it_fails(comm)
        comm.revoke()
        raised = []
        for turn in range(4):  # one more rank acknowledges each time
            if turn > (0, 0, 1, 2)[comm.rank]:
                assert acknowledge(comm, 1) == 1
            try:
                raised.append(comm.agree(12 | comm.rank))
            except PeerFailed as error:
                raised.append((error.ranks, error.flag, error.cause))
        return raised

    failed = ((1,), 12, "killed")
    assert [r for r in run(kind, 4, work) if r != "dead"] == [[failed, failed, failed, 12]] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_left_counts_as_failed(kind: str) -> None:
    def work(comm: Communicator) -> object:
        comm.barrier()
        if comm.rank == 1:
            comm.finalize()
            return "left"
        with pytest.raises(PeerFailed, match="it left the job"):
            comm.agree()
        assert comm.get_failed() == (1,)
        comm.ack_failed()
        assert comm.agree(5) == 5
        return comm.shrink().members

    assert run(kind, 3, work) == [(0, 2), "left", (0, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_revoke_wakes_a_blocked_rank_at_once(kind: str) -> None:
    with job_of(kind, 3) as job:
        revoked_at: list[float] = []

        def work(comm: Communicator) -> float:
            if comm.rank == 1:
                comm.sendrecv(None, None, 0)  # then rank 0 is in its call, or about to be
                revoked_at.append(time.monotonic())
                comm.revoke()
                with pytest.raises(Revoked):
                    comm.barrier()
                return 0.0
            if comm.rank == 0:
                comm.sendrecv(b"ready", 1, None)
            with pytest.raises(Revoked, match="rank 1 called revoke") as caught:
                comm.barrier()
            waited = time.monotonic() - revoked_at[0]
            assert caught.value.by == 1
            with pytest.raises(Revoked):
                comm.bcast(1)
            assert comm.is_revoked
            return waited

        assert max(job.ask(work)) < patience(1.0)


def test_who_agrees_where_another_shrinks_is_told_so() -> None:
    def work(comm: Communicator) -> object:
        with pytest.raises(CollectiveMismatch) as caught:
            (comm.shrink if comm.rank == 1 else comm.agree)()
        return caught.value.peer, caught.value.mine, caught.value.theirs, comm.agree(comm.rank | 4)

    expected = (1, "agree", "shrink", 4)
    assert run("threads", 3, work) == [expected, (0, "shrink", "agree", 4), expected]


@pytest.mark.parametrize("verb", ["agree", "shrink"])
def test_a_timeout_names_who_has_not_voted(verb: str) -> None:
    with job_of("threads", 3) as job:
        over = threading.Barrier(2)

        def work(comm: Communicator) -> object:
            if comm.rank == 2:
                return die(comm)
            until_it_fails(comm)
            if comm.rank == 1:
                with pytest.raises(CollectiveTimeout, match="waiting for rank 0") as caught:
                    getattr(comm, verb)(timeout=0.05)
                over.wait(patience(30))
                return caught.value.waiting_for
            over.wait(patience(30))
            comm.ack_failed()
            if verb == "shrink":  # its vote stands: it is there, and may yet hear of it
                return comm.shrink().members
            with pytest.raises(PeerFailed):  # it voted without knowing of rank 2
                comm.agree()
            return (0, 1)

        assert job.ask(work) == [(0, 1), (0,), "dead"]


@pytest.mark.parametrize("late", [True, False])
def test_decisions_on_votes_that_timed_out_are_dropped(late: bool) -> None:
    """They come before rank 0 votes again, or after that."""
    with job_of("threads", 2) as job:
        turns = threading.Barrier(2)

        def work(comm: Communicator) -> object:
            if comm.rank == 1:
                for _ in range(3):
                    turns.wait(patience(30))
                    if not late:
                        comm.agree(5)
                        turns.wait(patience(30))
                return [comm.agree(5) for _ in range(4 if late else 1)][-1]
            for _ in range(3):
                with pytest.raises(CollectiveTimeout):
                    comm.agree(timeout=0.02)
                turns.wait(patience(30))
                if not late:
                    turns.wait(patience(30))
                    comm.get_failed()  # takes what has come
            got = comm.agree(4)
            ballots = comm._group.endpoint.protocol.ballots
            assert (ballots._decisions, ballots._abandoned) == ({}, set())
            return got

        assert job.ask(work) == [4, 4]


def test_the_end_of_the_job_ends_an_agreement() -> None:
    with job_of("threads", 2) as job:
        waits = threading.Event()

        def work(comm: Communicator) -> object:
            if comm.rank == 0:
                waits.wait(patience(30))
                job.abort("enough")
                return None
            waits.set()
            with pytest.raises(JobAborted, match=r"enough.*agree #1.*waiting for rank 0"):
                comm.agree()
            return None

        job.ask(work)


def recorded(comm: Communicator) -> tuple[Entry, ...]:
    flight = decode(comm._group.endpoint.recorder.image())
    assert flight is not None
    return flight.entries


def test_the_flight_recorder_knows_agreements() -> None:
    def work(comm: Communicator) -> object:
        comm.agree()
        comm.shrink()
        return [(e.collective, e.shape, e.state, e.file.rpartition("/")[2]) for e in recorded(comm)[-2:]]

    done = "done", "test_recovery.py"
    assert run("threads", 2, work) == [[("agree", "#1", *done), ("shrink", "#2", *done)]] * 2


@pytest.mark.parametrize("flag", [2**63, -(2**63) - 1, 1.5, "1", None])
def test_a_flag_that_is_none_is_refused_before_anything_is_sent(flag: object) -> None:
    def work(comm: Communicator) -> int:
        with pytest.raises(ArgumentError, match="flag"):
            comm.agree(flag)
        return comm.agree(np.int64(3))

    assert run("threads", 2, work) == [3, 3]


def test_an_error_on_a_shrunk_communicator_names_ranks_of_the_job() -> None:
    def work(comm: Communicator) -> object:
        if comm.rank == 0:
            return die(comm)
        until_it_fails(comm)
        new = go_on(comm)
        if comm.rank == 2:
            return die(new, "second")
        while not isinstance(error := until_it_fails(new), PeerFailed):
            return "told by another"
        assert (error.rank, error.peer) == (comm.rank, 2)
        assert new.get_failed() == (1,)
        assert new.members[1] == 2
        return "told by rank of the job"

    results = run("threads", 4, work)
    assert "told by rank of the job" in results


@pytest.mark.parametrize("kind", KINDS)
def test_finalize_of_a_shrunk_communicator_leaves_the_job_as_it_is(kind: str) -> None:
    def work(comm: Communicator) -> object:
        with comm.shrink() as new:
            new.allreduce(1)
        assert new.closed
        assert not comm.closed
        with pytest.raises(UsageError, match="finalized"):
            new.barrier()
        later = comm.shrink()
        everything(comm)
        comm.finalize()
        assert later.closed
        with pytest.raises(UsageError, match="finalized"):
            later.barrier()
        later.finalize()
        return None

    run(kind, 3, work)


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["agree", "shrink"])
def test_who_votes_where_another_makes_a_call_is_in_a_cycle(kind: str, verb: str) -> None:
    def work(comm: Communicator) -> object:
        start = time.monotonic()
        with pytest.raises((CollectiveTimeout, Revoked), match=rf"{verb}\(\) at .*test_recovery.py:|revoked") as caught:
            comm.barrier() if comm.rank == 1 else getattr(comm, verb)()
        assert time.monotonic() - start < patience(10)
        last = recorded(comm)[-1]
        assert (last.collective, last.state, last.waiting_for) == (
            ("barrier", verb)[comm.rank == 0],
            "failed",
            (1 - comm.rank,),
        )
        return getattr(caught.value, "cycle", None)

    with job_of(kind, 2) as job:
        assert job.ask(work, timeout=patience(20)) == [(0, 1), (0, 1)]


def test_an_agreement_of_some_waits_as_long_as_the_others_compute() -> None:
    def work(comm: Communicator) -> object:
        if comm.rank == 2:
            time.sleep(4.5)  # longer than a cycle needs to be found
        return comm.agree(7)

    assert run("threads", 3, work) == [7, 7, 7]
