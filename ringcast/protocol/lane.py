"""Send and receive eager messages of a collective whose headers are known in advance, but for number and credit.

The bytes are those of `outbox` and `machine`, and so is each change of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringcast.protocol.eager_credits import EagerCredits, cost
from ringcast.protocol.ledger import Ledger
from ringcast.protocol.operations import Operation
from ringcast.protocol.outbox import Outbox
from ringcast.transports.base import Lanes
from ringcast.wire.header import EAGER, PAIR, SIZE, VERSION, pack_fields, unpack_fields


class Lane:
    """The messages of one rank to and from all others."""

    def __init__(
        self, rank: int, nonce: int, ledger: Ledger, outbox: Outbox, eager_credits: EagerCredits, lanes: Lanes
    ) -> None:
        self._rank, self._nonce, self._ledger, self._lanes = rank, nonce, ledger, lanes
        self._outbox, self._eager_credits = outbox, eager_credits

    def put(self, op: Operation, peer: int, frames: Sequence[memoryview]) -> bool:
        """Send a message of at most one frame; False, and nothing has changed, if it cannot go eagerly now."""
        ledger, eager_credits = self._ledger, self._eager_credits
        total = len(frames[0]) if frames else 0
        if total > op.eager or not eager_credits.spend(peer, total, 0):
            return False
        ordinal, sent = op.sent.get(peer, 0), ledger.sent[peer]
        header = pack_fields(
            VERSION,
            EAGER,
            0,
            self._rank,
            self._nonce,
            op.context,
            op.number,
            ordinal,
            sent & PAIR,
            0 if total else len(frames),
            total,
            ledger.owed[peer],
            op.fingerprint,
        )
        if not self._lanes.put(peer, b"".join((header, *frames))):
            ledger.spent[peer] -= cost(total, 0)
            return False
        op.sent[peer] = ordinal + 1
        ledger.owed[peer] = 0
        ledger.sent[peer] = sent + 1
        ledger.posted[peer] += 1
        self._outbox.payload[0] += total
        return True

    def take(self, op: Operation, peer: int, total: int | None, patience: float) -> bytes | None:
        """Receive the next message of `peer`, of `total` bytes if that is known, waiting for `patience` seconds.

        None, and nothing has changed, if none has come, or another one, or if anything else needs the engine.
        """
        frame = self._lanes.head(peer, patience)
        if frame is None or len(frame) < SIZE:
            return None
        ledger, eager_credits = self._ledger, self._eager_credits
        ordinal, seen = op.received.get(peer, 0), ledger.seen[peer]
        *name, pair, joined, length, credit, fingerprint = unpack_fields(frame)
        if (
            name != [VERSION, EAGER, 0, peer, self._nonce, op.context, op.number, ordinal]
            or pair != seen & PAIR
            or joined > (not length)
            or length != (len(frame) - SIZE if total is None else total)
            or len(frame) != SIZE + length
            or fingerprint != op.fingerprint
            or not eager_credits.matched_at_once(peer, length)
        ):
            return None
        data = bytes(frame[SIZE:])
        self._lanes.release(peer)
        op.received[peer] = ordinal + 1
        ledger.seen[peer] = seen + 1
        ledger.matched[peer] += 1
        if credit:
            eager_credits.take_back(peer, credit)
        return data
