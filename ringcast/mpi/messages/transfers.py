"""The steps of messages between two ranks: all data travel as bytes.

A message of any kind meets a receive of any kind. Ranks are ranks of the job here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ringcast.collectives.point_to_point import begin
from ringcast.collectives.stage import Group, note_object, pickled
from ringcast.engine.endpoint import Exchange
from ringcast.engine.execute import Steps
from ringcast.mpi.base.contexts import Peers
from ringcast.mpi.base.exceptions import ERR_TRUNCATE, SUCCESS, Exception
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.base.threads import give_way
from ringcast.mpi.data import pickling
from ringcast.mpi.data.incoming import Envelope, Incoming
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.buffers import Part
from ringcast.mpi.handles.status import Status
from ringcast.protocol.communicators import Waiting
from ringcast.protocol.operations import Operation


class Outgoing(NamedTuple):
    """The destination of a message: a rank of the job, and a tag."""

    peers: Peers
    dest: int
    tag: int


class Wanted(NamedTuple):
    """The source of a message: a rank of the job and a tag; each may be ANY."""

    peers: Peers
    source: int
    tag: int


class Taken(NamedTuple):
    """A message that was matched, and has still to be received."""

    peers: Peers
    waiting: Waiting


class Objects:
    """A receive of a Python object."""

    def __init__(self, group: Group) -> None:
        pickled(group, "recv")
        self.incoming = Incoming()

    def received(self, peers: Peers) -> Outcome:
        """Return the object; None if nothing was sent."""
        if not self.incoming.count:
            return Outcome(None)
        note_object(peers.group)
        outcome = Outcome.of(lambda: pickling.pickle.loads(self.incoming.data))
        if outcome.error is not None:
            outcome.error.add_note(f"It arose from {_named(peers, self.incoming)}. Receive the data of Send by Recv.")
        return outcome


class Buffer:
    """A receive of data into a buffer of the program."""

    def __init__(self, part: Part) -> None:
        self._part, self._room = part, part.room()
        self.incoming = Incoming(self._room)

    def received(self, peers: Peers) -> Exception | None:
        """Put the data into the buffer; return an error if there are too many."""
        count, room = self.incoming.count, self._room
        if count > room.nbytes:
            text = f"{_named(peers, self.incoming)} has {count} bytes, expected at most {room.nbytes}"
            return Exception(ERR_TRUNCATE, f"message truncated: {text}")
        self._part.store(room if count == room.nbytes else room[:count])
        return None


def send(to: Outgoing, data: Bytes, *, synchronous: bool = False) -> Steps[None]:
    """Send bytes; a synchronous message is complete when it is matched."""
    group = to.peers.group
    op = begin(group, "send", to.dest, None, to.tag)
    op.synchronous = synchronous
    yield Exchange(op, to.dest, [data.data], False, None, None, to.tag)
    group.endpoint.end(op)


def receive(wanted: Wanted, into: Objects | Buffer, status: Status | None, op: Operation | None = None) -> Steps[Any]:
    """Receive a message; in an operation that was predicted, if one is given, and may have lent another message."""
    group, incoming = wanted.peers.group, into.incoming
    if op is None:
        op = begin(group, "recv", None, wanted.source, wanted.tag)
    else:
        group.endpoint.adopt(op)
    yield Exchange(op, None, [], False, wanted.source, incoming, wanted.tag, settle=True)
    group.endpoint.end(op)
    return received(wanted.peers, into, status)


def exchange(to: Outgoing, data: Bytes, wanted: Wanted, into: Objects | Buffer, status: Status | None) -> Steps[Any]:
    """Send and receive a message at the same time."""
    group = to.peers.group
    op = begin(group, "sendrecv", to.dest, wanted.source, to.tag)
    group.endpoint.protocol.receive(op, wanted.source, into.incoming, tag=wanted.tag)
    yield Exchange(op, to.dest, [data.data], False, None, None, to.tag)
    group.endpoint.end(op)
    return received(wanted.peers, into, status)


def probe(wanted: Wanted, status: Status | None) -> Steps[bool]:
    """Wait for a message."""
    group, envelope = wanted.peers.group, Envelope()
    op = begin(group, "probe", None, wanted.source, wanted.tag)
    group.endpoint.protocol.await_message(op, wanted.source, wanted.tag, envelope)
    yield Exchange(op, None, [], False, None, None)
    group.endpoint.end(op)
    _fill(status, wanted.peers, envelope)
    return True


def look(wanted: Wanted, status: Status | None) -> Steps[bool]:
    """Return whether a message has come."""
    yield from ()
    group, envelope = wanted.peers.group, Envelope()
    group.endpoint.catch_up()
    found = group.endpoint.protocol.look(group.context, wanted.source, wanted.tag, envelope)
    if found:
        _fill(status, wanted.peers, envelope)
    else:
        give_way()
    return found


def take(wanted: Wanted, status: Status | None) -> Steps[Taken | None]:
    """Match a message that has come; None if there is none."""
    yield from ()
    group, envelope = wanted.peers.group, Envelope()
    group.endpoint.catch_up()
    waiting = group.endpoint.protocol.take(group.context, wanted.source, wanted.tag, envelope)
    if waiting is None:
        give_way()
        return None
    _fill(status, wanted.peers, envelope)
    return Taken(wanted.peers, waiting)


def await_and_take(wanted: Wanted, status: Status | None) -> Steps[Taken]:
    """Wait for a message and match it."""
    while True:
        yield from probe(wanted, None)
        taken = yield from take(wanted, status)
        if taken is not None:  # else another thread has received it
            return taken


def receive_taken(taken: Taken, into: Objects | Buffer, status: Status | None) -> Steps[Any]:
    """Receive a message that was matched."""
    group, header = taken.peers.group, taken.waiting[0]
    op = begin(group, "recv", None, header.source, header.ordinal)
    group.endpoint.protocol.receive_taken(op, into.incoming, taken.waiting)
    yield Exchange(op, None, [], False, None, None)
    group.endpoint.end(op)
    return received(taken.peers, into, status)


def nothing(status: Status | None = None, source: int | None = None, result: Any = None) -> Steps[Any]:
    """Send or receive nothing, as the other end is PROC_NULL; the status names it."""
    yield from ()
    if status is not None:
        if source is None:
            status._copy(None)
        else:
            status._fill(source, -1, 0)
    return result


def received(peers: Peers, into: Objects | Buffer, status: Status | None) -> Any:
    """Return the result of a receive whose message has come, and fill the status."""
    result = into.received(peers)
    error = result.Get_error_code() if isinstance(result, Exception) else SUCCESS
    _fill(status, peers, into.incoming, error)
    return result


def _fill(status: Status | None, peers: Peers, envelope: Envelope, error: int = SUCCESS) -> None:
    if status is not None:
        status._fill(_source(peers, envelope), envelope.tag, envelope.count, error)


def _source(peers: Peers, envelope: Envelope) -> int:
    return peers.group.here(envelope.source) - peers.first


def _named(peers: Peers, envelope: Envelope) -> str:
    return f"the message of rank {_source(peers, envelope)} with tag {envelope.tag}"
