"""Sum up the bytes and the rates between ranks by rows and columns that a page can show.

Up to 64 ranks each is a row; more are put together, neighbours with neighbours, in blocks of one size. Where a job ran
on several hosts, there is a matrix of them too. Bytes are added; of rates the median stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

MOST = 64  # rows of a matrix

Profile = Mapping[str, Any]


def matrices(profile: Profile) -> list[dict[str, Any]]:
    """Return the matrices of a profile: what their rows are, the names of the rows, and the cells [from, to, value]."""
    bytes_, rates = profile.get("bytes", []), profile.get("rates", [])
    if not bytes_ and not rates:
        return []
    count = _count(profile)
    size = -(-count // MOST)
    blocks = {rank: rank // size for rank in range(count)}
    names = [_range(first, min(first + size, count) - 1) for first in range(0, count, size)]
    found = [_matrix("ranks" if size == 1 else f"blocks of {size} ranks", names, blocks, bytes_, rates)]
    hosts = profile.get("hosts", [])
    if 1 < len(hosts) <= MOST:
        places = {rank: i for i, host in enumerate(hosts) for rank in host["ranks"]}
        found.append(_matrix("hosts", [host["name"] for host in hosts], places, bytes_, rates))
    return found


def _matrix(
    of: str, names: list[str], places: Mapping[int, int], bytes_: Sequence[Any], rates: Sequence[Any]
) -> dict[str, Any]:
    return {
        "of": of,
        "names": names,
        "bytes": [[*pair, sum(values)] for pair, values in _cells(places, bytes_).items()],
        "rates": [[*pair, median(values)] for pair, values in _cells(places, [row[:3] for row in rates]).items()],
    }


def _cells(places: Mapping[int, int], rows: Sequence[Any]) -> dict[tuple[int, int], list[float]]:
    cells: dict[tuple[int, int], list[float]] = {}
    for source, dest, value in rows:
        if source in places and dest in places:
            cells.setdefault((places[source], places[dest]), []).append(value)
    return dict(sorted(cells.items()))


def _count(profile: Profile) -> int:
    """Return the number of ranks of the job, those included that are missing."""
    known = [row["rank"] for row in profile.get("ranks", ())]
    known += [rank for host in profile.get("hosts", ()) for rank in host["ranks"]]
    known += [*profile.get("missing", ()), *(rank for row in profile.get("bytes", ()) for rank in row[:2])]
    known += [rank for row in profile.get("rates", ()) for rank in row[:2]]
    return max(known, default=-1) + 1


def _range(first: int, last: int) -> str:
    """Return the name of a block of ranks."""
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
