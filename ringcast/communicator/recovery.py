"""Recovery of ranks after a failure: revoke, agree, shrink."""

from __future__ import annotations

import sys
from typing import Self

from ringcast import collectives
from ringcast.errors import FAILURES
from ringcast.requests.calls import Calls
from ringcast.wire.call import site_of


class Recovery(Calls):
    """Calls that work on a communicator that was given up, and give it up."""

    @property
    def is_revoked(self) -> bool:
        """Whether this communicator was given up, by `revoke` or by an error, as far as this rank has heard.

        >>> comm.is_revoked
        False
        """
        self._check("is_revoked")
        return collectives.recovery.revoked(self._group)

    def revoke(self) -> None:
        """Give up this communicator: calls on it raise Revoked on all ranks.

        A call under way may end first if all its messages have arrived, as may one that begins before its rank has
        heard of this. Not collective: one rank is enough. `agree` and `shrink` still work.

        Cost: one message to each rank that this one has a connection to, and one to the control plane, which informs
        all ranks.

        >>> comm.revoke()
        >>> comm.is_revoked
        True
        """
        self._check("revoke")
        collectives.recovery.revoke(self._group)

    def get_failed(self) -> tuple[int, ...]:
        """Return the ranks that failed, or left the job, as far as this rank has heard.

        Not collective; nothing is sent.

        Returns:
            Ranks of this communicator, in order.

        >>> comm.get_failed()
        ()
        """
        self._check("get_failed")
        return collectives.recovery.failed(self._group)

    def ack_failed(self) -> int:
        """Acknowledge the ranks that `get_failed` returns: this rank goes on without them.

        `agree` does not raise `PeerFailed` for them. A `PeerFailed` of one of them that was caught counts as answered:
        it does not make the job fail. `recv` from any source and `probe` do not raise for them any more. A communicator
        that was given up stays so.

        Not collective; nothing is sent.

        Returns:
            How many ranks are acknowledged.

        >>> comm.ack_failed()
        0
        """
        self._check("ack_failed")
        return collectives.recovery.acknowledge(self._group)

    def agree(self, flag: int = 1, *, timeout: float | None = None) -> int:
        """Return the bitwise and of the flags of all ranks that live: the same on all of them.

        Collective among the ranks that live; also on a revoked communicator. A call that was interrupted, as by a
        signal, is taken up by the next one.

        Cost: one message to the control plane and one back.

        Args:
            flag: a whole number of 64 bits, -2**63 to 2**63-1.

        Returns:
            The bitwise and, of 64 bits.

        Raises:
            PeerFailed: ranks failed, or left, that not all had acknowledged; on all ranks alike. Its `flag` is the
                result.
            CollectiveMismatch: other ranks call `shrink`.
            UsageError: another `agree` or `shrink` of this communicator is under way on this rank.

        >>> comm.agree(6)
        6
        """
        timeout, site = self._check("agree", timeout), self._place or site_of(sys._getframe().f_back)
        try:
            return collectives.recovery.vote(
                self._group, lambda: collectives.recovery.agree(self._group, flag, timeout, site)
            )
        except FAILURES as error:
            self._raised(error, "agree", site)
            raise

    def shrink(self, *, timeout: float | None = None) -> Self:
        """Return a communicator of the ranks that live, in their old order, numbered from 0.

        Collective among the ranks that live; also on a revoked communicator. A call that was interrupted, as by a
        signal, is taken up by the next one.

        Cost: one message to the control plane and one back.

        Returns:
            A Communicator with the same `members` on all of them. Its errors name ranks of the job, as `members` does;
            its `finalize` frees it and leaves the job as it is.

        Raises:
            CollectiveMismatch: other ranks call `agree`.
            UsageError: another `agree` or `shrink` of this communicator is under way on this rank.

        >>> comm.shrink().members
        (0,)
        """
        timeout, site = self._check("shrink", timeout), self._place or site_of(sys._getframe().f_back)
        try:
            return collectives.recovery.vote(
                self._group, lambda: self._of(collectives.recovery.shrink(self._group, timeout, site))
            )
        except FAILURES as error:
            self._raised(error, "shrink", site)
            raise
