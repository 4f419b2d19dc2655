"""Sets of bytes as ranges, against Python's sets."""

from hypothesis import given
from hypothesis import strategies as st

from ringcast.transfer.ranges import Ranges

PLACES = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.booleans(), PLACES, PLACES), max_size=20)


@given(STEPS, PLACES, PLACES, PLACES)
def test_it_is_the_set_of_its_bytes(steps: list[tuple[bool, int, int]], start: int, stop: int, length: int) -> None:
    ranges, expected = Ranges(), set[int]()
    for adds, low, high in steps:
        if adds:
            ranges.add((low, high))
            expected |= {*range(low, high)}
        else:
            ranges.remove((low, high))
            expected -= {*range(low, high)}
    assert [each for low, high in ranges for each in range(low, high)] == sorted(expected)
    assert all(low < high for low, high in ranges)
    assert all(one[1] < other[0] for one, other in zip(list(ranges), list(ranges)[1:], strict=False))
    assert ranges.total == len(expected)
    assert bool(ranges) == bool(expected)
    common = [each for low, high in ranges.common((start, stop)) for each in range(low, high)]
    assert common == sorted(expected & {*range(start, stop)})
    first = ranges.first(length + 1)
    assert (first is None) == (not expected)
    if first is not None:
        assert {*range(*first)} <= expected
        assert first[0] == min(expected)
        assert first[1] - first[0] <= length + 1
