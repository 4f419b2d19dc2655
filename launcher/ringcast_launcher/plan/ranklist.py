"""Parse and print sets of ranks as people write them, such as 0,2-3."""

from __future__ import annotations

import re
from collections.abc import Iterable


def compact(ranks: Iterable[int]) -> str:
    """Return the ranks, in order, as the shortest text.

    >>> compact([0, 1, 2, 3, 7]), compact([5, 4]), compact([])
    ('0-3,7', '4-5', '')
    """
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def shown(spec: str, size: int) -> frozenset[int]:
    """Return the ranks that a list names; all ranks if the list is empty.

    >>> sorted(shown("0,2-3", size=5)), len(shown("", size=5))
    ([0, 2, 3], 5)

    Raises:
        ValueError: `spec` is no list of ranks, or names a rank that the job does not have.
    """
    if not spec:
        return frozenset(range(size))
    named = ranges(spec)
    for one in named:
        if one[-1] >= size:
            raise ValueError(f"{spec!r}: there is no rank {one[-1]} in a job of {size}; the last one is {size - 1}")
    return frozenset(rank for one in named for rank in one)


def ranges(spec: str) -> list[range]:
    """Return the ranges in a list, also of ranks that the job does not have.

    >>> ranges("0,2-3")
    [range(0, 1), range(2, 4)]

    Raises:
        ValueError: `spec` is no list of ranks.
    """
    return [_range(item.strip(), spec) for item in spec.split(",")]


def _range(item: str, spec: str) -> range:
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", item)
    if match is None:
        raise ValueError(f"{spec!r}: {item!r} is no rank; expected are ranks and ranges such as 0,2-3")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise ValueError(f"{spec!r}: {item!r} ends before it begins; expected is {last}-{first}")
    return range(first, last + 1)
