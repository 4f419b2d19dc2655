"""Communicators of parts of the ranks: their members, collectives in them, and errors, which stay in their part."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import numpy as np
import pytest

from ringcast.collectives.split import derived
from ringcast.communicator import Communicator
from ringcast.control.agreement import Agreements
from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    PeerFailed,
    Revoked,
    UsageError,
)
from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure
from ringcast.wire.header import DERIVED
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")


def run(kind: str, size: int, fn: Any) -> list[Any]:
    """Return fn's results on all ranks of a job of its own; raise an error of one."""
    job = Job(kind, size)
    try:
        return job.ask(fn)
    finally:
        job.close()


def parts(colors: list[int | None], keys: list[int]) -> list[tuple[int, ...] | None]:
    """Return, by rank, the members of its part, as the words of the method have it."""
    found: list[tuple[int, ...] | None] = []
    for color in colors:
        same = [rank for rank, other in enumerate(colors) if other == color]
        found.append(None if color is None else tuple(sorted(same, key=lambda rank: (keys[rank], rank))))
    return found


# Members.


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 33, 65])
def test_a_part_has_the_ranks_of_its_colour_by_key(size: int) -> None:
    random = Random(size)
    for _ in range(3):
        colors = [random.choice([None, 0, 1, -(2**63), 2**63 - 1]) for _ in range(size)]
        keys = [random.randrange(-2, 3) for _ in range(size)]

        def work(comm: Communicator, colors: Any = colors, keys: Any = keys) -> Any:
            part = comm.split(colors[comm.rank], keys[comm.rank])
            if part is None:
                return None
            assert (part.rank, part.size) == (part.members.index(comm.rank), len(part.members))
            assert part.allgather(comm.rank) == list(part.members)
            return part.members

        assert run("threads", size, work) == parts(colors, keys)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_ranks_of_create_are_in_the_order_given(size: int) -> None:
    ranks = [*range(0, size, 2)][::-1]

    def work(comm: Communicator) -> Any:
        part = comm.create(ranks)
        return None if part is None else (part.members, part.allgather(comm.rank))

    found = run("threads", size, work)
    assert found == [(tuple(ranks), ranks) if rank in ranks else None for rank in range(size)]


def test_a_part_of_a_part_names_ranks_of_the_job() -> None:
    def work(comm: Communicator) -> tuple[int, ...]:
        odd = comm.split(comm.rank % 2, -comm.rank)
        assert odd is not None
        half = odd.split(odd.rank // 2)
        assert half is not None
        assert half.allgather(comm.rank) == list(half.members)
        return half.members

    assert run("threads", 8, work) == [(2, 0), (3, 1), (2, 0), (3, 1), (6, 4), (7, 5), (6, 4), (7, 5)]


def test_the_ranks_of_this_process_are_on_one_host() -> None:
    assert run("threads", 3, lambda comm: comm.split_by_host().members) == [(0, 1, 2)] * 3


# What can be done there.


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_all_collectives_work_in_all_parts_at_the_same_time(kind: str, size: int) -> None:
    def work(comm: Communicator) -> None:
        part = comm.split(comm.rank % 2, -comm.rank)
        assert part is not None
        p, rank, n = part.size, part.rank, 20_000
        mine = np.arange(n) + rank
        every = [np.arange(n) + r for r in range(p)]
        root = p - 1
        np.testing.assert_array_equal(part.bcast(mine if rank == root else None, root), every[root])
        np.testing.assert_array_equal(part.allreduce(mine), sum(every))
        np.testing.assert_array_equal(part.allgather(mine), np.stack(every))
        joined = np.concatenate([each[:r] for r, each in enumerate(every)])
        np.testing.assert_array_equal(part.allgatherv(mine[:rank]), joined)
        got = part.reduce(mine, root=root)
        assert (got is None) == (rank != root)
        np.testing.assert_array_equal(part.scan(mine), sum(every[: rank + 1]))
        np.testing.assert_array_equal(part.reduce_scatter(np.tile(mine, p)), sum(every))
        np.testing.assert_array_equal(part.alltoall(np.tile(mine, (p, 1))), np.stack(every))
        np.testing.assert_array_equal(part.scatter(np.stack(every) if rank == 0 else None), mine)
        assert part.gather(rank) == ([*range(p)] if rank == 0 else None)
        assert part.shift(rank, 1) == (rank - 1) % p
        if p > 1:
            assert part.sendrecv(rank, (rank + 1) % p, (rank - 1) % p) == (rank - 1) % p
        assert part.explain("allreduce", nbytes=800).chosen
        request, whole = part.iallreduce(rank), comm.iallreduce(1)
        assert (whole.wait(), request.wait()) == (size, p * (p - 1) // 2)
        part.free()

    run(kind, size, work)


def test_a_copy_does_not_meet_what_is_on_the_other_one() -> None:
    def work(comm: Communicator) -> Any:
        copy = comm.dup()
        assert copy.members == comm.members
        requests = [copy.iallreduce(1), comm.iallgather(comm.rank)][:: 1 if comm.rank else -1]
        found = [request.wait() for request in requests][:: 1 if comm.rank else -1]
        copy.free()
        assert copy.closed
        return found, comm.allreduce(1)

    assert run("threads", 3, work) == [([3, [0, 1, 2]], 3)] * 3


def test_contexts_are_the_same_on_all_ranks_and_differ_between_parts_calls_and_parents() -> None:
    contexts = {derived(parent, call, color) for parent in (7, 8) for call in (1, 2) for color in (-1, 0, 1)}
    assert len(contexts) == 12
    assert all(DERIVED <= context < 2**64 for context in contexts)

    def work(comm: Communicator) -> list[int]:
        made = [comm.split(comm.rank % 2), comm.split(comm.rank % 2), comm.dup()]
        return [part._group.context for part in made if part is not None]

    found = run("threads", 4, work)
    assert found[0] == found[2] != found[1] == found[3]
    assert len({context for one in found for context in one}) == 5


# Parts are alone.


def test_an_error_in_a_part_does_not_concern_the_others() -> None:
    def work(comm: Communicator) -> Any:
        part = comm.split(comm.rank % 2)
        assert part is not None
        if comm.rank % 2:
            with pytest.raises((CollectiveMismatch, Revoked)):
                part.barrier() if part.rank else part.allreduce(1)
        else:
            assert part.allreduce(1) == 2
        return comm.allreduce(1)

    assert run("threads", 4, work) == [4] * 4


def test_who_fails_ends_only_the_parts_that_it_is_in() -> None:
    made = threading.Barrier(5)

    def work(comm: Communicator) -> Any:
        part = comm.split(comm.rank % 2)
        assert part is not None
        made.wait(patience(60))
        if comm.rank == 1:
            comm._group.endpoint.control.send(Failing(1, Failure("killed")))
            return None
        if comm.rank % 2:
            with pytest.raises((PeerFailed, Revoked)):
                part.barrier()
            return part.shrink().members
        while not comm.get_failed():
            pass
        return part.allreduce(1)

    assert run("threads", 5, work) == [3, None, 3, (3,), 3]


def test_agreement_in_a_part_waits_for_its_members_only() -> None:
    """Ranks 0 and 2 agree, and shrink, while the others wait for what these do afterwards."""
    over = threading.Event()

    def work(comm: Communicator) -> Any:
        part = comm.split(comm.rank % 2, -comm.rank)
        assert part is not None
        if comm.rank % 2:
            assert over.wait(patience(60))
            return part.agree(6)
        found = part.agree(3 - part.rank), part.shrink().members
        part.barrier()
        over.set()
        return found

    assert run("threads", 4, work) == [(2, (2, 0)), 6, (2, (2, 0)), 6]


def test_a_part_that_is_revoked_leaves_the_others_as_they_are() -> None:
    def work(comm: Communicator) -> Any:
        part = comm.split(comm.rank % 2)
        assert part is not None
        comm.barrier()
        if comm.rank == 0:
            part.revoke()
        if comm.rank == 2:
            with pytest.raises(Revoked):
                part.barrier()
        comm.barrier()
        return part.is_revoked

    assert run("threads", 4, work) == [True, False, True, False]


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_a_cycle_through_parts_is_named(kind: str) -> None:
    """Ranks 0, 1, 2 each share a part with the next one, and call there first with the one before."""
    job = Job(kind, 3)

    def work(comm: Communicator) -> None:
        pairs = [comm.create(sorted({i, (i + 1) % 3})) for i in range(3)]
        before, after = pairs[comm.rank - 1], pairs[comm.rank]
        assert before is not None
        assert after is not None
        before.barrier()
        after.barrier()

    errors = job.run(work)
    assert all(isinstance(error, CollectiveTimeout | Revoked) for error in errors), errors
    assert any(isinstance(error, CollectiveTimeout) and sorted(error.cycle) == [0, 1, 2] for error in errors)
    job.close()


# What is wrong.


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda comm: comm.split("red"), "color"),
        (lambda comm: comm.split(0.5), "color"),
        (lambda comm: comm.split(1 << 63), "color"),
        (lambda comm: comm.split(0, None), "key"),
        (lambda comm: comm.create([]), "ranks"),
        (lambda comm: comm.create([0, 0]), "ranks"),
        (lambda comm: comm.create([comm.size]), "ranks"),
        (lambda comm: comm.create([-1]), "ranks"),
        (lambda comm: comm.create(["0"]), "ranks"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_sent(call: Any, argument: str) -> None:
    def work(comm: Communicator) -> Any:
        with pytest.raises(ArgumentError) as error:
            call(comm)
        assert error.value.argument == argument
        return comm.allreduce(1)

    assert run("threads", 2, work) == [2, 2]


@pytest.mark.parametrize(
    "calls",
    [
        (lambda comm: comm.split(0), lambda comm: comm.dup()),
        (lambda comm: comm.create([0, 1]), lambda comm: comm.create([1, 0])),
        (lambda comm: comm.create([0]), lambda comm: comm.split(0)),
        (lambda comm: comm.dup(), lambda comm: comm.barrier()),
    ],
)
def test_another_call_on_another_rank_is_a_mismatch(calls: Any) -> None:
    job = Job("threads", 2)
    errors = job.run(lambda comm: calls[comm.rank](comm))
    assert any(isinstance(error, CollectiveMismatch) for error in errors)
    assert all(isinstance(error, CollectiveMismatch | Revoked) for error in errors)
    job.close()


def test_a_communicator_is_not_used_after_free() -> None:
    def work(comm: Communicator) -> None:
        part = comm.split(0)
        assert part is not None
        part.free()
        part.free()
        with pytest.raises(UsageError, match="was finalized"):
            part.barrier()
        with pytest.raises(UsageError, match="the whole job"):
            comm.free()
        assert comm.allreduce(1) == 2

    job = Job("threads", 2)
    for endpoint in job.endpoints:
        endpoint.protocol.enrol(1, range(2))
    assert job.run(work) == [None, None]
    job.close()


def test_an_error_of_an_argument_in_a_part_names_the_rank_of_the_job() -> None:
    def work(comm: Communicator) -> list[int]:
        part = comm.create([3, 1])
        if part is None:
            return []
        wrong = (
            lambda: part.send(1, 2),
            lambda: part.bcast(1, root=2),
            lambda: part.alltoallv(np.zeros(3), [1, 1]),
            lambda: part.split("x"),
            lambda: part.cart([3]),
            lambda: part.allgather(np.zeros(3), out=np.zeros(3)),
        )
        ranks = []
        for call in wrong:
            with pytest.raises(ArgumentError) as caught:
                call()
            ranks.append(caught.value.rank)
        return ranks

    job = Job("threads", 4)
    assert job.ask(work) == [[], [1] * 6, [], [3] * 6]
    job.close()


def test_many_parts_one_after_the_other_leave_nothing() -> None:
    job = Job("threads", 3)

    def work(comm: Communicator) -> tuple[int, int]:
        for i in range(200):
            part = comm.split(comm.rank % 2, i)
            assert part is not None
            part.allreduce(1)
            part.free()
        endpoint = comm._group.endpoint
        return len(endpoint.protocol._contexts), len(endpoint.unanswered._parents)

    assert job.ask(work) == [(1, 0)] * 3
    control: Any = job.endpoints[0].control
    assert not control._shared._membership._agreements._members
    job.close()


def test_the_control_plane_forgets_a_part_when_all_its_live_members_have_freed_it() -> None:
    agreements = Agreements(4)
    agreements.made(1, DERIVED, (3, 1))
    agreements.made(2, DERIVED, (2,))  # not one of them, or too late
    assert agreements.members(DERIVED) == (3, 1)
    agreements.freed(0, DERIVED)
    agreements.freed(3, DERIVED)
    assert agreements.members(DERIVED) == (3, 1)
    agreements.freed(1, DERIVED)
    assert agreements.members(DERIVED) == range(4)
