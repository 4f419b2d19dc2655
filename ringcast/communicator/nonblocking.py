"""The nonblocking calls: each begins the call, and returns a request for its result."""

from typing import Any

from ringcast.communicator.distribution import Distribution
from ringcast.communicator.exchange import Exchange
from ringcast.communicator.messages import Messages
from ringcast.communicator.reduction import Reduction
from ringcast.requests.calls import Calls
from ringcast.requests.forms import NONBLOCKING, calls_of, derived

CALLS: tuple[Any, ...] = *calls_of(Distribution, Exchange, Reduction), Messages.send, Messages.recv


@derived(NONBLOCKING, *CALLS)
class NonblockingCalls(Calls):
    """The i-forms of the calls: `iallreduce` begins an `allreduce`, and so on.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Request`, whose
    `wait` returns the result of the call. All ranks make the same collectives in the same order; a blocking one is
    matched by its i-form. Any number of calls may be under way.
    """
