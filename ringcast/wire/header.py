"""The 64-byte header that precedes every message between two ranks, the kinds of messages, and their flags.

All integers are little-endian. `word` means, by kind: EAGER the eager credit that the sender returns (bytes), RTS the
same, CTS the grant (bytes that may now be sent), or bytes of requests, DATA the offset of this segment in its transfer.
In EAGER `transfer` is the number of frames that are joined in the payload (`ringcast.wire.joined`); 0 for a single one
that is not empty.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

VERSION = 6
# Bytes of a frame that anything which listens takes; more closes the connection. ZeroMQ keeps to it before the
# handshake too, when no peer has shown a key: all that members send comes in frames well below it.
LARGEST_FRAME = 1 << 20
EAGER_LIMIT = 64 << 10  # bytes of a message that goes without asking, but in a collective whose rounds are granted
_LAYOUT = struct.Struct("<BBHIQQIIIIQQQ")
SIZE = _LAYOUT.size
assert SIZE == 64


class Kind(IntEnum):
    """Kinds of messages. The first six travel between ranks, the others reach a rank from its own process."""

    EAGER = 1  # a whole small message
    RTS = 2  # request to send; the payload lists the sizes of the frames (u64 each)
    CTS = 3  # clear to send: the receiver grants `word` more bytes of a transfer
    DATA = 4  # a segment of a granted transfer, at offset `word`
    DONE = 5  # the receiver has all of the transfer
    REFUSE = 6  # the transfer, or its whole context, is dead; the payload is the reason
    NOTICE = 7  # of the control plane; the payload is one of `ringcast.wire.control_messages`
    WAKE = 8  # from a rank to itself: a signal has come, so the wait is over


# As plain integers, which are twice as fast to look up and to pack.
EAGER, RTS, CTS, DATA, DONE, REFUSE = (int(kind) for kind in Kind if kind <= Kind.REFUSE)

CREDIT_RETURN = 1  # flag of CTS: returns `word` bytes of eager credit
PROBE = 2  # flag of CTS: grants nothing, but asks whether both ranks are in the same call
ECHO = 4  # flag of CTS: grants nothing, but answers a PROBE, and shows by its number what was lost before it
HELD = 8  # flag of CTS: grants nothing, but tells that requests to the peer are held back; `word` bytes for the first
MORE_ROOM = 16  # flag of CTS: grants nothing, but lends `word` bytes of room for requests
OF_NO_CALL = CREDIT_RETURN | HELD | MORE_ROOM  # flags of a CTS that belongs to no operation
LENT = 32  # flag of RTS and CTS: a request that uses room which was lent
OFFER = 1  # flag of RTS: the receiver may copy the message out of the sender's memory, which is lent with it
PACKED = 1  # flag of DATA: several pieces were joined into one frame
MISMATCH = 1  # flag of REFUSE: the payload is the other side's call, and in a second line its place in the program
ANSWER = 2  # flag of REFUSE: it answers one, and wants none itself
LOST = 4  # flag of REFUSE: the payload is the failure of rank `word`
GIVEN_UP_BY = 8  # flag of REFUSE: it is rank `word` that has given the communicator up

DERIVED = 1 << 63  # contexts from here on belong to communicators that were split off another one
P2P = 0  # operation number of point-to-point messages
STAGES = 16  # a call has at most so many stages; each is an operation
CALLS = (1 << 32) // STAGES - 1  # calls are numbered 1, ..., CALLS, 1, ...
PAIR = (1 << 32) - 1  # numbers of messages and transfers are modulo PAIR + 1


class Header(NamedTuple):
    """Fields of the header, in wire order."""

    version: int
    kind: int
    flags: int
    source: int  # rank of the sender
    nonce: int  # the job
    context: int  # the communicator; never reused
    operation: int  # STAGES times the number of the call in its communicator, plus its stage; 0 for point-to-point
    ordinal: int  # n-th message from source to me in this operation; the tag for point-to-point
    pair: int  # n-th message ever from source to me, modulo 2**32
    transfer: int  # the sender's number of the transfer; 0 where context, operation and ordinal name it
    length: int  # bytes of the whole transfer (DATA: of this segment; REFUSE: of the reason)
    word: int
    fingerprint: int  # digest of the call's arguments; equal on both sides of every match


unpack_fields = _LAYOUT.unpack_from
pack_fields = _LAYOUT.pack  # the fields of a header, one by one: for the path where every microsecond counts
_from_tuple = tuple.__new__  # makes a Header without the call of a Python function that `_make` is


def call_of(operation: int) -> int:
    """Return the number of the call to which an operation belongs; 0 for point-to-point."""
    return operation // STAGES


def made(last: int, call: int) -> bool:
    """Return whether a rank has made a call of this number, if its `last` one is known; numbers wrap around."""
    return (last - call) % CALLS < CALLS // 2


def label_of(operation: int) -> str:
    """Return an operation's call and stage, as people read them.

    >>> label_of(3 * STAGES), label_of(3 * STAGES + 1)
    ('#3', '#3.1')
    """
    call, stage = divmod(operation, STAGES)
    return f"#{call}.{stage}" if stage else f"#{call}"


def pack(header: Header) -> bytes:
    """Return the 64 bytes of `header`."""
    return _LAYOUT.pack(*header)


def unpack(data: bytes | bytearray | memoryview) -> Header:
    """Return the fields of a header, behind which only EAGER may have more in the same frame.

    Raises:
        ValueError: the data does not begin with a header of this version.
    """
    size = len(data)
    if size < SIZE:
        raise ValueError(f"a header has {SIZE} bytes, not {size}")
    header = _from_tuple(Header, _LAYOUT.unpack_from(data))
    if header.version != VERSION:
        raise ValueError(f"protocol version {header.version}, not {VERSION}")
    if size > SIZE and header.kind != EAGER:
        raise ValueError(f"{size - SIZE} bytes behind a header of kind {header.kind}")
    return header


def to_itself(kind: Kind, nonce: int) -> bytes:
    """Return the header of a message that a rank's own process puts into its inbox; it has no pair number."""
    return pack(Header(VERSION, kind, 0, 0, nonce, 0, 0, 0, 0, 0, 0, 0, 0))
