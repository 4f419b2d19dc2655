"""Events and actions of the membership state machine.

Times are seconds on the caller's clock. A message is a dictionary of plain values with a "type".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ringcast.control.agreement import Vote
from ringcast.control.deadlocks import Report
from ringcast.wire.unanswered import Unanswered

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker requests to join; `connection` is where the answer goes."""

    connection: bytes
    rank: int
    size: int
    address: str
    pid: int
    host: str
    version: str
    network: str = ""  # the constants from which it chooses algorithms; all must have the same
    key: str = ""  # public, of its inbox; empty where nothing is encrypted
    pickle: bool = True  # whether it takes Python objects; all must agree
    near: str = ""  # its ipc socket for ranks of its own host, see `ringcast.net.colocation`; empty: none


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life of a worker."""

    rank: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """A worker gives up a communicator, perhaps because a rank `failed`."""

    rank: int
    context: int
    cause: str
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class Accusing:
    """A worker has found that its link to `peer` is dead, although neither of them has ended."""

    rank: int
    peer: int
    cause: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A worker is stalled."""

    rank: int
    report: Report


@dataclass(frozen=True, slots=True)
class Moving:
    """A worker does not wait any more."""

    rank: int


@dataclass(frozen=True, slots=True)
class Failing:
    """A worker is about to end with an uncaught error; `blames` are the ranks that it names as the cause."""

    rank: int
    error: str
    traceback: str
    blames: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A worker communicates no more; counts of what it sent to, began to send to, and took from each rank.

    `blames` are the ranks that the errors of its communicators name as their cause. `error` is the one because of which
    it leaves, if any; it matters only to ranks that still need this one. With an error that is `unanswered` the rank
    has failed, whatever its exit code is.
    """

    rank: int
    sent: Mapping[int, int]  # messages
    posted: Mapping[int, int] = field(default_factory=dict)  # transfers
    matched: Mapping[int, int] = field(default_factory=dict)
    blames: tuple[int, ...] = ()
    error: str = ""
    traceback: str = ""
    unanswered: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker closes its connection, and requests a confirmation that all its messages have arrived."""

    connection: bytes


@dataclass(frozen=True, slots=True)
class Died:
    """The supervisor knows that a rank is gone (and cannot come back)."""

    rank: int
    cause: str


@dataclass(frozen=True, slots=True)
class Abort:
    """The supervisor ends the job."""

    cause: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; to the `unreachable` ranks there is no connection at the moment."""

    unreachable: frozenset[int] = frozenset()


Said: TypeAlias = Alive | Revoke | Accusing | Waiting | Moving | Vote | Failing | Finished  # by a member
Event: TypeAlias = Hello | Said | Leave | Died | Abort | Tick


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to a worker."""

    connection: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class Joined:
    """For the owner: a rank joined, whose inbox is at `address`."""

    rank: int
    pid: int
    host: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class TooLate:
    """For the owner: a rank wanted to join after the start was given up."""

    rank: int


@dataclass(frozen=True, slots=True)
class Started:
    """For the owner: all ranks have joined, and the addresses of all were sent to all."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """For the owner: the start was given up because these ranks did not join in time."""

    reason: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """For the owner: messages of a rank were lost, or it left without finishing, or others do not reach it any more.

    It is not declared failed yet: the owner makes sure that it is gone, and then says so.
    """

    rank: int
    cause: str


@dataclass(frozen=True, slots=True)
class Unread:
    """For the owner: a rank left without taking `count` messages that `source` had sent it."""

    rank: int
    source: int
    count: int


Notice: TypeAlias = Joined | TooLate | Started | NotStarted | Lost | Unread | Failing | Finished
Action: TypeAlias = SendTo | Notice


def in_words(ranks: Iterable[int], most: int = 10) -> str:
    """Return the ranks in words.

    >>> in_words([2]), in_words([0, 3]), in_words(range(12))
    ('rank 2', 'ranks 0, 3', 'ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    known = list(ranks)
    text = ", ".join(map(str, known[:most])) + (f" and {len(known) - most} more" if len(known) > most else "")
    return f"rank {text}" if len(known) == 1 else f"ranks {text}"
