"""Parse and print sizes in bytes as people write them: decimal, 1k = 1000."""

from __future__ import annotations

import re

UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse(text: str) -> int:
    """Return the number of bytes that `text` stands for.

    >>> parse("10k")
    10000

    Raises:
        ValueError: `text` is not a positive whole number, perhaps with k, m or g.
    """
    match = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    size = int(match[1]) * UNITS[match[2]] if match else 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size; write bytes as 500, 1k, 10m or 1g (decimal)")
    return size


def parse_range(text: str) -> tuple[int, ...]:
    """Return the sizes of MIN:MAX: MIN, ten times MIN, and so on, and at last MAX; or the one size that `text` gives.

    >>> parse_range("1k:1m")
    (1000, 10000, 100000, 1000000)
    >>> parse_range("20:500")
    (20, 200, 500)

    Raises:
        ValueError: `text` is neither a size nor a range, or MIN is more than MAX.
    """
    first, colon, last = text.partition(":")
    size, end = parse(first), parse(last if colon else first)
    if size > end:
        raise ValueError(f"{text!r}: the first size is larger than the last")
    sizes = []
    while size < end:
        sizes.append(size)
        size *= 10
    return (*sizes, end)


def label(nbytes: int) -> str:
    """Return the shortest way to write a size exactly.

    >>> label(10_000_000), label(999)
    ('10m', '999')
    """
    for unit in ("g", "m", "k"):
        if nbytes and nbytes % UNITS[unit] == 0:
            return f"{nbytes // UNITS[unit]}{unit}"
    return str(nbytes)


def readable(nbytes: int) -> str:
    """Return a size for people, in units of 1000.

    >>> readable(8_796_093_022_208), readable(999), readable(9_007_199_254_740_992)
    ('8.8 TB', '999 bytes', '9.01 PB')
    """
    units = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    size = float(nbytes)
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"
