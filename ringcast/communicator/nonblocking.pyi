# Written by docs/scripts/make_stubs.py from the blocking calls: change these, and run it again.
"""The nonblocking calls: each begins the call, and returns a request for its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag, Wildcard
from ringcast.ops import SUM, Array
from ringcast.requests.calls import Calls
from ringcast.requests.request import Request
from ringcast.requests.types import Operator, Scalar, Value

CALLS: tuple[Any, ...]

class NonblockingCalls(Calls):
    """The i-forms of the calls: `iallreduce` begins an `allreduce`, and so on.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Request`, whose
    `wait` returns the result of the call. All ranks make the same collectives in the same order; a blocking one is
    matched by its i-form. Any number of calls may be under way.
    """
    @overload
    def ibcast(
        self, value: None = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]:
        """Begin `bcast`, and return a request for its result.

        `bcast`: return the root's value on every rank.

        Cost: a descriptor in q rounds, which carries values up to 15 kB; larger ones follow in n-1+q rounds, in which
        every rank receives m bytes (Träff 2022, Algorithm 6). Memory: the buffer, and at most 4 MB.

        Arguments, but for the timeout, and errors are those of `bcast`.

        >>> comm.ibcast(np.arange(3)).wait()
        array([0, 1, 2])
        """
    @overload
    def ibcast(
        self, value: Value | None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Value]: ...
    @overload
    def iscatter(
        self, values: Array | None = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Any]:
        """Begin `scatter`, and return a request for its result.

        `scatter`: return on rank r the root's `values[r]`.

        Cost: a descriptor in q rounds; then q rounds on a circulant tree; the root sends m(p-1)/p bytes (Träff 2022).
        Memory as for `gather`.

        Arguments, but for the timeout, and errors are those of `scatter`.

        >>> comm.iscatter([{"part": 0}]).wait()
        {'part': 0}
        """
    @overload
    def iscatter(
        self, values: Sequence[Value] | None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]: ...
    @overload
    def iscatterv(
        self,
        value: None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `scatterv`, and return a request for its result.

        `scatterv`: return on each rank `counts[rank]` of the root's rows, in rank order.

        Cost: as `scatter`.

        Arguments, but for the timeout, and errors are those of `scatterv`.

        >>> comm.iscatterv(np.arange(4.0), counts=[4]).wait()
        array([0., 1., 2., 3.])
        """
    @overload
    def iscatterv(
        self,
        value: NDArray[Scalar] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iscatterv(
        self,
        value: list[Value] | tuple[Value, ...] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value]]: ...
    @overload
    def igather(
        self, value: NDArray[Scalar], root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar] | None]:
        """Begin `gather`, and return a request for its result.

        `gather`: return the values of all ranks at the root.

        Cost: q rounds on a circulant tree; the root receives m(p-1)/p bytes (Träff 2022). Memory besides the result:
        inner ranks hold the data that they pass on, at most half of all data, or all but the root's where counts are
        uneven.

        Arguments, but for the timeout, and errors are those of `gather`.

        >>> comm.igather(np.arange(3)).wait()
        array([[0, 1, 2]])
        """
    @overload
    def igather(
        self, value: Scalar, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar] | None]: ...
    @overload
    def igather(
        self, value: Value, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[list[Value] | None]: ...
    @overload
    def igatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar] | None]:
        """Begin `gatherv`, and return a request for its result.

        `gatherv`: return the rows of all ranks at the root, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out; then as `gather`.

        Arguments, but for the timeout, and errors are those of `gatherv`.

        >>> comm.igatherv(np.ones((2, 2)), counts=[2]).wait()
        array([[1., 1.],
               [1., 1.]])
        """
    @overload
    def igatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value] | None]: ...
    @overload
    def iallgather(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]:
        """Begin `allgather`, and return a request for its result.

        `allgather`: return the values of all ranks on every rank.

        Cost: q rounds (Träff 2022, Algorithm 7), or (p-1)n around a ring, where transfers hide the rounds (Träff et al.
        2010); every rank receives m(p-1)/p bytes.

        Arguments, but for the timeout, and errors are those of `allgather`.

        >>> comm.iallgather("text").wait()
        ['text']
        """
    @overload
    def iallgather(
        self, value: Scalar, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iallgather(
        self, value: Value, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[list[Value]]: ...
    @overload
    def iallgatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]:
        """Begin `allgatherv`, and return a request for its result.

        `allgatherv`: return the rows of all ranks on every rank, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out. Then q rounds, or n-1+q for very irregular counts
        (Träff 2022, Algorithm 9), or (p-1)n around a ring, where transfers hide the rounds (Träff et al. 2010); every
        rank receives exactly the rows of the others.

        Arguments, but for the timeout, and errors are those of `allgatherv`.

        >>> comm.iallgatherv(np.arange(3)).wait()
        array([0, 1, 2])
        """
    @overload
    def iallgatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[list[Value]]: ...
    def imerge_sorted(
        self, array: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar]]:
        """Begin `merge_sorted`, and return a request for its result.

        `merge_sorted`: merge the sorted arrays of all ranks, of any lengths, and return the whole on every rank.

        Cost: q rounds of 8 bytes a rank for the counts, then q rounds, in which every rank receives exactly the items
        of the others, and merges (Lang 2025, Algorithm 2). Memory: the result, and half of it to merge.

        Arguments, but for the timeout, and errors are those of `merge_sorted`.

        >>> comm.imerge_sorted(np.array([1, 2, 2])).wait()
        array([1, 2, 2])
        """
    @overload
    def ialltoall(
        self, value: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar]]:
        """Begin `alltoall`, and return a request for its result.

        `alltoall`: exchange rows between all ranks: `result[j]` is `value[rank]` of rank j.

        Cost: small data take q rounds on the circulant graph, where ranks pass on rows for others (arXiv
        2410.14234); large data p-1 rounds, in which every row goes straight to its rank. Memory: the result, and up to
        twice the value where rows are passed on.

        Arguments, but for the timeout, and errors are those of `alltoall`.

        >>> comm.ialltoall(["for rank 0"]).wait()
        ['for rank 0']
        """
    @overload
    def ialltoall(
        self, value: Sequence[Value], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[list[Value]]: ...
    @overload
    def ialltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar]]:
        """Begin `alltoallv`, and return a request for its result.

        `alltoallv`: return the rows that all ranks have for this one, in rank order.

        Cost: q rounds of 8 bytes for each rank if `recvcounts` are left out; then p-1 rounds, in which rows go straight
        to their rank. Memory: the result.

        Arguments, but for the timeout, and errors are those of `alltoallv`.

        >>> comm.ialltoallv(np.arange(3), counts=[3]).wait()
        array([0, 1, 2])
        """
    @overload
    def ialltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value]]: ...
    def ishift(
        self, value: Value, distance: int, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]:
        """Begin `shift`, and return a request for its result.

        `shift`: return the value of rank - `distance` (mod p): every value moves on by `distance` ranks, or back if negative.

        Cost: one round of m bytes, where m is the size of one value; with `algorithm` along the links of a ring, a mesh
        or a hypercube (Grama et al. 2003).

        Arguments, but for the timeout, and errors are those of `shift`.

        >>> comm.ishift(np.arange(3), 1).wait()
        array([0, 1, 2])
        """
    def ireduce(
        self,
        value: Value,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value | None]:
        """Begin `reduce`, and return a request for its result.

        `reduce`: return the combination of the values of all ranks at the root.

        Cost: commutative elementwise operators take n-1+q rounds, in which every rank but the root sends m bytes (arXiv
        2407.18004); others q rounds of m bytes along a binomial tree, in rank order. Memory: one working copy of
        `value`; none at the root if `out` is given.

        Arguments, but for the timeout, and errors are those of `reduce`.

        >>> comm.ireduce(np.array([1.5, 2.5]), ringcast.MAX).wait()
        array([1.5, 2.5])
        """
    def iallreduce(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value]:
        """Begin `allreduce`, and return a request for its result.

        `allreduce`: return the combination of the values of all ranks, with the same bits on every rank.

        Cost: large arrays and commutative elementwise operators take 2q rounds and 2m(p-1)/p bytes each way
        (reduce-scatter and allgather, arXiv 2410.14234), or 2(p-1)n rounds around a ring, where transfers hide the
        rounds (Träff et al. 2010). Small arrays take q rounds of m bytes (census, exact operators: Träff 2022), or
        folding and recursive doubling in rank order (Rabenseifner 2004), which also serves all other operators.

        Arguments, but for the timeout, and errors are those of `allreduce`.

        >>> comm.iallreduce(np.arange(3), out=np.zeros(3, int)).wait()
        array([0, 1, 2])
        """
    @overload
    def ireduce_scatter(
        self,
        value: NDArray[Scalar],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]:
        """Begin `reduce_scatter`, and return a request for its result.

        `reduce_scatter`: return this rank's rows of the combination of the arrays of all ranks.

        Cost: q rounds (arXiv 2410.14234), n-1+q for very irregular counts (arXiv 2407.18004), or (p-1)n around a ring,
        where transfers hide the rounds (Träff et al. 2010); every rank sends the rows of the others. Operators that are
        not commutative and elementwise work on whole arrays, in rank order (Rabenseifner 2004). Memory: one working
        copy.

        Arguments, but for the timeout, and errors are those of `reduce_scatter`.

        >>> comm.ireduce_scatter(np.arange(4)).wait()
        array([0, 1, 2, 3])
        """
    @overload
    def ireduce_scatter(
        self,
        value: Sequence[Value],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value]: ...
    def iscan(
        self, value: Value, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]:
        """Begin `scan`, and return a request for its result.

        `scan`: return the combination of the values of ranks 0 to this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (Hillis and Steele 1986).

        Arguments, but for the timeout, and errors are those of `scan`.

        >>> comm.iscan(np.arange(3)).wait()
        array([0, 1, 2])
        """
    @overload
    def iexscan(
        self, value: Value, op: Operator = SUM, *, out: None = None, algorithm: str | None = None
    ) -> Request[Value | None]:
        """Begin `exscan`, and return a request for its result.

        `exscan`: return the combination of the values of all ranks before this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (arXiv 2604.25667).

        Arguments, but for the timeout, and errors are those of `exscan`.

        >>> comm.iexscan(np.arange(3), out=np.zeros(3, int)).wait()
        array([0, 0, 0])
        """
    @overload
    def iexscan(
        self, value: Value, op: Operator = SUM, *, out: Array, algorithm: str | None = None
    ) -> Request[Value]: ...
    def ibarrier(self) -> Request[None]:
        """Begin `barrier`, and return a request for its result.

        `barrier`: return when all ranks have called it.

        Cost: q rounds of empty messages (census: Träff 2022).

        Arguments, but for the timeout, and errors are those of `barrier`.

        >>> comm.ibarrier().wait()
        """
    def isend(self, value: object, dest: int | None, tag: int = 0) -> Request[None]:
        """Begin `send`, and return a request for its result.

        `send`: send a value to one rank, which receives it by `recv`, `irecv` or `sendrecv`.

        Cost: one message, or two more for a value that is not sent at once.

        The program may change the value again when it has waited for the request.

        Arguments, but for the timeout, and errors are those of `send`.

        >>> comm.isend({"a": 1}, dest=0, tag=7).wait()
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
    @overload
    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: None = None, status: Status | None = None
    ) -> Request[Any]:
        """Begin `recv`, and return a request for its result.

        `recv`: return a value that another rank, or this one, has sent to this rank.

        Cost: see `send`.

        Only this request can be cancelled.

        Arguments, but for the timeout, and errors are those of `recv`.

        >>> comm.send(np.arange(3), dest=0)
        >>> comm.irecv(out=np.zeros(5, int)).wait()
        array([0, 1, 2])
        """
    @overload
    def irecv(
        self,
        source: int | Wildcard = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: NDArray[Scalar], status: Status | None = None
    ) -> Request[NDArray[Scalar] | None]: ...
