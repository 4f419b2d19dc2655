"""Define the contract of a transport, which moves messages of frames between ranks and knows nothing of schedules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

Frame: TypeAlias = "bytes | bytearray | memoryview"


LINGER = 5.0  # seconds in which `close` still delivers sent messages …
HURRIED = 0.1  # … and in which it delivers the last refusals, when nothing else counts any more
TURNS = 16  # messages in a row from one side, after which what waits on another side comes first


class LoanWithdrawn(OSError):
    """A sender has taken back this loan or another one: the bytes read last may be wrong, earlier ones are good."""


class Loan(Protocol):
    """Memory of a sender, which a receiver reads from its beginning on; valid until the receiver confirms the read."""

    def read_into(self, view: memoryview) -> int:
        """Fill `view` with the next bytes, and return how many there were: fewer at the end.

        Raises:
            PermissionError: this process may not read the sender's memory.
            LinkLost: the sender has ended.
            LoanWithdrawn: the sender may have taken the memory back by now.
            OSError: the memory is gone.
        """


class Arrival(Protocol):
    """One message that has arrived; valid until the next `poll`, which drops frames that were not read."""

    @property
    def loan(self) -> Loan | None:
        """The memory that was lent with the message; it is valid for longer than the message."""

    @property
    def header(self) -> bytes:
        """The first frame."""

    @property
    def more(self) -> bool:
        """Whether unread frames follow."""

    def read(self) -> Frame:
        """Return the next frame in memory of its own.

        Raises:
            LinkLost: the connection broke off in the middle of the message; the rest is lost.
        """

    def read_into(self, view: memoryview) -> int:
        """Put the next frame into `view` and return the frame's size in bytes.

        A frame that is longer than `view` is cut, and its true size returned: callers compare.

        Raises:
            LinkLost: as for `read`; part of `view` may have been filled.
        """


class CompiledLane(Protocol):
    """Reads and writes rings of shared memory itself (`ringcast.protocol.lane`)."""

    def map(self, *memory: object) -> None:
        """Use this rank's segment."""

    def link(self, peer: int, /, *memory: object) -> None:
        """Use the segment of a peer."""

    def close(self) -> None:
        """Release all memory; idempotent."""


class Lanes(Protocol):
    """The next messages of each peer, where they can be looked at before they are taken."""

    def attach(self, compiled: CompiledLane) -> bool:
        """Let a compiled lane use the rings until this transport closes; False where there are none to be used."""

    def put(self, peer: int, frame: Frame) -> bool:
        """Send a message of one frame now; False, and nothing of it is sent, if it would have to wait."""

    def head(self, peer: int, patience: float) -> memoryview | None:
        """Return the next message of `peer`, waiting so many seconds at most; it stays there until `release`.

        None if none comes, if it is not one frame, or if something else waits for `poll`, as a notice.
        """

    def release(self, peer: int) -> None:
        """Take the message that `head` has returned."""


class Transport(Protocol):
    """Moves messages between the ranks of one job. One thread uses it at a time, except for `inject`."""

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        """Queue `frames` as one message to `peer`; never blocks.

        A message that cannot be passed on now makes its peer `unsent`.

        Frames are C-contiguous bytes, and copied before this returns: the user may change a memoryview then, as senders
        with `lookahead` do not wait for completion. Messages to one peer arrive whole and in order, or not at all. A
        connection is opened when `peer` is first named, here or in `connect`; a frame that is not well below
        `wire.LARGEST_FRAME` may end the connection.

        Raises:
            LinkLost: the connection to `peer` is gone; nothing of this message arrives.
        """

    @property
    def unsent(self) -> Collection[int]:
        """The ranks for which data waits here, until `send`, `poll` or `close` passes it on.

        Empty where a transport has a thread for this, or room; `poll` returns None when the last such rank is served.
        """

    @property
    def lenders(self) -> Collection[int]:
        """The ranks to which this one may lend memory, and which may lend to this one: the same on both sides.

        Empty where a transport copies all data that it sends.
        """

    @property
    def lanes(self) -> Lanes | None:
        """The lanes to all peers; None where messages cannot be looked at in advance."""

    def lend(self, peer: int, frames: Sequence[Frame], memory: Sequence[memoryview]) -> None:
        """Send `frames` to one of `lenders`, with a loan of `memory`, which is not copied; else as `send`."""

    def take_back(self, memory: Sequence[memoryview]) -> None:
        """End the loans of this memory: a rank that reads it from now on, or is just reading it, gets an error.

        A rank that reads other memory of this rank may get the error too.
        """

    def connect(self, peers: Sequence[int]) -> None:
        """Open connections to `peers` now, so that the first message does not pay for it; never blocks."""

    def poll(self, deadline: float | None) -> Arrival | None:
        """Return the next arrival, waiting until `deadline` on this transport's clock (None: as long as it takes).

        Returns None at the deadline. A deadline in the past looks once and does not wait. May return None earlier
        on an interruption; callers loop.
        """

    def inject(self, frames: Sequence[bytes]) -> None:
        """Put a message from the control plane into this rank's own inbox; from any thread; wakes `poll`.

        It comes after the messages of peers that have arrived by then, so that a call whose messages are all here ends
        before a notice can end it; but where messages come without end, after some tens of them. ZeroMQ's sockets do
        not promise this order.
        """

    @property
    def noticed(self) -> bool:
        """Whether a message of `inject` waits; False where that is not known."""

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when something arrives (look with `poll` before waiting)."""

    def clock(self) -> float:
        """Return the time in seconds on which deadlines are measured."""

    def close(self, within: float | None = None) -> None:
        """Close sockets, threads and files, after sent messages were delivered to peers that still listen.

        Delivery takes at most `within` seconds (None: LINGER). Idempotent; closes everything even if it raises.
        """


@runtime_checkable
class RemoteTransport(Transport, Protocol):
    """A transport whose connections go through a network, where they may fail to be made, or be cut."""

    @property
    def address(self) -> str:
        """The address on which this rank listens."""

    @property
    def strangers(self) -> int:
        """Number of connections to this rank that were not admitted."""

    def address_of(self, peer: int) -> str:
        """Return the address at which `peer` listens."""

    def links(self) -> Mapping[int, str]:
        """Return the addresses to which this rank has connected, or tries to, by rank; from any thread."""

    def unreached(self) -> Mapping[int, str]:
        """Return the peers of `connect` without a connection so far, each with the reason if it was broken off."""

    def unheard(self) -> Collection[int]:
        """Return the peers of `connect` whose own connections to this rank are not admitted yet.

        Empty where a thread admits them. Elsewhere they wait for this rank to poll, perhaps until it has computed.
        """

    def wait_for_news(self, deadline: float) -> None:
        """Wait until something arrives, or a connection of `unreached` is made or broken, or until the deadline."""

    def stop_watching(self) -> None:
        """Stop watching the connections that are being made."""


class NoLoans:
    """The part of the contract on loans and unsent messages, for a transport that copies at once and lends nothing.

    Nor does it know whether a notice waits: that may be in the same queue as the messages.
    """

    lenders: Collection[int] = ()
    unsent: Collection[int] = ()

    @property
    def noticed(self) -> bool:
        return False

    @property
    def lanes(self) -> Lanes | None:
        return None

    def lend(self, peer: int, frames: Sequence[Frame], memory: Sequence[memoryview]) -> None:
        raise LookupError(f"rank {peer} is none of the lenders: {len(frames)} frames, {len(memory)} pieces of memory")

    def take_back(self, memory: Sequence[memoryview]) -> None:
        """Do nothing: nothing was lent."""


class MemoryArrival:
    """A message whose frames are already in this process's memory."""

    __slots__ = ("_frames", "_next", "header", "loan")

    def __init__(self, frames: Sequence[Frame], loan: Loan | None = None) -> None:
        self._frames, self._next, self.loan = frames, 1, loan
        self.header = bytes(frames[0])

    @property
    def more(self) -> bool:
        return self._next < len(self._frames)

    def read(self) -> Frame:
        frame = self._frames[self._next]
        self._next += 1
        return frame if isinstance(frame, bytes) else bytes(frame)

    def read_into(self, view: memoryview) -> int:
        frame = self._frames[self._next]
        self._next += 1
        size = min(len(frame), len(view))
        view[:size] = frame[:size]
        return len(frame)
