"""Print broadcast schedules as text, in the layout of the tables of their paper.

Träff, "(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022. A table has a column
for each rank, counted from the root: its baseblock, and the blocks that it receives and sends in the rounds of a phase,
from above. A vertical line stands before the ranks that are skips. Tables 1 to 4 are for p = 20, 33, 32 and 31 (the
paper's Tables 2 to 4 have numbers that cannot be right); Table 5 has two schedules for p = 9.

p ranks; q = ceil(log2 p); k = round mod q; R, S = receive and send blocks, as [k, r].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ringcast.schedules.blocks import baseblock, schedule_tables, skips

Blocks = NDArray[np.int8]


def table(p: int) -> str:
    """Return the table of `p` ranks.

    >>> print(table(5))
    p = 5, skips 1 2 3 5
    rank          | 0| 1| 2| 3  4
    baseblock     | 0| 0| 1| 2  0
    recv schedule |-3| 0|-3|-2 -1
                  |-1|-1| 1|-3 -2
                  |-2|-2|-1| 2  0
    send schedule | 0|-3|-2|-1 -3
                  | 1|-3|-2|-1 -1
                  | 2| 0|-2|-2 -1
    """
    return layout(*schedule_tables(p))


def table_5() -> str:
    """Return Table 5: both schedules of 9 ranks, with a star where the second differs from the first."""
    first, second = schedule_tables(9), second_of_9()
    return f"{layout(*first)}\n\n{layout(*second, unlike=first)}"


def second_of_9() -> tuple[Blocks, Blocks]:
    """Return R and S of the second schedule of 9 ranks: rank 8 gets the blocks of rounds 1 and 2 in the other order."""
    recv = schedule_tables(9)[0].copy()
    recv[[1, 2], 8] = recv[[2, 1], 8]
    send = np.array([np.roll(row, -skip) for row, skip in zip(recv, skips(9)[:-1], strict=True)])
    return recv, send


def layout(recv: Blocks, send: Blocks, unlike: tuple[Blocks, Blocks] | None = None) -> str:
    """Return a schedule in the layout of the paper; numbers that differ from the schedule `unlike` get a star.

    The root, which receives nothing, has baseblock 0 in the paper.
    """
    q, p = recv.shape
    head = np.array([range(p), [0, *(baseblock(p, r) for r in range(1, p))]])
    cells = _cells(np.vstack([head, recv, send]), None if unlike is None else np.vstack([head, *unlike]))
    labels = ["rank", "baseblock", *_label("recv schedule", q), *_label("send schedule", q)]
    width, lines = max(len(cell) for row in cells for cell in row), {0, *skips(p)}
    text = [f"p = {p}, skips {' '.join(map(str, skips(p)))}"]
    for label, row in zip(labels, cells, strict=True):
        columns = (f"{'|' if r in lines else ' '}{cell:>{width}}" for r, cell in enumerate(row))
        text.append(f"{label:13} {''.join(columns)}".rstrip())
    return "\n".join(text)


def _cells(numbers: NDArray[np.intp], unlike: NDArray[np.intp] | None) -> list[list[str]]:
    """Return the numbers as text; with `unlike` a star follows each number that differs, a space each other one."""
    if unlike is None:
        return [[str(n) for n in row] for row in numbers.tolist()]
    pairs = zip(numbers.tolist(), unlike.tolist(), strict=True)
    return [[f"{n}{'*' if n != other else ' '}" for n, other in zip(*rows, strict=True)] for rows in pairs]


def _label(name: str, rows: int) -> list[str]:
    """Return the labels of `rows` rows: only the first has a name."""
    return [name, *[""] * (rows - 1)] if rows else []
