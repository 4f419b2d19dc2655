"""Define and exchange the records that ranks send between the steps of a copy.

The hosts of a copy need not trust each other, and each passes on what it gets. So a record is bytes of bounded length
that the codec reads, and nothing is unpickled, also in a job that takes Python objects. The root can seal its records,
so that no host that passes them on can change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.errors import TransferError
from ringcast.requests.request import Request
from ringcast.wire.codec import CodecError, Count, Within, encode, parse, unpack

if TYPE_CHECKING:
    from ringcast.transfer.seal import Seal

LARGEST = 1 << 32  # bytes that the root announces: a list of files needs some 250 for each
LARGEST_OWN = 1 << 16  # bytes that each rank tells all others
DIGEST = 32  # bytes
LONGEST = 1 << 12  # characters of an error: in bytes that is far below LARGEST_OWN
_LENGTH = 8  # bytes, which come before a record
_WITHIN = 4 << 10  # bytes of a record in the first broadcast, together with its length; a second one has the rest
_MOST = 1 << 12  # items of a list: a list of many `None` takes eight times its encoded bytes in memory

WRONG = "another host sends data that is no part of a copy"

Seconds: TypeAlias = Annotated[float, Within(0, 1 << 40)]
Record = TypeVar("Record")


class Ranks(Protocol):
    """The part of a communicator that a copy uses."""

    @property
    def rank(self) -> int: ...
    @property
    def members(self) -> tuple[int, ...]: ...
    def bcast_into(self, buffer: Any, root: int = 0) -> None: ...
    def ibcast(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]: ...
    def allgatherv(self, value: Any, counts: Any = None) -> Any: ...
    def allgather(self, value: Any) -> Any: ...
    def allreduce(self, value: Any, op: Any) -> Any: ...
    def agree(self, flag: int) -> int: ...
    def shrink(self) -> Self: ...
    def create(self, ranks: Sequence[int]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Failed:
    """The root cannot go on."""

    error: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that the root copies."""

    manifest: bytes


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 of chunks, one after the other."""

    digests: bytes

    def of(self, chunks: Sequence[int]) -> dict[int, bytes]:
        """Return the digest of each of these chunks.

        Raises:
            TransferError: there are more digests, or fewer.
        """
        if len(self.digests) != DIGEST * len(chunks):
            raise TransferError(f"{WRONG}: {len(self.digests):,} bytes for the digests of {len(chunks):,} chunks")
        return {chunk: self.digests[at * DIGEST :][:DIGEST] for at, chunk in enumerate(chunks)}


@dataclass(frozen=True, slots=True)
class Framing:
    """Whether pieces of the next segment may be compressed."""

    framed: bool


@dataclass(frozen=True, slots=True)
class FirstLengths:
    """Bytes of the first payloads of a segment that is framed."""

    lengths: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """The chunks of a segment that the root has sent, and whether pieces of the next segment may be compressed."""

    chunks: tuple[Count, ...]
    digests: Digests
    framed: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a rank before content is sent.

    Attributes:
        existing: whether some of the content may be on the rank's disk already.
        zstd: whether the rank can compress.
        error: why the rank cannot take the files; empty if it can.
        begun: whether content was sent before: the copy goes on after the loss of a rank.
    """

    existing: bool
    zstd: bool
    error: str
    begun: bool


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a rank: seconds of work, seconds for which others waited in this segment, whether it still writes."""

    seconds: Seconds
    stalled: Seconds
    writes: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of the copy on a rank; see `RankReport`."""

    host: str
    written: Count
    found: Count
    seconds: Seconds
    stalled: Seconds
    error: str


def announced(
    comm: Ranks, root: int, kind: type[Record], make: Callable[[], Record] | None = None, seal: Seal | None = None
) -> Record:
    """Broadcast the record that `make` returns on the root, and return it on all ranks; only the root needs `make`.

    With a `seal` no host that passes the record on can change it.

    Raises:
        TransferError: `make` raised it on the root (all ranks raise it then); or something else than a record arrived.
    """
    record: Record | Failed
    if comm.rank == root:
        assert make is not None
        record = _made(make)
        data = encode(record)
        _send(comm, root, data if seal is None else seal.sealed(data))
    else:
        received = _receive(comm, root)
        record = _read(received if seal is None else seal.opened(received), (kind, Failed))
    if isinstance(record, Failed):
        raise TransferError(printable(record.error, keep="\n"))
    return record


def exchanged(comm: Ranks, record: Record) -> list[Record]:
    """Return the records of all ranks, all of one kind, in the order of the ranks.

    Raises:
        TransferError: something else than a record has arrived.
    """
    data = encode(record)
    lengths = np.asarray(comm.allgather(np.int64(len(data))))
    if not all(0 < length <= LARGEST_OWN for length in lengths):
        raise TransferError(f"{WRONG}: {max(map(abs, lengths.tolist())):,} bytes are announced")
    parts = np.split(np.asarray(comm.allgatherv(np.frombuffer(data, np.uint8), lengths)), np.cumsum(lengths)[:-1])
    return [_read(part.tobytes(), (type(record),)) for part in parts]


def brief(error: str) -> str:
    """Shorten an error for a record to other ranks: one printable line of at most `LONGEST` characters."""
    return printable(error)[:LONGEST]


def _made(make: Callable[[], Record]) -> Record | Failed:
    try:
        return make()
    except TransferError as error:
        return Failed(str(error)[:LONGEST])


def _send(comm: Ranks, root: int, data: bytes) -> None:
    head = np.zeros(_LENGTH + _WITHIN, np.uint8)
    first = data[:_WITHIN]
    head[: _LENGTH + len(first)].data[:] = len(data).to_bytes(_LENGTH, "little") + first
    comm.bcast_into(head, root)
    if len(data) > _WITHIN:
        comm.bcast_into(memoryview(data)[_WITHIN:], root)


def _receive(comm: Ranks, root: int) -> memoryview:
    head = np.empty(_LENGTH + _WITHIN, np.uint8)
    comm.bcast_into(head, root)
    length = int.from_bytes(head[:_LENGTH].tobytes(), "little")
    if length <= _WITHIN:
        return head.data[_LENGTH : _LENGTH + length]
    try:
        data = np.empty(length if length <= LARGEST else -1, np.uint8)  # its memory is taken as bytes arrive
    except (MemoryError, ValueError):
        raise TransferError(f"{WRONG}: {length:,} bytes are announced") from None
    data[:_WITHIN] = head[_LENGTH:]
    comm.bcast_into(data[_WITHIN:], root)
    return data.data


def _read(data: bytes | memoryview, kinds: tuple[type[Any], ...]) -> Any:
    try:
        return parse(unpack(data, max_array_len=_MOST, max_map_len=0, max_ext_len=0), kinds)
    except CodecError as error:
        raise TransferError(f"{WRONG}: {printable(str(error))}") from None
