"""The Communicator: the collective operations as a user calls them on one group of ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ringcast import collectives
from ringcast.collectives import point_to_point, recovery, split
from ringcast.collectives.cartesian import Grid, grid_of
from ringcast.collectives.explain import Explanation, Size, explain
from ringcast.collectives.point_to_point import Source, Tag
from ringcast.collectives.stage import Choice, Group
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Status
from ringcast.engine.drive import drive
from ringcast.engine.execute import Result, Steps
from ringcast.engine.signal_gate import gate_of_this_thread
from ringcast.errors import UsageError
from ringcast.ops import SUM, as_op
from ringcast.requests.calls import NonblockingCalls, Operator, site_of
from ringcast.wire.call import NOWHERE
from ringcast.wire.unanswered import FAILURES


class Communicator(NonblockingCalls):
    """A group of ranks that call collectives together: every rank the same calls in the same order.

    `ringcast.init` returns the communicator of the whole job, `split` and `create` one of a part, `dup` another one of
    the same ranks, `shrink` one of the ranks that live. As a context manager it calls `finalize` at the end. A
    collective blocks until this rank's part is done; its form with an i, as `iallreduce`, returns a `Request` at once.

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
        timeout: seconds that a call may take if it says nothing else; None means no limit.

    Arguments that mean the same in all methods:
        root: the rank that has or gets everything, 0 <= root < size; equal on all ranks.
        op: an `Op`, or any associative function of two values; Python's sum, min and max mean SUM, MIN and MAX. Equal
            on all ranks.
        out: a writeable C-contiguous array of the shape and dtype of the result, which is put there and returned; for
            arrays only. None: a new array.
        algorithm: a name from `explain`, instead of the automatic choice; equal on all ranks (bcast: the root's
            counts).
        nblocks: number of blocks n, 1 or more, for algorithms that cut the data; otherwise as `algorithm`.
        timeout: seconds, above 0, before `CollectiveTimeout`; None: those of the communicator.

    Raises:
        ArgumentError: an argument cannot work. Raised before anything is sent, but where a method says otherwise.
        UsageError: another thread than that which made the communicator, unless `progress_thread` was called; a forked
            child; or a call after `finalize`.
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

    def __init__(self, group: Group, timeout: float | None = None) -> None:
        super().__init__(group, timeout)
        endpoint = group.endpoint
        endpoint.gate = endpoint.gate.replaced_by(gate_of_this_thread())

    @property
    def rank(self) -> int:
        """Number of this rank, 0 <= rank < size.

        >>> comm.rank
        0
        """
        return self._group.rank

    @property
    def size(self) -> int:
        """Number of ranks.

        >>> comm.size
        1
        """
        return self._group.size

    @property
    def closed(self) -> bool:
        """Whether this rank has left the job, or `finalize` has freed this communicator.

        >>> comm.closed
        False
        """
        return self._closed or self._group.endpoint.closed

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks of the job, by rank of this communicator: all of them, unless it is one of a part.

        >>> comm.members
        (0,)
        """
        return self._group.members or tuple(range(self.size))

    @property
    def is_revoked(self) -> bool:
        """Whether this communicator was given up, by `revoke` or by an error, as far as this rank has heard.

        >>> comm.is_revoked
        False
        """
        self._check("is_revoked")
        return recovery.revoked(self._group)

    def __repr__(self) -> str:
        return f"<Communicator: rank {self.rank} of {self.size}>"

    def bcast(
        self,
        value: Any = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the root's value on every rank.

        Cost: a descriptor in q rounds, which carries values up to 15 kB; larger ones follow in n-1+q rounds, in which
        every rank receives m bytes (Träff 2022, Algorithm 6). Memory: the buffer, and at most 4 MB.

        Args:
            value: at the root the array or object to send. Other ranks pass None, or a writeable contiguous array of
                the root's shape and dtype, to be filled; other objects there are ignored.

        Returns:
            At the root `value` itself; elsewhere the array that was passed, or a copy of the root's value.

        Raises:
            ArgumentError: a buffer does not fit what the root sends: found when that arrives, so that the communicator
                is given up.

        >>> comm.bcast(np.arange(3))
        array([0, 1, 2])
        """
        return self._call(collectives.bcast(self._group, value, root, Choice(algorithm, nblocks)), timeout)

    def reduce(
        self,
        value: Any,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the combination of the values of all ranks at the root.

        Cost: commutative elementwise operators take n-1+q rounds, in which every rank but the root sends m bytes (arXiv
        2407.18004); others q rounds of m bytes along a binomial tree, in rank order. Memory: one working copy of
        `value`; none at the root if `out` is given.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be; ignored on ranks other than the root.

        Returns:
            At the root an array (scalar, object) like `value`; None elsewhere.

        >>> comm.reduce(np.array([1.5, 2.5]), ringcast.MAX)
        array([1.5, 2.5])
        """
        choice = Choice(algorithm, nblocks)
        return self._call(collectives.reduce(self._group, value, as_op(op), root, out, choice), timeout)

    def allreduce(
        self,
        value: Any,
        op: Operator = SUM,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the combination of the values of all ranks, with the same bits on every rank.

        Cost: large arrays and commutative elementwise operators take 2q rounds and 2m(p-1)/p bytes each way
        (reduce-scatter and allgather, arXiv 2410.14234), or 2(p-1)n rounds around a ring, where transfers hide the
        rounds (Träff et al. 2010). Small arrays take q rounds of m bytes (census, exact operators: Träff 2022), or
        folding and recursive doubling in rank order (Rabenseifner 2004), which also serves all other operators.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be.

        Returns:
            An array (scalar, object) like `value`.

        >>> comm.allreduce(np.arange(3), out=np.zeros(3, int))
        array([0, 1, 2])
        """
        return self._call(
            collectives.allreduce(self._group, value, as_op(op), out, Choice(algorithm, nblocks)), timeout
        )

    def gather(
        self, value: Any, root: int = 0, *, out: Any = None, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return the values of all ranks at the root.

        Cost: q rounds on a circulant tree; the root receives m(p-1)/p bytes (Träff 2022). Memory besides the result:
        ranks on the way hold what they pass on, at most half of all data, or all but the root's where counts are
        uneven.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of shape (p, *value.shape); ignored on ranks other than the root.

        Returns:
            At the root an array of shape (p, *value.shape), or a list of p objects; None elsewhere.

        >>> comm.gather(np.arange(3))
        array([[0, 1, 2]])
        """
        return self._call(collectives.gather(self._group, value, root, out, Choice(algorithm)), timeout)

    def gatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the rows of all ranks, of which each has any number, at the root, in rank order.

        Cost: q rounds of 8 bytes a rank if counts are left out; then as `gather`.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype.
            counts: p numbers: the rows of each rank, also 0; equal on all ranks. None on all ranks: they are exchanged.
            out: with sum(counts) rows; ignored on ranks other than the root.

        Returns:
            At the root an array with sum(counts) rows; None elsewhere.

        Raises:
            ArgumentError: `counts[rank]` is not len(value). Or `out` has a wrong number of rows: if counts are left
                out, that is found after their exchange, and the communicator is given up.

        >>> comm.gatherv(np.ones((2, 2)), counts=[2])
        array([[1., 1.],
               [1., 1.]])
        """
        return self._call(collectives.gatherv(self._group, value, counts, root, out, Choice(algorithm)), timeout)

    def scatter(
        self, values: Any = None, root: int = 0, *, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return on each rank its own one of the root's p values.

        Cost: a descriptor in q rounds; then q rounds on a circulant tree; the root sends m(p-1)/p bytes (Träff 2022).
        Memory as for `gather`.

        Args:
            values: at the root an array with p rows, or a sequence of p objects; other ranks pass None.

        Returns:
            `values[rank]` of the root: an array of the shape of a row (a scalar if rows have no dimension), or an
            object.

        >>> comm.scatter([{"part": 0}])
        {'part': 0}
        """
        return self._call(collectives.scatter(self._group, values, root, Choice(algorithm)), timeout)

    def scatterv(
        self,
        value: Any = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return on each rank `counts[rank]` of the root's rows, in rank order.

        Cost: as `scatter`.

        Args:
            value: at the root an array of one dimension or more; other ranks pass None.
            counts: p numbers, which add up to the root's rows. None: as even as possible, the first ranks get one more.
                Other ranks than the root pass the same, or None.

        Returns:
            An array with `counts[rank]` rows, of the root's dtype.

        Raises:
            ArgumentError: counts do not add up; or, found when the root's arrive, they are others, and the communicator
                is given up.

        >>> comm.scatterv(np.arange(4.0), counts=[4])
        array([0., 1., 2., 3.])
        """
        return self._call(collectives.scatterv(self._group, value, counts, root, Choice(algorithm)), timeout)

    def allgather(
        self,
        value: Any,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the values of all ranks on every rank.

        Cost: q rounds (Träff 2022, Algorithm 7), or (p-1)n around a ring, where transfers hide the rounds (Träff et al.
        2010); every rank receives m(p-1)/p bytes.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of shape (p, *value.shape).

        Returns:
            An array of shape (p, *value.shape), or a list of p objects.

        >>> comm.allgather("text")
        ['text']
        """
        return self._call(collectives.allgather(self._group, value, out, Choice(algorithm, nblocks)), timeout)

    def allgatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the rows of all ranks, of which each has any number, on every rank, in rank order.

        Cost: q rounds of 8 bytes a rank if counts are left out. Then q rounds, or n-1+q for very irregular counts
        (Träff 2022, Algorithm 9), or (p-1)n around a ring, where transfers hide the rounds (Träff et al. 2010); every
        rank receives exactly what the others contribute.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects.
            counts: p numbers: the rows of each rank, also 0; equal on all ranks. None on all ranks: they are exchanged.
            out: with sum(counts) rows.

        Returns:
            An array with sum(counts) rows, or a list of sum(counts) objects.

        Raises:
            ArgumentError: as in `gatherv`.

        >>> comm.allgatherv(np.arange(3))
        array([0, 1, 2])
        """
        return self._call(collectives.allgatherv(self._group, value, counts, out, Choice(algorithm, nblocks)), timeout)

    def merge_sorted(self, array: Any, *, algorithm: str | None = None, timeout: float | None = None) -> Any:
        """Return the sorted sequence of the items of all ranks, of which each gives any number, sorted.

        Sorted is what `np.sort` would leave as it is: NaNs come last. Items that are equal without having the same
        bits, as 0.0 and -0.0, stand next to each other in an order that may differ between ranks.

        Cost: q rounds of 8 bytes a rank for the counts, then q rounds, in which every rank receives exactly what the
        others contribute and merges what it has (Lang 2025, Algorithm 2). Memory: the result, and half of it to merge.

        Args:
            array: a sorted array of one dimension and any length, also 0; of one dtype on all ranks.

        Returns:
            An array of one dimension and of the same dtype, with the items of all ranks.

        Raises:
            ArgumentError: the array is not sorted, has not one dimension, or has items without an order.

        >>> comm.merge_sorted(np.array([1, 2, 2]))
        array([1, 2, 2])
        """
        return self._call(collectives.merge_sorted(self._group, array, Choice(algorithm)), timeout)

    def reduce_scatter(
        self,
        value: Any,
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return this rank's rows of the combination of the arrays of all ranks.

        Cost: q rounds (arXiv 2410.14234), n-1+q for very irregular counts (arXiv 2407.18004), or (p-1)n around a ring,
        where transfers hide the rounds (Träff et al. 2010); every rank sends what the others get. Operators that are
        not commutative and elementwise work on whole arrays, in rank order (Rabenseifner 2004). Memory: one working
        copy.

        Args:
            value: an array of one dimension or more, of one shape and dtype on all ranks; or a sequence of p objects.
            counts: p numbers, which add up to the rows of `value`: how many each rank gets; equal on all ranks. None:
                as even as possible, the first ranks get one more.
            out: with `counts[rank]` rows. If it is this rank's rows of `value`, no working copy is made and `value` is
                overwritten.

        Returns:
            An array with `counts[rank]` rows, or one object.

        Raises:
            ArgumentError: counts do not add up.

        >>> comm.reduce_scatter(np.arange(4))
        array([0, 1, 2, 3])
        """
        choice = Choice(algorithm, nblocks)
        return self._call(collectives.reduce_scatter(self._group, value, as_op(op), counts, out, choice), timeout)

    def scan(
        self,
        value: Any,
        op: Operator = SUM,
        *,
        out: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the combination of the values of ranks 0 to this one, in rank order.

        Cost: q rounds of m bytes, m those of one value (Hillis and Steele 1986).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be.

        Returns:
            An array (scalar, object) like `value`.

        >>> comm.scan(np.arange(3))
        array([0, 1, 2])
        """
        return self._call(collectives.scan(self._group, value, as_op(op), out, Choice(algorithm)), timeout)

    def exscan(
        self,
        value: Any,
        op: Operator = SUM,
        *,
        out: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the combination of the values of all ranks before this one, in rank order.

        Cost: q rounds of m bytes, m those of one value (arXiv 2604.25667).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be. On rank 0 it is returned as it is: put the neutral
                element into it before.

        Returns:
            An array (scalar, object) like `value`; on rank 0 `out`, or None.

        >>> comm.exscan(np.arange(3), out=np.zeros(3, int))
        array([0, 0, 0])
        """
        return self._call(collectives.exscan(self._group, value, as_op(op), out, Choice(algorithm)), timeout)

    def alltoall(
        self, value: Any, *, out: Any = None, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return from every rank what it has for this one: `result[j]` is `value[rank]` of rank j.

        Cost: small data take q rounds on the circulant graph, where ranks pass on what is for others (arXiv
        2410.14234); large data p-1 rounds, in which every row goes straight to its rank. Memory: the result, and up to
        twice the value where rows are passed on.

        Args:
            value: an array with p rows, of one shape and dtype on all ranks, or a sequence of p objects.
            out: of the shape of `value`, which it may be; that is copied first.

        Returns:
            An array of the shape of `value`, or a list of p objects.

        >>> comm.alltoall(["for rank 0"])
        ['for rank 0']
        """
        return self._call(collectives.alltoall(self._group, value, out, Choice(algorithm)), timeout)

    def alltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return from every rank the rows that it has for this one, in rank order.

        Cost: q rounds of 8 bytes for each rank if `recvcounts` are left out; then p-1 rounds, in which rows go straight
        to their rank. Memory: the result.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects. The first `counts[0]` rows are for rank 0, the next `counts[1]` for rank 1,
                and so on.
            counts: p numbers, also 0, which add up to the rows of `value`.
            recvcounts: p numbers: the rows that come from each rank. All ranks give them; or none, and they are
                exchanged.
            out: with sum(recvcounts) rows; memory that it shares with `value` is copied first.

        Returns:
            An array with sum(recvcounts) rows, or a list of the objects that came.

        Raises:
            ArgumentError: counts do not add up. Or, found when the counts or objects of others have come, so that the
                communicator is given up: a wrong number of rows of `out`, or of objects in `recvcounts`.
            CollectiveMismatch: `recvcounts` are not what the others have for this rank.

        >>> comm.alltoallv(np.arange(3), counts=[3])
        array([0, 1, 2])
        """
        choice = Choice(algorithm)
        return self._call(collectives.alltoallv(self._group, value, counts, recvcounts, out, choice), timeout)

    def shift(self, value: Any, distance: int, *, algorithm: str | None = None, timeout: float | None = None) -> Any:
        """Return the value of rank - `distance` (mod p): every value moves on by `distance` ranks, or back if negative.

        Cost: one round of m bytes, m those of one value; with `algorithm` along the links of a ring, a mesh or a
        hypercube (Grama et al. 2003).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            distance: any whole number, equal on all ranks.

        Returns:
            An array (scalar, object) like `value`, in memory of its own, also for a distance of 0.

        >>> comm.shift(np.arange(3), 1)
        array([0, 1, 2])
        """
        return self._call(collectives.shift(self._group, value, distance, Choice(algorithm)), timeout)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when all ranks have called it.

        Cost: q rounds of empty messages (census: Träff 2022).

        >>> comm.barrier(timeout=5)
        """
        self._call(collectives.barrier(self._group), timeout)

    def send(self, value: Any, dest: int | None, tag: int = 0, *, timeout: float | None = None) -> None:
        """Send a value to one rank, which receives it by `recv`, `irecv` or `sendrecv`.

        Not collective. Of two messages to the same rank that fit the same receive, the first one is received first. A
        value up to 16 kB is sent at once, as long as less than 1 MB of such messages wait at the receiver; a larger one
        when that receives it. A rank may send to itself, without waiting.

        Cost: one message, or two more for a value that is not sent at once.

        Args:
            value: an array or scalar of any shape and dtype, or an object. Arrays are not copied, also within objects.
            dest: the rank that gets it; None: nothing is sent.
            tag: 0 to 2**32-1; the receive names the same, or ANY_TAG.

        Raises:
            PeerFailed: also if `dest` has left the job.
            CollectiveTimeout: also if ranks wait for each other in a cycle.

        >>> comm.send({"a": 1}, dest=0, tag=7)
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
        self._call(point_to_point.send(self._group, value, dest, tag), timeout)

    def recv(
        self,
        source: Source = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: Any = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return a value that another rank, or this one, has sent to this rank.

        Not collective. Of several messages that fit, it takes the one that has come first.

        Cost: see `send`.

        Args:
            source: the rank that sends it; ANY_SOURCE: whichever; None: nothing is received.
            tag: that of the message; ANY_TAG: whichever.
            out: a writeable C-contiguous array of the message's dtype, with as many items or more: an array is put
                there, without a copy.
            status: is filled with source, tag and size of the message.

        Returns:
            The value that was sent; with `out` an array of its shape in the memory of `out`; None without a source.

        Raises:
            ArgumentError: the message does not fit into `out`: found when it has come, so that the communicator is
                given up.
            PeerFailed: also if the source, or everybody else, has left the job.
            CollectiveTimeout: also if ranks wait for each other in a cycle.

        >>> comm.send(np.arange(3), dest=0)
        >>> comm.recv(out=np.zeros(5, int))
        array([0, 1, 2])
        """
        return self._call(point_to_point.recv(self._group, source, tag, out, status), timeout)

    def sendrecv(
        self,
        value: Any,
        dest: int | None,
        source: Source,
        tag: int = 0,
        *,
        out: Any = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send `value` to one rank and return the value that arrives from another, at the same time.

        Not collective: only the two ends of a message call it, or `send` and `recv` on the other side. Ranks that wait
        for each other in a cycle get `CollectiveTimeout`.

        Cost: one round, or two messages more where a value is too long to be sent unasked.

        Args:
            value: an array or scalar of any shape and dtype, or an object; ignored if `dest` is None.
            dest: the rank that gets it; None: nothing is sent.
            source: the rank whose value is awaited; ANY_SOURCE: whichever; None: nothing is received.
            tag: 0 to 2**32-1, the same on both ends of a message.
            out: see `recv`.
            status: see `recv`.

        Returns:
            The value that `source` has sent, as `recv` does; None without a source.

        >>> comm.sendrecv(np.arange(3), dest=0, source=0)
        array([0, 1, 2])
        """
        return self._call(collectives.sendrecv(self._group, value, dest, source, tag, out, status), timeout)

    def probe(self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, timeout: float | None = None) -> Status:
        """Wait for a message that `recv` would take, and leave it there.

        Not collective.

        Args:
            source: a rank, or ANY_SOURCE.
            tag: that of the message; ANY_TAG: whichever.

        Returns:
            A Status with its source, its tag and its size in bytes. A `recv` with this source and tag takes the
            message, if nothing else has received it by then.

        >>> comm.send(np.zeros(2), dest=0, tag=3)
        >>> comm.probe()
        Status(source=0, tag=3, count=16)
        >>> comm.recv(0, 3)
        array([0., 0.])
        """
        return self._call(point_to_point.probe(self._group, source, tag), timeout)

    def iprobe(self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG) -> Status | None:
        """Return what `probe` would, if the message has come by now, and else None; it does not wait.

        Not collective.

        Args:
            source: see `probe`.
            tag: see `probe`.

        >>> comm.iprobe() is None
        True
        """
        self._enter("iprobe")
        return point_to_point.iprobe(self._group, source, tag)

    def dup(self, *, timeout: float | None = None) -> Communicator:
        """Return a communicator of the same ranks: what is called on one of the two does not meet what is on the other.

        Collective.

        Cost: as `barrier`.

        >>> comm.dup().size
        1
        """
        return Communicator(self._call(split.dup(self._group), timeout), self.timeout)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Communicator | None:
        """Return a communicator of the ranks that give the same colour.

        Collective: all ranks call it, each with a colour and a key of its own.

        Cost: as `allgather` of 24 bytes a rank.

        Args:
            color: a whole number of 64 bits; None: this rank is in no part.
            key: a whole number of 64 bits, by which the ranks of a part are ordered; those with equal keys stay in
                their old order.

        Returns:
            A Communicator of this rank's part; None for a colour of None. Its errors name ranks of the job, as
            `members` does; an error in it does not concern the others. Its `finalize` frees it for this rank alone;
            `free` for all.

        >>> comm.split(comm.rank % 2, key=-comm.rank).members
        (0,)
        """
        return self._part(self._call(split.split(self._group, color, key), timeout))

    def split_by_host(self, *, timeout: float | None = None) -> Communicator:
        """Return a communicator of the ranks on this rank's host, in their old order; see `split`.

        >>> comm.split_by_host().size
        1
        """
        part = self._part(self._call(split.split_by_host(self._group), timeout))
        assert part is not None, "every rank has a host"
        return part

    def create(self, ranks: Sequence[int], *, timeout: float | None = None) -> Communicator | None:
        """Return a communicator of some ranks, in the order given.

        Collective: all ranks call it, also those that are not among `ranks`.

        Cost: as `barrier`.

        Args:
            ranks: different ranks of this communicator, one at least; equal on all ranks.

        Returns:
            A Communicator, as of `split`; None on ranks that are not among them.

        >>> comm.create([0]).members
        (0,)
        """
        return self._part(self._call(split.create(self._group, ranks), timeout))

    def cart(
        self, dims: int | Sequence[int], periods: bool | Sequence[bool] = False, *, timeout: float | None = None
    ) -> Grid[Communicator] | None:
        """Return a Cartesian grid of ranks, with a communicator of its own.

        Collective: all ranks call it, also those for which the grid has no room.

        Cost: as `barrier`.

        Args:
            dims: number of ranks along each axis, one or more axes; 0 for those that are to be found, as
                `ringcast.dims_create` does. Equal on all ranks, as are `periods`.
            periods: whether each axis is closed to a ring; one value for all of them, or one for each.

        Returns:
            A `Grid`, whose `comm` is a Communicator of the first ranks in their order; None on ranks beyond these.

        >>> comm.cart([0, 0]).dims
        (1, 1)
        """
        shape, rings = grid_of(self.rank, self.size, dims, periods)
        part = self._part(self._call(split.cart(self._group, shape, rings), timeout))
        return None if part is None else Grid(part, shape, rings)

    def free(self, *, timeout: float | None = None) -> None:
        """Free a communicator that was made from another one, when all its ranks have come to this; idempotent.

        Cost: as `barrier`.

        Raises:
            UsageError: also for the communicator that `init` has returned: that is left by `finalize`.

        >>> part = comm.dup()
        >>> part.free()
        >>> part.closed
        True
        """
        if not self._group.derived:
            raise UsageError(f"rank {self.rank}: free() of the communicator of the whole job; leave by finalize()")
        if not self.closed:
            self._call(collectives.barrier(self._group), timeout)
            self.finalize()

    def _part(self, group: Group | None) -> Communicator | None:
        return None if group is None else Communicator(group, self.timeout)

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
        """Return what a call of `collective` would do; printed, it is a table of algorithms with predicted times.

        Not collective: any rank may ask, and nothing is communicated.

        Args:
            collective: name of the method.
            value: what the call would get (scatter: the root's); tells size and dtype, as do `nbytes` or `counts`.
            nbytes: m, the whole buffer with all parts (bcast, reduce, allreduce, reduce_scatter, scan, exscan,
                alltoall, alltoallv, shift: what one rank has).
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
        size = Size(value, nbytes, counts, dtype)
        return explain(self._group, collective, size, as_op(op), root, distance, Choice(algorithm, nblocks))

    def revoke(self) -> None:
        """Give up this communicator: every call under way, and every later one, raises Revoked on all ranks.

        Not collective: one rank is enough. `agree` and `shrink` still work.

        Cost: one message to each rank that this one has a connection to, and one to the control plane, which tells all.

        >>> comm.revoke()
        >>> comm.is_revoked
        True
        """
        self._check("revoke")
        recovery.revoke(self._group)

    def get_failed(self) -> tuple[int, ...]:
        """Return the ranks that failed, or left the job, as far as this rank has heard.

        Not collective; nothing is sent.

        Returns:
            Ranks of this communicator, in order.

        >>> comm.get_failed()
        ()
        """
        self._check("get_failed")
        return recovery.failed(self._group)

    def ack_failed(self) -> int:
        """Acknowledge the ranks that `get_failed` tells, so that `agree` does not raise `PeerFailed` for them.

        Not collective; nothing is sent.

        Returns:
            How many ranks are acknowledged.

        >>> comm.ack_failed()
        0
        """
        self._check("ack_failed")
        return recovery.acknowledge(self._group)

    def agree(self, flag: int = 1, *, timeout: float | None = None) -> int:
        """Return the bitwise and of the flags of all ranks that live: the same on all of them.

        Collective among the ranks that live; also on a revoked communicator. A call that was interrupted, as by a
        signal, is taken up by the next one.

        Cost: one message to the control plane and one back.

        Args:
            flag: a whole number of 64 bits, -2**63 to 2**63-1.

        Returns:
            The bitwise and, of 64 bits.

        Raises:
            PeerFailed: ranks failed, or left, that not all had acknowledged; on all ranks alike. Its `flag` is the
                result.
            CollectiveMismatch: other ranks call `shrink`.

        >>> comm.agree(6)
        6
        """
        timeout, site = self._check("agree", timeout), site_of(sys._getframe())
        try:
            return recovery.vote(self._group, lambda: recovery.agree(self._group, flag, timeout, site))
        except FAILURES as error:
            self._raised(error, "agree", site)
            raise

    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Return a communicator of the ranks that live, in their old order, numbered from 0.

        Collective among the ranks that live; also on a revoked communicator. A call that was interrupted, as by a
        signal, is taken up by the next one.

        Cost: one message to the control plane and one back.

        Returns:
            A Communicator with the same `members` on all of them. Its errors name ranks of the job, as `members` does;
            its `finalize` frees it and leaves the job as it is.

        Raises:
            CollectiveMismatch: other ranks call `agree`.

        >>> comm.shrink().members
        (0,)
        """
        timeout, site = self._check("shrink", timeout), site_of(sys._getframe())
        try:
            return recovery.vote(
                self._group, lambda: Communicator(recovery.shrink(self._group, timeout, site), self.timeout)
            )
        except FAILURES as error:
            self._raised(error, "shrink", site)
            raise

    def finalize(self) -> None:
        """Leave the job and give everything back; idempotent.

        Not collective: nobody waits for anybody. A communicator that was made from another one is only freed; this rank
        stays in the job.

        Raises:
            CollectiveMismatch: the last call, a broadcast as it may be, was not the same on other ranks.
            UsageError: nobody has waited for a request; the job has failed.

        >>> comm.finalize()
        >>> comm.closed
        True
        """
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        if self._closed or os.getpid() != self._owner[0]:
            return
        with gate_of_this_thread() as gate:
            self._closed = True
            if self._group.derived:
                recovery.free(self._group)
                return
            try:
                self._group.endpoint.leave(error, self._left_behind() if error is None else None)
            finally:
                gate.restore()

    def _left_behind(self) -> UsageError | None:
        """Return the error of a program that ends well, but for requests that it has not waited for."""
        endpoint = self._group.endpoint
        left = [*endpoint.dropped, *endpoint.requests.values()]
        endpoint.requests.clear()
        ends_well = not endpoint.protocol.gave_up and not hasattr(sys, "last_value")  # set by an uncaught error
        return self._not_waited_for(left) if left and ends_well else None

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self._leave(error)

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result:
        method = sys._getframe(1)
        user = method.f_back
        operation, site = method.f_code.co_name, (user.f_code.co_filename, user.f_lineno) if user else NOWHERE
        timeout = self._enter(operation, timeout)
        try:
            return drive(self._group.endpoint, steps, timeout, site)
        except FAILURES as error:
            self._raised(error, operation, site)
            raise
