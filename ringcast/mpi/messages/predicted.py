"""Send and receive messages by prediction: no steps, no task. The engine makes the rest of a call, or all of it.

Predicted is what programs mostly do: arrays as they are, and objects, to and from one rank. Each class has the
arguments of its calls; UNMADE in place of a result says that the call needs the general way, which also finds mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from ringcast.collectives.again import UNMADE
from ringcast.collectives.point_to_point import failed, in_records, settled
from ringcast.engine.correspondent import KIND, MOST, Correspondent, Loan
from ringcast.engine.execute import Steps
from ringcast.engine.predicted import Predicted, ended
from ringcast.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ringcast.mpi.base.contexts import MAX_TAG, Peers
from ringcast.mpi.base.threads import of_one_thread
from ringcast.mpi.data import pickling
from ringcast.mpi.datatypes.buffers import of_array
from ringcast.mpi.handles.status import Status
from ringcast.mpi.messages import transfers
from ringcast.mpi.messages.transfers import Buffer, Objects, Outgoing, Wanted
from ringcast.mpi.requests.calls import checked, finished, run
from ringcast.protocol.lane import Lane
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Site
from ringcast.wire.header import EAGER_LIMIT, RTS, SIZE, unpack_fields

unpack_sizes = Struct("<Q").unpack_from  # of the only frame of a message that is offered


class SendArray(NamedTuple):
    """Send an array."""

    buf: Any
    dest: Any
    tag: Any = 0

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        to, part = _other(comm, self.dest, self.tag, 0), of_array(self.buf, 1, writes=False)
        if steps is not None and to is not None and part is not None:
            return _begun_send(to, self.tag, part.memory, site, steps)
        if to is None or part is None or not _sent(comm, to, self.tag, part.memory, operation, site):
            return UNMADE
        return None


class SendObject(NamedTuple):
    """Send an object."""

    obj: Any
    dest: Any
    tag: Any = 0

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        to = _other(comm, self.dest, self.tag, 0)
        if to is None or not comm._group.pickle:
            return UNMADE
        data = np.frombuffer(checked(comm, pickling.pickle.dumps, self.obj), np.uint8)
        if _sent(comm, to, self.tag, data, operation, site):
            return None
        return run(comm, operation, transfers.send(Outgoing(comm._peers, to.peer, self.tag), data), site)


class ReceiveArray(NamedTuple):
    """Receive a message in an array."""

    buf: Any
    source: Any = ANY_SOURCE
    tag: Any = ANY_TAG
    status: Any = None

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        origin = _other(comm, self.source, self.tag, ANY_TAG)
        part = None if origin is None else of_array(self.buf, 1, writes=True)
        if origin is None or part is None:
            return UNMADE
        awaited = _Awaited(comm, operation, site, origin, _wanted(self.tag), Buffer(part), self.status)
        return awaited.receive() if steps is None else awaited.begun(steps)


class ReceiveObject(NamedTuple):
    """Receive an object."""

    buf: Any = None
    source: Any = ANY_SOURCE
    tag: Any = ANY_TAG
    status: Any = None

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        origin = _other(comm, self.source, self.tag, ANY_TAG)
        if origin is None or self.buf is not None or not comm._group.pickle:
            return UNMADE
        awaited = _Awaited(comm, operation, site, origin, _wanted(self.tag), Objects(comm._group), self.status)
        return awaited.receive() if steps is None else awaited.begun(steps)


class ExchangeArrays(NamedTuple):
    """Send an array, and receive a message in another one."""

    sendbuf: Any
    dest: Any
    sendtag: Any = 0
    recvbuf: Any = None
    source: Any = ANY_SOURCE
    recvtag: Any = ANY_TAG
    status: Any = None

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        to, origin = _other(comm, self.dest, self.sendtag, 0), _other(comm, self.source, self.recvtag, ANY_TAG)
        if to is None or origin is None:
            return UNMADE
        part, into = of_array(self.sendbuf, 1, writes=False), of_array(self.recvbuf, 1, writes=True)
        if (
            part is None
            or into is None
            or (part.nbytes > EAGER_LIMIT and np.may_share_memory(part.memory, into.memory))
        ):
            return UNMADE
        awaited = _Awaited(comm, operation, site, origin, _wanted(self.recvtag), Buffer(into), self.status)
        return awaited.exchange(to, self.sendtag, part.memory)


class _Awaited(NamedTuple):
    """A message that is received from one rank."""

    comm: Any
    operation: str
    site: Site
    origin: Correspondent
    tag: int  # or ANY
    into: Buffer | Objects
    status: Any

    def receive(self) -> Any:
        """Receive it, and return the result; or UNMADE."""
        origin = self.origin
        with origin.endpoint.gate:
            lane = origin.lane(self.tag) if self._takes_status else None
            if lane is None:
                return UNMADE
            record, label = in_records("recv", None, origin.peer, self.tag)
            result = self._received(lane, origin.begin(record, self.site), label)
        return finished(self.comm, result)

    def begun(self, steps: Steps[Any]) -> Any:
        """Begin to receive it in place of the steps of a call, and return the task; or UNMADE."""
        origin = self.origin
        if origin.lane(self.tag, in_turn=True) is None or not self._takes_status:
            return UNMADE
        record, label = in_records("recv", None, origin.peer, self.tag)
        op = origin.begin_request(record, self.site)
        op.label = label
        peers = self.comm._peers  # the program may free the communicator before
        play, rest = partial(self._play, peers, op, steps), self._rest(peers, op, steps)
        return Predicted(origin.endpoint, rest, self.site, play, op)

    def _play(
        self, peers: Peers, op: Operation, replaced: Steps[Any], patience: float
    ) -> tuple[Any] | Steps[Any] | None:
        """Receive it, as `engine.predicted.Predicted`."""
        origin = self.origin
        lane = origin.lane(self.tag, in_turn=True)
        if lane is None or not self._come(lane, op, patience):
            return None
        replaced.close()
        origin.endpoint.recorder.done(op)
        try:
            return (transfers.received(peers, self.into, self.status),)
        except BaseException as error:  # of unpickling, which runs code of the program
            return failed(peers.group, op, error)

    def _rest(self, peers: Peers, op: Operation, replaced: Steps[Any]) -> Steps[Any]:
        """Receive it in the engine."""
        wanted = Wanted(peers, self.origin.peer, self.tag)
        try:
            return (yield from transfers.receive(wanted, self.into, self.status, op))
        finally:
            replaced.close()

    def exchange(self, to: Correspondent, tag: int, data: Any) -> Any:
        """Send data, then receive the message, and return the result; or UNMADE."""
        origin = self.origin
        with origin.endpoint.gate:
            if origin.endpoint.predicted or not self._takes_status:  # perhaps the next message is theirs
                return UNMADE
            sent, loan = _put(to, tag, data)
            if not sent:
                return UNMADE
            record, label = in_records("sendrecv", to.peer, origin.peer, tag)
            result = self._received(origin.lane(self.tag), origin.begin(record, self.site), label, loan)
        return finished(self.comm, result)

    @property
    def _takes_status(self) -> bool:
        return self.status is None or isinstance(self.status, Status)

    def _received(self, lane: Lane | None, op: Operation, label: str, loan: Loan | None = None) -> Any:
        comm, operation, site, origin, tag, into, status = self
        peers = comm._peers
        try:
            come = lane is not None and self._come(lane, op)
        except BaseException:  # such as MemoryError: the message stays where it is
            origin.break_off(label, loan)
            raise
        if not come:
            rest = origin.rest(label)
            if loan is not None:
                loan.hand_over(rest)
            return run(comm, operation, transfers.receive(Wanted(peers, origin.peer, tag), into, status, rest), site)
        if loan is not None and not loan.settle():
            return _settled(
                comm, operation, origin.rest(label), loan, site, partial(transfers.received, peers, into, status)
            )
        origin.endpoint.recorder.done(op)
        return transfers.received(peers, into, status)

    def _come(self, lane: Lane, op: Operation, patience: float | None = None) -> bool:
        """Receive the next message in this operation, if it is as predicted."""
        origin, tag, incoming = self.origin, self.tag, self.into.incoming
        message = origin.look(lane, tag, 0, patience)
        if message is None:
            return False
        came = unpack_fields(message)[7] if tag == ANY else tag
        op.met = origin.peer, came
        if message[KIND] == RTS:
            (size,) = unpack_sizes(message, SIZE)
            if size > MOST:
                return False
            incoming.announce(origin.peer, came, [size])
            return origin.fetch(lane, incoming.data)
        lane.accept(origin.peer)
        incoming.come(origin.peer, came, memoryview(message)[SIZE:])
        return True


def _other(comm: Any, rank: Any, tag: Any, least: int) -> Correspondent | None:
    """Return the rank at the other end, if messages with this tag, which is `least` or more, may be predicted."""
    peers, caller = comm.__dict__.get("_peers"), comm.__dict__.get("_caller")
    if peers is None or caller is None or type(rank) is not int or not 0 <= rank < peers.size:
        return None
    if type(tag) is not int or not least <= tag <= MAX_TAG or not of_one_thread():
        return None
    return caller._correspondent(peers.first + rank, peers.group)  # type: ignore[no-any-return]


def _wanted(tag: int) -> int:
    return ANY if tag == ANY_TAG else tag


def _sent(comm: Any, to: Correspondent, tag: int, data: Any, operation: str, site: Site) -> bool:
    """Send bytes as the call `send`; False, and nothing has changed, if that needs the general way."""
    with to.endpoint.gate:
        sent, loan = _put(to, tag, data)
        if not sent:
            return False
        record, label = in_records("send", to.peer, None, tag)
        op = to.begin(record, site)
        if loan is not None and not loan.settle():
            _settled(comm, operation, to.rest(label), loan, site, _nothing)
            return True
        to.endpoint.recorder.done(op)
        to.deliver(comm._caller.timeout)
    return True


def _begun_send(to: Correspondent, tag: int, data: Any, site: Site, steps: Steps[Any]) -> Any:
    """Send bytes in place of the steps of a call, and return its task, which is done; or UNMADE."""
    lane = to.lane() if data.nbytes <= EAGER_LIMIT else None
    if lane is None or not to.put(lane, tag, data, 0):
        return UNMADE
    record, _ = in_records("send", to.peer, None, tag)
    to.endpoint.recorder.done(to.begin(record, site))
    return ended(to.endpoint, steps, site, None)


def _put(to: Correspondent, tag: int, data: Any) -> tuple[bool, Loan | None]:
    """Send bytes at once, or offer them; return whether that was done, and the loan."""
    size = data.nbytes
    lane = to.lane() if size <= MOST else None
    if lane is None:
        return False, None
    if size <= EAGER_LIMIT:
        return to.put(lane, tag, data, 0), None
    loan = to.offer(lane, tag, (data,))
    return loan is not None, loan


def _settled(comm: Any, operation: str, op: Operation, loan: Loan, site: Site, result: Callable[[], Any]) -> Any:
    """Return the result of a call when what it has offered is read."""
    loan.hand_over(op)
    return run(comm, operation, settled(comm._peers.group, op, result), site)


def _nothing() -> None:
    """Return the result of a call that only sends."""
