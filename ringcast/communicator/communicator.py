"""The Communicator: all calls of a program on one group of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ringcast.collectives.stage import Choice
from ringcast.communicator.distribution import Distribution
from ringcast.communicator.exchange import Exchange
from ringcast.communicator.files import Files
from ringcast.communicator.groups import Groups
from ringcast.communicator.lifetime import Lifetime
from ringcast.communicator.messages import Messages
from ringcast.communicator.mpi_names import own_name
from ringcast.communicator.nonblocking import NonblockingCalls
from ringcast.communicator.persistent import PersistentCalls
from ringcast.communicator.recovery import Recovery
from ringcast.communicator.reduction import Reduction
from ringcast.communicator.shared_arrays import SharedArrays
from ringcast.ops import SUM, as_op
from ringcast.requests.types import Operator

if TYPE_CHECKING:
    from ringcast.collectives.explain import Explanation


class Communicator(
    Distribution,
    Exchange,
    Reduction,
    Messages,
    NonblockingCalls,
    PersistentCalls,
    Files,
    SharedArrays,
    Groups,
    Recovery,
    Lifetime,
):
    """A group of ranks that call collectives together: every rank the same calls in the same order.

    `ringcast.init` returns the communicator of the whole job, `split` and `create` one of a part, `dup` another one of
    the same ranks, `shrink` one of the ranks that live. As a context manager it calls `finalize` at the end. A
    collective blocks until this rank's part is done; its form with an i, as `iallreduce`, returns a `Request` at once;
    its form with an `_init`, as `allreduce_init`, a `Persistent` call, which is started later, any number of times.

    >>> with ringcast.init() as comm:
    ...     print(comm, comm.allreduce(np.arange(3)))
    <Communicator: rank 0 of 1> [0 1 2]

    Values are numpy arrays or numpy scalars, of any shape and any dtype without Python objects, which travel as raw
    buffers; or any other picklable objects (lists and arrays of objects among them), which travel as pickles. All ranks
    pass the same kind of value, and arrays of the same dtype. Inputs stay as they are, unless they are `out` as well.
    Results are new C-contiguous arrays, or objects, which belong to the caller.

    In the costs p is the number of ranks and q = ceil(log2 p); m is the number of bytes of the whole buffer, with the
    parts of all ranks; n is the number of blocks. Rounds and volumes hold in the one-ported model, in which a rank
    sends and receives at most one message in a round. The cost model takes the fastest algorithm for the network; the
    methods name the usual ones, `explain` all of them.

    Attributes:
        timeout: seconds that a call without a `timeout` of its own may take; None means no limit.

    Arguments that mean the same in all methods:
        root: the rank that has or gets everything, 0 <= root < size; equal on all ranks.
        op: an `Op`, or any associative function of two values; np.add, np.maximum and the like, and Python's sum, min
            and max, mean SUM, MAX and so on. Equal on all ranks.
        out: a writeable C-contiguous array of the shape and dtype of the result, which is put there and returned; for
            arrays only. None: a new array.
        algorithm: a name from `explain`, instead of the automatic choice; equal on all ranks (bcast: the root's
            counts).
        nblocks: number of blocks n, 1 or more, for algorithms that cut the data; otherwise as `algorithm`.
        timeout: seconds, above 0, before `CollectiveTimeout`; None: the `timeout` of the communicator.

    Raises:
        ArgumentError: an argument cannot work. Raised before anything is sent, unless a method says otherwise.
        UsageError: the caller is a forked child, or, without `progress_thread`, another thread than the one that made
            the communicator; the call comes after `finalize`, or a call under way uses its arrays.
        ObjectsRefused: a Python object, where the job takes only arrays (RINGCAST_NO_PICKLE=1).
        CollectiveMismatch: other ranks make another call, or pass another dtype, shape, root, op or count.
        CollectiveTimeout: the call took longer than `timeout`; or it can never end, as ranks wait for each other.
        PeerFailed: a rank that this call needs raised, died, is hung, or has left.
        Revoked: this communicator was given up, by `revoke` or by an error on any rank.
        JobAborted: the launcher, or the control plane, ends the job.
        ValueError, TypeError: an operator returned an array of another shape, or of a dtype that does not fit. Whatever
            else an operator raises passes through.

    After an error other than `UsageError`, or an `ArgumentError` before anything was sent, the communicator is revoked
    on all ranks; `agree` and `shrink` still work.
    """

    def __repr__(self) -> str:
        return f"<Communicator: rank {self.rank} of {self.size}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Communicator cannot be pickled: it belongs to its process; a task of a Pool gets one of its own"
        )

    if not TYPE_CHECKING:  # a type checker would take every name for one that exists

        def __getattr__(self, name: str) -> Any:
            """Refuse a name that does not exist; for a method of MPI, name ringcast's own."""
            text, own = f"a communicator has no attribute {name!r}", own_name(name)
            if own.removeprefix("i").startswith("neighbor_"):
                text += f"; ringcast has comm.graph(...).{own} and comm.cart(...).{own}"
            elif own != name and hasattr(Communicator, own):
                text += f"; ringcast calls it comm.{own}"
            raise AttributeError(text, name=name, obj=self)

    def explain(
        self,
        collective: str,
        value: Any = None,
        *,
        nbytes: int | None = None,
        counts: Sequence[int] | None = None,
        dtype: Any = "float64",
        op: Operator = SUM,
        root: int = 0,
        distance: int = 1,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Explanation:
        """Return an explanation of a call of `collective`; printed, it is a table of algorithms with predicted times.

        Not collective: any rank may ask, and nothing is communicated.

        Args:
            collective: name of the method.
            value: the value of the call (scatter: the root's); gives size and dtype, as do `nbytes` or `counts`.
            nbytes: m, the whole buffer with all parts (bcast, reduce, allreduce, reduce_scatter, scan, exscan,
                alltoall, alltoallv, shift: the data of one rank).
            counts: as in the call; without a value, the items of each rank.
            dtype: with `nbytes` or `counts`: anything that `np.dtype` takes, without Python objects.
            distance: as in `shift`.

        Returns:
            An Explanation: `chosen`, `options`, the `excluded` algorithms with the reason, and `remarks`.

        Raises:
            ArgumentError: there is no such collective, no algorithm of that name, or not exactly one size.

        >>> comm.explain("bcast", nbytes=1000).collective
        'bcast'
        """
        from ringcast.collectives.explain import Size, explain  # only people ask

        size = Size(value, nbytes, counts, dtype)
        return explain(self._group, collective, size, as_op(op), root, distance, Choice(algorithm, nblocks))
