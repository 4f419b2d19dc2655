"""The persistent calls: each checks the arguments once, and returns a call to be started again and again."""

from ringcast.communicator.nonblocking import CALLS
from ringcast.requests.calls import Calls
from ringcast.requests.forms import PERSISTENT, derived


@derived(PERSISTENT, *CALLS)
class PersistentCalls(Calls):
    """The `_init` forms of the calls, which are started later.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Persistent`. Its
    `start` begins the call with the present values of the arrays, its `wait` returns the result of the call.
    """
