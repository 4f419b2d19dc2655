"""Send and receive messages whose headers are known in advance, but for number and credit.

The bytes are those of `outbox` and `machine`, and so is each change of the ledger. `_lane.c` is the same, compiled: it
is used where it is installed, and where ranks share memory. It also offers larger messages where they lie, fetches the
ones that are offered, and confirms them, as `sending` and `receiving` do; without it these are left to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ringcast.protocol.compiled import Compiled
from ringcast.protocol.eager_credits import KEPT, EagerCredits, cost
from ringcast.protocol.ledger import Ledger
from ringcast.protocol.matching import ANY
from ringcast.protocol.outbox import Outbox
from ringcast.protocol.sending import MOST_OFFERED
from ringcast.transports.base import Frame, Lanes
from ringcast.wire.header import DONE, EAGER, OFFER, P2P, PAIR, RTS, SIZE, VERSION, pack_fields, unpack_fields
from ringcast.wire.joined import prefix, split

ANY_SIZE = -1  # in place of a number of bytes


Pieces: TypeAlias = "tuple[tuple[int, int], ...]"  # place and size of pieces of memory, in bytes
Call: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]"  # a function and its arguments


class Move(NamedTuple):
    """One step of a program: calls to make before it, a message out, one in, and calls to make after it.

    Messages are eager, or are offered and fetched. A step that `settles` begins when all offers before it are
    confirmed, as it writes into memory that is lent.
    """

    before: tuple[Call, ...]
    send_to: int  # -1: nothing is sent
    send_ordinal: int
    send: Pieces  # (): the message has no frame
    recv_from: int  # -1: nothing is received
    recv_ordinal: int
    recv: Pieces
    after: tuple[Call, ...]
    offers: bool = False
    fetches: bool = False
    settles: bool = False
    joined: int = 0  # number of frames that the pieces to send hold behind a first piece with their sizes; 0: one frame


class Lane(Protocol):
    """The predicted messages of one rank to and from all others."""

    def put(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        fingerprint: int,
        payload: Frame | None,
        joined: int = 0,
        /,
    ) -> bool:
        """Send a message of one frame or of none, or of so many that are `joined`, behind their sizes, in the payload.

        Returns False, and nothing has changed, if it cannot go eagerly now.
        """

    def take(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, total: int, patience: float, /
    ) -> bytes | None:
        """Receive the next message of `peer`, of `total` bytes or of ANY_SIZE, waiting for `patience` seconds at most.

        One of ANY_SIZE has one frame at most; others may have several, which are returned as one.
        None, and nothing has changed, if none has come, or another one, or if anything else needs the engine.
        """

    def look(
        self, peer: int, context: int, tag: int, fingerprint: int, joined: int, patience: float, /
    ) -> bytes | None:
        """Return the next message of `peer`, header and payload, which stays the next one until `accept` or `fetch`.

        It is point-to-point, with this tag, or with any if that is ANY, and has so many `joined` frames; 0: one, or
        none. Of an offer (an RTS) it returns the header, the sizes of the frames, and all frames but the last. None as
        for `take`.
        """

    def accept(self, peer: int, /) -> None:
        """Receive the message of `peer` that the last `look` has returned, which is no offer."""

    def offer(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, frames: Sequence[Frame], /
    ) -> bool:
        """Offer a message where it lies; its frames stay there until `settle`, or as the engine says.

        Returns False, and nothing has changed, if it cannot be offered now.
        """

    def fetch(self, peer: int, memory: Any, /) -> bool:
        """Copy the last frame of the offer of `peer` that the last `look` has returned, and receive the message.

        Returns False, and nothing has changed but the memory, which has the size of the frame, if it cannot be read.
        """

    def settle(self, context: int, number: int, fingerprint: int, patience: float, /) -> bool:
        """Wait until what was offered is confirmed, each time `patience` seconds at most; return whether it is."""

    def prepare(self, moves: Sequence[Move], memory: Any, split: int = 0, /) -> Any:
        """Return a program that `run` takes, with messages from and to this memory.

        Places before `split` are those of data that `run` gets; the memory begins there. Only a lane that offers
        messages takes such programs.
        """

    def run(
        self,
        program: Any,
        context: int,
        number: int,
        fingerprint: int,
        patience: float,
        data: Any = None,
        calls: Sequence[tuple[Call, ...]] | None = None,
        passed: int = -1,
        /,
    ) -> int:
        """Run a program as far as messages come as predicted; each wait takes `patience` seconds at most.

        With `data`, `calls` are the ones before and after each move, in this order, in place of its own; None: its own.
        A program that offers nothing goes on where it ended with the result `passed`; -1: it begins.

        Returns 2 i + s: the first i moves are over, and of the next one the calls before it, and with s = 1 its send;
        or -1 - i: the first i moves are over, and the next one, or the end, waits for offers to be confirmed. A program
        also ends behind a call in which offers were handed over (`offered`).

        Raises:
            BaseException: of a call; where it comes after a message, that counts as received.
        """

    def offered(self) -> Sequence[tuple[int, int]]:
        """Return the offers that are not confirmed, once: the number of the move in a program, and of the transfer."""


def open_lane(rank: int, nonce: int, ledger: Ledger, outbox: Outbox, eager_credits: EagerCredits, lanes: Lanes) -> Lane:
    """Return the lane of a rank; a compiled one where there is one, and the lanes are in shared memory."""
    if Compiled is not None and isinstance(outbox.payload, memoryview):
        marks = VERSION | EAGER << 8, VERSION | RTS << 8 | OFFER << 16, VERSION | DONE << 8
        limits = eager_credits.each, eager_credits.most_owed, MOST_OFFERED, KEPT
        compiled = Compiled(rank, len(ledger.sent), nonce, marks, limits, *ledger.words(), outbox.payload)
        if lanes.attach(compiled):
            return compiled
    return PythonLane(rank, nonce, ledger, outbox, eager_credits, lanes)


class PythonLane:
    """The lane on any transport that has lanes."""

    def __init__(
        self, rank: int, nonce: int, ledger: Ledger, outbox: Outbox, eager_credits: EagerCredits, lanes: Lanes
    ) -> None:
        self._rank, self._nonce, self._ledger, self._lanes = rank, nonce, ledger, lanes
        self._outbox, self._eager_credits = outbox, eager_credits
        self._found = (0, 0, 0)  # of the message that was found last: bytes of data, cost, the credit that it returns

    def put(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        fingerprint: int,
        payload: Frame | None,
        joined: int = 0,
        /,
    ) -> bool:
        ledger, total = self._ledger, 0 if payload is None else len(payload) - prefix(joined)
        if not self._eager_credits.spend(peer, total, joined):
            return False
        sent, frames = ledger.sent[peer], joined or (0 if total or payload is None else 1)
        name = VERSION, EAGER, 0, self._rank, self._nonce, context, number, ordinal
        header = pack_fields(*name, sent & PAIR, frames, total, ledger.owed[peer], fingerprint)
        if not self._lanes.put(peer, b"".join((header, payload)) if payload is not None else header):
            ledger.spent[peer] -= cost(total, joined)
            return False
        ledger.owed[peer] = 0
        ledger.sent[peer] = sent + 1
        ledger.posted[peer] += 1
        self._outbox.count(peer, total)
        return True

    def take(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, total: int, patience: float, /
    ) -> bytes | None:
        found = self._next(peer, context, number, ordinal, fingerprint, patience)
        if found is None:
            return None
        _, data, joined = found
        if total != len(data) if joined > 1 else total not in (len(data), ANY_SIZE):
            return None
        self.accept(peer)
        return data

    def look(
        self, peer: int, context: int, tag: int, fingerprint: int, joined: int, patience: float, /
    ) -> bytes | None:
        found = self._next(peer, context, P2P, tag, fingerprint, patience)
        if found is None or (found[2] != joined if joined else found[2] > 1):
            return None
        return bytes(found[0])

    def accept(self, peer: int, /) -> None:
        ledger, (length, size, credit) = self._ledger, self._found
        self._lanes.release(peer)
        ledger.owed[peer] += size
        ledger.seen[peer] += 1
        ledger.matched[peer] += 1
        self._outbox.count_received(peer, length)
        if credit:
            self._eager_credits.take_back(peer, credit)

    def offer(self, *_: object) -> bool:
        return False

    def fetch(self, *_: object) -> bool:
        return False

    def settle(self, *_: object) -> bool:
        return True

    def _next(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, patience: float
    ) -> tuple[memoryview, bytes, int] | None:
        """Return the next message of `peer`, with the bytes of its frames, and how many are joined; it stays there.

        None if it is not the predicted one, or may not be matched now.
        """
        frame = self._lanes.head(peer, patience)
        if frame is None or len(frame) < SIZE:
            return None
        *name, theirs, pair, joined, length, credit, digest = unpack_fields(frame)
        size = cost(length, joined)
        if (
            name != [VERSION, EAGER, 0, peer, self._nonce, context, number]
            or ordinal not in (theirs, ANY)
            or (pair, digest) != (self._ledger.seen[peer] & PAIR, fingerprint)
            or (data := _data(frame[SIZE:], joined, length)) is None
            or not self._eager_credits.may_match(peer, size)
        ):
            return None
        self._found = length, size, credit
        return frame, data, joined

    def prepare(self, moves: Sequence[Move], memory: Any, split: int = 0, /) -> Any:
        assert not split, "no messages are offered, so the data are small"
        return moves, memoryview(memory)

    def run(
        self,
        program: Any,
        context: int,
        number: int,
        fingerprint: int,
        patience: float,
        data: Any = None,
        calls: Sequence[tuple[Call, ...]] | None = None,  # noqa: ARG002 (as for `prepare`)
        passed: int = -1,
        /,
    ) -> int:
        moves, memory = program
        first = max(passed, 0) >> 1
        for i, (before, to, ordinal, pieces, source, arriving, places, after, *_, joined) in enumerate(
            moves[first:], first
        ):
            if passed < 0:
                for call, arguments, named in before:
                    call(*arguments, **named)
            if to >= 0 and (passed < 0 or not passed & 1):
                payload = b"".join([memory[at : at + size] for at, size in pieces]) if pieces else None
                if not self.put(to, context, number, ordinal, fingerprint, payload, joined):
                    return 2 * i
            passed = -1
            if source >= 0:
                total = sum([size for _, size in places])
                data = self.take(source, context, number, arriving, fingerprint, total, patience)
                if data is None:
                    return 2 * i + 1
                start = 0
                for at, size in places:
                    memory[at : at + size] = data[start : start + size]
                    start += size
            for call, arguments, named in after:
                call(*arguments, **named)
        return 2 * len(moves)

    def offered(self) -> Sequence[tuple[int, int]]:
        return ()


def _data(payload: memoryview, joined: int, length: int) -> bytes | None:
    """Return the bytes of the frames of a payload; None if it is not as its header says."""
    if joined < 2:
        return bytes(payload) if len(payload) == length and joined <= (not length) else None
    try:
        frames = split(payload, joined)
    except ValueError:
        return None
    return b"".join(frames) if sum(map(len, frames)) == length else None
