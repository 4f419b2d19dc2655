"""The median of a call: exact where all times were kept, else in the right bucket, and rough where few were kept."""

from __future__ import annotations

import random
from collections import Counter
from statistics import median, median_high, median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.profiling.typical import ENOUGH, median_time

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=200)


def bucket(seconds: float) -> int:
    return int(seconds * 1e9).bit_length()


@given(times=TIMES)
def test_it_is_exact_where_all_times_were_kept(times: list[float]) -> None:
    assert median_time(Counter(map(bucket, times)), times) == (median(times), False)


@given(times=TIMES, every=st.integers(2, 300))
def test_it_is_within_the_factor_of_two_that_the_histogram_tells(times: list[float], every: int) -> None:
    found, rough = median_time(Counter(map(bucket, times)), times[::every])
    assert 0.5 * median_low(times) <= found <= 2 * median_high(times)
    assert rough or found in times


@pytest.mark.parametrize("every", range(2, 9))
@pytest.mark.parametrize("seed", range(5))
def test_kept_times_tell_the_place_within_the_bucket(seed: int, every: int) -> None:
    """With every so many of a thousand times in one bucket, the median is among those near the middle."""
    times = [1.1e-3 + 0.9e-6 * i for i in range(1000)]
    random.Random(seed).shuffle(times)
    found, rough = median_time(Counter(map(bucket, times)), times[::every])
    assert not rough
    assert found == pytest.approx(median(times), rel=0.15)


@pytest.mark.parametrize("kept", [0, 1, ENOUGH - 1])
def test_few_kept_times_make_it_rough(kept: int) -> None:
    assert median_time({20: 1000}, [0.8e-3] * kept) == (pytest.approx(0.75 * 2**20 / 1e9), True)
    assert median_time({}, []) == (0.0, False)
