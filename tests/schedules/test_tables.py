"""The tables of the paper of 2022, entry for entry, and the four conditions for tables from elsewhere."""

import doctest
import re

import numpy as np
import pytest

from ringcast.analysis import tables
from ringcast.errors import ScheduleError
from ringcast.schedules import conditions
from ringcast.schedules.blocks import schedule_tables, skips
from ringcast.schedules.conditions import check_conditions
from support.cases import each

# As printed: ranks, baseblocks, receive schedule, send schedule.
TABLE_1 = """
0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19
0  0  1  2  0  3  0  1  2  0  4  0  1  2  0  3  0  1  2  0
-5  0 -5 -4 -3 -5 -2 -5 -4 -3 -5 -1 -5 -4 -3 -5 -2 -5 -4 -3
-3 -3  1 -5 -4 -3 -3 -2 -5 -4 -3 -3 -1 -5 -4 -3 -3 -2 -5 -4
-4 -4 -3  2  0 -4 -4 -3 -2 -2 -4 -4 -3 -1 -1 -4 -4 -3 -2 -2
-2 -2 -2 -2 -2  3  0  1  2  0 -2 -2 -2 -2 -2 -1 -1 -1 -1 -1
-1 -1 -1 -1 -1 -1 -1 -1 -1 -1  4  0  1  2  0  3  0  1  2  0
0 -5 -4 -3 -5 -2 -5 -4 -3 -5 -1 -5 -4 -3 -5 -2 -5 -4 -3 -5
1 -5 -4 -3 -3 -2 -5 -4 -3 -3 -1 -5 -4 -3 -3 -2 -5 -4 -3 -3
2  0 -4 -4 -3 -2 -2 -4 -4 -3 -1 -1 -4 -4 -3 -2 -2 -4 -4 -3
3  0  1  2  0 -2 -2 -2 -2 -2 -1 -1 -1 -1 -1 -2 -2 -2 -2 -2
4  0  1  2  0  3  0  1  2  0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
"""
TABLE_5 = """
0  1  2  3  4  5  6  7  8
0  0  1  2  0  3  0  1  2
-2  0 -4 -3 -2 -4 -1 -4 -3
-3 -2  1 -4 -3 -2 -2 -1 -4
-1 -3 -2  2  0 -3 -3 -2 -1
-4 -1 -1 -1 -1  3  0  1  2
0 -4 -3 -2 -4 -1 -4 -3 -2
1 -4 -3 -2 -2 -1 -4 -3 -2
2  0 -3 -3 -2 -1 -1 -3 -2
3  0  1  2 -4 -1 -1 -1 -1

0  1  2  3  4  5  6  7  8
0  0  1  2  0  3  0  1  2
-2  0 -4 -3 -2 -4 -1 -4 -3
-3 -2  1 -4 -3 -2 -2 -1 -1*
-1 -3 -2  2  0 -3 -3 -2 -4*
-4 -1 -1 -1 -1  3  0  1  2
0 -4 -3 -2 -4 -1 -4 -3 -2
1 -4 -3 -2 -2 -1 -1* -3 -2
2  0 -3 -3 -2 -4* -1 -3 -2
3  0  1  2 -4 -1 -1 -1 -1
"""


def entries(text: str) -> list[list[str]]:
    """Return the entries of each line that has some."""
    return [found for line in text.splitlines() if (found := re.findall(r"-?\d+\*?", line))]


def printed(text: str) -> list[list[str]]:
    """Return the entries of our layout, without its titles and labels."""
    return entries("\n".join(line.partition("|")[2] for line in text.splitlines() if "|" in line))


def test_table_1() -> None:
    assert printed(tables.table(20)) == entries(TABLE_1)


def test_table_5_with_the_second_schedule() -> None:
    assert printed(tables.table_5()) == entries(TABLE_5)
    assert tables.table_5().startswith(tables.table(9))


def test_lines_stand_before_the_skips() -> None:
    ranks = tables.table(20).splitlines()[1]
    assert [group.split()[0] for group in ranks.split("|")[1:]] == ["0", *map(str, skips(20)[:-1])]


@pytest.mark.parametrize("p", [1, 2, 3, 31, 32, 33, 65, 130])
def test_a_table_has_all_schedules_of_all_ranks(p: int) -> None:
    rows = np.array(printed(tables.table(p)), dtype=int)
    recv, send = schedule_tables(p)
    assert rows[0].tolist() == list(range(p))
    assert rows[2:].tolist() == [*recv.tolist(), *send.tolist()]
    assert len({len(line) for line in tables.table(p).splitlines()[1:]}) == 1


def test_examples() -> None:
    for module in tables, conditions:
        result = doctest.testmod(module)
        assert result.attempted
        assert not result.failed


@each("p", [*range(1, 131), 257, 513, 1025])
def test_our_schedules_satisfy_the_conditions(p: int) -> None:
    check_conditions(p, *schedule_tables(p))


def test_the_second_schedule_of_9_ranks_is_legal() -> None:
    check_conditions(9, *tables.second_of_9())


@pytest.mark.parametrize("p", [2, 3, 5, 9, 17, 20, 33])
def test_any_wrong_block_is_found(p: int) -> None:
    recv, send = schedule_tables(p)
    for k, r in np.ndindex(recv.shape):
        for half in 0, 1:
            wrong = recv.copy(), send.copy()
            wrong[half][k, r] += 1
            with pytest.raises(ScheduleError, match="condition 1: both ends"):
                check_conditions(p, *wrong)


def mutated(p: int, k: int, r: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables with another block for rank r in round k, at both ends of the message."""
    recv, send = (table.copy() for table in schedule_tables(p))
    recv[k, r] = send[k, (r - skips(p)[k]) % p] = block
    return recv, send


def swapped(p: int, r: int, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables in which rank r gets the blocks of rounds i and j in the other order."""
    recv = schedule_tables(p)[0].copy()
    recv[[i, j], r] = recv[[j, i], r]
    return recv, np.array([np.roll(row, -s) for row, s in zip(recv, skips(p)[:-1], strict=True)])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (mutated(9, 1, 4, -2), "rank 4, .*condition 2: each block comes once"),
        (mutated(9, 3, 5, 2), "rank 5, round .: .*condition 2"),
        (swapped(9, 1, 0, 1), "rank 1, round 0: .*condition 3: the new block"),
        (swapped(9, 7, 0, 1), "round ., *.*condition 4: a rank sends only blocks that it has|round .: .*condition 4"),
    ],
)
def test_each_condition_is_checked(wrong: tuple[np.ndarray, np.ndarray], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        check_conditions(9, *wrong)


def test_tables_of_another_size_are_refused() -> None:
    with pytest.raises(ScheduleError, match="9 ranks have 4 receive and send blocks each, not 3 and 4"):
        check_conditions(9, schedule_tables(9)[0][:3], schedule_tables(9)[1])
