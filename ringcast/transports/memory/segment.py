"""Make and map segments: shared memory with a ring of bytes from each other rank of the host, and words around them.

Each rank makes one segment, its inbox: a memfd, which has no name, needs no file system, and is gone with the last
process that maps it. Others open it through /proc, which the kernel allows to processes of the same user. A word has
one writer; a message is written before the word that makes it visible, so that a rank that dies in between has sent
nothing.

    head     token, closed | state | bell (cache lines of their own)
    returns  counts of loans of its reader's memory that were taken back
    tails    for each writer: bytes written so far       (the writer's)
    heads    for each writer: bytes read so far          (the reader's)
    wanting  for each writer: it waits for room          (the writer's; the reader clears it)
    rings    for each writer: RING bytes
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

from ringcast._util.dataclass import dataclass
from ringcast.procs.credentials import Credentials, reason_not
from ringcast.procs.libc import PROTECTED
from ringcast.procs.procfs import lives
from ringcast.wire.endpoint_card import EndpointCard

# Bytes from one writer: more than a rank may send unasked, so that no message waits until its sender makes another
# call. Only the pages that are used take memory.
RING = 4 << 20
_WORD = 8
# Most bytes of a message: with its first word it fits into an empty ring, whatever the ring's position.
LARGEST = RING // 2 - _WORD
RETURNS = 512  # words that count how often lent memory was taken back, by its address
_RETURNS = 256  # the place of these words
_HEAD = _RETURNS + _WORD * RETURNS  # bytes of the words before the tables
_LEFT = 8  # the place of the word that says that the reader has left
STATE, BELL = 64, 128  # places of the words of 32 bits, each in a cache line of its own
AWAKE, AT_FUTEX, AT_PIPE = 0, 1, 2  # values of the state: how its reader waits
_NO_PROCESS = errno.ESRCH, errno.EINVAL, errno.ENOENT  # EINVAL, ENOENT: the number is now a thread of another process
_SHORTAGE = errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN  # of descriptors, or memory, in this process
_FORBIDDEN = errno.EACCES, errno.EPERM
_NO_PIDFD = errno.ENOSYS, errno.EPERM  # of a kernel before 5.3, or a container that forbids it
_NAME = "ringcast"
_LINK = f"/memfd:{_NAME}"  # the beginning of the descriptor's name in /proc
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0


@dataclass(frozen=True, slots=True)
class SegmentCard:
    """The data by which other ranks find a segment: its process, descriptors there, and marks that identify it."""

    pid: int
    started: int  # the start time of the process, which identifies it together with its number
    who: Credentials
    memory: int  # descriptor of the memfd in that process …
    pipe: int  # … and of the end of its pipe for writing
    token: int
    address: int  # of the segment in that process

    def __str__(self) -> str:
        """Return the card as text, which `parse` reads."""
        place = self.memory, self.pipe, self.token, self.address
        return ".".join(map(str, (self.pid, self.started, *self.who, *place)))


def parse(text: str) -> SegmentCard | None:
    """Return the card in a text; None if the text holds none.

    >>> parse("12.880.0.0.1.2.0.3.3.5.7.99.4096").memory
    5
    """
    try:
        numbers = [int(field) for field in text.split(".")]
        if min(numbers) < 0:
            return None
        pid, since, *who, memory, pipe, token, address = numbers
        return SegmentCard(pid, since, Credentials(*who), memory, pipe, token, address)
    except (TypeError, ValueError):
        return None


class Segment:
    """The tables of a mapped segment; in a rank's own segment the rings as well."""

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self.view, self._size = memoryview(memory), size
        tables = self.view[_HEAD : _HEAD + 3 * size * _WORD].cast("Q")
        self.tails, self.heads, self.wanting = (tables[i * size : (i + 1) * size] for i in range(3))
        self._token = self.view[:_WORD].cast("Q")
        self.left = self.view[_LEFT : _LEFT + _WORD].cast("Q")  # whether its reader has left
        self.state = self.view[STATE : STATE + 4].cast("I")
        self.bell = self.view[BELL : BELL + 4].cast("I")
        self.returns = self.view[_RETURNS:_HEAD].cast("Q")

    @property
    def token(self) -> int:
        """A random number that no other segment has."""
        return self._token[0]

    @property
    def closed(self) -> bool:
        """Whether its reader has left."""
        return bool(self.left[0])

    def mark_closed(self) -> None:
        """Mark the segment, so that writers see that its reader has left."""
        self.left[0] = 1

    def set_token(self, token: int) -> None:
        """Set the token, once."""
        self._token[0] = token

    @property
    def rings(self) -> memoryview:
        """All rings, in the order of their writers."""
        return self.view[ring_at(0, self._size) :]

    def ring(self, source: int) -> memoryview:
        """Return the ring that a rank writes here."""
        at = ring_at(source, self._size)
        return self.view[at : at + RING]


def tables_size(size: int) -> int:
    """Return the number of bytes before the rings in a segment with `size` writers: whole pages."""
    return -(-(_HEAD + 3 * size * _WORD) // mmap.PAGESIZE) * mmap.PAGESIZE


def ring_at(rank: int, size: int) -> int:
    """Return the offset of a writer's ring."""
    return tables_size(size) + rank * RING


def unreachable(card: SegmentCard, who: Credentials) -> str:
    """Return why this process and a segment's process cannot map each other's segments; empty if no obstacle is known.

    The other process decides the same about this one, so that both share memory or neither does.
    """
    reason = reason_not(who, card.who)
    return f"process {card.pid}: {reason}" if reason else ""


def reachable(rank: int, cards: Sequence[EndpointCard]) -> tuple[dict[int, SegmentCard], dict[int, str]]:
    """Return by rank the segments on a rank's system that it can map, and the reasons why it cannot map the others."""
    found: dict[int, SegmentCard] = {}
    reasons: dict[int, str] = {}
    system, _, text = cards[rank].memory.partition(" ")
    if (mine := parse(text)) is None:
        return found, reasons
    for other, card in enumerate(cards):
        theirs, _, text = card.memory.partition(" ")
        segment = parse(text) if other != rank and theirs == system else None
        if segment is None:
            continue
        if reason := unreachable(segment, mine.who):
            reasons[other] = reason
        else:
            found[other] = segment
    return found, reasons


def make(size: int) -> tuple[Segment, int]:
    """Make a segment into which `size` ranks may write; return it and its descriptor.

    Raises:
        OSError: there is no memory, or this process may not make a segment.
    """
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, ring_at(size, size))
        if _SEALS:  # else a process that truncates the segment could end its readers by a bus error
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        memory = mmap.mmap(descriptor, ring_at(size, size))
    except BaseException:
        os.close(descriptor)
        raise
    segment = Segment(memory, size)
    segment.set_token(int.from_bytes(os.urandom(8)) >> 1)
    return segment, descriptor


def open_at(card: SegmentCard, who: Credentials, rank: int, size: int) -> tuple[Segment, memoryview, int]:
    """Map the tables of another rank's segment, and the ring in it that `rank` writes; open its pipe as well.

    `who` are this rank's credentials, as in its card.

    The pipe wakes the other rank where it waits in select or epoll. It is opened now: later there may be no descriptors
    left, or another process with that number. It is open for reading too, so that it never breaks.

    Raises:
        FileNotFoundError: the segment is gone.
        PermissionError: this process may not open the segment.
        OSError: there is no memory, or there are no descriptors left.
    """
    if reason := unreachable(card, who):
        raise PermissionError(reason)
    try:
        return _open(card, rank, size)
    except OSError as error:
        if error.errno in _SHORTAGE:
            raise
        forbidden = error.errno in _FORBIDDEN
    # Not within `except`: the error there would keep the mapped memory alive.
    if forbidden and _is_there(card):
        raise PermissionError(f"process {card.pid} does not let others open its files: {PROTECTED}")
    # The process or the descriptor has ended, and another process or file of any kind may have its number.
    raise FileNotFoundError("its segment has been closed")


def _open(card: SegmentCard, rank: int, size: int) -> tuple[Segment, memoryview, int]:
    descriptor = os.open(f"/proc/{card.pid}/fd/{card.memory}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != ring_at(size, size):
            raise FileNotFoundError("its segment has been closed")
        tables = mmap.mmap(descriptor, tables_size(size))
        ring = mmap.mmap(descriptor, RING, offset=ring_at(rank, size))
    finally:
        os.close(descriptor)
    segment = Segment(tables, size)
    if segment.token != card.token:
        raise FileNotFoundError("its segment has been closed")
    pipe = os.open(f"/proc/{card.pid}/fd/{card.pipe}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    if segment.closed:  # the number of the pipe may mean another file there by now
        os.close(pipe)
        raise FileNotFoundError("its segment has been closed")
    return segment, memoryview(ring), pipe


def _is_there(card: SegmentCard) -> bool:
    """Return whether the card's process still lives, and may still have its segment."""
    try:
        if not os.readlink(f"/proc/{card.pid}/fd/{card.memory}").startswith(_LINK):
            return False
    except PermissionError:
        pass
    except OSError:
        return False
    return lives(card.pid, card.started)


def watch(card: SegmentCard) -> int:
    """Return a descriptor that becomes readable when the process has ended; -1 where the system has none.

    Raises:
        FileNotFoundError: the process has ended already.
        OSError: there are no descriptors left.
    """
    try:
        return os.pidfd_open(card.pid)
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno in _NO_PROCESS:
            raise FileNotFoundError(f"process {card.pid} has ended") from None
        if isinstance(error, OSError) and error.errno not in _NO_PIDFD:
            raise
        return -1
