"""The time that a rank spends in calls within an interval, against a count of small steps."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from ringcast.profiling.busy import Busy


@given(lengths=st.lists(st.integers(0, 5), max_size=12), start=st.integers(0, 40), length=st.integers(0, 20))
def test_the_time_in_calls_within_an_interval(lengths: list[int], start: int, length: int) -> None:
    """Calls and the program take turns."""
    ends = [*pairwise(accumulate(lengths, initial=0))]
    calls = ends[::2]
    steps = sum(began <= at < ended for began, ended in calls for at in range(start, start + length))
    assert Busy(calls).within(start, start + length) == steps
