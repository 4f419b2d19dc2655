"""Pickling of Python objects: `MPI.pickle`, which programs may change."""

from __future__ import annotations

import pickle as standard
from collections.abc import Callable, Iterable
from typing import Any

from ringcast.mpi.data.memory import buffer

__all__ = ["Pickle", "pickle"]


class Pickle:
    """Functions that make bytes of objects, and objects of bytes."""

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[..., Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        self._dumps = standard.dumps if dumps is None else dumps
        self._loads = standard.loads if loads is None else loads
        self.PROTOCOL, self.THRESHOLD = protocol, threshold

    @property
    def PROTOCOL(self) -> int | None:
        """The protocol of the pickles; None sets the default: the highest one, or the choice of a program's `dumps`."""
        return self._protocol

    @PROTOCOL.setter
    def PROTOCOL(self, protocol: int | None) -> None:
        highest = standard.HIGHEST_PROTOCOL if self._dumps is standard.dumps else None
        self._protocol = highest if protocol is None else protocol

    @property
    def THRESHOLD(self) -> int:
        """A buffer of so many bytes, or more, is kept out of the pickle; None sets the default."""
        return self._threshold

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        self._threshold = 1 << 18 if threshold is None else threshold

    def dumps(self, obj: Any) -> bytes:
        """Return an object as bytes."""
        return self._dumps(obj) if self.PROTOCOL is None else self._dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        """Return the object from its bytes."""
        return self._loads(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[buffer]]:
        """Return an object as bytes, and the large buffers in it, which are not copied."""
        large: list[buffer] = []

        def kept_out(found: standard.PickleBuffer) -> bool:
            raw = found.raw()
            if raw.nbytes < self.THRESHOLD:
                return True
            large.append(buffer(raw))
            return False

        protocol = standard.HIGHEST_PROTOCOL if self.PROTOCOL is None or self.PROTOCOL < 0 else max(self.PROTOCOL, 5)
        return self._dumps(obj, protocol, buffer_callback=kept_out), large

    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any:
        """Return the object from its bytes and buffers."""
        return self._loads(data, buffers=buffers)


pickle = Pickle()
