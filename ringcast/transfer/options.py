"""Define and check the options of a copy."""

from __future__ import annotations

from typing import Literal

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import safe_text

FULL, SIZE, NONE = "full", "size", "none"
AUTO, ZSTD = "auto", "zstd"
CHOICES = {"verify": (FULL, SIZE, NONE), "compress": (AUTO, ZSTD, NONE)}  # values of the options that take a word


@dataclass(frozen=True, slots=True)
class Options:
    """How to copy.

    Attributes:
        recursive: directories are copied with all that is in them.
        preserve: times of changes and all permission bits are kept.
        verify: how files that are there already are compared: FULL by SHA-256, SIZE by size (and time of change, with
            `preserve`), NONE not at all: everything is sent. Content that is sent is always hashed at both ends.
        keep_going: ranks that cannot take the files are left out; without it nothing is sent if a rank cannot.
        rate: most bytes that the root sends in a second; None: no limit.
        compress: ZSTD: pieces travel compressed where that makes them shorter; AUTO: if every rank has zstd, and while
            compression makes the copy faster; NONE: never.
        sparse: blocks of zeros become holes in new files.
        slow: seconds that others wait for the disk of a rank before the rank is left out; None: they wait for ever.
    """

    recursive: bool = False
    preserve: bool = False
    verify: Literal["full", "size", "none"] = "full"
    keep_going: bool = False
    rate: float | None = None
    compress: Literal["auto", "zstd", "none"] = "auto"
    sparse: bool = False
    slow: float | None = None


def reason_not(options: Options) -> tuple[str, str] | None:
    """Return the first option with an invalid value, and the reason; None if all values are valid.

    >>> reason_not(Options(verify="sha1"))
    ('verify', "expected one of full, size, none, got 'sha1'")
    """
    for name, values in CHOICES.items():
        if (value := getattr(options, name)) not in values:
            return name, f"expected one of {', '.join(values)}, got {safe_text(value)}"
    if options.rate is not None and not options.rate > 0:
        return "rate", f"expected bytes in a second, more than 0, or None, got {safe_text(options.rate)}"
    if options.slow is not None and not options.slow > 0:
        return "slow", f"expected seconds, more than 0, or None, got {safe_text(options.slow)}"
    return None
