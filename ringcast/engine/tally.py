"""The sums of one call site of the program, which a profiler counts."""

from __future__ import annotations

from typing import Any

from ringcast.events import Event
from ringcast.wire.call import Site
from ringcast.wire.flight import CALL

BUCKETS = 64  # of a histogram: times of 2**(i-1) to 2**i nanoseconds


class Tally:
    """The sums of one call site, for one kind of arguments and one communicator; times are seconds.

    Attributes:
        number: of the tally, from 0, in the order in which they were made.
        site: file and line of the call.
        name: of the function or method that the program calls there.
        call: the arguments, as `recorder.encoded` makes them.
        context: the communicator's number.
        later: how many operations were not the first stage of their call.
        blocking: time of operations in calls that block.
        under_way: time of operations of requests, from their beginning to their end.
        awaited: of this, the time in which the program waited for them.
        python: time in calls of the program beside their operations.
        before: time of the program since the operation before it, of any tally, had begun.
        slowest: (time, number of the call, when it began) of the slowest operation.
        histogram: how many operations took 2**(i-1) to 2**i nanoseconds, by i.
        requests: how many of them were of requests.
        failed: how many have failed.
        lost: time of operations in calls that block and have failed.
        missed: the ranks for which the last of them has waited then.
        sent, received: bytes of data that this rank had moved when they ended, beside those counted before.
        owner: the profiler that counts here.
        traces: the rounds of observed calls, by the number of the operation.
        plan: of the operation, as `ringcast.collectives.stage` makes it.
        sources: ranks of the job whose data come to this one, of a collective among neighbours.
        objects: how many of its values were Python objects, where only the value tells.
        ends: destination, source and tag of a message between two ranks, as `ends_of`; None of other operations.
        to: count of the messages with this destination and tag.
        shared: whether calls with several arguments or communicators are counted here; nothing else of them is kept.
    """

    __slots__ = (
        "awaited",
        "before",
        "blocking",
        "call",
        "context",
        "ends",
        "failed",
        "histogram",
        "later",
        "lost",
        "missed",
        "name",
        "number",
        "objects",
        "owner",
        "plan",
        "python",
        "received",
        "requests",
        "sent",
        "shared",
        "site",
        "slowest",
        "sources",
        "to",
        "traces",
        "under_way",
    )

    def __init__(self, owner: object, number: int, site: Site, name: str, call: bytes, context: int) -> None:
        self.owner = owner
        self.number, self.site, self.name, self.call, self.context = number, site, name, call, context
        self.later = self.requests = self.failed = self.sent = self.received = self.objects = 0
        self.blocking = self.under_way = self.awaited = self.python = self.before = self.lost = 0.0
        self.slowest = 0.0, 0, 0.0
        self.histogram = [0] * BUCKETS
        self.traces: dict[int, list[Event]] = {}
        self.ends = ends_of(call)
        self.to: list[int] | None = None
        self.plan: Any = None
        self.missed: tuple[int, ...] = ()
        self.sources: tuple[int, ...] = ()
        self.shared = False

    @property
    def calls(self) -> int:
        """How many operations have ended."""
        return sum(self.histogram)


def ends_of(call: bytes) -> tuple[str, str, str] | None:
    """Return destination, source and tag of a message between two ranks of the job; None of other operations.

    Each is "" where there is none; the source may be "any", and "" also stands for any tag.
    """
    shape = CALL.unpack(call)[4].rstrip(b"\0").decode() if len(call) == CALL.size else ""
    if not shape.startswith("(") or "tag" not in shape:
        return None
    facts = dict(fact.split(" ", 1) for fact in shape[1:-1].split(", "))
    return facts.get("to", ""), facts.get("from", ""), facts.get("tag", "")
