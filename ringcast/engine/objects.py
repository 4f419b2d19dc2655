"""Python objects and small records as bytes. Arrays inside objects travel as raw buffers beside the pickle."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgpack

from ringcast.transports.base import Frame

Codec: TypeAlias = tuple[Callable[[Any], bytes], Callable[[memoryview], Any]]
MOST_APART = 10_000  # buffers beside a pickle: their sizes have to fit in a message
AS_IT_IS: Codec = (lambda data: data, lambda data: data)  # of what is bytes already
ALIGNMENT = 16  # bytes; arrays inside objects are used where they arrive, and numpy allocates no less


def encode(value: Any) -> bytes:
    """Return `value` as one run of bytes: the sizes, then the pickle (protocol 5) and its buffers, each aligned."""
    parts = encode_apart(value)
    run: list[Frame] = [struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))]
    end = len(run[0])
    for part in parts:
        gap = -end % ALIGNMENT
        run += [bytes(gap), part]
        end += gap + len(part)
    return b"".join(run)


def encode_apart(value: Any, least: int = 0) -> list[memoryview]:
    """Return the pickle of `value`, and the buffers in it of `least` bytes or more, which are not copied.

    What is smaller, or comes after MOST_APART of them, is in the pickle. What plain pickle does not take, as a lambda,
    or a class of a notebook that this rank has got as a value, travels as a value: by cloudpickle.
    """
    try:
        return _parts(pickle.dumps, value, least)
    except (pickle.PicklingError, AttributeError, TypeError):
        pass  # an error of the other attempt is raised without this one as its context
    import cloudpickle  # it takes a while, and few programs need it

    return _parts(cloudpickle.dumps, value, least)


def _parts(dumps: Callable[..., bytes], value: Any, least: int) -> list[memoryview]:
    """Return the pickle that `dumps` makes of `value`, and the buffers in it; see `encode_apart`."""
    buffers: list[memoryview] = []

    def within(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        apart = raw.nbytes >= least and len(buffers) < MOST_APART
        if apart:
            buffers.append(raw)
        return not apart

    body = dumps(value, protocol=5, buffer_callback=within)
    return [memoryview(body), *buffers]


def decode(data: memoryview) -> Any:
    """Return the value that `encode` was given; arrays in it use the memory of `data`.

    Only for bytes from authenticated members of the job: unpickling can run code.
    """
    (count,) = struct.unpack_from("<I", data)
    sizes = struct.unpack_from(f"<{count}Q", data, 4)
    parts, start = [], 4 + 8 * count
    for size in sizes:
        start += -start % ALIGNMENT
        parts.append(data[start : start + size])
        start += size
    return decode_apart(parts)


def decode_apart(parts: Sequence[memoryview]) -> Any:
    """Return the value that `encode_apart` was given; see `decode`."""
    return pickle.loads(parts[0], buffers=parts[1:])


# A flat record of plain values as msgpack, in which tuples become lists.
pack_record: Callable[[dict[str, Any]], bytes] = msgpack.packb
unpack_record: Callable[[memoryview], dict[str, Any]] = msgpack.unpackb
