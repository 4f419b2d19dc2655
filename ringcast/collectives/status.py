"""Wildcards for the source and the tag of a receive, and the status that a receive fills in."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from ringcast.errors import UsageError


class Wildcard(Enum):
    """A wildcard for the source or the tag of a receive. It is no number: rank 0's `rank - 1` must not mean it."""

    SOURCE = "ANY_SOURCE"
    TAG = "ANY_TAG"

    def __repr__(self) -> str:
        return self.value


ANY_SOURCE = Wildcard.SOURCE
"""As `source` of a receive or a probe: a message of any rank."""
ANY_TAG = Wildcard.TAG
"""As `tag` of a receive or a probe: a message with any tag."""
Source: TypeAlias = int | Wildcard | None
Tag: TypeAlias = int | Wildcard


class Status:
    """Source, tag and size of a message; `recv`, `irecv`, `sendrecv` and probes fill a given one.

    Attributes:
        source: the rank that has sent it.
        tag: its tag.
        count: its size in bytes: of an array's items, or of an object's pickle with its buffers.

    >>> comm.send(np.arange(3.0), 0, tag=5)
    >>> status = ringcast.Status()
    >>> comm.recv(status=status)
    array([0., 1., 2.])
    >>> status
    Status(source=0, tag=5, count=24)
    """

    __slots__ = ("_facts",)

    def __init__(self) -> None:
        self._facts: tuple[int, int, int] | None = None

    def fill(self, source: int, tag: int, count: int) -> None:
        """Take the facts of a message."""
        self._facts = source, tag, count

    @property
    def source(self) -> int:
        return self._known()[0]

    @property
    def tag(self) -> int:
        return self._known()[1]

    @property
    def count(self) -> int:
        return self._known()[2]

    def _known(self) -> tuple[int, int, int]:
        if self._facts is None:
            raise UsageError("this Status is empty: no receive that it was passed to has got a message")
        return self._facts

    def __repr__(self) -> str:
        if self._facts is None:
            return "Status()"
        source, tag, count = self._facts
        return f"Status({source=}, {tag=}, {count=})"
