"""A communicator on which bits flip on the way."""

from __future__ import annotations

from typing import Any

from ringcast import Communicator


class Flipping:
    """A communicator that flips a bit of what arrives by its first broadcasts of pieces."""

    def __init__(self, comm: Communicator, times: int) -> None:
        self._comm, self._times = comm, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def ibcast(self, value: Any, root: int, **chosen: Any) -> Any:
        self._times -= 1
        flipped = value if self._times >= 0 and self._comm.rank != root else None
        return Flipped(self._comm.ibcast(value, root, **chosen), flipped)


class Flipped:
    """A request that flips a bit when it is done."""

    def __init__(self, request: Any, value: Any) -> None:
        self._request, self._value = request, value

    def wait(self) -> None:
        self._request.wait()
        if self._value is not None:
            self._value[len(self._value) // 2] ^= 1
