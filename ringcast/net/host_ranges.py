"""Expand ranges in the names of hosts, as in Slurm's lists: h[1-3,7] or r[01-16]. Pure, and light to import."""

from __future__ import annotations

import re

MOST = 1 << 16  # hosts of a range, or slots of a host; more are a slip of the finger
# Digits, commas and dashes in brackets: an IPv6 address has a colon.
_RANGES = re.compile(r"(?P<head>[^\[\]]*)\[(?P<ranges>[0-9,-]+)\](?P<tail>.*)")


def items(text: str) -> list[str]:
    """Split a text at its commas, except commas in brackets.

    >>> items("a[1,3],b")
    ['a[1,3]', 'b']
    """
    return re.split(r",(?![^\[]*\])", text)


def expand(name: str) -> list[str]:
    """Expand a name with ranges in brackets into all names; an IPv6 address in brackets is one name.

    >>> expand("r[1-2]n[0-1]:4")
    ['r1n0:4', 'r1n1:4', 'r2n0:4', 'r2n1:4']

    Raises:
        ValueError: the brackets hold anything else, or the name expands to more than 65,536 names.
    """
    match = _RANGES.fullmatch(name)
    if match is None:
        return [name]
    numbers = [number for part in match["ranges"].split(",") for number in _numbers(part, name)]
    tails = expand(match["tail"])
    if len(numbers) * len(tails) > MOST:
        raise ValueError(f"{name!r} means more than {MOST} hosts")
    return [f"{match['head']}{number}{tail}" for number in numbers for tail in tails]


def _numbers(part: str, name: str) -> list[str]:
    first, dash, last = part.partition("-")
    if not first.isdigit() or (dash and (not last.isdigit() or int(last) < int(first))):
        raise ValueError(f"{name!r}: {part!r} is no range of numbers; expected is one as 1-16")
    if int(last or first) - int(first) >= MOST:
        raise ValueError(f"{name!r} means more than {MOST} hosts")
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
