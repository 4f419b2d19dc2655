"""Blocks of zeros: what is written of data is all that is not zero, and no whole block of zeros."""

from hypothesis import given
from hypothesis import strategies as st

from ringcast.transfer.zeros import BLOCK, runs


@given(st.integers(0, 4 * BLOCK), st.integers(0, 3 * BLOCK), st.sets(st.integers(0, 4 * BLOCK), max_size=4))
def test_runs_have_all_that_is_not_zero_and_no_block_of_zeros(length: int, offset: int, ones: set[int]) -> None:
    data = bytearray(length)
    for place in ones:
        data[place : place + 1] = b"\1"[: length - place]
    written, places = bytearray(len(data)), set()
    for run in runs(memoryview(data), offset):
        written[run] = data[run]
        places.update(range(offset + run.start, offset + run.stop))
    assert written == data
    for start in range(-offset % BLOCK, len(data) - BLOCK + 1, BLOCK):
        block = range(offset + start, offset + start + BLOCK)
        assert places.isdisjoint(block) != any(data[start : start + BLOCK])
