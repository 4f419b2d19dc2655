"""The construction of 2022 gives the same schedules as that in O(log p)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.schedules import blocks, blocks2022
from ringcast.schedules.blocks import baseblock, schedule_tables
from support.cases import each

KILLERS = [513, 1025]  # beyond the exhaustive test, where known wrong constructions fail


@pytest.mark.parametrize("sizes", [range(1, 131), pytest.param(range(131, 301), marks=pytest.mark.long)], ids=str)
@pytest.mark.timeout(600)
def test_both_constructions_agree(sizes: range) -> None:
    each("p", sizes)(both_agree)()


def both_agree(p: int) -> None:
    recv, send = (table.T.tolist() for table in schedule_tables(p))
    assert [list(blocks2022.recv_schedule(p, r)) for r in range(p)] == recv
    assert [list(blocks2022.send_schedule(p, r)) for r in range(p)] == send


@pytest.mark.parametrize("p", KILLERS)
def test_both_constructions_agree_on_sampled_ranks(p: int) -> None:
    for r in {0, 1, p - 1, p // 2, *range(p % 7, p, 13)}:
        assert blocks2022.recv_schedule(p, r) == blocks.recv_schedule(p, r)
        assert blocks2022.send_schedule(p, r) == blocks.send_schedule(p, r)


@given(p=st.integers(2, 1 << 20), data=st.data())
def test_both_constructions_agree_for_any_p(p: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(0, p - 1))
    assert blocks2022.recv_schedule(p, r) == blocks.recv_schedule(p, r)
    assert blocks2022.send_schedule(p, r) == blocks.send_schedule(p, r)


@pytest.mark.parametrize("p", [2, 3, 5, 8, 9, 17, 20, 33, 65, 73])
def test_range_blocks_are_the_baseblocks_of_the_range(p: int) -> None:
    own = [baseblock(p, r) for r in range(p)]
    for a in range(1, p):
        expected = 0
        for b in range(a, p):
            expected |= 1 << own[b]
            assert blocks2022.range_blocks(p, a, b) == expected, (a, b)


@pytest.mark.parametrize("p", [1, 2, 9, 33])
def test_the_first_rounds_of_a_schedule(p: int) -> None:
    for r in range(p):
        whole = blocks2022.recv_schedule(p, r)
        assert [blocks2022.recv_schedule(p, r, k) for k in range(len(whole) + 1)] == [
            whole[:k] for k in range(len(whole) + 1)
        ]
