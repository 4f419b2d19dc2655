"""Common parts of both ends of the control plane: the envelope of a message, bounds, the pace of signs of life."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgpack
import zmq

from ringcast._util.dataclass import dataclass
from ringcast.procs.timing import TIMING
from ringcast.version import __version__
from ringcast.wire import header
from ringcast.wire.codec import CodecError, encode, unpack
from ringcast.wire.control_messages import ToServer, ToWorker
from ringcast.wire.failure import MAX_TEXT

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
PATIENCE = 60_000  # ms that a handshake may take: all ranks of a large job come at once, on machines that start up


@dataclass(frozen=True, slots=True)
class Pace:
    """Periods of signs of life, and time limits for their absence; in seconds."""

    beat: float = TIMING.beat
    silence: float = TIMING.control_silence  # of the control plane
    unreachable: float = TIMING.control_unreachable  # of a rank to which no connection is left
    answer: float = TIMING.control_answer  # of the other end's ZeroMQ, which answers however busy the interpreter is
    linger: float = 2.0  # how long a leaving worker waits until all that it said was heard


PACE = Pace()


def version() -> str:
    """Return the versions of the package and of the protocol, which all workers of a job must share."""
    return f"{__version__} (protocol {header.VERSION})"


def seal(nonce: int, number: int, message: ToServer | ToWorker) -> bytes:
    """Return the envelope of a message: nonce, number, message."""
    return seal_encoded(nonce, number, encode(message))


def seal_encoded(nonce: int, number: int, encoded: bytes) -> bytes:
    """Return the envelope of a message that is encoded already, as for many receivers."""
    packer = msgpack.Packer()
    return b"".join([packer.pack_array_header(3), packer.pack(nonce), packer.pack(number), encoded])


def open_sealed(data: bytes, nonce: int) -> tuple[int, Any] | None:
    """Return number and message as plain values; None for what is malformed or of another job."""
    try:
        content = unpack(data)
    except CodecError:
        return None
    match content:
        case [int(job), int(number), message] if job == nonce:
            return number, message
    return None


def longest_to_server(size: int) -> int:
    """Return the largest size in bytes of a worker's message in a job of `size` ranks: two texts, and counts by rank.

    The bound also limits the memory that a client without the key can use in the server, so it is tight.
    """
    return 4 * MAX_TEXT + 64 * size


def longest_to_worker(size: int) -> int:
    """Return the largest size in bytes of a server's message: a failure, or address, key and path of every rank."""
    return 10 * MAX_TEXT + 500 * size
