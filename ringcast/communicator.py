"""The Communicator: the collective operations as a user calls them, blocking, on one group of ranks."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast.collectives import recovery
from ringcast.collectives.explain import Explanation, Size, explain
from ringcast.collectives.stage import Choice, Group
from ringcast.engine.execute import Result, Steps, drive
from ringcast.engine.signal_gate import gate_of_this_thread
from ringcast.errors import ArgumentError, JobAborted, UsageError
from ringcast.ops import SUM, Op, as_op
from ringcast.procs.child_processes import GUARD
from ringcast.schedules.circulant import skips
from ringcast.schedules.scan import census_skips
from ringcast.wire.unanswered import FAILURES

Operator = Op | Callable[[Any, Any], Any]


class Communicator:
    """A group of ranks that call collectives together: every rank the same calls in the same order.

    Values are numpy arrays (or numpy scalars), which travel as raw buffers, or any other picklable objects. Arrays
    with Python objects in them travel as objects. Arguments named `algorithm` and `nblocks` override the automatic
    choice and must be equal on all ranks (bcast: those of the root count). p is the number of ranks; m is the number
    of bytes of the whole buffer; n is the number of blocks. Rounds and volumes hold in the one-ported model.

    Use it from the thread that made it, and not in a forked child. Every call takes `timeout`, the seconds that it may
    take before `CollectiveTimeout`; None is the communicator's.

    Attributes:
        timeout: the same for all calls that say nothing else; None means no limit.
    """

    def __init__(self, group: Group, timeout: float | None = None) -> None:
        self._group = group
        self.timeout = timeout
        self._owner = os.getpid(), threading.get_ident()
        group.endpoint.gate = gate_of_this_thread()
        self._closed = False

    @property
    def rank(self) -> int:
        """Number of this rank, 0 <= rank < size."""
        return self._group.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._group.size

    @property
    def closed(self) -> bool:
        """Whether this rank has left the job, or has no use of this communicator any more."""
        return self._closed or self._group.endpoint.closed

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks of the job, by rank of this communicator: all of them, unless it was made by `shrink`."""
        return self._group.members or tuple(range(self.size))

    @property
    def is_revoked(self) -> bool:
        """Whether this communicator was given up, by `revoke` or by an error, as far as this rank has heard."""
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

        Other ranks pass nothing, or an array of the right shape and dtype, which is filled and returned. A descriptor
        goes first, in which small values ride along (ceil(log2 p) rounds); then n-1+ceil(log2 p) rounds, and every
        rank receives m bytes (Träff 2022, Algorithm 6). Memory: the buffer, and at most 4 MB.

        Raises:
            ArgumentError: a wrong root, or a buffer that does not fit what the root sends.
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
        """Return the combination of the values of all ranks at the root, None elsewhere.

        `out`: where the root wants the result; may be `value` itself. Commutative elementwise operators:
        n-1+ceil(log2 p) rounds, every rank but the root sends m bytes (arXiv 2407.18004); others go by a binomial tree
        in rank order, in ceil(log2 p) rounds. Memory: one working copy, for `value` stays as it is; none at the
        root if `out` is given.
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

        `out`: where the result goes; may be `value` itself. Large arrays and commutative elementwise operators:
        reduce-scatter and allgather, 2m(p-1)/p bytes each way, in 2 ceil(log2 p) rounds (arXiv 2410.14234), or in
        2(p-1)n around a ring, where these can be hidden behind the wire (Träff et al. 2010). Small ones:
        census (exact operators, ceil(log2 p) rounds) or folding and recursive doubling, in rank order, which also
        serves all other operators.
        """
        return self._call(
            collectives.allreduce(self._group, value, as_op(op), out, Choice(algorithm, nblocks)), timeout
        )

    def gather(
        self, value: Any, root: int = 0, *, out: Any = None, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return all values at the root: arrays of one shape stacked as (p, *shape), or a list; None elsewhere.

        ceil(log2 p) rounds on a circulant tree; the root receives m(p-1)/p bytes. Memory besides the result: ranks on
        the way hold what they pass on, at most half of all data, or all but the root's where counts are uneven.
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
        """Return the concatenation (along axis 0, in rank order) of arrays of any lengths at the root.

        `counts[r]` is the number of rows of rank r; left out, they are exchanged first (ceil(log2 p) rounds).
        Then as `gather`.
        """
        return self._call(collectives.gatherv(self._group, value, counts, root, out, Choice(algorithm)), timeout)

    def scatter(
        self, values: Any = None, root: int = 0, *, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return `values[rank]` of the root's array or sequence on each rank; other ranks pass nothing.

        A descriptor goes first; then ceil(log2 p) rounds on a circulant tree; the root sends m(p-1)/p bytes. Memory as
        for `gather`.
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
        """Return `counts[rank]` rows of the root's array on each rank, in rank order; other ranks pass nothing.

        `counts` left out: as even as possible, the first ranks get one more. Then as `scatter`.
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
        """Return all values on every rank: arrays of one shape stacked as (p, *shape), or a list.

        ceil(log2 p) rounds (Träff 2022, Algorithm 7), or (p-1)n around a ring, where these can be hidden behind the
        wire (Träff et al. 2010); every rank receives m(p-1)/p bytes.
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
        """Return the concatenation (along axis 0, in rank order) of arrays of any lengths on every rank.

        `counts[r]` is the number of rows of rank r, also 0; left out, they are exchanged first (ceil(log2 p) rounds
        of 8 bytes a rank). Then n-1+ceil(log2 p) rounds (Träff 2022, Algorithm 9), or a pipelined ring (Träff et al.
        2010); every rank receives exactly what the others contribute. Lists are concatenated as objects.
        """
        return self._call(collectives.allgatherv(self._group, value, counts, out, Choice(algorithm, nblocks)), timeout)

    def merge_sorted(self, array: Any, *, algorithm: str | None = None, timeout: float | None = None) -> Any:
        """Return the sorted sequence of all items of all ranks, of which every rank gives some, sorted.

        Arrays have one dimension, and any lengths, also 0. Sorted is what `np.sort` would leave as it is: NaNs come
        last. The counts are exchanged first (ceil(log2 p) rounds of 8 bytes a rank); then ceil(log2 p) rounds, in
        which every rank receives exactly what the others contribute and merges what it has (Lang 2025, Algorithm 2).
        Items that are equal but have not the same bits, as 0.0 and -0.0, stand next to each other in an order that
        may differ between ranks. Memory: the result, and half of it to merge.

        Raises:
            ArgumentError: the array is not sorted, has not one dimension, or has items without an order.
            CollectiveMismatch: ranks have different dtypes.
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
        """Return this rank's `counts[rank]` rows of the combination of the arrays of all ranks.

        `counts` left out: as even as possible, the first ranks get one more. ceil(log2 p) rounds (arXiv 2410.14234),
        or n-1+ceil(log2 p) for very irregular counts (the all-broadcast backwards); every rank sends what the others
        get. Operators that are not commutative and elementwise work on whole arrays in rank order. A sequence of p
        objects works too. Memory: one working copy; none if `out` is this rank's rows of `value`, which is then
        overwritten.
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

        `out`: where the result goes; may be `value` itself. ceil(log2 p) rounds of m bytes; any associative operator.
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

        Nobody is before rank 0: it gets None, or `out`, if that is given, as it is, so that it may hold a neutral
        element beforehand; as in MPI. Otherwise as `scan` (arXiv 2604.25667).
        """
        return self._call(collectives.exscan(self._group, value, as_op(op), out, Choice(algorithm)), timeout)

    def alltoall(
        self, value: Any, *, out: Any = None, algorithm: str | None = None, timeout: float | None = None
    ) -> Any:
        """Return from every rank what it has for this one: `result[j]` is `value[rank]` of rank j.

        `value` is an array with p rows, of one shape on all ranks, or a sequence of p objects; the result is an array
        of that shape, or a list. `out`: where the result goes; may be `value` itself, which is then copied first.
        Small data: ceil(log2 p) rounds on the circulant graph, where ranks pass on what is for others
        (arXiv 2410.14234). Large data: p-1 rounds, in which every row goes straight to its rank. Memory: the result,
        and up to twice the value where rows are passed on.
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
        """Return from every rank the rows that it has for this one, joined along axis 0 in rank order.

        The first `counts[0]` rows of `value` are for rank 0, the next `counts[1]` for rank 1, and so on, also none.
        `recvcounts[j]` is the number of rows that rank j has for this one; all ranks give them, or none, and then
        they are exchanged first (ceil(log2 p) rounds). p-1 rounds, in which rows go straight to their rank. Lists and
        tuples are runs of objects. `out` as in `alltoall`.

        Raises:
            ArgumentError: counts that do not add up; an `out` with a wrong number of rows.
            CollectiveMismatch: a rank's `recvcounts` are not what the others have for it.
        """
        choice = Choice(algorithm)
        return self._call(collectives.alltoallv(self._group, value, counts, recvcounts, out, choice), timeout)

    def shift(self, value: Any, distance: int, *, algorithm: str | None = None, timeout: float | None = None) -> Any:
        """Return the value of rank - `distance` (mod p): every value moves on by `distance` ranks, or back if negative.

        Arrays are of one shape on all ranks. One round; or along the links of a ring, a mesh or a hypercube, if
        `algorithm` says so. A distance of 0 returns a copy of an array.
        """
        return self._call(collectives.shift(self._group, value, distance, Choice(algorithm)), timeout)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when all ranks have called it: ceil(log2 p) rounds."""
        self._call(collectives.barrier(self._group), timeout)

    def sendrecv(
        self, value: Any, dest: int | None, source: int | None, tag: int = 0, *, timeout: float | None = None
    ) -> Any:
        """Send `value` to rank `dest` and return the value that arrives from rank `source`, at the same time.

        None for either leaves that half out. `tag` (0 .. 2**32-1) must be the same on both ends of a message.
        """
        return self._call(collectives.sendrecv(self._group, value, dest, source, tag), timeout)

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
        """Return what a call of `collective` would do: printed, it is a table of algorithms with predicted times.

        Nothing is communicated; any rank may ask. The size is that of `value` (this rank's; scatter: the root's), or
        `nbytes`, the whole buffer with all parts (bcast, reduce, allreduce, reduce_scatter, scan, exscan, alltoall,
        alltoallv, shift: what one rank has), or it follows from `counts`, the items of each rank where no value
        says what a row is. `dtype` is for both. The other arguments are those of the call.

        Raises:
            ArgumentError: as in the call; or there is no such collective, or not one size.
        """
        size = Size(value, nbytes, counts, dtype)
        return explain(self._group, collective, size, as_op(op), root, distance, Choice(algorithm, nblocks))

    def revoke(self) -> None:
        """Give up this communicator: every call under way, and every later one, raises Revoked on all ranks.

        Not collective: one rank is enough. `agree` and `shrink` still work.
        """
        self._check("revoke")
        recovery.revoke(self._group)

    def get_failed(self) -> tuple[int, ...]:
        """Return the ranks of this communicator that failed, or left the job, as far as this rank has heard."""
        self._check("get_failed")
        return recovery.failed(self._group)

    def ack_failed(self) -> int:
        """Acknowledge the ranks that `get_failed` tells, so that `agree` is not disturbed by them; return how many."""
        self._check("ack_failed")
        return recovery.acknowledge(self._group)

    def agree(self, flag: int = 1, *, timeout: float | None = None) -> int:
        """Return the bitwise and of the flags (64 bits) of all ranks that live: the same on all of them.

        Collective among the ranks that live; also on a revoked communicator. One message to the control plane and back.

        Raises:
            PeerFailed: ranks failed, or left, that not all had acknowledged; on all alike. Its `flag` is the result.
            CollectiveMismatch: other ranks call `shrink`.
        """
        timeout = self._enter(sys._getframe(), timeout)
        try:
            return recovery.vote(self._group, lambda: recovery.agree(self._group, flag, timeout))
        except FAILURES as error:
            self._raised(error, "agree")
            raise

    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Return a communicator of the ranks that live, in their old order, numbered from 0.

        Collective among the ranks that live; also on a revoked communicator. All get the same members. One message to
        the control plane and back. Its errors name ranks of the job, as `members` does. Its `finalize` leaves the job
        as it is.

        Raises:
            CollectiveMismatch: other ranks call `agree`.
        """
        timeout = self._enter(sys._getframe(), timeout)
        try:
            return recovery.vote(self._group, lambda: Communicator(recovery.shrink(self._group, timeout), self.timeout))
        except FAILURES as error:
            self._raised(error, "shrink")
            raise

    def finalize(self) -> None:
        """Leave the job and give everything back; idempotent. Not collective: nobody waits for anybody.

        A communicator made by `shrink` is only freed; this rank stays in the job.
        """
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        if self._closed or os.getpid() != self._owner[0]:
            return
        with gate_of_this_thread() as gate:
            self._closed = True
            if self._group.members:
                recovery.free(self._group)
                return
            try:
                self._group.endpoint.leave(error)
            finally:
                gate.restore()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self._leave(error)

    def connect_neighbours(self) -> None:
        """Open the connections that the circulant algorithms use, the census too: at most 4 ceil(log2 p) peers."""
        p, rank = self.size, self.rank
        counted = {s for s, _ in census_skips(p)}
        peers = {(rank + sign * s) % p for s in counted.union(skips(p)[:-1]) for sign in (1, -1)} - {rank}
        self._group.endpoint.transport.connect(sorted(map(self._group.in_job, peers)))

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result:
        timeout = self._enter(sys._getframe(1), timeout)
        try:
            return drive(self._group.endpoint, steps, timeout)
        except FAILURES as error:
            self._raised(error, sys._getframe(1).f_code.co_name)
            raise

    def _raised(self, error: BaseException, operation: str) -> None:
        """Note an error that the program gets now: should it catch it and go on, the job has failed all the same."""
        group = self._group
        group.endpoint.unanswered.raised(group.context, error, operation, group.site)

    def _enter(self, method: FrameType, timeout: float | None) -> float | None:
        """Note the place in the program that called `method`, and return how long the call may take; see `_check`."""
        timeout = self._check(method.f_code.co_name, timeout)
        if (user := method.f_back) is not None:
            self._group.site = user.f_code.co_filename, user.f_lineno
        return timeout

    def _check(self, operation: str, timeout: float | None = None) -> float | None:
        """Return how long a call of `operation` may take, given what it says itself.

        Raises:
            UsageError: not here, or not any more.
            ArgumentError: that is no time.
        """
        pid, thread = self._owner
        if os.getpid() != pid:
            raise UsageError(
                f"rank {self.rank}: this process was forked from process {pid}, to which the communicator belongs; "
                "start ranks with ringcast-launch or ringcast.run, and children with the spawn method and init under "
                f"`{GUARD}`"
            )
        if threading.get_ident() != thread:
            raise UsageError(
                f"rank {self.rank}: the communicator belongs to another thread; "
                "call it only from the thread that called init"
            )
        if self.closed:
            raise UsageError(f"rank {self.rank}: the communicator was finalized; call it before finalize()")
        if self._group.endpoint.torn:
            raise JobAborted(self._group.endpoint.rank, self._group.endpoint.torn)
        timeout = self.timeout if timeout is None else timeout
        if timeout is None:
            return None
        if not (isinstance(timeout, int | float | np.integer | np.floating) and timeout > 0):
            expected = f"expected a number of seconds above 0, got {timeout!r}"
            raise ArgumentError(self.rank, operation, "timeout", expected)
        try:
            return float(timeout)
        except OverflowError:  # an int beyond all floats
            return math.inf
