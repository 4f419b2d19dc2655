"""Point-to-point: sendrecv."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from ringcast.collectives.self_describing import SelfDescribing
from ringcast.collectives.stage import Group, pickled
from ringcast.engine.endpoint import Exchange
from ringcast.engine.execute import Steps
from ringcast.errors import ArgumentError
from ringcast.monitoring.recorder import encoded
from ringcast.wire.call import Call

_CALL = Call("sendrecv")


def sendrecv(group: Group, value: Any, dest: int | None, source: int | None, tag: int) -> Steps[Any]:
    """Send a value and receive one at the same time; see `Communicator.sendrecv`."""
    for name, peer in ("dest", dest), ("source", source):
        if peer is not None and not (isinstance(peer, int | np.integer) and 0 <= peer < group.size):
            expected = f"expected a rank in 0..{group.size - 1} or None, got {peer!r}"
            raise ArgumentError(group.rank, "sendrecv", name, expected)
    if not (isinstance(tag, int | np.integer) and 0 <= tag < 1 << 32):
        raise ArgumentError(group.rank, "sendrecv", "tag", f"expected a number from 0 to 2**32 - 1, got {tag!r}")
    # numpy's own numbers would overflow in sums with ours.
    dest, source = (None if peer is None else int(peer) for peer in (dest, source))
    tag = int(tag)
    codec = partial(pickled, group, "sendrecv")
    frames = SelfDescribing.frames(value, codec) if dest is not None else []
    message = SelfDescribing()
    if dest == source == group.rank:
        message.take(frames)
        return message.value(codec)
    if group.rank in (dest, source):
        raise ArgumentError(group.rank, "sendrecv", "dest", "expected both ends or none to be this rank itself")
    op = group.endpoint.begin(group.context, _CALL, _record(dest, source, tag), p2p=True)
    op.label = f"sendrecv with tag {tag}"
    to, origin = (None if peer is None else group.in_job(peer) for peer in (dest, source))
    yield Exchange(op, to, frames, False, origin, message if source is not None else None, tag)
    group.endpoint.end(op)
    return message.value(codec) if source is not None else None


@lru_cache(maxsize=1024)
def _record(dest: int | None, source: int | None, tag: int) -> bytes:
    """Return the call as the flight recorder keeps it."""
    ends = [f"to {dest}" if dest is not None else "", f"from {source}" if source is not None else ""]
    return encoded(_CALL, f"({', '.join(filter(None, [*ends, f'tag {tag}']))})")
