"""Results hold objects of this rank just where docs/use/usage.md says so, and never the memory of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import Communicator
from support.jobs import Jobs


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def to_itself(c: Communicator, value: Any) -> Any:
    request = c.isend(value, c.rank)
    got = c.recv(c.rank)
    request.wait()
    return got


MOVES: dict[str, Callable[[Communicator, Any], Any]] = {
    "gather": lambda c, x: c.gather(x, c.size - 1),
    "allgather": lambda c, x: c.allgather(x),
    "allgatherv": lambda c, x: c.allgatherv([x] if isinstance(x, dict) else x),
    "scatter": lambda c, x: c.scatter([x] * c.size if isinstance(x, dict) else x, c.size - 1),
    "alltoall": lambda c, x: c.alltoall([x] * c.size if isinstance(x, dict) else x),
    "shift": lambda c, x: c.shift(x, 0),
    "around": lambda c, x: c.graph([c.rank, (c.rank + 1) % c.size]).neighbor_allgather(x),
}
MESSAGES: dict[str, Callable[[Communicator, Any], Any]] = {
    "sendrecv": lambda c, x: c.sendrecv(x, c.rank, c.rank),
    "send": to_itself,
}


def within(value: Any) -> Iterator[Any]:
    yield value
    for item in value if isinstance(value, list) else ():
        yield from within(item)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_rank_gets_its_own_object_from_itself(jobs: Jobs, p: int) -> None:
    def work(c: Communicator) -> None:
        mine = {"rank": c.rank}
        for name, call in MOVES.items():
            has_result = name not in ("gather", "scatter") or c.rank == p - 1
            assert any(one is mine for one in within(call(c, mine))) == has_result, name
        assert c.bcast(mine, p - 1) is mine or c.rank < p - 1
        for name, call in MESSAGES.items():
            got = call(c, mine)
            assert got == mine, name
            assert got is not mine, name
        given = [[c.rank]]
        assert given[0] in c.allreduce(given)
        assert (c.scan(given)[-1] is given[0]) or p > 1
        assert not any(one is given[0] for one in within(c.exscan(given)))

    jobs("threads", p).ask(work)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_results_of_arrays_are_new_memory(jobs: Jobs, p: int) -> None:
    def work(c: Communicator) -> None:
        mine = np.arange(5.0 * p).reshape(p, 5)
        reductions: list[Callable[..., Any]] = [c.allreduce, c.reduce, c.scan, c.exscan, c.reduce_scatter]
        moves = [lambda x, call=call: call(c, x) for call in {**MOVES, **MESSAGES}.values()]
        for call in [*reductions, *moves]:
            got = call(mine)
            assert got is None or not np.shares_memory(got, mine)
        assert c.bcast(mine, p - 1) is mine

    jobs("threads", p).ask(work)
