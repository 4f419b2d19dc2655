"""Communicators for the parts of mpi4py that are written in Python, and send messages of their own."""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from ringcast.mpi.base.contexts import MAX_TAG, Shared
from ringcast.mpi.communicators.comm import Intracomm
from ringcast.mpi.communicators.intercomm import Intercomm

_calls: WeakKeyDictionary[Shared, count[int]] = WeakKeyDictionary()


def _commctx_intra(comm: Any) -> tuple[Intracomm, int]:
    """Return a communicator of the same ranks, and another tag for each call, which all ranks make."""
    return Intracomm._of_state(comm._shared.private), _tag(comm)


def _commctx_inter(comm: Any) -> tuple[Intercomm, int, Intracomm, bool]:
    """Return the same of an intercommunicator, a communicator of the local group, and whether that is the first one."""
    private = comm._shared.private
    local = Intracomm._of_state(Shared(private.caller))
    return Intercomm._of_state(private), _tag(comm), local, private.peers.first > 0


def _tag(comm: Any) -> int:
    return next(_calls.setdefault(comm._shared, count())) % MAX_TAG
