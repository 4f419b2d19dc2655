"""The record of an error that a program caught without an answer (`ringcast.engine.unanswered`), as a rank sends it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, Revoked
from ringcast.wire.codec import Rank

Kind: TypeAlias = Literal["PeerFailed", "CollectiveMismatch", "CollectiveTimeout", "LinkLost", "Revoked"]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An error that a call raised: its kind, its first line, and the call's place in the program."""

    kind: Kind
    text: str
    place: str
    blames: tuple[Rank, ...] = ()  # ranks that it names as its cause

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} ({self.how})"

    @property
    def how(self) -> str:
        """The line that raised it, and the reason why it counts."""
        answers = "none of ack_failed, agree and shrink" if self.acknowledgeable else "neither shrink nor agree"
        return f"raised in {self.place} and caught; {answers} followed"

    @property
    def acknowledgeable(self) -> bool:
        """True if `ack_failed` can answer it."""
        return self.kind == PeerFailed.__name__

    @property
    def follows(self) -> bool:
        """True if another rank's end or error has brought it about."""
        return self.kind in (PeerFailed.__name__, Revoked.__name__)
