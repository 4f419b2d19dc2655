# Written by docs/scripts/make_stubs.py from the blocking calls: change these, and run it again.
"""The persistent calls: each checks the arguments once, and returns a call to be started again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag, Wildcard
from ringcast.ops import SUM, Array
from ringcast.requests.calls import Calls
from ringcast.requests.persistent import Persistent
from ringcast.requests.types import Operator, Scalar, Value

class PersistentCalls(Calls):
    """The `_init` forms of the calls, which are started later.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Persistent`. Its
    `start` begins the call with the present values of the arrays, its `wait` returns the result of the call.
    """
    @overload
    def bcast_init(
        self, value: None = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Any]:
        """Prepare `bcast`, and return a call that can be started any number of times.

        `bcast`: return the root's value on every rank.

        Cost: a descriptor in q rounds, which carries values up to 15 kB; larger ones follow in n-1+q rounds, in which
        every rank receives m bytes (Träff 2022, Algorithm 6). Memory: the buffer, and at most 4 MB.

        Arguments, but for the timeout, and errors are those of `bcast`.

        >>> call = comm.bcast_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def bcast_init(
        self, value: Value | None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Value]: ...
    @overload
    def scatter_init(
        self, values: Array | None = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Any]:
        """Prepare `scatter`, and return a call that can be started any number of times.

        `scatter`: return on rank r the root's `values[r]`.

        Cost: a descriptor in q rounds; then q rounds on a circulant tree; the root sends m(p-1)/p bytes (Träff 2022).
        Memory as for `gather`.

        Arguments, but for the timeout, and errors are those of `scatter`.

        >>> call = comm.scatter_init([{"part": 0}])
        >>> call.start()
        >>> call.wait()
        {'part': 0}
        """
    @overload
    def scatter_init(
        self, values: Sequence[Value] | None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]: ...
    @overload
    def scatterv_init(
        self,
        value: None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[Any]:
        """Prepare `scatterv`, and return a call that can be started any number of times.

        `scatterv`: return on each rank `counts[rank]` of the root's rows, in rank order.

        Cost: as `scatter`.

        Arguments, but for the timeout, and errors are those of `scatterv`.

        >>> call = comm.scatterv_init(np.arange(4.0), counts=[4])
        >>> call.start()
        >>> call.wait()
        array([0., 1., 2., 3.])
        """
    @overload
    def scatterv_init(
        self,
        value: NDArray[Scalar] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def scatterv_init(
        self,
        value: list[Value] | tuple[Value, ...] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value]]: ...
    @overload
    def gather_init(
        self, value: NDArray[Scalar], root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar] | None]:
        """Prepare `gather`, and return a call that can be started any number of times.

        `gather`: return the values of all ranks at the root.

        Cost: q rounds on a circulant tree; the root receives m(p-1)/p bytes (Träff 2022). Memory besides the result:
        inner ranks hold the data that they pass on, at most half of all data, or all but the root's where counts are
        uneven.

        Arguments, but for the timeout, and errors are those of `gather`.

        >>> call = comm.gather_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([[0, 1, 2]])
        """
    @overload
    def gather_init(
        self, value: Scalar, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar] | None]: ...
    @overload
    def gather_init(
        self, value: Value, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[list[Value] | None]: ...
    @overload
    def gatherv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar] | None]:
        """Prepare `gatherv`, and return a call that can be started any number of times.

        `gatherv`: return the rows of all ranks at the root, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out; then as `gather`.

        Arguments, but for the timeout, and errors are those of `gatherv`.

        >>> call = comm.gatherv_init(np.ones((2, 2)), counts=[2])
        >>> call.start()
        >>> call.wait()
        array([[1., 1.],
               [1., 1.]])
        """
    @overload
    def gatherv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value] | None]: ...
    @overload
    def allgather_init(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `allgather`, and return a call that can be started any number of times.

        `allgather`: return the values of all ranks on every rank.

        Cost: q rounds (Träff 2022, Algorithm 7), or (p-1)n around a ring, where transfers hide the rounds (Träff et al.
        2010); every rank receives m(p-1)/p bytes.

        Arguments, but for the timeout, and errors are those of `allgather`.

        >>> call = comm.allgather_init("text")
        >>> call.start()
        >>> call.wait()
        ['text']
        """
    @overload
    def allgather_init(
        self, value: Scalar, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def allgather_init(
        self, value: Value, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[list[Value]]: ...
    @overload
    def allgatherv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `allgatherv`, and return a call that can be started any number of times.

        `allgatherv`: return the rows of all ranks on every rank, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out. Then q rounds, or n-1+q for very irregular counts
        (Träff 2022, Algorithm 9), or (p-1)n around a ring, where transfers hide the rounds (Träff et al. 2010); every
        rank receives exactly the rows of the others.

        Arguments, but for the timeout, and errors are those of `allgatherv`.

        >>> call = comm.allgatherv_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def allgatherv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[list[Value]]: ...
    def merge_sorted_init(
        self, array: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `merge_sorted`, and return a call that can be started any number of times.

        `merge_sorted`: merge the sorted arrays of all ranks, of any lengths, and return the whole on every rank.

        Cost: q rounds of 8 bytes a rank for the counts, then q rounds, in which every rank receives exactly the items
        of the others, and merges (Lang 2025, Algorithm 2). Memory: the result, and half of it to merge.

        Arguments, but for the timeout, and errors are those of `merge_sorted`.

        >>> call = comm.merge_sorted_init(np.array([1, 2, 2]))
        >>> call.start()
        >>> call.wait()
        array([1, 2, 2])
        """
    @overload
    def alltoall_init(
        self, value: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `alltoall`, and return a call that can be started any number of times.

        `alltoall`: exchange rows between all ranks: `result[j]` is `value[rank]` of rank j.

        Cost: small data take q rounds on the circulant graph, where ranks pass on rows for others (arXiv
        2410.14234); large data p-1 rounds, in which every row goes straight to its rank. Memory: the result, and up to
        twice the value where rows are passed on.

        Arguments, but for the timeout, and errors are those of `alltoall`.

        >>> call = comm.alltoall_init(["for rank 0"])
        >>> call.start()
        >>> call.wait()
        ['for rank 0']
        """
    @overload
    def alltoall_init(
        self, value: Sequence[Value], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[list[Value]]: ...
    @overload
    def alltoallv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `alltoallv`, and return a call that can be started any number of times.

        `alltoallv`: return the rows that all ranks have for this one, in rank order.

        Cost: q rounds of 8 bytes for each rank if `recvcounts` are left out; then p-1 rounds, in which rows go straight
        to their rank. Memory: the result.

        Arguments, but for the timeout, and errors are those of `alltoallv`.

        >>> call = comm.alltoallv_init(np.arange(3), counts=[3])
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def alltoallv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value]]: ...
    def shift_init(
        self, value: Value, distance: int, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]:
        """Prepare `shift`, and return a call that can be started any number of times.

        `shift`: return the value of rank - `distance` (mod p): every value moves on by `distance` ranks, or back if negative.

        Cost: one round of m bytes, where m is the size of one value; with `algorithm` along the links of a ring, a mesh
        or a hypercube (Grama et al. 2003).

        Arguments, but for the timeout, and errors are those of `shift`.

        >>> call = comm.shift_init(np.arange(3), 1)
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    def reduce_init(
        self,
        value: Value,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value | None]:
        """Prepare `reduce`, and return a call that can be started any number of times.

        `reduce`: return the combination of the values of all ranks at the root.

        Cost: commutative elementwise operators take n-1+q rounds, in which every rank but the root sends m bytes (arXiv
        2407.18004); others q rounds of m bytes along a binomial tree, in rank order. Memory: one working copy of
        `value`; none at the root if `out` is given.

        Arguments, but for the timeout, and errors are those of `reduce`.

        >>> call = comm.reduce_init(np.array([1.5, 2.5]), ringcast.MAX)
        >>> call.start()
        >>> call.wait()
        array([1.5, 2.5])
        """
    def allreduce_init(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value]:
        """Prepare `allreduce`, and return a call that can be started any number of times.

        `allreduce`: return the combination of the values of all ranks, with the same bits on every rank.

        Cost: large arrays and commutative elementwise operators take 2q rounds and 2m(p-1)/p bytes each way
        (reduce-scatter and allgather, arXiv 2410.14234), or 2(p-1)n rounds around a ring, where transfers hide the
        rounds (Träff et al. 2010). Small arrays take q rounds of m bytes (census, exact operators: Träff 2022), or
        folding and recursive doubling in rank order (Rabenseifner 2004), which also serves all other operators.

        Arguments, but for the timeout, and errors are those of `allreduce`.

        >>> call = comm.allreduce_init(np.arange(3), out=np.zeros(3, int))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def reduce_scatter_init(
        self,
        value: NDArray[Scalar],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `reduce_scatter`, and return a call that can be started any number of times.

        `reduce_scatter`: return this rank's rows of the combination of the arrays of all ranks.

        Cost: q rounds (arXiv 2410.14234), n-1+q for very irregular counts (arXiv 2407.18004), or (p-1)n around a ring,
        where transfers hide the rounds (Träff et al. 2010); every rank sends the rows of the others. Operators that are
        not commutative and elementwise work on whole arrays, in rank order (Rabenseifner 2004). Memory: one working
        copy.

        Arguments, but for the timeout, and errors are those of `reduce_scatter`.

        >>> call = comm.reduce_scatter_init(np.arange(4))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2, 3])
        """
    @overload
    def reduce_scatter_init(
        self,
        value: Sequence[Value],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value]: ...
    def scan_init(
        self, value: Value, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]:
        """Prepare `scan`, and return a call that can be started any number of times.

        `scan`: return the combination of the values of ranks 0 to this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (Hillis and Steele 1986).

        Arguments, but for the timeout, and errors are those of `scan`.

        >>> call = comm.scan_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def exscan_init(
        self, value: Value, op: Operator = SUM, *, out: None = None, algorithm: str | None = None
    ) -> Persistent[Value | None]:
        """Prepare `exscan`, and return a call that can be started any number of times.

        `exscan`: return the combination of the values of all ranks before this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (arXiv 2604.25667).

        Arguments, but for the timeout, and errors are those of `exscan`.

        >>> call = comm.exscan_init(np.arange(3), out=np.zeros(3, int))
        >>> call.start()
        >>> call.wait()
        array([0, 0, 0])
        """
    @overload
    def exscan_init(
        self, value: Value, op: Operator = SUM, *, out: Array, algorithm: str | None = None
    ) -> Persistent[Value]: ...
    def barrier_init(self) -> Persistent[None]:
        """Prepare `barrier`, and return a call that can be started any number of times.

        `barrier`: return when all ranks have called it.

        Cost: q rounds of empty messages (census: Träff 2022).

        Arguments, but for the timeout, and errors are those of `barrier`.

        >>> call = comm.barrier_init()
        >>> call.start()
        >>> call.wait()
        """
    def send_init(self, value: object, dest: int | None, tag: int = 0) -> Persistent[None]:
        """Prepare `send`, and return a call that can be started any number of times.

        `send`: send a value to one rank, which receives it by `recv`, `irecv` or `sendrecv`.

        Cost: one message, or two more for a value that is not sent at once.

        Arguments, but for the timeout, and errors are those of `send`.

        >>> call = comm.send_init({"a": 1}, dest=0, tag=7)
        >>> call.start()
        >>> call.wait()
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
    @overload
    def recv_init(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: None = None, status: Status | None = None
    ) -> Persistent[Any]:
        """Prepare `recv`, and return a call that can be started any number of times.

        `recv`: return a value that another rank, or this one, has sent to this rank.

        Cost: see `send`.

        It can be cancelled while it is under way.

        Arguments, but for the timeout, and errors are those of `recv`.

        >>> comm.send(np.arange(3), dest=0)
        >>> call = comm.recv_init(out=np.zeros(5, int))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def recv_init(
        self,
        source: int | Wildcard = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def recv_init(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: NDArray[Scalar], status: Status | None = None
    ) -> Persistent[NDArray[Scalar] | None]: ...
