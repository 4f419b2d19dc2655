"""Collectives without a root that move values as they are: allgather, alltoall, shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast import collectives
from ringcast.collectives.again import UNMADE
from ringcast.collectives.stage import Choice
from ringcast.ops import Array
from ringcast.requests.calls import Calls, as_fact
from ringcast.requests.types import Scalar, Value


class Exchange(Calls):
    """Collectives in which every rank gives values and gets values of others."""

    @overload
    def allgather(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def allgather(
        self,
        value: Scalar,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def allgather(
        self,
        value: Value,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def allgather(
        self,
        value: Any,
        *,
        out: Array | None = None,
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
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known_with("allgather", value)
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.gather.allgather(self._group, value, out, Choice(algorithm, nblocks)), timeout)

    @overload
    def allgatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def allgatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def allgatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the rows of all ranks on every rank, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out. Then q rounds, or n-1+q for very irregular counts
        (Träff 2022, Algorithm 9), or (p-1)n around a ring, where transfers hide the rounds (Träff et al. 2010); every
        rank receives exactly the rows of the others.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects.
            counts: p numbers: the rows of each rank, also 0; equal on all ranks. None on all ranks: they are exchanged,
                and so are the widths of texts and the units of times: the result's dtype has room for all of them.
            out: with sum(counts) rows.

        Returns:
            An array with sum(counts) rows, or a list of sum(counts) objects.

        Raises:
            ArgumentError: as in `gatherv`.

        >>> comm.allgatherv(np.arange(3))
        array([0, 1, 2])
        """
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known_with("allgatherv", value, as_fact(counts))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(
            collectives.gather.allgatherv(self._group, value, counts, out, Choice(algorithm, nblocks)), timeout
        )

    def merge_sorted(
        self,
        array: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]:
        """Merge the sorted arrays of all ranks, of any lengths, and return the whole on every rank.

        A sorted array is one that `np.sort` leaves as it is: NaNs come last. Items that are equal without the same
        bits, as 0.0 and -0.0, stand next to each other in an order that may differ between ranks.

        Cost: q rounds of 8 bytes a rank for the counts, then q rounds, in which every rank receives exactly the items
        of the others, and merges (Lang 2025, Algorithm 2). Memory: the result, and half of it to merge.

        Args:
            array: a sorted array of one dimension and any length, also 0; of one dtype on all ranks.
            out: with room for exactly the items of all ranks.

        Returns:
            An array of one dimension and of the same dtype, with the items of all ranks.

        Raises:
            ArgumentError: the array is not sorted, has not one dimension, or has items without an order. Or, found when
                the counts have been exchanged, so that the communicator is given up: a wrong length of `out`.

        >>> comm.merge_sorted(np.array([1, 2, 2]))
        array([1, 2, 2])
        """
        return self._call(collectives.merge.merge_sorted(self._group, array, out, Choice(algorithm)), timeout)

    @overload
    def alltoall(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def alltoall(
        self,
        value: Sequence[Value],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def alltoall(
        self, value: Any, *, out: Array | None = None, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Exchange rows between all ranks: `result[j]` is `value[rank]` of rank j.

        Cost: small data take q rounds on the circulant graph, where ranks pass on rows for others (arXiv
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
        if timeout is None and algorithm is None:
            known = self._known_with("alltoall", value)
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.alltoall.alltoall(self._group, value, out, Choice(algorithm)), timeout)

    @overload
    def alltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def alltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def alltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the rows that all ranks have for this one, in rank order.

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
            CollectiveMismatch: `recvcounts` differ from the rows that the others have for this rank.

        >>> comm.alltoallv(np.arange(3), counts=[3])
        array([0, 1, 2])
        """
        choice = Choice(algorithm)
        return self._call(collectives.alltoall.alltoallv(self._group, value, counts, recvcounts, out, choice), timeout)

    def shift(
        self,
        value: Value,
        distance: int,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Value:
        """Return the value of rank - `distance` (mod p): every value moves on by `distance` ranks, or back if negative.

        Cost: one round of m bytes, where m is the size of one value; with `algorithm` along the links of a ring, a mesh
        or a hypercube (Grama et al. 2003).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            distance: any whole number, equal on all ranks.
            out: of the shape of `value`, which it may be; that is copied first.

        Returns:
            An array (scalar, object) like `value`, in memory of its own, also for a distance of 0.

        >>> comm.shift(np.arange(3), 1)
        array([0, 1, 2])
        """
        return self._call(collectives.shift.shift(self._group, value, distance, out, Choice(algorithm)), timeout)
