"""Collectives with a root that moves values as they are: bcast, scatter, gather."""

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


class Distribution(Calls):
    """Collectives in which one rank, the root, gives values to all others, or gets theirs."""

    @overload
    def bcast(
        self,
        value: None = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def bcast(
        self,
        value: Value | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Value: ...
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
            ArgumentError: a buffer does not fit the root's value: found when that arrives, so that the communicator
                is given up.

        >>> comm.bcast(np.arange(3))
        array([0, 1, 2])
        """
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known("bcast", as_fact(root))
            if known is not None and (result := self._again(known, value)) is not UNMADE:
                return result
        return self._call(collectives.broadcast.bcast(self._group, value, root, Choice(algorithm, nblocks)), timeout)

    @overload
    def scatter(
        self,
        values: Array | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def scatter(
        self,
        values: Sequence[Value] | None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Value: ...
    def scatter(
        self,
        values: Any = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return on rank r the root's `values[r]`.

        Cost: a descriptor in q rounds; then q rounds on a circulant tree; the root sends m(p-1)/p bytes (Träff 2022).
        Memory as for `gather`.

        Args:
            values: at the root an array with p rows, or a sequence of p objects, as arrays of any shapes; other ranks
                pass None.
            out: of the shape of a row; each rank may give one or not.

        Returns:
            `values[rank]` of the root: an array of the shape of a row (a scalar if rows have no dimension), or an
            object.

        Raises:
            ArgumentError: `out` does not fit the root's data: found when these arrive, so that the communicator is
                given up.

        >>> comm.scatter([{"part": 0}])
        {'part': 0}
        """
        return self._call(collectives.scatter.scatter(self._group, values, root, out, Choice(algorithm)), timeout)

    @overload
    def scatterv(
        self,
        value: None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def scatterv(
        self,
        value: NDArray[Scalar] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def scatterv(
        self,
        value: list[Value] | tuple[Value, ...] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def scatterv(
        self,
        value: Any = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return on each rank `counts[rank]` of the root's rows, in rank order.

        Cost: as `scatter`.

        Args:
            value: at the root an array of one dimension or more, or a list or tuple of objects; other ranks pass None.
            counts: p numbers, which add up to the root's rows. None: as even as possible, the first ranks get one more.
                Other ranks than the root pass the same, or None.
            out: with `counts[rank]` rows; each rank may give one or not.

        Returns:
            An array with `counts[rank]` rows, of the root's dtype, or a list of `counts[rank]` objects.

        Raises:
            ArgumentError: counts do not add up. Or, found when the root's record has come, so that the communicator is
                given up: counts differ from the root's, or `out` does not fit.

        >>> comm.scatterv(np.arange(4.0), counts=[4])
        array([0., 1., 2., 3.])
        """
        return self._call(
            collectives.scatter.scatterv(self._group, value, counts, root, out, Choice(algorithm)), timeout
        )

    @overload
    def gather(
        self,
        value: NDArray[Scalar],
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar] | None: ...
    @overload
    def gather(
        self,
        value: Scalar,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar] | None: ...
    @overload
    def gather(
        self,
        value: Value,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> list[Value] | None: ...
    def gather(
        self,
        value: Any,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the values of all ranks at the root.

        Cost: q rounds on a circulant tree; the root receives m(p-1)/p bytes (Träff 2022). Memory besides the result:
        inner ranks hold the data that they pass on, at most half of all data, or all but the root's where counts are
        uneven.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of shape (p, *value.shape); ignored on ranks other than the root.

        Returns:
            At the root an array of shape (p, *value.shape), or a list of p objects; None elsewhere.

        >>> comm.gather(np.arange(3))
        array([[0, 1, 2]])
        """
        if timeout is None and algorithm is None:
            known = self._known_with("gather", value, as_fact(root))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.gather.gather(self._group, value, root, out, Choice(algorithm)), timeout)

    @overload
    def gatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar] | None: ...
    @overload
    def gatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> list[Value] | None: ...
    def gatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the rows of all ranks at the root, in rank order; each rank has any number of rows.

        Cost: q rounds of 8 bytes a rank if counts are left out; then as `gather`.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects.
            counts: p numbers: the rows of each rank, also 0; equal on all ranks. None on all ranks: they are exchanged,
                and so are the widths of texts and the units of times: the result's dtype has room for all of them.
            out: with sum(counts) rows; ignored on ranks other than the root.

        Returns:
            At the root an array with sum(counts) rows, or a list of sum(counts) objects; None elsewhere.

        Raises:
            ArgumentError: `counts[rank]` is not len(value). Or `out` has a wrong number of rows: if counts are left
                out, that is found after their exchange, and the communicator is given up.

        >>> comm.gatherv(np.ones((2, 2)), counts=[2])
        array([[1., 1.],
               [1., 1.]])
        """
        if timeout is None and algorithm is None:
            known = self._known_with("gatherv", value, as_fact(root), as_fact(counts))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.gather.gatherv(self._group, value, counts, root, out, Choice(algorithm)), timeout)
