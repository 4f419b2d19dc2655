"""The format of a flight record, and how it is read: a rank's last 64 operations in records of fixed size.

A reader may look while the rank writes, or after it was killed. The first and last fields of a record are the same
number: where they differ, the record is being written, and the reader leaves it out. `ringcast.engine.recorder` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import isfinite
from struct import Struct, unpack_from

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.wire.header import STAGES, label_of

KEPT = 64  # operations
FILE = "flight-{rank}"  # in the job's directory
PROFILE = "profile-{rank}.json"  # there too
PEERS = 8  # a record names at most so many of the ranks that its operation waits for

RUNNING, DONE, FAILED = 1, 2, 3
STATES = {RUNNING: "running", DONE: "done", FAILED: "failed"}

MAGIC = b"RCFLGHT2"
HEADER = Struct("<8sIIIIddd64s16x")  # magic, rank, size, pid, whether it left; start (wall, clock), when it left; host
LEFT = Struct("<I")
LEFT_AT, LEFT_WHEN = 20, 40
WHEN = Struct("<d")
PATH_LENGTH = 160
RECORD = Struct("<QB3xiidI32xQIQdd176s164sQ")  # sequence; state to peers; context to site; sequence
MOVING = Struct(f"<B3xiidI{PEERS}I")  # state, round, rounds, end, how many are waited for, and who
END = Struct("<B3xiid")  # the first four of these
STATE_AT = 8  # where they begin in the record
FIXED = Struct("<QIQdd176sI160s")  # context, number, fingerprint, begin (wall, clock), call, line, path
FIXED_AT = STATE_AT + MOVING.size
SEQUENCE = Struct("<Q")
CALL = Struct("<32s32s16s16s72sii")  # collective, algorithm, dtype, operator, shape; root, nblocks

PAYLOAD_AT = HEADER.size + KEPT * RECORD.size  # behind the records: bytes of data so far, as `Payload`, in words …
PAYLOAD = "=%dQ"  # … in the machine's order


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


def image_size(size: int) -> int:
    """Return the bytes of the record of a rank in a job of so many."""
    return PAYLOAD_AT + 8 * (size + 2)


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes of data that a rank has moved so far, headers not counted: sent to each rank, their sum, and received."""

    sent_to: tuple[int, ...]
    sent: int
    received: int


def payload(image: bytes) -> Payload:
    """Return from an image the bytes that the rank has moved so far; none from one that is too short."""
    _, _, size, *_ = HEADER.unpack_from(image)
    if len(image) < image_size(size):
        return Payload((), 0, 0)
    *sent_to, sent, received = unpack_from(PAYLOAD % (size + 2), image, PAYLOAD_AT)
    return Payload((*sent_to,), sent, received)


def decode(image: bytes) -> Flight | None:
    """Return the readable records of an image, without one that is being written; None for a foreign image."""
    if len(image) < HEADER.size or not image.startswith(MAGIC):
        return None
    _, rank, size, pid, left, begun, start, when, host = HEADER.unpack_from(image)
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
    if len(image) < PAYLOAD_AT or not image.startswith(MAGIC):
        return None
    (left,) = LEFT.unpack_from(image, LEFT_AT)
    return RankSnapshot(_latest(image), bool(left), payload(image).sent)


def _latest(image: bytes) -> Entry | None:
    places = range(HEADER.size, PAYLOAD_AT, RECORD.size)
    first, at = max((SEQUENCE.unpack_from(image, at)[0], at) for at in places)
    (last,) = SEQUENCE.unpack_from(image, at + RECORD.size - SEQUENCE.size)
    if first and first == last:
        with suppress(ValueError):
            return _entry(image, at, first)
    return None


def _entries(image: bytes) -> Iterator[Entry]:
    for i in range(min(KEPT, (len(image) - HEADER.size) // RECORD.size)):
        at = HEADER.size + i * RECORD.size
        (first,), (last,) = SEQUENCE.unpack_from(image, at), SEQUENCE.unpack_from(image, at + RECORD.size - 8)
        if first and first == last:
            with suppress(ValueError):
                yield _entry(image, at, first)


def _entry(image: bytes, at: int, sequence: int) -> Entry:
    """Return one record.

    Raises:
        ValueError: it holds nothing that a recorder writes.
    """
    state, round_, rounds, end, waiting, *peers = MOVING.unpack_from(image, at + STATE_AT)
    context, number, fingerprint, begun, start, call, line, path = FIXED.unpack_from(image, at + FIXED_AT)
    if state not in STATES or not all(map(isfinite, (begun, start, end))):
        raise ValueError(f"record {sequence}")
    call_number, stage = divmod(number, STAGES)
    *names, root, nblocks = CALL.unpack(call)
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
