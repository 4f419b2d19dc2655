"""Operations, their transfers, and the sinks of arriving bytes. State, no decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

from ringcast.errors import PeerFailed, Where
from ringcast.transports.base import Frame
from ringcast.wire.call import NOWHERE, Call, Site
from ringcast.wire.header import call_of
from ringcast.wire.reports import CallRecord

SEGMENT = 512 << 10  # bytes of a DATA message at most
WINDOW = 4 * SEGMENT  # bytes of a transfer that may be under way


class Sink(Protocol):
    """Destination of an arriving message. Offsets count bytes from the start of the message."""

    total: int | None  # bytes expected; None: any number, in a point-to-point message, which `announce` gives

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Take the sender, the tag and the sizes of the frames, where `total` is None; called before any byte."""

    def view(self, offset: int, length: int) -> memoryview:
        """Return writable memory for the bytes from `offset` on: `length` of them, fewer at the end of a piece."""

    def placed(self, offset: int, length: int) -> None:
        """Take note that the bytes [offset, offset + length) are in the memory that `view` gave."""

    def put(self, offset: int, data: memoryview) -> None:
        """Take bytes that are in memory already, in place of `view` and `placed`: most by `put_into_views`."""


def put_into_views(sink: Sink, offset: int, data: memoryview) -> None:
    """Copy bytes into the views that a sink gives for them."""
    while size := len(data):
        view = sink.view(offset, size)[:size]
        n = len(view)
        view[:] = data[:n]
        sink.placed(offset, n)
        offset += n
        data = data[n:]


NOBODY: frozenset[int] = frozenset()


class Send:
    """An outgoing message that is not complete."""

    __slots__ = (
        "credit",
        "cursor",
        "frames",
        "lent",
        "offset",
        "operation",
        "ordinal",
        "packed",
        "peer",
        "room",
        "total",
        "trailing",
        "transfer",
    )

    def __init__(self, operation: Operation, peer: int, ordinal: int, frames: Sequence[memoryview], total: int) -> None:
        self.operation, self.peer, self.ordinal, self.frames, self.total = operation, peer, ordinal, frames, total
        self.transfer = 0
        self.credit = self.offset = 0
        self.cursor = (0, 0)  # (frame, byte in it) that comes next
        self.packed = False
        self.lent = False  # the receiver may copy it out of this rank's memory
        self.room = 0  # bytes that its request takes of the budget at the peer
        self.trailing = False  # no call waits for its completion

    def take(self, size: int) -> list[Frame]:
        """Take the next `size` bytes (or what is left) off the message, in frames cut at aligned places."""
        index, start = self.cursor
        align = self.operation.align
        frames: list[Frame] = []
        while size > 0 and index < len(self.frames):
            frame = self.frames[index]
            length = len(frame) - start
            if length > size:
                length = size // align * align
                if length == 0:
                    break
            frames.append(frame[start : start + length])
            size -= length
            start += length
            if start == len(frame):
                index, start = index + 1, 0
        self.cursor = index, start
        return frames


class Receive:
    """A posted receive that is not complete."""

    __slots__ = ("granted", "operation", "ordinal", "peer", "received", "room", "sink", "sources", "total", "transfer")

    def __init__(self, operation: Operation, peer: int, ordinal: int, sink: Sink) -> None:
        self.operation, self.peer, self.ordinal, self.sink = operation, peer, ordinal, sink
        self.sources: frozenset[int] = NOBODY  # while `peer` is ANY: one of these ranks has to send
        self.total = sink.total
        self.transfer = 0
        self.granted = self.received = 0
        self.room = 0  # bytes that its grant takes of the budget at the peer, where that has not asked for it


Transfer: TypeAlias = "Send | Receive"


def on_wire(ordinal: int) -> int:
    """Return an ordinal, or a tag, as messages other than the data carry it: 0 for a tag that is left open."""
    return max(ordinal, 0)


def awaited(transfer: Transfer) -> Collection[int]:
    """Return the rank at the other end; all that may be, where a receive leaves that open."""
    return transfer.sources if isinstance(transfer, Receive) and transfer.sources else (transfer.peer,)


class Operation:
    """One stage of a collective call, or one point-to-point exchange, of this rank."""

    __slots__ = (
        "ahead",
        "align",
        "began",
        "blocks",
        "call",
        "concurrent",
        "context",
        "error",
        "fingerprint",
        "granted",
        "label",
        "lending",
        "lends",
        "lost",
        "met",
        "number",
        "on_ready",
        "pending",
        "received",
        "record",
        "round",
        "rounds",
        "sent",
        "site",
        "slack",
        "stages",
        "synchronous",
        "tally",
    )

    def __init__(self, context: int, number: int, call: Call, granted: bool, align: int, site: Site = NOWHERE) -> None:
        self.context, self.number, self.call = context, number, call
        self.site = site  # file and line of the program that made the call
        self.granted = granted  # all messages go by grants, decided once and alike on all ranks
        self.synchronous = False  # its messages are complete when they are matched, and no sooner
        self.align = align if align <= SEGMENT else 1  # segments are cut at multiples of this many bytes
        self.fingerprint = call.fingerprint
        self.label = call.collective  # its name in errors
        self.stages: dict[int, int] = {}  # of each call under way in its communicator: the last operation
        self.pending: set[Transfer] = set()
        self.concurrent = False  # its messages move at the same time: no grant is withheld
        self.slack = 0  # so many may be pending when its next round begins
        self.ahead: Receive | None = None  # of the next round, posted early; nothing waits for it yet
        self.lends = False  # it goes on while others read what it has lent, and settles that itself
        self.lending: set[Send] = set()  # messages that are read so, as nothing waits for them yet
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.met: tuple[int, int] | None = None  # source and tag of the message point-to-point that it has received
        self.record = 0  # where the flight recorder has it; 0 nowhere
        self.began = 0.0  # when the recorder has noted that
        self.blocks = True  # its caller has nothing to do until it is done
        self.tally: Any = None  # where a profiler counts it, if there is one
        self.round: int | None = None
        self.rounds: int | None = None  # of the whole schedule, once that is known
        self.error: BaseException | None = None
        self.lost: PeerFailed | None = None  # raised when the rest of an exchange is over: one of its peers is gone
        self.on_ready: Callable[[], object] | None = None  # called once, when at most `slack` is pending, or it failed

    @property
    def segment(self) -> int:
        """Bytes of a segment of its messages at most."""
        return SEGMENT // self.align * self.align

    @property
    def window(self) -> int:
        """Bytes of a transfer that may be under way."""
        return max(WINDOW, 2 * self.segment)

    @property
    def where(self) -> Where:
        return Where(self.label, call_of(self.number) or None, self.round)

    @property
    def place(self) -> str:
        """The call's place in the program, as "file.py:12"; empty where that is not known."""
        file, line = self.site
        return _plain(f"{os.path.basename(file)}:{line}") if file else ""

    @property
    def call_record(self) -> CallRecord:
        """The call, as reports to other ranks describe it."""
        text = str(self.call) if self.number else self.label
        return CallRecord(self.context, self.number, self.fingerprint, _plain(text), self.place)

    @property
    def progress(self) -> float | None:
        """Share of the rounds that are over; None before there is a schedule."""
        if self.rounds is None:
            return None
        return (self.round or 0) / self.rounds if self.rounds else 1.0

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """Ranks whose messages, grants or completions are missing."""
        return tuple(sorted(set().union(*(awaited(t) for t in self.pending))))

    def complete(self, transfer: Transfer) -> None:
        """Remove a transfer that is complete from the pending ones."""
        if self.ahead is transfer:
            self.ahead = None
        if self.lending:
            self.lending.discard(transfer)
        self.pending.discard(transfer)
        if len(self.pending) <= self.slack and (ready := self.on_ready) is not None:
            self.on_ready = None
            ready()

    def close(self) -> None:
        """End the call whose last stage this was: nothing more may arrive for it."""
        self.stages.pop(call_of(self.number), None)

    def fail(self, error: BaseException) -> None:
        """End with an error, unless one has ended it before."""
        if self.error is None:
            self.error = error
        if (ready := self.on_ready) is not None:
            self.on_ready = None
            ready()


def _plain(text: str) -> str:
    """Return `text` in a form that can always be sent: bounded, without lone surrogates, as file names may have."""
    return text[:300].encode("utf-8", "replace").decode()
