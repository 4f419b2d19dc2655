"""Point-to-point: send, recv, sendrecv and probe. A message meets a receive of its source and tag.

All of them make the same `Call`, as any kind of send meets any kind of receive: ranks agree on nothing but the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.collectives.stage import Group, advice_if_alone, note_object, pickled
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag
from ringcast.engine.correspondent import Correspondent
from ringcast.engine.datatypes import check_buffer, dtype_name
from ringcast.engine.endpoint import Exchange
from ringcast.engine.execute import Steps
from ringcast.engine.recorder import encoded
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Call

_CALL = Call("sendrecv")
TAGS = 1 << 32


def send(
    group: Group,
    value: Any,
    dest: int | None,
    tag: int,
    frames: Sequence[memoryview] | None = None,
    name: str = "send",
) -> Steps[None]:
    """Send a value in the call `name`; see `Communicator.send`. Pass its `frames` if they are made already."""
    dest, tag = _rank(group, name, "dest", dest), _tag(group, name, tag)
    if dest is None:
        return
    if frames is None:
        frames = SelfDescribing.frames(value, partial(pickled, group, name))
    to = group.in_job(dest)
    op = begin(group, name, to, None, tag)
    yield Exchange(op, to, frames, False, None, None, tag)
    group.endpoint.end(op)


def recv(group: Group, source: Source, tag: Tag, out: Any, status: Status | None) -> Steps[Any]:
    """Return a value that was sent; see `Communicator.recv`."""
    origin, tag = _source(group, "recv", source), _open_tag(group, "recv", tag)
    message = _message(group, "recv", out, status)
    if origin is None:
        return None
    origin = _in_job(group, origin)
    op = begin(group, "recv", None, origin, tag)
    yield Exchange(op, None, [], False, origin, message, tag)
    group.endpoint.end(op)
    return _received(group, op, "recv", message, out, status)


def sendrecv(
    group: Group,
    value: Any,
    dest: int | None,
    source: Source,
    tag: int,
    out: Any = None,
    status: Status | None = None,
    frames: Sequence[memoryview] | None = None,
) -> Steps[Any]:
    """Send a value, as in `send`, and receive one at the same time; see `Communicator.sendrecv`."""
    dest, origin = _rank(group, "sendrecv", "dest", dest), _source(group, "sendrecv", source)
    tag = _tag(group, "sendrecv", tag)
    message = _message(group, "sendrecv", out, status)
    if frames is None:
        frames = SelfDescribing.frames(value, partial(pickled, group, "sendrecv")) if dest is not None else []
    if out is not None:
        frames = [_apart(frame, out) for frame in frames]
    to = None if dest is None else group.in_job(dest)
    origin = None if origin is None else _in_job(group, origin)
    op = begin(group, "sendrecv", to, origin, tag)
    yield Exchange(op, to, frames, False, origin, None if origin is None else message, tag)
    group.endpoint.end(op)
    return None if origin is None else _received(group, op, "sendrecv", message, out, status)


def probe(group: Group, source: Source, tag: Tag) -> Steps[Status]:
    """Wait for a message and leave it where it is; see `Communicator.probe`."""
    origin, tag = _in_job(group, _some_source(group, "probe", source)), _open_tag(group, "probe", tag)
    message, op = SelfDescribing(), begin(group, "probe", None, origin, tag)
    group.endpoint.protocol.await_message(op, origin, tag, message)
    yield Exchange(op, None, [], False, None, None)
    group.endpoint.end(op)
    return _filled(group, Status(), message)


def iprobe(group: Group, source: Source, tag: Tag) -> Status | None:
    """Return the status of a message that has come, or None; see `Communicator.iprobe`."""
    origin, tag = _some_source(group, "iprobe", source), _open_tag(group, "iprobe", tag)
    endpoint, message = group.endpoint, SelfDescribing()
    with endpoint.gate:
        endpoint.catch_up()
        found = endpoint.protocol.look(group.context, _in_job(group, origin), tag, message)
    return _filled(group, Status(), message) if found else None


def begin(group: Group, name: str, dest: int | None, source: int | None, tag: int) -> Operation:
    """Begin a call that sends to a rank of the job, or receives from one, or both; these are for errors and reports."""
    record, label = in_records(name, dest, source, tag)
    op = group.endpoint.begin(group.context, _CALL, record, p2p=True)
    op.label = label
    return op


def correspondent(group: Group, rank: int) -> Correspondent | None:
    """Return another rank of a group, with which messages are predicted; None if there is no such rank."""
    if not 0 <= rank < group.size or rank == group.rank:
        return None
    made = group.correspondents[rank] = Correspondent(group.endpoint, group.context, group.in_job(rank), _CALL)
    return made


def received(
    group: Group, name: str, op: Operation, source: int, tag: int, out: Array | None, status: Status | None
) -> Steps[Any]:
    """Receive a message in an operation that was predicted, and await the reader of what it has lent.

    `source` is a rank of the job.
    """
    group.endpoint.adopt(op)
    message = SelfDescribing(out)
    yield Exchange(op, None, [], False, source, message, tag, settle=True)
    group.endpoint.end(op)
    return _received(group, op, name, message, out, status)


def settled(group: Group, op: Operation, result: Callable[[], Any]) -> Steps[Any]:
    """Await the reader of what a predicted operation has lent, and return the result of the call."""
    group.endpoint.adopt(op)
    yield Exchange(op, None, [], False, None, None, settle=True)
    group.endpoint.end(op)
    return result()


def failed(group: Group, op: Operation, error: BaseException) -> Steps[None]:
    """Fail as a call does whose message has come by prediction, and cannot be unpickled."""
    group.endpoint.adopt(op)
    raise error
    yield


def _apart(frame: memoryview, out: Array) -> memoryview:
    """Return a frame in other memory than `out`: arriving data must not overwrite unsent data."""
    shared = np.may_share_memory(np.frombuffer(frame, np.uint8), out)
    return memoryview(bytes(frame)) if shared else frame


def _message(group: Group, name: str, out: Any, status: Any) -> SelfDescribing:
    """Return the sink of a receive."""
    if not isinstance(status, Status | None):
        raise ArgumentError(group.endpoint.rank, name, "status", f"expected a Status or None, got {safe_text(status)}")
    return SelfDescribing(None if out is None else check_buffer(group.endpoint.rank, name, out))


def _received(
    group: Group, op: Operation, name: str, message: SelfDescribing, out: Array | None, status: Status | None
) -> Any:
    if status is not None:
        _filled(group, status, message)
    try:
        return message.value(partial(_take_object, group, name, op))
    except ValueError as error:
        if out is None:
            raise
        origin = f"the message of rank {message.source} with tag {message.tag}"
        given = f"{out.size} items of dtype {dtype_name(out.dtype)}"
        raise ArgumentError(group.endpoint.rank, name, "out", f"{error}, {origin}; got {given}") from None


def _take_object(group: Group, name: str, op: Operation) -> None:
    pickled(group, name)
    note_object(group, op)


def _filled(group: Group, status: Status, message: SelfDescribing) -> Status:
    status.fill(group.here(message.source), message.tag, message.count)
    return status


def _in_job(group: Group, source: int) -> int:
    return ANY if source == ANY else group.in_job(source)


def _rank(group: Group, name: str, argument: str, rank: Any, also: str = "") -> int | None:
    if rank is None:
        return None
    if not (isinstance(rank, int | np.integer) and 0 <= rank < group.size):
        expected = (
            f"expected a rank in 0..{group.size - 1}{also} or None, got {safe_text(rank)}{advice_if_alone(group)}"
        )
        raise ArgumentError(group.endpoint.rank, name, argument, expected)
    return int(rank)  # numpy's own numbers would overflow in sums with ours


def _source(group: Group, name: str, source: Any) -> int | None:
    return ANY if source is ANY_SOURCE else _rank(group, name, "source", source, ", ANY_SOURCE")


def _some_source(group: Group, name: str, source: Any) -> int:
    origin = _source(group, name, source)
    if origin is None:
        expected = f"expected a rank in 0..{group.size - 1} or ANY_SOURCE, got None"
        raise ArgumentError(group.endpoint.rank, name, "source", expected)
    return origin


def _tag(group: Group, name: str, tag: Any, also: str = "") -> int:
    if not (isinstance(tag, int | np.integer) and 0 <= tag < TAGS):
        expected = f"expected a number from 0 to 2**32 - 1{also}, got {safe_text(tag)}"
        raise ArgumentError(group.endpoint.rank, name, "tag", expected)
    return int(tag)


def _open_tag(group: Group, name: str, tag: Any) -> int:
    return ANY if tag is ANY_TAG else _tag(group, name, tag, " or ANY_TAG")


@lru_cache(maxsize=1024)
def in_records(name: str, dest: int | None, source: int | None, tag: int) -> tuple[bytes, str]:
    """Return the call as the flight recorder keeps it, and as errors name it; the ranks are of the job."""
    to = f"to {dest}" if dest is not None else ""
    origin = "" if source is None else "from any" if source == ANY else f"from {source}"
    with_tag = f"tag {tag}" if tag != ANY else "any tag"
    return encoded(Call(name), f"({', '.join(filter(None, [to, origin, with_tag]))})"), f"{name} with {with_tag}"
