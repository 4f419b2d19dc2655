"""Communicators, groups, topologies and attributes of MPI, against models in plain Python and MPICH's error classes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast import MPI
from support.jobs import Job
from support.patience import patience

SIZES = (1, 2, 3, 5)
RANKS = st.lists(st.integers(0, 9), unique=True)


@pytest.fixture(scope="module", params=SIZES)
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job("threads", request.param)
    yield made
    made.close()


def ask(job: Job, fn: Callable[[Any], Any]) -> list[Any]:
    """Return what the ranks return; a rank that waits for another one for ever is found as a deadlock."""
    return job.ask(lambda comm: fn(MPI.Intracomm._of(comm)))


def code(call: Callable[..., Any], *args: Any) -> int:
    with pytest.raises(MPI.Exception) as caught:
        call(*args)
    return caught.value.Get_error_class()


def group(ranks: list[int]) -> MPI.Group:
    return MPI.Group._of(ranks, 3)


def members(of: MPI.Group) -> list[int]:
    return of.Translate_ranks()


# Groups.


@given(RANKS, RANKS)
def test_groups_are_ordered_sets(a: list[int], b: list[int]) -> None:
    one, other = group(a), group(b)
    assert members(MPI.Group.Union(one, other)) == a + [rank for rank in b if rank not in a]
    assert members(MPI.Group.Intersection(one, other)) == [rank for rank in a if rank in b]
    assert members(MPI.Group.Difference(one, other)) == [rank for rank in a if rank not in b]
    assert (one.size, one.rank) == (len(a), a.index(3) if 3 in a else MPI.UNDEFINED)
    there = [b.index(rank) if rank in b else MPI.UNDEFINED for rank in a]
    assert one.Translate_ranks(range(len(a)), other) == there
    same = MPI.IDENT if a == b else MPI.SIMILAR if sorted(a) == sorted(b) else MPI.UNEQUAL
    assert one.Compare(other) == same


@given(RANKS, st.integers(0, 9), st.integers(0, 9), st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_ranges_of_groups_include_their_ends(a: list[int], first: int, last: int, stride: int) -> None:
    places = range(first, last + (1 if stride > 0 else -1), stride)
    if places and not 0 <= max(places) < len(a):
        assert code(group(a).Range_incl, [(first, last, stride)]) == MPI.ERR_RANK
        return
    assert members(group(a).Range_incl([(first, last, stride)])) == [a[place] for place in places]
    left = [rank for place, rank in enumerate(a) if place not in places]
    assert members(group(a).Range_excl([(first, last, stride)])) == left


def test_groups_refuse_what_is_no_rank() -> None:
    one = group([4, 2, 3])
    assert code(one.Incl, [3]) == code(one.Excl, [-2]) == code(one.Translate_ranks, [3]) == MPI.ERR_RANK
    assert code(one.Range_incl, [(0, 2, 0)]) == MPI.ERR_ARG
    assert code(MPI.GROUP_NULL.Get_size) == code(MPI.Group.Union, one, MPI.GROUP_NULL) == MPI.ERR_GROUP
    assert one.Translate_ranks([MPI.PROC_NULL], one) == [MPI.PROC_NULL]


# Communicators of some ranks.


def test_split_orders_the_ranks_of_a_colour_by_key_and_then_by_rank(job: Job) -> None:
    colors = [(rank * 2) % 3 for rank in range(job.size)]
    keys = [-rank % 2 for rank in range(job.size)]

    def fn(comm: MPI.Intracomm) -> list[int]:
        part = comm.Split(colors[comm.rank], keys[comm.rank])
        assert part.Compare(part.Dup()) == MPI.CONGRUENT
        part.Barrier()
        return part.group.Translate_ranks(group=comm.group)

    for rank, found in enumerate(ask(job, fn)):
        same = [peer for peer in range(job.size) if colors[peer] == colors[rank]]
        assert found == sorted(same, key=lambda peer: (keys[peer], peer))


def test_ranks_without_a_colour_get_none(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> bool:
        part = comm.Split(MPI.UNDEFINED if comm.rank else 5)
        return part == MPI.COMM_NULL and not part

    assert ask(job, fn) == [rank > 0 for rank in range(job.size)]


def test_create_makes_several_communicators_of_different_groups_at_once(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> list[int]:
        half = comm.size // 2
        mine = [*range(half)] if comm.rank < half else [*range(comm.size - 1, half - 1, -1)]
        made = comm.Create(comm.group.Incl(mine))
        made.Barrier()
        assert comm.Create(MPI.GROUP_EMPTY) == MPI.COMM_NULL
        return made.group.Translate_ranks(group=comm.group)

    half = job.size // 2
    low, high = [*range(half)], [*range(job.size - 1, half - 1, -1)]
    assert ask(job, fn) == [low] * half + [high] * (job.size - half)


def test_only_members_make_a_communicator_of_a_group(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> int:
        other = comm.Irecv(np.zeros(1), source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)  # does not take what members send
        made = MPI.COMM_NULL
        if comm.rank != 1:
            made = comm.Create_group(comm.group.Excl([1] if comm.size > 1 else []), tag=7)
            made.Barrier()
        comm.Barrier()
        assert not other.Test()
        other.Cancel()
        other.Wait()
        return made.size if made else 0

    others = job.size - (job.size > 1)
    assert ask(job, fn) == [0 if rank == 1 else others for rank in range(job.size)]


def test_a_rank_that_frees_waits_for_nobody(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> bool:
        made = comm.Dup()
        if comm.rank:
            comm.recv(source=0)  # when rank 0 has freed it
        assert made.bcast("late" if comm.rank == 0 else None, 0) == "late"
        made.Free()
        for peer in range(1, comm.size) if comm.rank == 0 else ():
            comm.send(None, peer)
        return made == MPI.COMM_NULL and code(made.Get_size) == MPI.ERR_COMM

    assert all(ask(job, fn))


def test_calls_under_way_outlive_their_communicator(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> tuple[float, float]:
        told, came = np.array([comm.rank + 1.0]), np.zeros(1)
        made = comm.Dup()
        requests = [made.Irecv(came), made.Ibcast(told, 0), made.Isend(np.ones(1), (comm.rank + 1) % comm.size)]
        made.Free()
        MPI.Request.Waitall(requests)
        return float(told[0]), float(came[0])

    assert ask(job, fn) == [(1.0, 1.0)] * job.size


def test_self_is_each_rank_alone() -> None:
    assert MPI.COMM_SELF.size == MPI.COMM_SELF.Dup().size == 1
    assert MPI.COMM_SELF.Compare(MPI.COMM_WORLD) == MPI.CONGRUENT
    assert code(MPI.COMM_WORLD.Free) == code(MPI.COMM_SELF.Free) == MPI.ERR_COMM


def test_handles_that_are_known_by_name_are_pickled_by_it() -> None:
    for name in ("COMM_WORLD", "COMM_SELF", "COMM_NULL", "GROUP_EMPTY", "INFO_ENV", "ERRORS_RETURN", "WIN_NULL"):
        handle = getattr(MPI, name)
        assert pickle.loads(pickle.dumps(handle)) is handle
        assert type(handle).fromhandle(handle.handle) == handle
    made = MPI.COMM_SELF.Dup()
    assert MPI.Comm.fromint(made.toint()) == made != MPI.COMM_SELF
    with pytest.raises(ValueError, match="cannot pickle"):
        pickle.dumps(made)


# Two groups.


def two_sides(comm: MPI.Intracomm) -> MPI.Intercomm:
    """Return an intercommunicator of the even ranks, in falling order, and the odd ones."""
    local = comm.Split(comm.rank % 2, -comm.rank if comm.rank % 2 == 0 else comm.rank)
    last_even = (comm.size - 1) // 2 * 2
    return local.Create_intercomm(0, comm, 1 if comm.rank % 2 == 0 else last_even, 3)


def test_intercommunicators_reach_the_other_side(job: Job) -> None:
    if job.size == 1:
        return
    even = [*range((job.size - 1) // 2 * 2, -1, -2)]
    odd = [*range(1, job.size, 2)]

    def fn(comm: MPI.Intracomm) -> None:
        inter = two_sides(comm)
        mine, theirs = (even, odd) if comm.rank % 2 == 0 else (odd, even)
        for one in (inter, inter.Dup()):
            assert one.group.Translate_ranks(group=comm.group) == mine
            assert one.remote_group.Translate_ranks(group=comm.group) == theirs
            for peer in range(one.remote_size):
                one.isend((comm.rank, peer), peer)
            for peer in range(one.remote_size):
                assert one.recv(source=peer) == (theirs[peer], one.rank)
        for high in (False, True):
            merged = inter.Merge(high if comm.rank % 2 else not high)
            assert merged.group.Translate_ranks(group=comm.group) == (even + odd if high else odd + even)
        alike = inter.Split(min(inter.rank, 1))
        if alike:
            both = [
                [rank for place, rank in enumerate(side) if min(place, 1) == min(inter.rank, 1)]
                for side in (mine, theirs)
            ]
            assert [alike.size, alike.remote_size] == [len(side) for side in both]
        assert bool(alike) == (min(inter.rank, 1) < min(len(even), len(odd)))

    ask(job, fn)


def test_wrong_leaders_are_found_on_all_ranks(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> tuple[int, int]:
        return code(comm.Create_intercomm, comm.size, comm, 0), code(comm.Create_intercomm, 0, comm, comm.size)

    known, *told = ask(job, fn)
    assert known == (MPI.ERR_RANK, MPI.ERR_RANK)
    assert told == [(MPI.ERR_RANK, MPI.ERR_COMM)] * (job.size - 1)


# Topologies.


def test_grids_are_those_of_numpy(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> None:
        for dims, rings in product([(job.size,), (1, job.size), (job.size, 1), (2, 2), ()], (False, True)):
            if prod(dims) > comm.size:
                assert code(comm.Create_cart, dims) == MPI.ERR_ARG
                continue
            grid = comm.Create_cart(dims, rings)
            if not grid:
                assert comm.rank >= prod(dims)
                continue
            ranks = np.arange(prod(dims)).reshape(dims)
            assert grid.coords == [int(n) for n in np.argwhere(ranks == grid.rank)[0]]
            for axis, distance in product(range(len(dims)), (-2, -1, 0, 1, 3)):
                assert grid.Shift(axis, distance) == shifted(ranks, grid.rank, axis, distance, rings)
            assert grid.Dup().topo == grid.topo
            assert type(grid.Split(0)) is MPI.Intracomm

    ask(job, fn)


def shifted(ranks: np.ndarray, rank: int, axis: int, distance: int, rings: bool) -> tuple[int, int]:
    """Return source and destination of a shift: with rings as by np.roll, else PROC_NULL beyond the ends."""
    if rings:
        away = [np.roll(ranks, step, axis)[ranks == rank] for step in (distance, -distance)]
        return int(away[0][0]), int(away[1][0])
    around = np.pad(
        ranks, [(3, 3) if one == axis else (0, 0) for one in range(ranks.ndim)], constant_values=MPI.PROC_NULL
    )
    at = tuple(np.argwhere(around == rank)[0])
    where = [tuple(n + step * (one == axis) for one, n in enumerate(at)) for step in (-distance, distance)]
    return int(around[where[0]]), int(around[where[1]])


def test_sub_grids_keep_what_remains(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> None:
        grid = comm.Create_cart([1, comm.size], [True, False])
        rows, columns = grid.Sub([True, False]), grid.Sub([False, True])
        assert (rows.dims, rows.periods, rows.size) == ([1], [True], 1)
        assert (columns.dims, columns.periods, columns.rank) == ([comm.size], [False], comm.rank)

    ask(job, fn)


def test_ranks_that_tell_of_edges_of_others_make_the_graph_of_those_that_tell_their_own(job: Job) -> None:
    edges = [(rank, (rank * 2 + step) % job.size, 10 * rank + step) for rank in range(job.size) for step in range(3)]

    def fn(comm: MPI.Intracomm) -> None:
        told = edges[comm.rank :: comm.size]
        graph = comm.Create_dist_graph(
            [s for s, _, _ in told], [1] * len(told), [d for _, d, _ in told], [w for *_, w in told]
        )
        sources, destinations, weights = graph.Get_dist_neighbors()
        assert sorted(zip(sources, weights[0], strict=True)) == sorted((s, w) for s, d, w in edges if d == comm.rank)
        assert sorted(zip(destinations, weights[1], strict=True)) == sorted(
            (d, w) for s, d, w in edges if s == comm.rank
        )
        again = comm.Create_dist_graph_adjacent(sources, destinations, *weights)
        assert again.Get_dist_neighbors() == (sources, destinations, weights)

    ask(job, fn)


def test_dims_are_as_even_as_they_can_be() -> None:
    of_mpich = {
        (6, 3): [3, 2, 1],
        (12, 2): [4, 3],
        (12, 3): [3, 2, 2],
        (7, 2): [7, 1],
        (16, 4): [2, 2, 2, 2],
        (36, 2): [6, 6],
    }
    assert {given: MPI.Compute_dims(*given) for given in of_mpich} == of_mpich
    assert MPI.Compute_dims(12, [0, 3, 0]) == [2, 3, 2]
    assert code(MPI.Compute_dims, 6, [4, 0]) == code(MPI.Compute_dims, 6, [-1, 2]) == MPI.ERR_DIMS


# Attributes, infos, errors.


def test_attributes_are_copied_and_deleted_as_their_functions_say() -> None:
    seen: list[Any] = []
    keys = [
        MPI.Comm.Create_keyval(copy_fn=True, delete_fn=lambda _, key, value: seen.append(value)),
        MPI.Comm.Create_keyval(copy_fn=lambda _, key, value: value + 1),
        MPI.Comm.Create_keyval(),
    ]
    comm = MPI.COMM_SELF.Dup()
    for key, value in zip(keys, (1, 10, 100), strict=True):
        comm.Set_attr(key, value)
    copy = comm.Dup()
    assert [copy.Get_attr(key) for key in keys] == [1, 11, None]
    comm.Set_attr(keys[0], 2)
    comm.Free()
    copy.Free()
    assert seen == [1, 2, 1]
    assert code(MPI.COMM_SELF.Get_attr, MPI.KEYVAL_INVALID) == MPI.ERR_KEYVAL
    assert code(MPI.INT.Get_attr, keys[0]) == MPI.ERR_KEYVAL


def test_error_handlers_hear_of_errors_and_pass_to_new_communicators() -> None:
    heard: list[Any] = []
    comm = MPI.COMM_SELF.Dup()
    handler = MPI.Comm.Create_errhandler(lambda comm, code: heard.append((comm, code)))
    comm.Set_errhandler(handler)
    handler.Free()
    part = comm.Split()
    assert code(part.Split, -5) == MPI.ERR_ARG
    assert heard == [(part, MPI.ERR_ARG)]


def test_bad_arguments_raise_mpich_classes_and_leave_the_communicator_alone(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> list[int]:
        outside = MPI.Group._of([comm.size], comm.rank)
        codes = [
            code(comm.Split, -5),
            code(comm.Split_type, 17),
            code(comm.Create, outside),
            code(comm.Create_group, comm.group, -1),
            code(comm.Create_graph, [1], [comm.size]),
            code(comm.Create_cart([comm.size]).Get_cart_rank, [comm.size]),
            code(comm.Create_cart([comm.size]).Get_coords, comm.size),
            code(comm.Create_cart([comm.size]).Shift, 2, 1),
            code(comm.Create_dist_graph_adjacent, [comm.size], [0]),
            code(comm.Create_intercomm, 0, None, 0),
            code(comm.Set_errhandler, MPI.ERRHANDLER_NULL),
            code(comm.Create, None),
        ]
        for call in (
            lambda: comm.Dup("no info"),
            lambda: comm.Create("no group"),
            lambda: comm.Set_errhandler(print),
            lambda: comm.recv(status=MPI.Status),
            lambda: comm.Iprobe(status=0),
            lambda: comm.Sendrecv(b"", comm.rank, 0, bytearray(1), comm.rank, 0, "no status"),
        ):
            with pytest.raises(TypeError, match="expected"):
                call()
        comm.Barrier()
        return codes

    arg, rank = MPI.ERR_ARG, MPI.ERR_RANK
    wanted = [arg, arg, MPI.ERR_GROUP, MPI.ERR_TAG, arg, arg, rank, arg, arg]
    wanted += [MPI.ERR_COMM, MPI.ERR_ERRHANDLER, MPI.ERR_GROUP]
    assert ask(job, fn) == [wanted] * job.size


def test_what_is_not_supported_says_so_to_both_kinds_of_programs() -> None:
    calls = [
        lambda: MPI.Win.Create(None),
        lambda: MPI.File.Open(MPI.COMM_SELF, "x"),
        lambda: MPI.COMM_SELF.Spawn("x"),
        MPI.Open_port,
        MPI.Session.Init,
        lambda: MPI.Win.Allocate(8),
        lambda: MPI.WIN_NULL.Accumulate(b"", 0),
        lambda: MPI.FILE_NULL.Write_at(0, b""),
        lambda: MPI.SESSION_NULL.Get_num_psets(),
        lambda: MPI.COMM_SELF.Psend_init(b"", 1, 0),
        MPI.Iflush_buffer,
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match="ringcast has no MPI"):
            call()
        assert code(call) == MPI.ERR_UNSUPPORTED_OPERATION


def test_ranks_go_on_after_a_revoke(job: Job) -> None:
    def fn(comm: MPI.Intracomm) -> None:
        used = comm.Dup()
        if comm.rank == 0:
            used.Revoke()
        assert code(lambda: [used.Barrier() for _ in range(1000)]) == MPI.ERR_REVOKED
        assert used.Is_revoked()
        assert used.Agree(0b110 | comm.rank << 4) & 0b110 == 0b110
        alive = used.Shrink()
        assert (alive.size, alive.rank) == (comm.size, comm.rank)
        alive.Barrier()
        assert used.Get_failed().size == used.Ack_failed() == 0
        assert type(comm.Create_cart([comm.size]).Shrink()) is MPI.Intracomm

    ask(job, fn)


PROGRAM = """
from ringcast import MPI
comm = MPI.COMM_WORLD
used = comm.Dup()
used.Revoke()
try:
    used.Barrier()
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_REVOKED
used.Free()  # with it the error is answered
comm.Barrier()
if comm.rank == 1:
    comm.Abort(7)
comm.Barrier()
"""


def test_abort_ends_the_job_with_its_code() -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 7
    assert "raised MPI.Abort(7)" in done.stderr


ABORTING = """
import sys, traceback
from ringcast import MPI
comm = MPI.COMM_WORLD
def end(*_):
    comm.Abort(9)
def work():
    if comm.rank == 1:
        raise ValueError("boom")
    comm.allreduce(1)
"""
CATCHING = """
try:
    work()
except Exception:
    end()
"""
HOOKED = """
sys.excepthook = end
work()
"""


@pytest.mark.parametrize("how", [CATCHING, HOOKED])
def test_the_rank_whose_error_made_all_abort_is_named(how: str) -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", sys.executable, "-c", ABORTING + how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 9
    assert "ringcast-launch: rank 1: raised MPI.Abort(9) after ValueError" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ringcast-launch: rank 1 (")
