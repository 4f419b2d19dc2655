"""The contract of a source: a file of known size and version, and connections that read parts of it.

Each host opens the source by itself, with the credentials of its own environment. Its errors are of few kinds, by the
answer that they need: `Interrupted` asks for another try, `Busy` for a pause of all hosts, `Unreadable` for another
host, and `Changed` ends the read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from ringcast._util.printable import printable

_LONGEST = 200  # characters of the text of an error
_SECRETS = re.compile(r"//[^/@\s]*@|\?[^\s'\"]*")  # user and password of a URL, and its query


class Trouble(Exception):
    """A part of a source was not read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Interrupted(Trouble):
    """A try failed, and the next one may succeed."""


class Unreadable(Trouble):
    """One host cannot read the source; others may."""


class Missing(Unreadable):
    """One host has no such file."""


class Changed(Trouble):
    """The source is not the one any more that was opened."""


class Busy(Trouble):
    """The server asks for fewer requests; `after`: it wants none for so many seconds, None: it does not say."""

    def __init__(self, reason: str, after: float | None) -> None:
        super().__init__(reason)
        self.after = after


class Connection(Protocol):
    """Reads parts of a source, one after the other; used by one thread, but for `interrupt`."""

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        """Fill `into` with the bytes from `start` on; yield the number of bytes that each step has brought.

        Raises:
            Trouble: the part cannot be read; the bytes that were yielded are valid unless it is `Changed`.
        """
        ...

    def interrupt(self) -> None:
        """Have a read that another thread is in end soon, by an error; where that is not possible, do nothing."""

    def close(self) -> None:
        """Close it until the next read."""


class Source(Protocol):
    """A file that is open to be read.

    Attributes:
        size: number of bytes.
        version: equal on all hosts that see the same file, and another one after a change.
    """

    size: int
    version: str

    def connect(self) -> Connection:
        """Return a connection of its own for a thread."""
        ...

    def check(self) -> None:
        """Compare the version again.

        Raises:
            Changed: it is another one.
        """

    def close(self) -> None:
        """Close what is open."""


def in_a_line(error: BaseException) -> str:
    """Return an error as a short text that has no secret of a URL."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return without_secrets(printable(str(text)))[:_LONGEST]


def without_secrets(text: str) -> str:
    """Remove user, password and query of each URL from a text.

    >>> without_secrets("GET https://me:key@host/a?X-Signature=1 failed")
    'GET https://host/a?… failed'
    """
    return _SECRETS.sub(lambda found: "//" if found[0].startswith("//") else "?…", text)
