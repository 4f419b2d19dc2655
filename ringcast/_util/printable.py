"""Make text from outside safe for a terminal: names of files, answers of servers, errors of other hosts."""

from __future__ import annotations

import os


def printable(text: bytes | str, keep: str = "") -> str:
    r"""Return text with escapes for characters that a terminal would obey or not show, such as control characters.

    Bytes are decoded as names of files are, and bytes that are no text become escapes too. Characters in `keep` stay.

    >>> printable("a\x1b[2Jb\n"), printable(b"\xff")
    ('a\\x1b[2Jb\\n', '\\udcff')
    """
    found = os.fsdecode(text)
    if found.isprintable():
        return found
    return "".join(sign if sign.isprintable() or sign in keep else ascii(sign)[1:-1] for sign in found)
