"""The nonblocking collectives between neighbours."""

from ringcast.requests.forms import NONBLOCKING, calls_of, derived
from ringcast.topology.neighbor_calls import Comm, NeighborCalls


@derived(NONBLOCKING, *calls_of(NeighborCalls))
class NonblockingNeighborCalls(NeighborCalls[Comm]):
    """The i-forms of the calls; see `Request`."""
