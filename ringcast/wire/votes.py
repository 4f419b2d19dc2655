"""Votes of the ranks in an agreement, and the decision on them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.wire.codec import Count, Rank, Within

Verb: TypeAlias = Literal["agree", "shrink"]
AGREE: Verb = "agree"
SHRINK: Verb = "shrink"
FLAG_LIMIT = 1 << 63  # -FLAG_LIMIT <= flag < FLAG_LIMIT
Flag: TypeAlias = Annotated[int, Within(-FLAG_LIMIT, FLAG_LIMIT - 1)]


@dataclass(frozen=True, slots=True)
class Vote:
    """A rank takes part in the n-th agreement of a communicator."""

    rank: Rank
    context: Count
    number: Count
    verb: Verb
    flag: Flag = 0
    acknowledged: tuple[Rank, ...] = ()  # members whose failure the rank has acknowledged


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of an agreement, sent to all live members; `verbs` has the verb of each of `members`."""

    context: Count
    number: Count
    members: tuple[Rank, ...]
    verbs: tuple[Verb, ...]
    flag: Flag = 0
    unacknowledged: tuple[Rank, ...] = ()
    fresh: Count = 0  # number of the new communicator, where all want to shrink
