"""LightGBM's distributed training over a communicator, in place of LightGBM's own network of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int
from typing import Any

from ringcast.boosting import leaving
from ringcast.boosting.functions import Functions
from ringcast.boosting.library import in_thread, load
from ringcast.communicator import Communicator

__all__ = ["network"]


@contextmanager
def network(comm: Communicator) -> Iterator[dict[str, Any]]:
    """Let LightGBM train over a communicator as long as the context lasts, in this thread.

    Collective: all ranks enter the context, make the same calls of LightGBM there, and leave it. Data sets and boosters
    are made in it. Each rank has rows of its own, and all ranks have the same columns. All ranks get the same model,
    bit for bit the one of LightGBM's own network.

    Cost: once, the one of `dup`, `free` and two of `allgather`. In training an exchange and an `allgather` for each
    split: of m bytes of a histogram each rank sends m(p-1)/p, and where ranks share no memory only those of bins that
    are not empty.

    Args:
        comm: its `timeout` holds for each call.

    Yields:
        Parameters for LightGBM, beside the program's own: `num_machines`, and `tree_learner`, which is "data"
        and may be replaced by "voting" or "feature".

    Raises:
        UsageError: on all ranks: one lacks LightGBM, it is too old, or is not the same version everywhere; a thread has
            a network of LightGBM's already. On one rank: a booster in the context lacks the parameters.
        PeerFailed, CollectiveMismatch, CollectiveTimeout, Revoked, JobAborted: a call over the communicator has failed.
            Raised at the end of the context: LightGBM ends its call with an error of its own when it needs its network
            for the next time.

    >>> with ringcast.lightgbm.network(comm) as parameters: print(parameters)
    {'num_machines': 1, 'tree_learner': 'data'}
    """
    library = leaving.loaded(comm, "LightGBM", load)
    own = comm.dup()
    functions = Functions(own, library.LGBM_NetworkFree.function)
    try:
        library.LGBM_NetworkInitWithFunctions(
            c_int(own.size), c_int(own.rank), functions.reduce_scatter, functions.allgather
        )
        in_thread.size = own.size
        yield {"num_machines": own.size, "tree_learner": "data"}
        if functions.error is not None:
            raise functions.error
    except BaseException as error:
        leaving.give_up(own, "LightGBM's network", functions.error or error)
        if functions.error is None or functions.error is error:
            raise
        raise functions.error from None  # LightGBM's own error says only that it has no network any more
    finally:
        in_thread.size = None
        library.LGBM_NetworkFree.function()
    own.free()
