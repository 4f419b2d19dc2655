"""The public face of a Communicator, which is put together from several classes."""

from __future__ import annotations

import inspect
from typing import Any

from ringcast.communicator import Communicator
from ringcast.communicator.nonblocking import NonblockingCalls
from ringcast.communicator.persistent import PersistentCalls
from ringcast.topology.graph import Topology

NONBLOCKING = {name for name in vars(NonblockingCalls) if not name.startswith("_")}
PERSISTENT = {name for name in vars(PersistentCalls) if not name.startswith("_")}
PUBLIC: dict[str, Any] = {
    name: value
    for name, value in inspect.getmembers_static(Communicator)
    if not name.startswith("_") and name not in NONBLOCKING | PERSISTENT
}
BETWEEN_NEIGHBORS = {name for name in dir(Topology) if "neighbor_" in name}
METHODS = {name for name, value in PUBLIC.items() if callable(value)} - {"progress_thread"}  # which is no call
