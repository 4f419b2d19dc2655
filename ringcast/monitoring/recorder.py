"""The flight recorder: a rank's last 64 operations, in records of fixed size that can be read after it was killed.

With a launcher they lie in a mapped file of the job's private directory, else in plain memory. A record is written
once when its operation begins, and touched once more when that ends. Its first and last fields are the same number:
where they differ, somebody reads it in the moment in which it is written. Rounds are not followed: the record gets
them, and whom the rank waits for, when it has waited for a while, and when the operation fails. Beside the records is a
counter of the bytes of data sent, which the protocol advances itself.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from math import isfinite
from struct import Struct

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.procs.portable import reserve
from ringcast.protocol.operations import Operation
from ringcast.wire.call import COUNTS_OF, Call, Site
from ringcast.wire.header import STAGES, label_of

KEPT = 64  # operations
FILE = "flight-{rank}"  # in the job's directory
PEERS = 8  # ranks that are waited for, of which the numbers are kept

RUNNING, DONE, FAILED = 1, 2, 3
STATES = {RUNNING: "running", DONE: "done", FAILED: "failed"}

_MAGIC = b"RCFLGHT1"
_HEADER = Struct("<8sIIIIddd64s16x")  # magic, rank, size, pid, whether it left; start (wall, clock), when it left; host
_SENT_AT, _SENT = 112, Struct("=Q")  # in the free bytes, in the machine's order: bytes of data sent so far
_LEFT = Struct("<I")
_LEFT_AT, _LEFT_WHEN = 20, 40
_WHEN = Struct("<d")
_PATH = 160
_RECORD = Struct("<QB3xiidI32xQIQdd176s164sQ")  # sequence; state to peers; context to site; sequence
_MOVING = Struct(f"<B3xiidI{PEERS}I")  # state, round, rounds, end, how many are waited for, and who
_END = Struct("<B3xiid")  # the first four of these
_STATE = 8  # where they begin in the record
_FIXED = Struct("<QIQdd176sI160s")  # context, number, fingerprint, begin (wall, clock), call, line, path
_FIXED_AT = _STATE + _MOVING.size
_SEQUENCE = Struct("<Q")
_CALL = Struct("<32s32s16s16s72sii")  # collective, algorithm, dtype, operator, shape; root, nblocks

SIZE = _HEADER.size + KEPT * _RECORD.size

_begin, _end = _RECORD.pack_into, _END.pack_into
_wall, _clock = time.time, time.monotonic


class Recorder:
    """The records of one rank; used by the thread that communicates. `memory` has SIZE bytes."""

    def __init__(self, rank: int, size: int, memory: bytearray | mmap.mmap | None = None) -> None:
        self._memory = bytearray(SIZE) if memory is None else memory
        self.sent = memoryview(self._memory)[_SENT_AT : _SENT_AT + _SENT.size].cast("Q")
        self._last = 0
        host = _cut(socket.gethostname(), 64)
        _HEADER.pack_into(self._memory, 0, _MAGIC, rank, size, os.getpid(), 0, _wall(), _clock(), 0.0, host)

    def begin(self, op: Operation, call: bytes) -> None:
        """Record that an operation has begun; `call` is what `encoded` makes of it. Takes about a microsecond."""
        self._last = last = self._last + 1
        op.record = at = _HEADER.size + last % KEPT * _RECORD.size
        now, clock, site = _wall(), _clock(), _place(op.site)
        _begin(
            self._memory, at,
            last, RUNNING, -1, -1, 0.0, 0, op.context, op.number, op.fingerprint, now, clock, call, site, last,
        )  # fmt: skip

    def done(self, op: Operation) -> None:
        """Record that an operation has ended well."""
        rounds = op.rounds or 0
        _end(self._memory, op.record + _STATE, DONE, rounds, rounds, _clock())

    def waits(self, op: Operation, peers: tuple[int, ...] | None = None) -> None:
        """Record how far an operation has come, and whom it waits for: `peers`, where it knows not itself."""
        self._follow(op, RUNNING, 0.0, peers)

    def failed(self, op: Operation, peers: tuple[int, ...] | None = None) -> None:
        """Record that an operation has failed, and where; `peers` as in `ringcast.control.deadlocks`."""
        self._follow(op, FAILED, _clock(), peers)

    def close(self) -> None:
        """Record that the rank has left; nothing is recorded or counted after that. Idempotent."""
        if isinstance(self._memory, mmap.mmap) and not self._memory.closed:
            _LEFT.pack_into(self._memory, _LEFT_AT, 1)
            _WHEN.pack_into(self._memory, _LEFT_WHEN, _clock())
            self.sent.release()
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
        _MOVING.pack_into(self._memory, op.record + _STATE, state, round_, rounds, ended, len(peers), *places)


def mapped(directory: str, rank: int, size: int) -> Recorder:
    """Return a recorder in a file of the job's directory; in plain memory if there is no room for one."""
    try:
        path = os.path.join(directory, FILE.format(rank=rank))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            reserve(file, SIZE)  # where a mapped page finds no room, the process would be killed
            return Recorder(rank, size, mmap.mmap(file, SIZE))
        finally:
            os.close(file)
    except OSError:
        return Recorder(rank, size)


@lru_cache(maxsize=1024)
def encoded(call: Call, shape: str = "") -> bytes:
    """Return a call as its part of a record; `shape` replaces that of the call."""
    dtype = call.dtype.removesuffix(COUNTS_OF)
    names = _cut(call.collective, 32), _cut(call.algorithm, 32), _cut(dtype, 16), _cut(call.op, 16)
    root = -1 if call.root is None else int(call.root)
    return _CALL.pack(*names, _cut(shape or _shape(call), 72), root, call.nblocks)


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
    return line.to_bytes(4, "little") + file.encode("utf-8", "replace")[-_PATH:]


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation as it was recorded. Times are seconds: `begun` since 1970, the others on the monotonic clock."""

    sequence: int  # 1, 2, ... for all operations of the rank
    context: int
    number: int  # of the call, equal on all ranks; 0 point-to-point
    stage: int  # of the call, from 0
    fingerprint: int
    collective: str
    algorithm: str
    dtype: str
    op: str
    shape: str  # of what one rank gives, or the counts; of a sendrecv its tag and ends
    root: int | None
    nblocks: int
    state: str
    round: int | None
    rounds: int | None
    waiting: int  # for how many ranks
    waiting_for: tuple[int, ...]  # the first of these
    begun: float
    start: float
    end: float | None
    file: str
    line: int

    @property
    def label(self) -> str:
        """The call and its stage, as "#17" or "#17.1"."""
        return label_of(STAGES * self.number + self.stage)


@dataclass(frozen=True, slots=True)
class Flight:
    """The flight record of a rank: its operations in the order in which they began."""

    rank: int
    size: int
    pid: int
    host: str
    begun: float  # when it joined, in seconds since 1970
    start: float  # the same on the monotonic clock
    left: float | None  # when it left the job
    entries: tuple[Entry, ...]


def decode(image: bytes) -> Flight | None:
    """Return the readable records of an image, without one that is being written; None for a foreign image."""
    if len(image) < _HEADER.size or not image.startswith(_MAGIC):
        return None
    _, rank, size, pid, left, begun, start, when, host = _HEADER.unpack_from(image)
    if not all(map(isfinite, (begun, start, when))):
        return None
    entries = sorted(_entries(image), key=lambda entry: entry.sequence)
    return Flight(rank, size, pid, _text(host), begun, start, when if left else None, tuple(entries))


@dataclass(frozen=True, slots=True)
class RankSnapshot:
    """Snapshot of one rank: its last operation, whether it has left, and the bytes of data that it has sent so far."""

    entry: Entry | None
    left: bool
    sent: int


def rank_snapshot(image: bytes) -> RankSnapshot | None:
    """Return the snapshot from an image, in a small part of the time that `decode` takes; None for a foreign image."""
    if len(image) < SIZE or not image.startswith(_MAGIC):
        return None
    (left,), (sent,) = _LEFT.unpack_from(image, _LEFT_AT), _SENT.unpack_from(image, _SENT_AT)
    return RankSnapshot(_latest(image), bool(left), sent)


def _latest(image: bytes) -> Entry | None:
    places = range(_HEADER.size, SIZE, _RECORD.size)
    first, at = max((_SEQUENCE.unpack_from(image, at)[0], at) for at in places)
    (last,) = _SEQUENCE.unpack_from(image, at + _RECORD.size - _SEQUENCE.size)
    if first and first == last:
        with suppress(ValueError):
            return _entry(image, at, first)
    return None


def _entries(image: bytes) -> Iterator[Entry]:
    for i in range(min(KEPT, (len(image) - _HEADER.size) // _RECORD.size)):
        at = _HEADER.size + i * _RECORD.size
        (first,), (last,) = _SEQUENCE.unpack_from(image, at), _SEQUENCE.unpack_from(image, at + _RECORD.size - 8)
        if first and first == last:
            with suppress(ValueError):
                yield _entry(image, at, first)


def _entry(image: bytes, at: int, sequence: int) -> Entry:
    """Return one record.

    Raises:
        ValueError: it holds nothing that a recorder writes.
    """
    state, round_, rounds, end, waiting, *peers = _MOVING.unpack_from(image, at + _STATE)
    context, number, fingerprint, begun, start, call, line, path = _FIXED.unpack_from(image, at + _FIXED_AT)
    if state not in STATES or not all(map(isfinite, (begun, start, end))):
        raise ValueError(f"record {sequence}")
    call_number, stage = divmod(number, STAGES)
    *names, root, nblocks = _CALL.unpack(call)
    collective, algorithm, dtype, op, shape = map(_text, names)
    if state == DONE:
        waiting = 0
    return Entry(
        sequence, context, call_number, stage, fingerprint, collective, algorithm, dtype, op, shape,
        None if root < 0 else root, nblocks, STATES[state], None if round_ < 0 else round_,
        None if rounds < 0 else rounds, waiting,
        tuple(peers[: min(waiting, PEERS)]), begun, start, None if state == RUNNING else end, _text(path), line,
    )  # fmt: skip


def _text(data: bytes) -> str:
    """Return recorded text; a terminal gets no control characters from it."""
    return printable(data.rstrip(b"\0").decode("utf-8", "replace"))
