"""How communicators end: what is found here, or heard of others, gives them up, and those that wait for this rank hear.

These are the rules 5 to 7 in `ringcast.protocol.machine`.
"""

from __future__ import annotations

from collections.abc import Collection

from ringcast.errors import Revoked
from ringcast.protocol.communicators import Contexts
from ringcast.protocol.counters import Accounts
from ringcast.protocol.eager_credits import Budgets
from ringcast.protocol.error_factory import Verdicts, own
from ringcast.protocol.operations import Operation, Send
from ringcast.protocol.outbox import Outgoing
from ringcast.protocol.receiving import Granting
from ringcast.protocol.sending import Sending
from ringcast.transports.base import Arrival
from ringcast.wire.failure import LONGEST, Broken, Failure
from ringcast.wire.header import ANSWER, EAGER, GRANT, LOST, MISMATCH, REFUSE, Header

LONGEST_AHEAD = 10_000  # bytes that are kept of the reason for a communicator that this rank has not come to


class Endings:
    """Gives up communicators of one rank, with all that is under way in them."""

    def __init__(
        self,
        verdicts: Verdicts,
        contexts: Contexts,
        accounts: Accounts,
        budgets: Budgets,
        outgoing: Outgoing,
        sending: Sending,
        granting: Granting,
    ) -> None:
        self.found: list[tuple[int, int]] = []  # (context, rank that failed), of which the others have to hear
        self._verdicts, self._contexts, self._accounts, self._budgets = verdicts, contexts, accounts, budgets
        self._outgoing, self._sending, self._granting = outgoing, sending, granting

    # A communicator, and all that is under way in it.

    def poison(self, context: int, error: BaseException, told: set[int] | None = None) -> None:
        """Give up a communicator: its operations end with `error`, its peers are told, later calls raise.

        `told` are peers that know already.
        """
        state = self._contexts[context]
        if state.poison is not None:
            return
        state.poison = error
        told = set() if told is None else told
        for op in state.operations():
            self._kill(op, error, told)
        for header, frames in state.waiting():
            self._budgets.forget(header, frames)
            if header.kind != EAGER:
                self._pass_on(header.source, context, header.operation, header.ordinal, error, told)
        self._sending.drop_trailing(context)
        state.clear()
        self._granting.release()

    def _kill(self, op: Operation, error: BaseException, told: set[int]) -> None:
        op.error = op.error or error
        for transfer in op.pending if op.ahead is None else (*op.pending, op.ahead):
            if isinstance(transfer, Send):
                self._sending.drop(transfer)
            else:
                self._granting.drop(transfer)
            self._pass_on(transfer.peer, op.context, op.number, transfer.ordinal, error, told)

    def _pass_on(
        self, peer: int, context: int, number: int, ordinal: int, error: BaseException, told: set[int]
    ) -> None:
        """Tell a peer what has ended the communicator."""
        text, flags, word = self._verdicts.refusal(error)
        self.refuse(peer, context, number, ordinal, text, told, flags, word)

    def refuse(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        text: str,
        told: set[int],
        flags: int = 0,
        word: int = 0,
    ) -> None:
        """Tell a peer that its message meets nothing here, unless it is among those that were `told`."""
        if peer in told or peer in self._verdicts.failed or peer == self._verdicts.rank:
            return
        told.add(peer)
        payload = text.encode("utf-8", "replace")[:LONGEST]
        self._outgoing.post(REFUSE, flags, peer, context, number, ordinal, 0, len(payload), word, 0, [payload])

    # A rank that failed or left.

    def enrol(self, context: int, members: Collection[int]) -> None:
        """Come to a communicator of these ranks; if one of them has failed by now, it is given up at once."""
        self._contexts.enrol(context, members)
        gone = next((peer for peer in self._verdicts.failed if peer in members), None)
        if gone is not None:
            self.found.append((context, gone))
            self.poison(context, self._verdicts.peer_failed(gone, None))

    def lose(self, peer: int, why: Failure | str) -> None:
        """Count `peer` as failed: every communicator that it shares with this rank is given up.

        A text is what this rank has found itself: the other members of these communicators have to hear of it.
        """
        if peer in self._verdicts.failed:
            return
        self._verdicts.failed[peer] = Failure(why) if isinstance(why, str) else why
        for context, state in list(self._contexts.items()):
            if state.members is not None and peer in state.members:
                op = state.one()
                if isinstance(why, str) and state.poison is None:
                    self.found.append((context, peer))
                self.poison(context, self._verdicts.peer_failed(peer, op.where if op is not None else None))
            elif state.members is None:
                state.forget(peer)

    def broke(self, peer: int, how: Broken) -> None:
        """Give up a peer that does not keep the rules."""
        self.lose(peer, f"it broke the protocol: {how}")

    def check_left(self, peer: int) -> None:
        """Look whether some operation waits for a rank that has left."""
        for state in list(self._contexts.values()):
            for op in state.operations():
                if any(t.peer == peer for t in op.pending) and self.left(op, peer):
                    break

    def left(self, op: Operation, peer: int) -> bool:
        """Raise "finished" in `op`, which needs `peer`, if that has left and all its messages have been seen."""
        if not self._accounts.seen_all(peer):
            return False
        self.poison(op.context, self._verdicts.departed(peer, op, self._accounts.farewells[peer]))
        return True

    # A message that does not fit.

    def agree(self, op: Operation, h: Header) -> bool:
        """Whether a message belongs to the same call; otherwise both sides give up."""
        # Both ends decide from the call whether to grant, so another decision is another call.
        if h.fingerprint == op.fingerprint and (h.kind == GRANT) == op.granted:
            return True
        self.mismatch(op, h, op.call.difference(h.fingerprint))
        return False

    def mismatch(self, op: Operation, h: Header, theirs: str, told: set[int] | None = None) -> None:
        """Give up an operation's communicator, for the sender of this message makes another call: `theirs`."""
        told = set() if told is None else told
        error = self._verdicts.mismatch(op, h.source, theirs)
        self.refuse(h.source, op.context, op.number, h.ordinal, own(op), told, MISMATCH)
        self.poison(op.context, error, told)

    def unexpected(self, h: Header) -> None:
        """Give up a communicator, for a message of an operation that has ended here."""
        error = self._verdicts.unexpected(self._contexts[h.context], h)
        mine = f"{error.mine}\n{error.my_site}"
        self.refuse(h.source, h.context, h.operation, h.ordinal, mine, set(), MISMATCH)
        self.poison(h.context, error)

    def dead(self, h: Header, answer: bool = True) -> bool:
        """Whether a message is for a communicator that was given up or retired; its sender is told."""
        if h.context in self._contexts.retired:
            poison: BaseException | None = self._verdicts.freed()
        else:
            poison = self._contexts[h.context].poison
            if poison is None and self._contexts.foreign(h):
                poison = Revoked(self._verdicts.rank, f"rank {h.source} is no member of this communicator")
        if poison is None:
            return False
        self._accounts.dropped["dead"] += 1
        state = self._contexts.get(h.context)
        if answer and (state is None or (h.source, 0) not in state.told):  # once: that gives up the whole of it
            if state is not None:
                state.told.add((h.source, 0))
            self._pass_on(h.source, h.context, h.operation, h.ordinal, poison, set())
        return True

    # What others say.

    def on_refuse(self, h: Header, arrival: Arrival) -> None:
        """A peer has given up a communicator, and says why."""
        if h.context in self._contexts.retired or self._contexts.foreign(h):
            return
        state = self._contexts[h.context]
        longest = LONGEST if state.namer is None else LONGEST_AHEAD
        text = bytes(arrival.read()[:longest]).decode(errors="replace") if arrival.more else ""
        if h.flags & LOST and h.word < self._verdicts.size:
            self.hear_of(h.context, h.source, h.word, Failure.decode(text.encode()))
            return
        if not h.flags & MISMATCH:
            self.poison(h.context, Revoked(self._verdicts.rank, text, h.source))
            return
        once = h.source, MISMATCH
        told = {h.source} if h.flags & ANSWER or once in state.told else set()
        if not h.flags & ANSWER:
            state.told.add(once)
        mine = own(state.known(h.operation))
        self.refuse(h.source, h.context, h.operation, h.ordinal, mine, told, MISMATCH | ANSWER)
        theirs, _, site = text.partition("\n")
        self.explain(h.context, h.operation, h.source, theirs, site, told)

    def hear_of(self, context: int, source: int, peer: int, why: Failure) -> None:
        """Give up a communicator in which `source` has found that `peer` failed."""
        self.poison(context, self._verdicts.hearsay(source, peer, self._contexts[context].one(), why))

    def explain(self, context: int, number: int, peer: int, theirs: str, their_site: str, told: set[int]) -> None:
        """Give up a communicator in which `peer` made another call, of which all is known now; `told` know already."""
        state = self._contexts[context]
        error = self._verdicts.explained(state, number, peer, theirs, their_site)
        if state.mismatch_with(peer) is not None:  # the same, now with their whole call
            state.poison = error
        self.poison(context, error, told)
