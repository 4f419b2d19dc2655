"""Messages between two ranks, of buffers and of Python objects."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ringcast.collectives.stage import advice_if_alone, pickled
from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ringcast.mpi.base.contexts import MAX_TAG, Peers
from ringcast.mpi.base.exceptions import ERR_RANK, ERR_REVOKED, ERR_TAG, Exception
from ringcast.mpi.base.ranks import whole
from ringcast.mpi.data import pickling
from ringcast.mpi.data.exporters import NOTHING
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.buffers import message
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.handles.status import Status, check_status
from ringcast.mpi.messages import transfers
from ringcast.mpi.messages.buffered import BufferedSends, send_buffered
from ringcast.mpi.messages.matched import MESSAGE_NO_PROC, Message, matched
from ringcast.mpi.messages.predicted import ExchangeArrays, ReceiveArray, ReceiveObject, SendArray, SendObject
from ringcast.mpi.messages.transfers import Buffer, Objects, Outgoing, Wanted
from ringcast.mpi.requests.calls import blocking, nonblocking, persistent
from ringcast.mpi.unsupported import PARTITIONS, lacking
from ringcast.protocol.matching import ANY


class Messages(BufferedSends, CommHandle):
    """Calls that move data from one rank to another."""

    # Buffers.

    def _send(self, buf: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send a buffer."""
        to = _to(self, dest, tag)
        return _sent(to, _data(to, buf))

    def _ssend(self, buf: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send a buffer; complete when a receive has matched it."""
        to = _to(self, dest, tag)
        return _sent(to, _data(to, buf), synchronous=True)

    def _bsend(self, buf: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send a copy of a buffer, for which the attached memory has room."""
        to = _to(self, dest, tag)
        return _buffered(self, to, _data(to, buf))

    def _recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Steps[Any]:
        """Receive a message in a buffer."""
        wanted = _from(self, source, tag, status)
        if wanted is None:
            return transfers.nothing(status, PROC_NULL)
        return transfers.receive(wanted, Buffer(message(buf, writes=True)), status)

    def _sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Steps[Any]:
        """Send a buffer, and receive a message in another one."""
        to, wanted = _to(self, dest, sendtag), _from(self, source, recvtag, status)
        into = None if wanted is None else Buffer(message(recvbuf, writes=True))
        return _exchanged(to, _data(to, sendbuf), wanted, into, status)

    def _sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Steps[Any]:
        """Send a buffer, and receive a message in the same one."""
        to, wanted = _to(self, dest, sendtag), _from(self, source, recvtag, status)
        into = None if wanted is None else Buffer(message(buf, writes=True))
        return _exchanged(to, _data(to, buf).copy(), wanted, into, status)

    Send, Isend, Send_init = (
        blocking(_send, "Send", SendArray),
        nonblocking(_send, "Isend", SendArray),
        persistent(_send, "Send_init", SendArray),
    )
    Ssend, Issend, Ssend_init = (
        blocking(_ssend, "Ssend"),
        nonblocking(_ssend, "Issend"),
        persistent(_ssend, "Ssend_init"),
    )
    Bsend, Ibsend, Bsend_init = (
        blocking(_bsend, "Bsend"),
        nonblocking(_bsend, "Ibsend"),
        persistent(_bsend, "Bsend_init"),
    )
    Rsend, Irsend, Rsend_init = (
        blocking(_send, "Rsend", SendArray),
        nonblocking(_send, "Irsend", SendArray),
        persistent(_send, "Rsend_init", SendArray),
    )
    Recv = blocking(_recv, "Recv", ReceiveArray)
    Irecv = nonblocking(_recv, "Irecv", ReceiveArray, receives=True)
    Recv_init = persistent(_recv, "Recv_init", ReceiveArray, receives=True)
    Sendrecv = blocking(_sendrecv, "Sendrecv", ExchangeArrays)
    Isendrecv = nonblocking(_sendrecv, "Isendrecv", receives=True)
    Sendrecv_replace = blocking(_sendrecv_replace, "Sendrecv_replace")
    Isendrecv_replace = nonblocking(_sendrecv_replace, "Isendrecv_replace", receives=True)

    # Objects.

    def _send_object(self, obj: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send an object."""
        to = _to(self, dest, tag)
        return _sent(to, _pickle(self, to, obj))

    def _ssend_object(self, obj: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send an object; complete when a receive has matched it."""
        to = _to(self, dest, tag)
        return _sent(to, _pickle(self, to, obj), synchronous=True)

    def _bsend_object(self, obj: Any, dest: int, tag: int = 0) -> Steps[None]:
        """Send an object, for which the attached memory has room."""
        to = _to(self, dest, tag)
        return _buffered(self, to, _pickle(self, to, obj))

    def _recv_object(
        self,
        buf: Any = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Steps[Any]:
        """Receive an object; `buf` is not needed."""
        wanted = _from(self, source, tag, status)
        if wanted is None:
            return transfers.nothing(status, PROC_NULL)
        return transfers.receive(wanted, Objects(self._group), status)

    def _recv_object_now(
        self,
        buf: Any = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Steps[Any]:
        """Receive an object; `buf` is deprecated."""
        if buf is not None:
            warnings.warn("the 'buf' argument is deprecated", UserWarning, stacklevel=3)
        return self._recv_object(buf, source, tag, status)

    def _sendrecv_object(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Steps[Any]:
        """Send an object and receive another one; `recvbuf` is not needed."""
        to, wanted = _to(self, dest, sendtag), _from(self, source, recvtag, status)
        into = None if wanted is None else Objects(self._group)
        return _exchanged(to, _pickle(self, to, sendobj), wanted, into, status)

    send, isend = blocking(_send_object, "send", SendObject), nonblocking(_send_object, "isend")
    ssend, issend = blocking(_ssend_object, "ssend"), nonblocking(_ssend_object, "issend")
    bsend, ibsend = blocking(_bsend_object, "bsend"), nonblocking(_bsend_object, "ibsend")
    recv, irecv = (
        blocking(_recv_object_now, "recv", ReceiveObject),
        nonblocking(_recv_object, "irecv", ReceiveObject, receives=True),
    )
    sendrecv = blocking(_sendrecv_object, "sendrecv")

    # Messages that have come.

    def _probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Steps[bool]:
        """Wait for a message, and leave it where it is."""
        wanted = _from(self, source, tag, status)
        return transfers.nothing(status, PROC_NULL, True) if wanted is None else transfers.probe(wanted, status)

    def _iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Steps[bool]:
        """Return whether a message has come, and leave it where it is."""
        wanted = _from(self, source, tag, status)
        return transfers.nothing(status, PROC_NULL, True) if wanted is None else transfers.look(wanted, status)

    Probe, probe = blocking(_probe, "Probe"), blocking(_probe, "probe")
    Iprobe, iprobe = blocking(_iprobe, "Iprobe"), blocking(_iprobe, "iprobe")

    def _mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Steps[Any]:
        """Wait for a message and match it: nothing but the Message receives it."""
        wanted = _from(self, source, tag, status)
        if wanted is None:
            return transfers.nothing(status, PROC_NULL, Message(MESSAGE_NO_PROC))
        return matched(self, transfers.await_and_take(wanted, status))

    def _improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Steps[Any]:
        """Match a message that has come; None if there is none."""
        wanted = _from(self, source, tag, status)
        if wanted is None:
            return transfers.nothing(status, PROC_NULL, Message(MESSAGE_NO_PROC))
        return matched(self, transfers.take(wanted, status))

    def _receive_matched(self, which: Message, buf: Any, status: Status | None = None) -> Steps[Any]:
        """Receive a message that was matched in a buffer."""
        check_status(status)
        if which == MESSAGE_NO_PROC:
            return which._received(transfers.nothing(status, PROC_NULL))
        into = Buffer(message(buf, writes=True))
        return which._received(transfers.receive_taken(which._taken(), into, status))

    def _receive_matched_object(self, which: Message, status: Status | None = None) -> Steps[Any]:
        """Receive a message that was matched as an object."""
        check_status(status)
        if which == MESSAGE_NO_PROC:
            return which._received(transfers.nothing(status, PROC_NULL))
        into = Objects(self._group)
        return which._received(transfers.receive_taken(which._taken(), into, status))

    Mprobe, mprobe = blocking(_mprobe, "Mprobe"), blocking(_mprobe, "mprobe")
    Improbe, improbe = blocking(_improbe, "Improbe"), blocking(_improbe, "improbe")
    _mrecv = blocking(_receive_matched, "Mrecv")
    _imrecv = nonblocking(_receive_matched, "Imrecv", receives=True)
    _mrecv_object = blocking(_receive_matched_object, "mrecv")
    _imrecv_object = nonblocking(_receive_matched_object, "imrecv", receives=True)

    # Not supported.

    Psend_init, Precv_init = lacking(PARTITIONS), lacking(PARTITIONS)


def _to(comm: CommHandle, dest: Any, tag: Any) -> Outgoing | None:
    """Return the destination of a message; None for PROC_NULL."""
    peers, dest, tag = comm._peers, whole(dest), whole(tag)
    if not 0 <= tag <= MAX_TAG:
        raise Exception(ERR_TAG, f"expected a tag from 0 to {MAX_TAG}, got {tag}")
    if 0 <= dest < peers.size:
        return Outgoing(peers, peers.group.in_job(peers.first + dest), tag)
    if dest == PROC_NULL:
        _check_usable(peers)
        return None
    expected = f"expected a rank from 0 to {peers.size - 1} or PROC_NULL as destination"
    raise Exception(ERR_RANK, f"{expected}, got {dest}{advice_if_alone(peers.group)}")


def _from(comm: CommHandle, source: Any, tag: Any, status: Status | None) -> Wanted | None:
    """Check `status`, then return the source and tag to receive; None for PROC_NULL."""
    check_status(status)
    peers, source, tag = comm._peers, whole(source), whole(tag)
    if tag != ANY_TAG and not 0 <= tag <= MAX_TAG:
        raise Exception(ERR_TAG, f"expected a tag from 0 to {MAX_TAG} or ANY_TAG, got {tag}")
    tag = ANY if tag == ANY_TAG else tag
    if 0 <= source < peers.size:
        return Wanted(peers, peers.group.in_job(peers.first + source), tag)
    if source == ANY_SOURCE:
        return Wanted(peers, ANY, tag)
    if source == PROC_NULL:
        _check_usable(peers)
        return None
    expected = f"expected a rank from 0 to {peers.size - 1}, ANY_SOURCE or PROC_NULL as source"
    raise Exception(ERR_RANK, f"{expected}, got {source}{advice_if_alone(peers.group)}")


def _data(to: Outgoing | None, buf: Any) -> Bytes:
    """Return the data of a buffer; without a destination, no data."""
    return NOTHING if to is None else message(buf, writes=False).packed()


def _sent(to: Outgoing | None, data: Bytes, *, synchronous: bool = False) -> Steps[None]:
    return transfers.nothing() if to is None else transfers.send(to, data, synchronous=synchronous)


def _buffered(comm: CommHandle, to: Outgoing | None, data: Bytes) -> Steps[None]:
    return transfers.nothing() if to is None else send_buffered(comm, to, data)


def _exchanged(
    to: Outgoing | None, data: Bytes, wanted: Wanted | None, into: Objects | Buffer | None, status: Status | None
) -> Steps[Any]:
    if wanted is None or into is None:
        return _sent_only(to, data, status)
    if to is None:
        return transfers.receive(wanted, into, status)
    return transfers.exchange(to, data, wanted, into, status)


def _sent_only(to: Outgoing | None, data: Bytes, status: Status | None) -> Steps[None]:
    yield from _sent(to, data)
    yield from transfers.nothing(status, PROC_NULL)


def _pickle(comm: CommHandle, to: Outgoing | None, obj: Any) -> Bytes:
    """Return an object as bytes; without a destination, no bytes."""
    if to is None:
        return NOTHING
    pickled(comm._group, "send")
    return np.frombuffer(pickling.pickle.dumps(obj), np.uint8)


def _check_usable(peers: Peers) -> None:
    """Raise ERR_REVOKED for a message to or from PROC_NULL on a revoked communicator."""
    group = peers.group
    if group.endpoint.protocol.revoked(group.context):
        raise Exception(ERR_REVOKED, "the communicator was revoked")
