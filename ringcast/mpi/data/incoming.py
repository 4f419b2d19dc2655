"""Messages that arrive: bytes, with the rank and the tag of their sender."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringcast.mpi.data.layout import Bytes
from ringcast.protocol.operations import put_into_views


class Envelope:
    """Sender, tag and size of a message; fulfils `Sink` for a message that is not taken."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.source = self.tag = self.count = 0

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        self.source, self.tag, self.count = source, tag, sum(sizes)

    def view(self, offset: int, length: int) -> memoryview:
        raise NotImplementedError

    def placed(self, offset: int, length: int) -> None: ...

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)


class Incoming(Envelope):
    """A message that is received: in the `room` given, if that is large enough, else in memory of its own.

    Attributes:
        data: the received bytes.
    """

    def __init__(self, room: Bytes | None = None) -> None:
        super().__init__()
        self._room, self.data = room, memoryview(b"")

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        super().announce(source, tag, sizes)
        room = self._room
        memory = np.empty(self.count, np.uint8) if room is None or room.nbytes < self.count else room
        self.data = memory.data[: self.count]

    def view(self, offset: int, length: int) -> memoryview:
        return self.data[offset:]

    def come(self, source: int, tag: int, data: memoryview) -> None:
        """Take a whole message."""
        self.announce(source, tag, [len(data)])
        self.put(0, data)

    def put(self, offset: int, data: memoryview) -> None:
        self.data[offset : offset + len(data)] = data
