"""Collectives that combine values: reduce, allreduce, reduce_scatter, scan; and the barrier, which has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast import collectives
from ringcast.collectives.again import UNMADE
from ringcast.collectives.stage import Choice
from ringcast.ops import SUM, Array, Op, as_op
from ringcast.requests.calls import Calls, as_fact
from ringcast.requests.types import Operator, Scalar, Value


class Reduction(Calls):
    """Collectives that combine the values of ranks by an associative operator."""

    def reduce(
        self,
        value: Value,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Value | None:
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
        op = op if type(op) is Op else as_op(op)
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known_with("reduce", value, id(op), as_fact(root))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        choice = Choice(algorithm, nblocks)
        return self._call(collectives.reduce.reduce(self._group, value, op, root, out, choice), timeout)

    def allreduce(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Value:
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
        op = op if type(op) is Op else as_op(op)
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known_with("allreduce", value, id(op))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(
            collectives.reduce.allreduce(self._group, value, op, out, Choice(algorithm, nblocks)), timeout
        )

    @overload
    def reduce_scatter(
        self,
        value: NDArray[Scalar],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def reduce_scatter(
        self,
        value: Sequence[Value],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Value: ...
    def reduce_scatter(
        self,
        value: Any,
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return this rank's rows of the combination of the arrays of all ranks.

        Cost: q rounds (arXiv 2410.14234), n-1+q for very irregular counts (arXiv 2407.18004), or (p-1)n around a ring,
        where transfers hide the rounds (Träff et al. 2010); every rank sends the rows of the others. Operators that are
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
        op = op if type(op) is Op else as_op(op)
        if timeout is None and algorithm is None and nblocks is None:
            known = self._known_with("reduce_scatter", value, id(op), as_fact(counts))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        choice = Choice(algorithm, nblocks)
        return self._call(collectives.reduce.reduce_scatter(self._group, value, op, counts, out, choice), timeout)

    def scan(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Value:
        """Return the combination of the values of ranks 0 to this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (Hillis and Steele 1986).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be.

        Returns:
            An array (scalar, object) like `value`.

        >>> comm.scan(np.arange(3))
        array([0, 1, 2])
        """
        op = op if type(op) is Op else as_op(op)
        if timeout is None and algorithm is None:
            known = self._known_with("scan", value, id(op))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.scan.scan(self._group, value, op, out, Choice(algorithm)), timeout)

    @overload
    def exscan(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Value | None: ...
    @overload
    def exscan(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Value: ...
    def exscan(
        self,
        value: Any,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the combination of the values of all ranks before this one, in rank order.

        Cost: q rounds of m bytes, where m is the size of one value (arXiv 2604.25667).

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of the shape and dtype of `value`, which it may be. On rank 0 it is returned as it is: put the neutral
                element into it before.

        Returns:
            An array (scalar, object) like `value`; on rank 0 `out`, or None.

        >>> comm.exscan(np.arange(3), out=np.zeros(3, int))
        array([0, 0, 0])
        """
        op = op if type(op) is Op else as_op(op)
        if timeout is None and algorithm is None:
            known = self._known_with("exscan", value, id(op))
            if known is not None and (result := self._again(known, value, out)) is not UNMADE:
                return result
        return self._call(collectives.scan.exscan(self._group, value, op, out, Choice(algorithm)), timeout)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when all ranks have called it.

        Cost: q rounds of empty messages (census: Träff 2022).

        >>> comm.barrier()
        """
        known = self._known("barrier") if timeout is None else None
        if known is not None and self._again(known, None) is not UNMADE:
            return None
        return self._call(collectives.reduce.barrier(self._group), timeout)
