"""What people expect of values: operators by numpy's names, lists in rows, results in `out`; numpy is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import LXOR, MAX, SUM, Communicator
from support.jobs import Jobs

SIZES = [1, 2, 3, 5, 33]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize(("op", "ufunc"), [(SUM, np.add), (MAX, np.maximum), (LXOR, np.logical_xor)], ids=str)
def test_ranks_may_mix_an_operator_and_the_function_of_the_same_meaning(
    jobs: Jobs, op: Any, ufunc: np.ufunc, p: int
) -> None:
    for size in 0, 1, 3000:
        values = [(np.arange(size) + rank) % 5 for rank in range(p)]

        def work(c: Communicator, values: Any = values) -> Any:
            mine = op if c.rank % 2 else ufunc
            return c.allreduce(values[c.rank], mine), c.reduce(values[c.rank], mine, c.size - 1)

        results = jobs("threads", p).ask(work)
        expected = ufunc.reduce(values).astype(int) if p > 1 else values[0]
        assert all(np.array_equal(everywhere, expected) for everywhere, _ in results)
        assert np.array_equal(results[-1][1], expected)
