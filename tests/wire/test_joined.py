"""Joined frames: `split` makes of them what they were, and refuses what `join` does not make."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.wire.joined import join, prefix, split


@given(st.lists(st.binary(max_size=40), max_size=9))
def test_frames_are_what_they_were(frames: list[bytes]) -> None:
    data = join(frames)
    assert [bytes(frame) for frame in split(memoryview(data), len(frames))] == frames
    assert len(data) == prefix(len(frames)) + sum(map(len, frames))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=3), st.data())
def test_a_part_of_them_is_refused(frames: list[bytes], data: st.DataObject) -> None:
    whole = join(frames)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"bytes do not hold|end at"):
        split(memoryview(whole)[:cut], len(frames))


@given(st.binary(max_size=30), st.integers(0, 9))
def test_any_bytes_are_frames_or_refused(data: bytes, count: int) -> None:
    try:
        frames = split(memoryview(data), count)
    except ValueError:
        return
    assert join(frames) == data


def test_sizes_that_add_up_to_more_are_refused() -> None:
    with pytest.raises(ValueError, match="end at"):
        split(memoryview(struct.pack("<II", 1 << 31, 1 << 31)), 2)
