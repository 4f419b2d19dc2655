"""Lines that a program redraws in place with carriage returns, as progress bars do: what a terminal shows of them."""

from __future__ import annotations

import re

RETURN = b"\r"
_ESCAPE = "\x1b"
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours, and orders such as to erase the line


def as_shown(line: bytes) -> bytes:
    """Return a whole line as a terminal shows it at the end; one that only ends with carriage returns stays as it is.

    >>> as_shown(b" 10%|#   |\\r100%|####|"), as_shown(b"loading\\rdone"), as_shown(b"text\\r")
    (b'100%|####|', b'doneing', b'text\\r')
    """
    if RETURN not in line.rstrip(RETURN):
        return line
    return _overlaid(line).rstrip(b" ")


def shortened(rest: bytes) -> bytes:
    """Return an unfinished line without the states that nobody sees any more: what follows means the same after it.

    >>> shortened(b" 10%\\r 20%\\r 3")
    b' 20%\\r 3'
    """
    before, returned, last = rest.rpartition(RETURN)
    return _overlaid(before) + returned + last if RETURN in before else rest


def plain_text(rest: bytes) -> str:
    """Return an unfinished line as a terminal shows it, without colours.

    >>> plain_text(b" 10%\\r\\x1b[32m 20%\\x1b[0m\\r")
    ' 20%'
    """
    return _SEQUENCE.sub("", _overlaid(rest).decode("utf-8", "replace")).rstrip()


def without_orders(line: str) -> str:
    """Return a line without the orders to a terminal that move its cursor or hide it; colours stay.

    >>> without_orders("\\x1b[2K\\x1b[32m100%\\x1b[0m\\x1b[?25h")
    '\\x1b[32m100%\\x1b[0m'
    """
    return _SEQUENCE.sub(lambda found: found[0] if found[0].endswith("m") else "", line)


def _overlaid(line: bytes) -> bytes:
    """Write one state over the other, from the left; orders to the terminal, which we do not follow, begin afresh."""
    shown = ""
    for state in line.decode("utf-8", "surrogateescape").split("\r"):
        shown = state if _ESCAPE in state else state + shown[len(state) :]
    return shown.encode("utf-8", "surrogateescape")
