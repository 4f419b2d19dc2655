"""Compute how a terminal shows a line that a program redraws with carriage returns, as progress bars do."""

from __future__ import annotations

import re

RETURN = b"\r"
_ESCAPE = "\x1b"
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours, and orders such as to erase the line


def as_shown(line: bytes) -> bytes:
    """Return a whole line as a terminal finally shows it; a line with carriage returns only at its end is unchanged.

    >>> as_shown(b" 10%|#   |\\r100%|####|"), as_shown(b"loading\\rdone"), as_shown(b"text\\r")
    (b'100%|####|', b'doneing', b'text\\r')
    """
    if RETURN not in line.rstrip(RETURN):
        return line
    return _overlaid(line).rstrip(b" ")


def shortened(rest: bytes) -> bytes:
    """Drop the overwritten states of an unfinished line; text that follows has the same effect as after the whole line.

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
    """Write each state over the one before, from the left; a state with escape sequences replaces all before it."""
    shown = ""
    for state in line.decode("utf-8", "surrogateescape").split("\r"):
        shown = state if _ESCAPE in state else state + shown[len(state) :]
    return shown.encode("utf-8", "surrogateescape")
