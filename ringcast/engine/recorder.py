"""The flight recorder: it writes a rank's last 64 operations, so that they can be read after the rank was killed.

With a launcher the records lie in a mapped file of the job's private directory, else in plain memory. A record is
written once when its operation begins, and touched once more when that ends. Rounds are not followed: the record gets
them, and the ranks that the operation waits for, when it has waited for a while, and when it fails. Behind them
are counters of the bytes of data sent to each rank, and received, which the protocol advances itself.
`ringcast.wire.flight` defines the layout.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from functools import lru_cache

from ringcast.procs.portable import reserve
from ringcast.protocol.operations import Operation
from ringcast.wire.call import COUNTS_OF, Call, Site
from ringcast.wire.flight import (
    CALL,
    DONE,
    END,
    FAILED,
    FILE,
    HEADER,
    KEPT,
    LEFT,
    LEFT_AT,
    LEFT_WHEN,
    MAGIC,
    MOVING,
    PATH_LENGTH,
    PAYLOAD_AT,
    PEERS,
    RECORD,
    RUNNING,
    STATE_AT,
    WHEN,
    image_size,
)

_begin, _end = RECORD.pack_into, END.pack_into
_wall = time.time


class Recorder:
    """The records of one rank; used by the thread that communicates. `memory` is of the right `image_size`."""

    _clock = staticmethod(time.monotonic)

    def __init__(self, rank: int, size: int, memory: bytearray | mmap.mmap | None = None) -> None:
        self._memory = bytearray(image_size(size)) if memory is None else memory
        self.payload = memoryview(self._memory)[PAYLOAD_AT:].cast("Q")
        self._last = 0
        host = _cut(socket.gethostname(), 64)
        HEADER.pack_into(self._memory, 0, MAGIC, rank, size, os.getpid(), 0, _wall(), self._clock(), 0.0, host)

    def begin(self, op: Operation, call: bytes) -> None:
        """Record that an operation has begun; `call` is what `encoded` makes of it. Takes about a microsecond."""
        self._last = last = self._last + 1
        op.record = at = HEADER.size + last % KEPT * RECORD.size
        now, clock, site = _wall(), self._clock(), _place(op.site)
        op.began = clock
        _begin(
            self._memory, at,
            last, RUNNING, -1, -1, 0.0, 0, op.context, op.number, op.fingerprint, now, clock, call, site, last,
        )  # fmt: skip

    def done(self, op: Operation) -> float:
        """Record that an operation has ended well, and return when."""
        rounds, now = op.rounds or 0, self._clock()
        _end(self._memory, op.record + STATE_AT, DONE, rounds, rounds, now)
        return now

    def waits(self, op: Operation, peers: tuple[int, ...] | None = None) -> None:
        """Record how far an operation has come, and whom it waits for: `peers`, where it knows not itself."""
        self._follow(op, RUNNING, 0.0, peers)

    def failed(self, op: Operation, peers: tuple[int, ...] | None = None) -> None:
        """Record that an operation has failed, and where; `peers` as in `ringcast.control.deadlocks`."""
        self._follow(op, FAILED, self._clock(), peers)

    def close(self) -> None:
        """Record that the rank has left; nothing is recorded or counted after that. Idempotent."""
        if isinstance(self._memory, mmap.mmap) and not self._memory.closed:
            LEFT.pack_into(self._memory, LEFT_AT, 1)
            WHEN.pack_into(self._memory, LEFT_WHEN, self._clock())
            self.payload.release()
            self._memory.close()

    def image(self) -> bytes:
        """Return all that is recorded, as `decode` takes it."""
        return bytes(self._memory)

    def _follow(self, op: Operation, state: int, ended: float, peers: tuple[int, ...] | None) -> None:
        if not op.record:  # it was begun by something else than a call of the user
            return
        peers = op.waiting_for if peers is None else peers
        places = (*peers[:PEERS], *[0] * (PEERS - len(peers)))
        round_, rounds = -1 if op.round is None else op.round, -1 if op.rounds is None else op.rounds
        MOVING.pack_into(self._memory, op.record + STATE_AT, state, round_, rounds, ended, len(peers), *places)


def mapped(directory: str, rank: int, size: int) -> Recorder:
    """Return a recorder in a file of the job's directory; in plain memory if there is no room for one."""
    try:
        path = os.path.join(directory, FILE.format(rank=rank))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            reserve(file, image_size(size))  # where a mapped page finds no room, the process would be killed
            return Recorder(rank, size, mmap.mmap(file, image_size(size)))
        finally:
            os.close(file)
    except OSError:
        return Recorder(rank, size)


@lru_cache(maxsize=1024)
def encoded(call: Call, shape: str = "") -> bytes:
    """Return a call as its part of a record; `shape` replaces the call's own."""
    dtype = call.dtype.removesuffix(COUNTS_OF)
    names = _cut(call.collective, 32), _cut(call.algorithm, 32), _cut(dtype, 16), _cut(call.op, 16)
    root = -1 if call.root is None else int(call.root)
    return CALL.pack(*names, _cut(shape or _shape(call), 72), root, call.nblocks)


def _shape(call: Call) -> str:
    """Return the shape, and on which topology; or the first counts and a digest of all; or other arguments in words."""
    if call.topology:
        return f"{tuple(map(int, call.shape))} on {call.topology}"
    if not call.dtype:
        return call.data()
    if call.dtype.endswith(COUNTS_OF):
        return f"rows of shape {tuple(map(int, call.shape))}, counts left out"
    if len(call.shape) <= 4:
        return str(tuple(map(int, call.shape)))
    return f"({', '.join(str(int(n)) for n in call.shape[:4])}, … {call.fingerprint & 0xFFFFFF:06x})"


def _cut(text: str, most: int) -> bytes:
    """Return the text in at most so many bytes, whatever its characters are."""
    return text.encode("utf-8", "replace")[:most]


@lru_cache(maxsize=1024)
def _place(site: Site) -> bytes:
    """Return the encoded place of a call; of a long path only the end, which has the file's name."""
    file, line = site
    return line.to_bytes(4, "little") + file.encode("utf-8", "replace")[-PATH_LENGTH:]
