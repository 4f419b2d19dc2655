"""Events and actions of the membership state machine, next to the messages of `ringcast.wire.control_messages`.

Times are seconds on the caller's clock.
"""

from __future__ import annotations

from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.wire.control_messages import Failing, Finished, FromMember, Hello, ToWorker
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure


@dataclass(frozen=True, slots=True)
class Joining:
    """A worker requests to join; `connection` is where the answer goes."""

    connection: bytes
    hello: Hello


@dataclass(frozen=True, slots=True)
class Leaving:
    """A worker closes its connection, and requests a confirmation that all its messages have arrived."""

    connection: bytes


@dataclass(frozen=True, slots=True)
class Died:
    """The supervisor knows that a rank is gone (and cannot come back)."""

    rank: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class End:
    """The supervisor ends the job."""

    cause: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; to the `unreachable` ranks there is no connection at the moment."""

    unreachable: frozenset[int] = frozenset()


Event: TypeAlias = Joining | Leaving | FromMember | Died | End | Tick


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to a worker."""

    connection: bytes
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Joined:
    """For the owner: a rank joined, whose inbox is at `address`."""

    rank: int
    pid: int
    host: str
    address: str = ""
    build: str = ""


@dataclass(frozen=True, slots=True)
class TooLate:
    """For the owner: a rank wanted to join after the start was given up."""

    rank: int


@dataclass(frozen=True, slots=True)
class AllJoined:
    """For the owner: all ranks have joined, and the cards of all were sent to all."""

    cards: tuple[EndpointCard, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFailed:
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


ForOwner: TypeAlias = Joined | TooLate | AllJoined | StartFailed | Lost | Unread | Failing | Finished
Action: TypeAlias = SendTo | ForOwner
