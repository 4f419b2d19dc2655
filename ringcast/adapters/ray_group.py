"""A group of `ray.util.collective`, which makes the calls of a communicator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import ray
from ray.experimental import internal_kv
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

from ringcast.adapters import memory
from ringcast.adapters.background import background_of
from ringcast.adapters.gathering import gathered
from ringcast.adapters.meeting import meet
from ringcast.collectives import recovery
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.config.worker import start_timeout
from ringcast.errors import FAILURES, UsageError
from ringcast.ops import MAX, MIN, PROD, SUM, Op
from ringcast.wire.error_text import in_a_line

NAME = "RINGCAST"
_OPS: dict[Any, Op] = {ReduceOp.SUM: SUM, ReduceOp.PRODUCT: PROD, ReduceOp.MIN: MIN, ReduceOp.MAX: MAX}
_NAMESPACE = "ringcast"


class RingcastGroup(BaseGroup):  # type: ignore[misc]  # ray's types are skipped
    """The ranks of a group in Ray's actors or tasks; Ray makes it, in each of them.

    Arrays and tensors keep their memory: results are put where the program has its operands. All errors of ringcast
    pass through. After one that this rank alone has found, as a wrong dtype, the others get `Revoked`.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._comm = _met(world_size, rank, group_name)
        self._background = background_of(self._comm)  # now, as this thread is the only one until another makes a call

    @classmethod
    def backend(cls) -> str:
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        """Leave the group; no rank waits for another."""
        self._background.leave(self._comm)

    def allreduce(self, tensor: list[Any], allreduce_options: Any = None) -> None:
        with self._call(allreduce_options) as (comm, timeout):
            row, back = memory.operand(tensor[0])
            comm.allreduce(row, _op(allreduce_options), out=row, timeout=timeout)
            back()

    def barrier(self, barrier_options: Any = None) -> None:
        with self._call(barrier_options) as (comm, timeout):
            comm.barrier(timeout=timeout)

    def reduce(self, tensor: list[Any], reduce_options: Any = None) -> None:
        with self._call(reduce_options) as (comm, timeout):
            root = _root(reduce_options)
            if root == comm.rank:
                row, back = memory.operand(tensor[0])
                comm.reduce(row, _op(reduce_options), root, out=row, timeout=timeout)
                back()
            else:
                comm.reduce(memory.contribution(tensor[0]), _op(reduce_options), root, timeout=timeout)

    def broadcast(self, tensor: list[Any], broadcast_options: Any = None) -> None:
        with self._call(broadcast_options) as (comm, timeout):
            root = _root(broadcast_options)
            if root == comm.rank:
                comm.bcast(memory.items(tensor[0]), root, timeout=timeout)
            else:
                row, back = memory.target(tensor[0])
                comm.bcast(row, root, timeout=timeout)
                back()

    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: Any = None) -> None:
        with self._call(allgather_options) as (comm, timeout):
            parts = tensor_list[0]
            memory.check_alike([*parts, tensor[0]])
            mine, places = memory.items(tensor[0]), [memory.target(part) for part in parts]
            counts = [row.size for row, _ in places]
            everybodys = comm.allgatherv(mine, counts, timeout=timeout)
            first = 0
            for row, back in places:
                row[:] = everybodys[first : first + row.size]
                first += row.size
                back()

    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: Any = None) -> None:
        with self._call(reducescatter_options) as (comm, timeout):
            parts = tensor_list[0]
            memory.check_alike([*parts, tensor[0]])
            row, back = memory.operand(tensor[0])
            counts = [memory.items(part).size for part in parts]
            comm.reduce_scatter(memory.joined(parts), _op(reducescatter_options), counts, out=row, timeout=timeout)
            back()

    def send(self, tensor: list[Any], send_options: Any) -> None:
        with self._call(send_options) as (comm, timeout):
            comm.send(memory.items(tensor[0]), send_options.dst_rank, timeout=timeout)

    def recv(self, tensor: list[Any], recv_options: Any) -> None:
        with self._call(recv_options) as (comm, timeout):
            row, back = memory.target(tensor[0])
            came = comm.recv(recv_options.src_rank, out=row, timeout=timeout)
            if came.size != row.size:
                raise ValueError(f"recv: expected {row.size} items of rank {recv_options.src_rank}, got {came.size}")
            back()

    @contextmanager
    def _call(self, options: Any) -> Iterator[tuple[Communicator, float | None]]:
        """Yield the communicator, and the seconds that the call may take."""
        comm = self._comm
        with self._background.call():
            try:
                yield comm, _seconds(options)
            except (*FAILURES, UsageError):  # not of the arguments; or this process may not speak for the rank
                raise
            except Exception as error:
                if not comm.closed:  # the others would wait for this rank
                    recovery.revoke(group_of(comm), f"rank {comm.rank}: {in_a_line(error)}")
                raise


def _met(size: int, rank: int, name: str) -> Communicator:
    timeout = start_timeout()
    place = f"{ray.get_runtime_context().namespace}/{name}"
    with gathered(_Board(), place, rank, size, timeout) as (store, left):
        return meet(store, rank, size, timeout=left, address=ray.util.get_node_ip_address())


class _Board:
    """The store of Ray's head, which all processes of the cluster reach; fulfils `Board`."""

    def put(self, key: str, value: bytes) -> None:
        internal_kv._internal_kv_put(key, value, overwrite=True, namespace=_NAMESPACE)

    def look(self, key: str) -> bytes | None:
        value: bytes | None = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
        return value

    def remove(self, prefix: str) -> None:
        internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=_NAMESPACE)


def _op(options: Any) -> Op:
    given = ReduceOp.SUM if options is None else options.reduceOp
    if given not in _OPS:
        raise ValueError(f"op={given}: expected one of {', '.join(map(str, _OPS))}")
    return _OPS[given]


def _root(options: Any) -> int:
    return 0 if options is None else int(options.root_rank)


def _seconds(options: Any) -> float | None:
    limit = getattr(options, "timeout_ms", None)
    return limit.total_seconds() if isinstance(limit, timedelta) and limit > timedelta(0) else None
