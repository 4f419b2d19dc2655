"""The lifetime of a communicator: it belongs to a thread, and ends by free, finalize, or as a context manager."""

from __future__ import annotations

import os
import sys
from typing import Self

from ringcast import collectives
from ringcast.collectives.stage import Group
from ringcast.engine.signal_gate import gate_of_this_thread
from ringcast.errors import UsageError
from ringcast.requests.calls import Calls


class Lifetime(Calls):
    """Beginning and end of a communicator, and of the rank's part in the job."""

    def __init__(self, group: Group | None = None, timeout: float | None = None) -> None:
        if not isinstance(group, Group):
            raise UsageError("communicators are not made by Communicator(); call ringcast.init(), which returns one")
        super().__init__(group, timeout)
        endpoint = group.endpoint
        endpoint.gate = endpoint.gate.replaced_by(gate_of_this_thread())

    @property
    def closed(self) -> bool:
        """Whether this rank has left the job, or `finalize` has freed this communicator.

        >>> comm.closed
        False
        """
        return self._closed or self._group.endpoint.closed

    def free(self, *, timeout: float | None = None) -> None:
        """Free a communicator that was made from another one, when all its ranks have come to this; idempotent.

        Cost: as `barrier`.

        Raises:
            UsageError: also for the communicator that `init` has returned, which `finalize` leaves; or a request of
                this communicator was not waited for: it then stays in use.

        >>> part = comm.dup()
        >>> part.free()
        >>> part.closed
        True
        """
        if not self._group.derived:
            raise UsageError(
                f"rank {self._group.rank}: the communicator of the whole job cannot be freed; finalize() leaves the job"
            )
        if not self.closed:
            self._check("free", timeout)
            self._check_requests()
            self._call(collectives.split.free(self._group), timeout)
            self._leave(None, by_all=True)

    def finalize(self) -> None:
        """Leave the job and give everything back; idempotent.

        Not collective: no rank waits for another. A communicator that was made from another one is only freed; this
        rank stays in the job.

        Raises:
            CollectiveMismatch: the last call differed from the calls of other ranks, and ended here before that was
                found, as a broadcast may at its root.
            UsageError: a request was not waited for; the job has failed. A communicator that was made from another one
                stays in use instead, and the job goes on.

        >>> comm.finalize()
        >>> comm.closed
        True
        """
        self._leave(None)

    def _leave(self, error: BaseException | None, *, by_all: bool = False) -> None:
        if self._closed or os.getpid() != self._owner[0]:
            return
        if self._group.derived and error is None and not by_all:
            self._check_requests()
        with gate_of_this_thread() as gate:
            self._closed = True
            if self._group.derived:
                collectives.recovery.free(self._group, by_all=by_all)
                return
            try:
                self._group.endpoint.leave(error, self._left_behind() if error is None else None)
            finally:
                gate.restore()

    def _check_requests(self) -> None:
        """Raise UsageError if a request of this communicator was not waited for, unless some may have been lost."""
        endpoint, context = self._group.endpoint, self._group.context
        left = [(call.operation, call.site) for call in [*endpoint.requests.values()] if call.context == context]
        if left and endpoint.protocol.whole(context):
            raise self._not_waited_for(left)

    def _left_behind(self) -> UsageError | None:
        """Return the error of a program that ends well, but for requests that it has not waited for."""
        endpoint = self._group.endpoint
        left = [*endpoint.dropped, *((call.operation, call.site) for call in [*endpoint.requests.values()])]
        endpoint.requests.clear()
        ends_well = not endpoint.protocol.gave_up and not hasattr(sys, "last_value")  # set by an uncaught error
        return self._not_waited_for(left) if left and ends_well else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self._leave(error)


def expire(communicator: Lifetime) -> None:
    """Let a communicator make no calls any more; its maker retires it."""
    communicator._closed = True


def group_of(communicator: Lifetime) -> Group:
    """Return the ranks of a communicator, for communicators that are made of it without a call."""
    return communicator._group


def check_requests(communicator: Lifetime) -> None:
    """Raise UsageError if this rank has dropped a request, or not waited for one of this communicator."""
    dropped = communicator._take_dropped()
    if dropped:
        raise communicator._not_waited_for(dropped)
    if not communicator.closed:
        communicator._check_requests()
