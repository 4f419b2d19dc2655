"""Going on after a failure: the calls of the fault-tolerance chapter (ULFM)."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ringcast.collectives import recovery
from ringcast.collectives.stage import Group as CoreGroup
from ringcast.engine.execute import Steps
from ringcast.mpi.base.contexts import Shared, shared, two_sided
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.requests.calls import run
from ringcast.mpi.requests.request import Request
from ringcast.wire.call import Site, site_of


class Recovery(CommHandle):
    """Calls that work on a communicator that was given up, and give it up."""

    _become: Any

    @property
    def _everyone(self) -> CoreGroup:
        """All ranks, of both sides."""
        return self._peers.group

    def Revoke(self) -> None:
        """Give up the communicator: all its calls raise ERR_REVOKED, on all ranks."""
        for group in (*self._shared.groups(), self._shared.inner):
            recovery.revoke(group)

    def Is_revoked(self) -> bool:
        """Return whether the communicator was given up, by `Revoke` or by an error."""
        return recovery.revoked(self._everyone)

    def Get_failed(self) -> Group:
        """Return the group of the ranks that failed or left the job."""
        everyone = self._everyone
        return Group._of(map(everyone.in_job, recovery.failed(everyone)), everyone.endpoint.rank)

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        """Acknowledge the ranks that failed, all or so many of them; return how many are acknowledged."""
        return recovery.acknowledge(self._everyone, num_to_ack)

    def Agree(self, flag: int) -> int:
        """Return the bitwise and of the flags of all ranks that live."""
        site = site_of(sys._getframe(1))
        return int(run(self, "Agree", self._agreed(flag, site), site))

    def Iagree(self, flag: Any) -> Request:
        """Begin `Agree`; the flag, an int in memory, becomes the result."""
        number, site = _number(flag), site_of(sys._getframe(1))
        return Request.begun(self, "Iagree", self._iagree(number, site), site)

    def _iagree(self, number: Any, site: Site) -> Steps[None]:
        number[0] = yield from self._agreed(int(number[0]), site)

    def _agreed(self, flag: int, site: Site) -> Steps[int]:
        try:
            return (yield from recovery.agreed(self._everyone, flag, site))
        finally:
            self._everyone.vote = None

    def Shrink(self) -> Any:
        """Return a communicator of the ranks that live, in their order."""
        new, site = self._new(), site_of(sys._getframe(1))
        run(self, "Shrink", self._become(new, self._shrink(site)), site)
        return new

    def Ishrink(self) -> tuple[Any, Request]:
        """Begin `Shrink`; the communicator can be used when the request is done."""
        new, site = self._new(), site_of(sys._getframe(1))
        return new, Request.begun(self, "Ishrink", self._become(new, self._shrink(site)), site)

    def _new(self) -> Any:
        """Return a null communicator of this class, or, as ranks may lack, of one without a topology."""
        return type(self)() if self._shared.topology is None else self._plain(None)

    def _shrink(self, site: Site) -> Steps[Shared]:
        everyone = self._everyone
        try:
            group = yield from recovery.shrunk(everyone, site)
        finally:
            everyone.vote = None
        if self._shared.remote is None:
            return shared(group, self._shared)
        low = {everyone.in_job(rank) for rank in range(self._peers.boundary)}
        return two_sided(group, sum(group.in_job(rank) in low for rank in range(group.size)), self._shared)


def _number(flag: Any) -> Any:
    """Return the int in a buffer.

    Raises:
        TypeError: it is no buffer.
        ValueError: it is not one int.
    """
    view = memoryview(flag)
    if view.nbytes != np.dtype(np.intc).itemsize or view.readonly:
        raise ValueError(f"expected memory for one int, got {view.nbytes} bytes")
    return np.frombuffer(view.cast("B"), np.intc)
