"""Ranks in a grid, against numpy's own arrays: a grid is `arange` in some shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from ringcast import ArgumentError, CollectiveMismatch, Communicator, Grid, Revoked, dims_create, wait_all
from support.jobs import Job, Jobs

SHAPES = [
    ((1,), (True,)),
    ((2,), (True,)),
    ((2,), (False,)),
    ((5,), (False,)),
    ((2, 3), (True, False)),
    ((3, 1, 2), (False, True, True)),
    ((4,), (True,)),
]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def grid_on(comm: Communicator, dims: Any, periods: Any = False) -> Grid[Communicator]:
    grid = comm.cart(dims, periods)
    assert grid is not None
    return grid


@pytest.mark.parametrize(("dims", "periods"), SHAPES)
def test_places_are_those_of_an_array(jobs: Jobs, dims: tuple[int, ...], periods: tuple[bool, ...]) -> None:
    table = np.arange(prod(dims)).reshape(dims)

    def work(comm: Communicator) -> None:
        grid = grid_on(comm, dims, periods)
        assert (grid.dims, grid.periods, grid.comm.size) == (dims, periods, prod(dims))
        assert table[grid.coords] == grid.comm.rank == comm.rank
        for at in np.ndindex(*dims):
            assert (grid.rank_at(at), grid.coords_of(int(table[at]))) == (table[at], at)
        for axis, distance in product(range(len(dims)), (-3, -1, 0, 1, 2, 7)):
            check_shift(grid, table, axis, distance)

    jobs("threads", prod(dims)).ask(work)


def check_shift(grid: Grid[Communicator], table: np.ndarray[Any, Any], axis: int, distance: int) -> None:
    """Compare with the array moved around, without what has come around the end of an axis that is not a ring."""
    source, dest = grid.shift(axis, distance)
    for got, way in (source, distance), (dest, -distance):
        expected = np.roll(table, way, axis)[grid.coords]
        inside = grid.periods[axis] or 0 <= grid.coords[axis] - way < grid.dims[axis]
        assert got == (expected if inside else None)
    mine = grid.comm.sendrecv(grid.coords, dest, source)
    assert mine == (None if source is None else grid.coords_of(source))


@pytest.mark.parametrize("length", [0, 1, 30_000])
@pytest.mark.parametrize(("dims", "periods"), SHAPES)
def test_neighbours_exchange_rows(jobs: Jobs, dims: tuple[int, ...], periods: tuple[bool, ...], length: int) -> None:
    """A row sent along an axis comes to the next rank from the other direction; none goes beyond an end."""
    table = np.arange(prod(dims)).reshape(dims)

    def work(comm: Communicator) -> None:
        grid = grid_on(comm, dims, periods)
        rank, near = comm.rank, neighbors_in(table, periods, grid.coords)
        assert grid.sources == grid.destinations == tuple(near)
        back = [place ^ 1 for place in range(len(near))]
        wanted = [None if n is None else (n, place) for n, place in zip(near, back, strict=True)]
        assert grid.neighbor_allgather(rank) == near
        assert grid.neighbor_alltoall([(rank, place) for place in range(len(near))]) == wanted
        rows = np.array([[rank, place] + [1] * length for place in range(len(near))])
        expected = [[0] * (2 + length) if n is None else [*n, *[1] * length] for n in wanted]
        assert grid.neighbor_alltoall(rows).tolist() == expected
        out = np.full_like(rows, -1)
        assert grid.neighbor_alltoall(rows, out=out) is out
        for got, row, n in zip(out.tolist(), expected, near, strict=True):
            assert got == ([-1] * (2 + length) if n is None else row)
        counts = [1] * len(near)
        assert grid.neighbor_alltoallv(rows, counts, counts).tolist() == expected
        came = [row for row, n in zip(expected, near, strict=True) if n is not None]
        assert grid.neighbor_alltoallv(rows, counts).tolist() == came
        mine = np.full((rank % 2, length), rank)
        joined = [n for n in near if n is not None and n % 2]
        assert grid.neighbor_allgatherv(mine).tolist() == [[n] * length for n in joined]
        assert grid.neighbor_allgatherv([rank] * (rank % 2)) == joined
        assert grid.neighbor_allgatherv([rank], counts) == [n for n in near if n is not None]

    jobs("threads", prod(dims)).ask(work)


def neighbors_in(table: np.ndarray[Any, Any], periods: tuple[bool, ...], coords: tuple[int, ...]) -> list[int | None]:
    """Return the neighbours along each axis, the one before and the one behind."""
    found: list[int | None] = []
    for (axis, ring), step in product(enumerate(periods), (-1, 1)):
        inside = ring or 0 <= coords[axis] + step < table.shape[axis]
        found.append(int(np.roll(table, -step, axis)[coords]) if inside else None)
    return found


def test_a_grid_of_a_part_has_neighbours(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        grid = grid_on(comm, [2, 3], [False, True])
        row = grid.sub([1])
        left, right = row.shift(0)
        assert row.neighbor_allgather(row.comm.rank) == [left, right]
        both = [row.ineighbor_alltoall(["to the left", "to the right"]), grid.ineighbor_allgather(comm.rank)]
        assert wait_all(both) == [["to the right", "to the left"], [*grid.shift(0), *grid.shift(1)]]
        assert grid.sub([]).neighbor_allgather(1) == []

    jobs("threads", 6).ask(work)


def test_parts_along_different_axes_are_refused(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        grid = grid_on(comm, [2, 3])
        if grid.coords[0] == 0:
            with pytest.raises(ArgumentError, match=r"sub: argument axes: expected the same axes on all ranks, got"):
                grid.sub([0] if comm.rank == 0 else [1])
        else:
            assert grid.sub([1]).comm.members == (3, 4, 5)

    jobs("threads", 6).ask(work)


@pytest.mark.parametrize("axes", [[], [0], [1], [2], [0, 2], [2, 1], [0, 1, 2]])
def test_a_part_of_a_grid_is_a_slice(jobs: Jobs, axes: list[int]) -> None:
    dims, periods = (2, 3, 2), (True, False, False)
    table = np.arange(12).reshape(dims)

    def work(comm: Communicator) -> None:
        grid = grid_on(comm, dims, periods)
        part = grid.sub(axes)
        assert part.dims == tuple(dims[axis] for axis in axes)
        assert part.periods == tuple(periods[axis] for axis in axes)
        place = tuple(slice(None) if axis in axes else n for axis, n in enumerate(grid.coords))
        order = [sorted(axes).index(axis) for axis in axes]
        assert part.comm.members == tuple(table[place].transpose(order).reshape(-1))
        assert part.coords == tuple(grid.coords[axis] for axis in axes)
        assert part.comm.allreduce(1) == part.comm.size

    jobs("threads", 12).ask(work)


def test_a_grid_of_fewer_ranks_than_there_are(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        grid = comm.cart((2, 2), True)
        assert (grid is None) == (comm.rank == 4)
        if grid is not None:
            assert grid.comm.allreduce(comm.rank) == 6
            assert grid_on(grid.comm, 0).dims == (4,)
        comm.barrier()

    jobs("threads", 5).ask(work)


@pytest.mark.parametrize("size", [*range(1, 40), 64, 97, 360])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_dims_are_as_even_as_possible(size: int, axes: int) -> None:
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    every = [dims for dims in product(divisors, repeat=axes) if prod(dims) == size and list(dims) == sorted(dims)[::-1]]
    assert dims_create(size, axes) == min(every)


def test_dims_that_are_given_stay() -> None:
    assert dims_create(24, [0, 2, 0]) == (4, 2, 3)
    assert dims_create(24, [3, 2]) == (3, 2)
    assert dims_create(7, [0, 7]) == (1, 7)
    with pytest.raises(ValueError, match=r"expected numbers that divide the 7 ranks, got \[2, 0\]"):
        dims_create(7, [2, 0])


@pytest.mark.parametrize(
    ("dims", "periods", "argument"),
    [
        ([], False, "dims"), (4, False, "dims"), ([2, 2], True, "dims"), ([-1], False, "dims"), ("3", False, "dims"),
        ([1.5], False, "dims"), ([2, 0], False, "dims"), (3, [True, True], "periods"), (3, "yes", "periods"),
        (None, False, "dims"),
    ],
)  # fmt: skip
def test_a_grid_that_cannot_be(jobs: Jobs, dims: Any, periods: Any, argument: str) -> None:
    def work(comm: Communicator) -> None:
        with pytest.raises(ArgumentError, match=f"cart: argument {argument}: expected"):
            comm.cart(dims, periods)

    jobs("threads", 3).ask(work)


def test_what_is_not_in_a_grid(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        grid = grid_on(comm, [3, 1])
        for call, argument in (
            (lambda: grid.coords_of(3), "coords_of: argument rank"),
            (lambda: grid.coords_of(-1), "coords_of: argument rank"),
            (lambda: grid.rank_at([1]), "rank_at: argument coords"),
            (lambda: grid.rank_at([1, 0.5]), "rank_at: argument coords"),
            (lambda: grid.shift(2), "shift: argument axis"),
            (lambda: grid.shift(0, 1.5), "shift: argument distance"),
            (lambda: grid.sub([2]), "sub: argument axes"),
            (lambda: grid.sub([0, 0]), "sub: argument axes"),
        ):
            with pytest.raises(ArgumentError, match=argument):
                call()
        assert grid.rank_at((0, 1)) is None

    jobs("threads", 3).ask(work)


def test_ranks_that_want_different_grids() -> None:
    job = Job("threads", 6)
    errors = job.run(lambda comm: comm.cart((2, 3) if comm.rank else (3, 2)))
    assert all(isinstance(error, CollectiveMismatch | Revoked) for error in errors)
    assert any("cart(dims (3, 2), periods (False, False)" in str(error) for error in errors)
    job.close()
