"""The call sites of two profiles that are the same one of a program, which may have been edited in between.

Files are the same if their paths end alike, and so are the main files of the two runs. In a file, sites of one function
and the same arguments are the same in the order of their lines. Where one run has more of them, those are left over
without which the distances between lines, and the shapes, differ least; these may be the same as ones whose dtype or
operator was changed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import inf
from typing import Any, TypeAlias

Report: TypeAlias = Mapping[str, Any]
Site: TypeAlias = Mapping[str, Any]
Pair: TypeAlias = tuple[Site | None, Site | None]
ARGUMENTS = ("collective", "dtype", "op")
OTHER_SHAPE = 100.0  # lines, by which distances may differ before another shape is the better one
FAR = 0.01  # of a line that a site has moved: decides where nothing else does


def paired(before: Report, after: Report) -> list[Pair]:
    """Return all call sites of two reports, each with its other; None where it has none."""
    name = _same_files(before, after)
    olds, news = [*before["sites"]], [*after["sites"]]
    pairs: list[Pair] = []
    for arguments in (ARGUMENTS, ()):
        found = [*_matched(olds, news, name, arguments)]
        pairs += found
        known = {id(site) for pair in found for site in pair}
        olds, news = ([site for site in sites if id(site) not in known] for sites in (olds, news))
    return [*pairs, *((site, None) for site in olds), *((None, site) for site in news)]


def _same_files(before: Report, after: Report) -> dict[str, str]:
    """Return for files of the first run their names in the second one."""
    olds, news = ({str(site["file"]) for site in report["sites"]} for report in (before, after))
    alike = sorted((-_common_tail(old, new), old, new) for old in olds for new in news)
    found: dict[str, str] = {}
    for common, old, new in alike:
        if common and old not in found and new not in found.values():
            found[old] = new
    mains = (
        [old for old in olds - {*found} if _is_main(old, before)],
        [new for new in news - {*found.values()} if _is_main(new, after)],
    )
    if len(mains[0]) == len(mains[1]) == 1:
        found[mains[0][0]] = mains[1][0]
    return found


def _common_tail(one: str, other: str) -> int:
    """Return how many parts of two paths are the same, from their ends.

    >>> _common_tail("/home/me/jobs/solve.py", "/scratch/jobs/solve.py")
    2
    """
    parts = zip(one.split(os.sep)[::-1], other.split(os.sep)[::-1], strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], parts)])


def _is_main(file: str, report: Report) -> bool:
    """Return whether the command names the file."""
    return os.path.basename(file) in map(os.path.basename, report.get("command", ()))


def _matched(
    olds: Sequence[Site], news: Sequence[Site], name: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[tuple[Site, Site]]:
    """Yield pairs of sites with the same file, function and arguments."""
    groups: defaultdict[object, tuple[list[Site], list[Site]]] = defaultdict(lambda: ([], []))
    for i, sites in enumerate((olds, news)):
        for site in sorted(sites, key=lambda each: each["line"]):
            file = site["file"] if i else name.get(site["file"])
            groups[file, site["name"], *map(site.get, arguments)][i].append(site)
    for mine, theirs in groups.values():
        few, many = sorted((mine, theirs), key=len)
        for i, j in _aligned(len(few), len(many), _cost(few, many)):
            yield (few[i], many[j]) if few is mine else (many[j], few[i])


def _cost(few: Sequence[Site], many: Sequence[Site]) -> Callable[[int, int], float]:
    """Return how unlike two sites are, by their places: in shape, and in the distance to the next one or the last."""
    a, b = ([site["line"] for site in sites] for sites in (few, many))

    def cost(i: int, j: int) -> float:
        differences = [abs((a[i] - a[i - 1]) - (b[j] - b[j - 1]))] if i and j else []
        if i + 1 < len(a) and j + 1 < len(b):
            differences.append(abs((a[i + 1] - a[i]) - (b[j + 1] - b[j])))
        other = OTHER_SHAPE * (few[i].get("shape") != many[j].get("shape"))
        return float(min(differences, default=0) + other + FAR * abs(a[i] - b[j]))

    return cost


def _aligned(few: int, many: int, cost: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return a place among many for each of few, in their order, so that the sum of costs is least; O(few · many).

    >>> _aligned(2, 3, lambda i, j: abs(i + 1 - j))
    [(0, 1), (1, 2)]
    """
    best = [[0.0] * (many + 1)]
    for i in range(few):
        row = [inf]
        for j in range(many):
            row.append(min(row[j], best[i][j] + cost(i, j)))
        best.append(row)
    found, j = [], many
    for i in range(few, 0, -1):
        while j > i and best[i][j] == best[i][j - 1]:
            j -= 1
        j -= 1
        found.append((i - 1, j))
    return found[::-1]
