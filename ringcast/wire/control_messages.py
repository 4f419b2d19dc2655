"""The messages between a worker and the control plane.

A `Notice` concerns the protocol between ranks: the worker's end of the control plane hands it on to the engine, in the
same form, by `notice_frames`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias, get_args

from ringcast._util.dataclass import dataclass
from ringcast.wire import header
from ringcast.wire.codec import Count, Rank, encode
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
from ringcast.wire.reports import Deadlock, Mismatch, StallReport
from ringcast.wire.unanswered import Unanswered
from ringcast.wire.votes import Decision, Vote

NOWHERE = EndpointCard("")
NO_FAILURE = Failure("")

# Of a worker. Each names its rank; the server drops one that names another rank than its connection.


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker requests to join. The first two fields are the same in all versions of the protocol."""

    version: str
    rank: Rank
    size: Count = 0
    card: EndpointCard = NOWHERE
    pid: Count = 0
    host: str = ""
    network: str = ""  # the constants from which it chooses algorithms; all must have the same
    pickle: bool = True  # whether it takes Python objects; all must agree
    deterministic: bool = False  # whether it chooses the order of reductions without `network`; all must agree
    build: str = ""  # whether it sends small messages by the compiled part, in words
    mark: str = ""  # recognises `pid`, see `ringcast.procs.process_mark`


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life of a worker."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Revoke:
    """A worker gives up a communicator, perhaps because a rank `failed`; the server hands it on to all others."""

    rank: Rank
    context: Count
    cause: str
    failed: Rank | None = None


@dataclass(frozen=True, slots=True)
class Accuse:
    """A worker has found that its link to `peer` is dead, although neither of them has ended."""

    rank: Rank
    peer: Rank
    cause: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A worker is stalled."""

    report: StallReport

    @property
    def rank(self) -> int:
        return self.report.rank


@dataclass(frozen=True, slots=True)
class Moving:
    """A worker does not wait any more."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Made:
    """A worker is a member of a communicator that was split off another one: its ranks in the job, by rank there."""

    rank: Rank
    context: Count
    members: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Freed:
    """A worker uses a communicator no more."""

    rank: Rank
    context: Count


@dataclass(frozen=True, slots=True)
class Failing:
    """A worker is about to end with an uncaught error."""

    rank: Rank
    failure: Failure


@dataclass(frozen=True, slots=True)
class Finished:
    """A worker communicates no more; counts of what it sent to, began to send to, and took from each rank.

    `failure` is the error that made it leave, with an empty cause if there is none; its `blames` are the ranks
    that the errors of the worker's communicators name as their cause. With an error that is `unanswered` the rank has
    failed, whatever its exit code is.
    """

    rank: Rank
    sent: Mapping[Rank, Count]  # messages
    posted: Mapping[Rank, Count] = field(default_factory=dict)  # transfers
    matched: Mapping[Rank, Count] = field(default_factory=dict)
    failure: Failure = NO_FAILURE
    unanswered: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker closes its connection, and requests a confirmation that all its messages have arrived."""


# Of the control plane.


@dataclass(frozen=True, slots=True)
class Roster:
    """All ranks have joined: the endpoint card of each; and whether the others go on when a rank fails."""

    cards: tuple[EndpointCard, ...]
    continues: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A worker cannot join; this message is the same in all versions of the protocol."""

    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to Leave."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life of the control plane."""


@dataclass(frozen=True, slots=True)
class Bye:
    """A rank has left; it sent `sent` messages to the rank that gets this. `failure` is as in Finished."""

    rank: Rank
    sent: Count
    failure: Failure = NO_FAILURE


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank is declared failed, or says so itself."""

    rank: Rank
    failure: Failure


@dataclass(frozen=True, slots=True)
class Abort:
    """The job ends."""

    cause: str


FromMember: TypeAlias = Alive | Revoke | Accuse | Waiting | Moving | Made | Freed | Vote | Failing | Finished
ToServer: TypeAlias = Hello | FromMember | Leave
Notice: TypeAlias = Bye | Failed | Revoke | Abort | Deadlock | Mismatch | Decision
ToWorker: TypeAlias = Roster | Refused | Left | Beat | Notice

TO_SERVER: tuple[type[Any], ...] = get_args(ToServer)
TO_WORKER: tuple[type[Any], ...] = get_args(ToWorker)
NOTICES: tuple[type[Any], ...] = get_args(Notice)


def notice_frames(notice: Notice, nonce: int) -> list[bytes]:
    """Return a notice as the engine of a rank of job `nonce` gets it: a header, and the notice."""
    return [header.to_itself(header.Kind.NOTICE, nonce), encode(notice)]
