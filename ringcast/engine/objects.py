"""Python objects and small records as frames of bytes. Large arrays inside objects are frames of their own.

An object is encoded in one way wherever it travels: a pickle (protocol 5), then the large buffers that the pickle
leaves out, which are neither copied when they are sent nor when they have come.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import msgpack
import numpy as np

from ringcast.transports.base import Frame

Codec: TypeAlias = tuple[Callable[[Any], list[memoryview]], Callable[[list[memoryview]], Any]]
APART = 16 << 10  # bytes of a buffer that is a frame of its own; a frame costs more than copies of a smaller one
MOST_APART = 10_000  # buffers beside the pickles of a message: their sizes have to fit in a request to send
ALIGNMENT = 16  # bytes; arrays inside objects are used where they arrive, and numpy allocates no less


def encode(value: Any, most: int = MOST_APART) -> list[memoryview]:
    """Return the pickle of `value`, and the buffers in it of APART bytes or more, at `most` so many, uncopied.

    All others are in the pickle. What plain pickle does not take, as a lambda, or a class of a notebook that this rank
    has got as a value, travels as a value: by cloudpickle.
    """
    try:
        return _frames(pickle.dumps, value, most)
    except (pickle.PicklingError, AttributeError, TypeError):
        pass  # an error of the other attempt is raised without this one as its context
    import cloudpickle  # it takes a while, and few programs need it

    return _frames(cloudpickle.dumps, value, most)


def _frames(dumps: Callable[..., bytes], value: Any, most: int) -> list[memoryview]:
    """Return the pickle that `dumps` makes of `value`, and the buffers beside it; see `encode`."""
    buffers: list[memoryview] = []

    def within(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        apart = raw.nbytes >= APART and len(buffers) < most
        if apart:
            buffers.append(raw)
        return not apart

    body = dumps(value, protocol=5, buffer_callback=within)
    return [memoryview(body), *buffers]


def decode(frames: list[memoryview]) -> Any:
    """Return the value that `encode` was given; arrays in it use the memory of the frames.

    Only for bytes from authenticated members of the job: unpickling can run code.
    """
    return pickle.loads(frames[0], buffers=frames[1:])


def new_frame(size: int) -> memoryview:
    """Return new memory for a frame that comes."""
    return memoryview(bytearray(size)) if size < APART else np.empty(size, np.uint8).data  # not filled with zeros


def copied(frames: list[memoryview]) -> list[memoryview]:
    """Return an encoded value whose buffers are copies, so that what is decoded shares nothing with it."""
    if len(frames) == 1:
        return frames
    body, *buffers = frames
    return [body, *(np.frombuffer(buffer, np.uint8).copy().data for buffer in buffers)]


def in_one(frames: list[memoryview]) -> bytes:
    """Return an encoded value as one run of bytes, a copy: the sizes of its frames, then these, each aligned."""
    run: list[Frame] = [struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames))]
    end = len(run[0])
    for frame in frames:
        gap = -end % ALIGNMENT
        run += [bytes(gap), frame]
        end += gap + len(frame)
    return b"".join(run)


def apart(run: memoryview) -> list[memoryview]:
    """Return the frames of an encoded value, which are parts of the run that `in_one` has made of them."""
    (count,) = struct.unpack_from("<I", run)
    frames, start = [], 4 + 8 * count
    for size in struct.unpack_from(f"<{count}Q", run, 4):
        start += -start % ALIGNMENT
        frames.append(run[start : start + size])
        start += size
    return frames


def _as_it_is(frames: list[memoryview]) -> list[memoryview]:
    return frames


def _snapshot(value: Any) -> list[memoryview]:
    return copied(encode(value))


AS_IT_IS: Codec = _as_it_is, _as_it_is  # of values that are encoded already
SNAPSHOT: Codec = _snapshot, decode  # of values that an operator may change in place while they are sent

# A flat record of plain values as msgpack, in which tuples become lists.
pack_record: Callable[[dict[str, Any]], bytes] = msgpack.packb
unpack_record: Callable[[memoryview], dict[str, Any]] = msgpack.unpackb
