"""The calls of torch on a group of ranks, by the names that torch's plug-ins have.

Each call takes lists of tensors and options, and returns a `Work`. A call for which the program waits anyway is made
at once; any other one begins. Outputs are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import prod
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch._C import _distributed_c10d as c10d

from ringcast._util.rank_words import ranks_in_words
from ringcast.adapters.background import background_of
from ringcast.collectives.status import ANY_SOURCE, Status
from ringcast.communicator import Communicator
from ringcast.errors import FAILURES, CollectiveTimeout, RingcastError
from ringcast.ops import Array
from ringcast.requests.request import wait_some
from ringcast.torch import memory
from ringcast.torch.errors import as_torch
from ringcast.torch.memory import Back
from ringcast.torch.operators import Reduction, reduction
from ringcast.torch.parts import Parts
from ringcast.torch.sites import program_site
from ringcast.torch.work import Work, left_until

Tensors = list[torch.Tensor]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # of a communicator, or of `Parts`: its name and arguments
MONITORED = 1 << 31  # tags from here on are those of `monitored_barrier`; torch's are lower
GRACE = 2.0  # seconds that other ranks wait longer there
_NO_LIMIT = timedelta(0)
_MONITORED = "monitoredBarrier"  # in errors, whose words are Gloo's here: programs look for them


class Calls:
    """Collectives and messages of a group; the base of both kinds of torch's plug-ins."""

    _comm: Communicator
    _made_calls = 0  # collectives, as torch counts them to compare ranks

    def _open(self, comm: Communicator, timeout: timedelta) -> None:
        """Have calls made by this communicator."""
        self._comm, self._background, self._parts = comm, background_of(comm), Parts(comm)
        comm.timeout = timeout.total_seconds()

    # Collectives with a root.

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.BroadcastOptions, opts)
        tensor = _one(tensors)
        array, back = memory.target(tensor)
        return self._make("bcast", (array, opts.rootRank), {}, opts, tensors, back)

    def reduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.ReduceOptions, opts)
        tensor = _one(tensors)
        how = reduction(opts.reduceOp, tensor, self._comm.size)
        array, back = _operand(tensor, how)
        mine = self._comm.rank == opts.rootRank
        return self._make(
            "reduce", (array, how.op, opts.rootRank), {"out": array}, opts, tensors, back if mine else None
        )

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.GatherOptions, opts)
        mine, root = _one(inputs), opts.rootRank
        array, room, back = memory.source(mine), {}, None
        if self._comm.rank == root:
            self._check_parts(outputs[0], "outputs")
            memory.of_one_dtype([mine, *outputs[0]])
            out, back = memory.spread(outputs[0])
            room = {"sizes": _counts(outputs[0]), "out": out}
        return self._make("gather", (array, root), room, opts, outputs, back)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Work:
        opts = _options(c10d.ScatterOptions, opts)
        mine, root = _one(outputs), opts.rootRank
        out, back = memory.target(mine)
        array, counts = None, None
        if self._comm.rank == root:
            self._check_parts(inputs[0], "inputs")
            memory.of_one_dtype([mine, *inputs[0]])
            array, counts = memory.joined(inputs[0]), _counts(inputs[0])
        return self._make("scatterv", (array, counts), {"root": root, "out": out}, opts, outputs, back)

    # Collectives that combine.

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllreduceOptions, opts)
        tensor = _one(tensors)
        if tensor.layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        how = reduction(opts.reduceOp, tensor, self._comm.size)
        array, back = _operand(tensor, how)
        return self._make("allreduce", (array, how.op), {"out": array}, opts, tensors, back)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllreduceCoalescedOptions, opts)
        memory.of_one_dtype(tensors)
        flat = torch.cat([memory.check(tensor).detach().reshape(-1) for tensor in tensors])
        how = reduction(opts.reduceOp, flat, self._comm.size)
        array, combined = _operand(flat, how)

        def back() -> None:
            if combined is not None:
                combined()
            for tensor, part in zip(tensors, flat.split(_counts(tensors)), strict=True):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._make("allreduce", (array, how.op), {"out": array}, opts, tensors, back)

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Work:
        """Sum sparse tensors: all ranks get the items of all, and add those at equal places."""
        opts = _options(c10d.AllreduceOptions, opts)
        tensor = _one(tensors)
        if opts.reduceOp.op != opts.reduceOp.RedOpType.SUM:
            raise ValueError(f"sparse tensors are only summed, not combined by {opts.reduceOp.op}")
        mine = tensor.detach().coalesce()
        places, values = mine.indices().t().contiguous(), mine.values().contiguous()
        calls: list[Call] = [("allgatherv", (_rows(part),), {}) for part in (places, values)]

        def finish(results: list[Any]) -> None:
            indices = torch.from_numpy(results[0]).t()
            items = torch.from_numpy(results[1].view(np.uint8)).view(values.dtype).reshape(-1, *values.shape[1:])
            with torch.no_grad():  # a detached one would get the items, and not this one
                tensor.copy_(torch.sparse_coo_tensor(indices, items, tensor.shape).coalesce())

        return self._make_all(calls, opts, tensors, finish)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Work:
        opts = _options(c10d.ReduceScatterOptions, opts)
        mine, (parts,) = _one(outputs), inputs
        self._check_parts(parts, "inputs")
        memory.of_one_dtype([mine, *parts])
        flat = torch.cat([memory.check(part).detach().reshape(-1) for part in parts])
        return self._reduce_scatter([(mine, flat, _counts(parts))], opts, outputs)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.ReduceScatterOptions, opts)
        wanted: list[tuple[torch.Tensor, torch.Tensor, list[int] | None]] = []
        for output, given in zip(outputs, inputs, strict=True):
            memory.of_one_dtype([output, given])
            self._check_whole(given, output, "input")
            wanted.append((output, given.detach().reshape(-1), None))
        return self._reduce_scatter(wanted, opts, outputs)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(
        self, wanted: Sequence[tuple[torch.Tensor, torch.Tensor, list[int] | None]], opts: Any, outputs: Tensors
    ) -> Work:
        calls: list[Call] = []
        backs: list[Back | None] = []
        for output, flat, counts in wanted:
            how = reduction(opts.reduceOp, flat, self._comm.size)
            out, back = _result(output, how)
            calls.append(("reduce_scatter", (_prepared(flat, how), how.op, counts), {"out": out}))
            backs.append(back)
        return self._make_all(calls, opts, outputs, _all(backs))

    # Collectives that move.

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllgatherOptions, opts)
        return self._gather_lists(outputs, inputs, opts, outputs)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllgatherOptions, opts)
        self._check_parts(outputs, "lists of outputs")
        return self._gather_lists([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts, outputs)

    def _gather_lists(self, outputs: list[Tensors], inputs: Tensors, opts: Any, results: list[Tensors]) -> Work:
        """Gather several tensors, each into a list of its own."""
        calls: list[Call] = []
        backs: list[Back | None] = []
        for parts, mine in zip(outputs, inputs, strict=True):
            self._check_parts(parts, "outputs")
            memory.of_one_dtype([mine, *parts])
            counts = _counts(parts)
            if counts[self._comm.rank] != mine.numel():
                raise ValueError(
                    f"rank {self._comm.rank} gives {mine.numel()} items, but its output has {counts[self._comm.rank]}"
                )
            out, back = memory.spread(parts)
            calls.append(self._gathered(memory.source(mine), out, counts))
            backs.append(back)
        return self._make_all(calls, opts, results, _all(backs))

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllgatherOptions, opts)
        calls: list[Call] = []
        backs: list[Back | None] = []
        for output, given in zip(outputs, inputs, strict=True):
            memory.of_one_dtype([output, given])
            self._check_whole(output, given, "output")
            out, back = memory.target(output)
            array = memory.source(given)
            calls.append(("allgather", (array,), {"out": out.reshape(self._comm.size, array.size)}))
            backs.append(back)
        return self._make_all(calls, opts, outputs, _all(backs))

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, mine: Array, out: Array, counts: list[int]) -> Call:
        if len(set(counts)) == 1:
            return "allgather", (mine,), {"out": out.reshape(self._comm.size, mine.size)}
        return "allgatherv", (mine, counts), {"out": out}

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = _options(c10d.AllToAllOptions, opts)
        self._check_parts(outputs, "outputs")
        self._check_parts(inputs, "inputs")
        memory.of_one_dtype([*outputs, *inputs])
        out, back = memory.spread(outputs)
        counts = _counts(inputs), _counts(outputs)
        return self._make("alltoallv", (memory.joined(inputs), *counts), {"out": out}, opts, outputs, back)

    def all_to_all_single(
        self, output: torch.Tensor, given: torch.Tensor, recvcounts: list[int], counts: list[int], opts: Any = None
    ) -> Work:
        opts = _options(c10d.AllToAllOptions, opts)
        memory.of_one_dtype([output, given])
        (out, back), array = memory.target(output), memory.source(given)
        call: Call
        if counts or recvcounts:
            items = self._items(given, counts, "input"), self._items(output, recvcounts, "output")
            call = "alltoallv", (array, *items), {"out": out}
        else:
            rows = (self._comm.size, self._even(given, "input") // self._comm.size)
            self._even(output, "output")
            call = "alltoall", (array.reshape(rows),), {"out": out.reshape(rows[0], -1)}
        return self._make_all([call], opts, [output], _all([back]))

    alltoall_base = all_to_all_single

    # Barriers.

    def barrier(self, opts: Any = None) -> Work:
        opts = _options(c10d.BarrierOptions, opts)
        return self._make("barrier", (), {}, opts, [])

    def monitored_barrier(self, timeout: Any, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; rank 0 raises an error that names those which have not come in time.

        Args:
            timeout: how long, as a timedelta or in options.
            wait_all_ranks: name all of them, not the first one alone.
        """
        comm, limit = self._comm, getattr(timeout, "timeout", timeout)
        seconds = comm.timeout or 0.0 if limit < _NO_LIMIT else limit.total_seconds()
        if comm.rank == 0 and not seconds:
            raise as_torch(RingcastError(f"Rank 0 timed out in {_MONITORED}: it had no time"))
        nothing = np.empty(0, np.uint8)
        comm._place = program_site()
        try:
            with self._background.call():
                if comm.rank == 0:
                    self._await_all(seconds, wait_all_ranks)
                    for rank in range(1, comm.size):
                        comm.send(nothing, rank, MONITORED)
                else:
                    comm.send(nothing, 0, MONITORED)
                    comm.recv(0, MONITORED, timeout=seconds + GRACE)  # rank 0 is to be the first
        except FAILURES as error:
            if comm.rank == 0:
                raise as_torch(error) from error
            reached = f"Rank {comm.rank} successfully reached {_MONITORED}, but received errors while waiting for"
            raise as_torch(RingcastError(f"{reached} send/recv from rank 0: {error}")) from error

    def _await_all(self, seconds: float, every: bool) -> None:
        end = monotonic() + seconds
        missing = {rank: self._comm.irecv(rank, MONITORED) for rank in range(1, self._comm.size)}
        try:
            while missing:
                ranks = [*missing]
                for place, _ in wait_some([missing[rank] for rank in ranks], left_until(end)):
                    del missing[ranks[place]]
        except CollectiveTimeout as error:
            named = ranks_in_words([*missing] if every else [*missing][:1]).capitalize()
            raise as_torch(RingcastError(f"{named} failed to pass {_MONITORED} in {1000 * seconds:g} ms")) from error

    # Messages.

    def send(self, tensors: Tensors, dest: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        return self._begin([("send", (memory.source(tensor), dest, tag), {})], tensors, None)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work:
        return self._receive(tensors, source, tag, None)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self._receive(tensors, ANY_SOURCE, tag, Status())

    def _receive(self, tensors: Tensors, source: Any, tag: int, status: Status | None) -> Work:
        tensor = _one(tensors)
        out, back = memory.target(tensor)

        def finish(results: list[Any]) -> None:
            if results[0].size != out.size:
                raise ValueError(f"rank {source} has sent {results[0].size} items, but the tensor has {out.size}")
            if back is not None:
                back()

        call = "recv", (source, tag), {"out": out, "status": status}
        return self._begin([call], tensors, finish, status)

    # The ways to make a call.

    def _make(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        opts: Any,
        tensors: Sequence[Any],
        back: Back | None = None,
    ) -> Work:
        return self._make_all([(name, args, kwargs)], opts, tensors, None if back is None else lambda _: back())

    def _make_all(
        self,
        calls: Sequence[Call],
        opts: Any,
        tensors: Sequence[Any],
        finish: Callable[[list[Any]], object] | None,
    ) -> Work:
        limit = _limit(opts)
        self._made_calls += 1
        if getattr(opts, "asyncOp", True):
            return self._begin(calls, tensors, finish, limit=limit)
        if limit is None and len(calls) > 1:
            limit = self._comm.timeout
        end = None if limit is None else monotonic() + limit
        self._comm._place = program_site()
        try:
            with self._background.call():
                results = [self._made(call, end) for call in calls]
        except RingcastError as error:
            raise as_torch(error) from error
        if finish is not None:
            finish(results)
        return Work(self._comm, self._background, list(tensors))

    def _begin(
        self,
        calls: Sequence[Call],
        tensors: Sequence[Any],
        finish: Callable[[list[Any]], object] | None,
        status: Status | None = None,
        limit: float | None = None,
    ) -> Work:
        self._comm._place = program_site()
        try:
            with self._background.call():
                requests = [getattr(self._maker(name), f"i{name}")(*args, **kwargs) for name, args, kwargs in calls]
        except RingcastError as error:
            raise as_torch(error) from error
        return Work(self._comm, self._background, list(tensors), requests, finish, status, limit)

    def _made(self, call: Call, end: float | None) -> Any:
        """Make a call, and return its result."""
        name, args, kwargs = call
        if end is not None:
            kwargs = {**kwargs, "timeout": left_until(end)}
        return getattr(self._maker(name), name)(*args, **kwargs)

    def _maker(self, name: str) -> Communicator | Parts:
        return self._parts if name == "gather" else self._comm

    # The end of a group.

    def set_timeout(self, timeout: timedelta) -> None:
        self._comm.timeout = timeout.total_seconds()

    def abort(self) -> None:
        """End all calls of the group, on all ranks: they raise, and so do later ones; leave the group."""
        if not self._comm.closed:
            self._background.break_off(self._comm, f"rank {self._comm.rank} called abort()")
            self.shutdown()

    def shutdown(self) -> None:
        """Leave the group; idempotent. No rank waits for another."""
        self._background.leave(self._comm)

    # Checks.

    def _check_parts(self, tensors: Sequence[Any], name: str) -> None:
        if len(tensors) != self._comm.size:
            raise ValueError(f"expected {name} for {self._comm.size} ranks, got {len(tensors)}")

    def _check_whole(self, big: torch.Tensor, part: torch.Tensor, name: str) -> None:
        if big.numel() != self._comm.size * part.numel():
            raise ValueError(f"expected an {name} of {self._comm.size} times {part.numel()} items, got {big.numel()}")

    def _even(self, tensor: torch.Tensor, name: str) -> int:
        items = int(tensor.numel())
        if tensor.dim() == 0 or tensor.shape[0] % self._comm.size:
            raise ValueError(
                f"expected rows of the {name} for {self._comm.size} ranks alike, got {tuple(tensor.shape)}"
            )
        return items

    def _items(self, tensor: torch.Tensor, rows: list[int], name: str) -> list[int]:
        """Return the items for each rank; `rows` are the rows, or are left out where they are even."""
        items, length = int(tensor.numel()), tensor.shape[0] if tensor.dim() else 0
        if not rows:
            return [self._even(tensor, name) // self._comm.size] * self._comm.size
        if len(rows) != self._comm.size or sum(rows) != length:
            raise ValueError(f"expected {self._comm.size} split sizes that add up to {length} rows, got {rows}")
        return [n * (items // length) if length else 0 for n in rows]


def _rows(tensor: torch.Tensor) -> Array:
    """Return a contiguous tensor as rows, one for each place of its first axis."""
    return memory.whole(tensor).reshape(len(tensor), prod(tensor.shape[1:]))


def _options(kind: Any, given: Any) -> Any:
    """Return the options of a call; torch's programs may leave them out, or give the operator in their place."""
    if isinstance(given, kind):
        return given
    options = kind()
    if given is not None:
        options.reduceOp = given
    return options


def _limit(opts: Any) -> float | None:
    """Return the seconds that a call may take by its own options; None: as long as the group says."""
    limit = getattr(opts, "timeout", _NO_LIMIT)
    return limit.total_seconds() if limit > _NO_LIMIT else None


def _one(tensors: Any) -> torch.Tensor:
    """Return the only tensor of a list; torch's programs may give it without one."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    (tensor,) = tensors
    return tensor


def _counts(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [tensor.numel() for tensor in tensors]


def _prepared(flat: torch.Tensor, how: Reduction) -> Array:
    """Return a rank's items as they are combined."""
    given = flat if how.before is None else how.before(flat)
    return memory.source(given.float() if how.wide else given)


def _operand(tensor: torch.Tensor, how: Reduction) -> tuple[Array, Back | None]:
    """Return a rank's items as they are combined, in memory for the result, and how that comes into the tensor."""
    if how.wide or how.before is not None:
        mine = tensor.detach() if how.before is None else how.before(tensor.detach())
        staged = (mine.float() if how.wide else mine).contiguous()
        return memory.whole(staged), lambda: _rounded(tensor, staged, how)
    array, back = memory.target(tensor)
    return array, _then(back, tensor, how)


def _result(tensor: torch.Tensor, how: Reduction) -> tuple[Array, Back | None]:
    """Return memory for combined items, and how they come into the tensor."""
    if how.wide:
        staged = torch.empty(tensor.shape, dtype=torch.float32)
        return memory.whole(staged), lambda: _rounded(tensor, staged, how)
    array, back = memory.target(tensor)
    return array, _then(back, tensor, how)


def _rounded(tensor: torch.Tensor, staged: torch.Tensor, how: Reduction) -> None:
    if how.after is not None:
        how.after(staged)
    tensor.detach().copy_(staged)


def _then(back: Back | None, tensor: torch.Tensor, how: Reduction) -> Back | None:
    after = how.after
    if after is None:
        return back

    def both() -> None:
        if back is not None:
            back()
        after(tensor.detach())

    return both


def _all(backs: Sequence[Back | None]) -> Callable[[list[Any]], object] | None:
    needed = [back for back in backs if back is not None]
    if not needed:
        return None

    def finish(_: list[Any]) -> None:
        for back in needed:
            back()

    return finish
