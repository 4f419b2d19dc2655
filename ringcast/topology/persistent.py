"""The persistent collectives between neighbours: prepared once, started again and again."""

from ringcast.requests.forms import PERSISTENT, calls_of, derived
from ringcast.topology.neighbor_calls import Comm, NeighborCalls


@derived(PERSISTENT, *calls_of(NeighborCalls))
class PersistentNeighborCalls(NeighborCalls[Comm]):
    """The `_init` forms of the calls, which are started later; see `Persistent`."""
