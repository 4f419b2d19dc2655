"""Records that ranks exchange between the steps of a copy; they travel as bytes, as a job may refuse pickles."""

from __future__ import annotations

from typing import Any, Protocol, Self

import msgpack
import numpy as np

from ringcast.requests.request import Request


class Ranks(Protocol):
    """The part of a communicator that a copy uses."""

    @property
    def rank(self) -> int: ...
    @property
    def members(self) -> tuple[int, ...]: ...
    def bcast(self, value: Any = None, root: int = 0) -> Any: ...
    def ibcast(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]: ...
    def allgatherv(self, value: Any, counts: Any = None) -> Any: ...
    def allgather(self, value: Any) -> Any: ...
    def allreduce(self, value: Any, op: Any) -> Any: ...
    def shrink(self) -> Self: ...


def announced(comm: Ranks, root: int, record: dict[str, Any]) -> dict[str, Any]:
    """Return the root's record on all ranks."""
    packed = np.frombuffer(msgpack.packb(record), np.uint8) if comm.rank == root else None
    received: dict[str, Any] = msgpack.unpackb(comm.bcast(packed, root).tobytes(), use_list=False)
    return received


def exchanged(comm: Ranks, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of all ranks."""
    packed = np.frombuffer(msgpack.packb(record), np.uint8)
    lengths = np.asarray(comm.allgather(np.int64(len(packed))))
    parts = np.split(np.asarray(comm.allgatherv(packed, lengths)), np.cumsum(lengths)[:-1])
    return [msgpack.unpackb(part.tobytes(), use_list=False) for part in parts]
