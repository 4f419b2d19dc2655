"""Move messages between processes by ZeroMQ: one bound PULL inbox per rank and one PUSH per peer.

An inbox over tcp may have an ipc socket as well, for the ranks of its own host. libzmq copies the socket's options into
a listener at the time of binding: ipc is bound first and has no CURVE, tcp is bound second and has it.

One port (or one ipc socket) per rank is all that has to be open. Over tcp every connection is encrypted and
authenticated by CURVE: each rank makes a key pair of its own, and admits only the public keys that it got with the
addresses. ipc sockets lie in a directory that only their owner may enter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import cast

import zmq

from ringcast.errors import LinkLost
from ringcast.net.fd_limits import sockets_needed
from ringcast.net.keys import new_pair
from ringcast.net.ports import BACKLOG, bind_first
from ringcast.net.zap import ZapAuthenticator
from ringcast.net.zmq_monitor import read_event_type
from ringcast.transports.base import LINGER, Frame, NoLoans
from ringcast.transports.sockets.tcp import KEEPALIVE
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.header import LARGEST_FRAME

_BROKEN = {
    zmq.Event.CLOSED: "it was refused, or there is no way there",
    zmq.Event.DISCONNECTED: "it was closed by the other side",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "the listener there has ended meanwhile, or is not that rank",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "the listener there does not speak its protocol",
    zmq.Event.HANDSHAKE_FAILED_AUTH: "the listener there does not admit this rank",
}
_LAST = int(zmq.DONTWAIT)
_MORE = int(zmq.DONTWAIT | zmq.SNDMORE)  # computed once, as the operation on enums is slow
SLICE = 1000  # ms after which a wait looks at its deadline again


class ZeroMQTransport(NoLoans):
    """One rank's sockets; fulfils `Transport`. Bind first, then exchange addresses, then `meet` the others."""

    clock = staticmethod(time.monotonic)

    def __init__(
        self, bind: str | Sequence[str], *, size: int = 1, secure: bool = True, near: str = "", listener: int = -1
    ) -> None:
        """Bind the inbox to `bind`: `ipc:///path`, `tcp://host:*`, or the first of several whose port is free.

        `size` is the number of ranks of the job; without `secure` tcp is neither encrypted nor authenticated. `near` is
        an ipc address at which an inbox over tcp is bound as well, if possible; the attribute `near` has it then.
        `listener` is the descriptor of a socket that listens at `bind` already, an ipc address; it is taken over.

        Raises:
            zmq.ZMQError: the address cannot be bound; with EADDRINUSE all ports are taken.
        """
        binds = [bind] if isinstance(bind, str) else bind
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, sockets_needed(size))
        self._watchful = not binds[0].startswith("ipc://")  # an ipc connection succeeds or fails at once
        self._pair = new_pair() if secure and self._watchful else None
        self._authenticator: ZapAuthenticator | None = None
        self._peers: dict[int, zmq.Socket[bytes]] = {}
        self._watched: dict[int, zmq.Socket[bytes]] = {}  # monitors of connections that are being made
        self._broken: dict[int, str] = {}  # why connections were not made
        self._cards: Sequence[EndpointCard] = ()
        self._near: Mapping[int, str] = MappingProxyType({})
        self._closed = False
        self._lock = threading.Lock()  # of the door, which several threads use
        self.address = self.near = ""
        self._inbox = self._socket(zmq.PULL)
        self._wait = -2  # the RCVTIMEO that is set
        self._arrival: _SocketArrival | None = None  # the last one
        try:
            if near:
                self._bind_near(near)
            if self._pair is not None:
                self._inbox.curve_secretkey = self._pair.secret
                self._inbox.curve_server = True
                self._authenticator = ZapAuthenticator(self.context, self._inbox, size)
                self._authenticator.start()
            self._inbox.bind("inproc://inbox")
            if listener >= 0:
                self._inbox.setsockopt(zmq.USE_FD, listener)
            bind_first(self._inbox, binds)
            self.address = cast(bytes, self._inbox.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
            self._door = self._socket(zmq.PUSH)
            self._door.connect("inproc://inbox")
        except BaseException:
            self.close()
            raise

    def _bind_near(self, address: str) -> None:
        """Bind to an ipc address; call this before the options of CURVE and of the authenticator are set."""
        with suppress(zmq.ZMQError):  # as on a file system without sockets, or without room: tcp is there anyway
            self._inbox.bind(address)
            self.near = address

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, int(1000 * LINGER))
        socket.setsockopt(zmq.SNDHWM, 0)  # the protocol bounds the queue, not ZeroMQ
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_FRAME)
        # NAT and firewalls drop the state of idle connections; probes keep ours.
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE)
        # A reconnecting PUSH can lose messages or deliver them to a stranger at the same address.
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, 60_000)
        return socket

    @property
    def public_key(self) -> str:
        """The key by which the other ranks connect to this one; empty where nothing is encrypted."""
        return "" if self._pair is None else self._pair.public.decode()

    @property
    def strangers(self) -> int:
        """Number of connections to the inbox that were not authenticated."""
        return 0 if self._authenticator is None else self._authenticator.strangers

    @property
    def card(self) -> EndpointCard:
        """The card with which another rank connects to the inbox."""
        return EndpointCard(self.address, self.public_key)

    def meet(self, cards: Sequence[EndpointCard], near: Mapping[int, str] = MappingProxyType({})) -> None:
        """Set the cards of all ranks, whose inboxes are bound already. Called once.

        `near` has, for ranks of the own host, the ipc addresses that are used instead.
        """
        self._cards, self._near = cards, near
        if self._authenticator is not None:
            self._authenticator.admit(card.key.encode() for card in cards)

    def connect(self, peers: Sequence[int]) -> None:
        for peer in peers:
            if peer not in self._peers:
                self._open(peer, watch=self._watchful and peer not in self._near)

    def unreached(self) -> dict[int, str]:
        """Return the peers of `connect` without a connection so far, each with the reason if it was broken off."""
        for peer, monitor in list(self._watched.items()):
            while monitor.poll(0):
                event = read_event_type(monitor)
                if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                    self._unwatch(peer)
                    break
                self._broken.setdefault(peer, _BROKEN[event])
        return {peer: self._broken.get(peer, "") for peer in self._watched}

    def unheard(self) -> Collection[int]:
        """Return no peer: libzmq's threads admit others."""
        return ()

    def wait_for_news(self, deadline: float) -> None:
        """Wait until something arrives, or a connection of `unreached` is made or broken, or until the deadline."""
        poller = zmq.Poller()
        for socket in (self._inbox, *self._watched.values()):
            poller.register(socket, zmq.POLLIN)
        poller.poll(max(0, min(SLICE, int((deadline - self.clock()) * 1000 + 0.999))))

    def stop_watching(self) -> None:
        """Stop watching the connections that are being made."""
        for peer in list(self._watched):
            self._unwatch(peer)

    def _unwatch(self, peer: int) -> None:
        self._peers[peer].disable_monitor()
        self._watched.pop(peer).close(linger=0)

    def links(self) -> dict[int, str]:
        """Return the addresses over tcp to which this rank has connected, or tries to, by rank; from any thread."""
        if not self._watchful:
            return {}
        skipped = (self._near, self._watched)
        return {
            peer: self._cards[peer].address for peer in list(self._peers) if not any(peer in each for each in skipped)
        }

    def address_of(self, peer: int) -> str:
        """Return the address of `peer`'s inbox."""
        return self._near.get(peer) or self._cards[peer].address

    def _open(self, peer: int, watch: bool = False) -> zmq.Socket[bytes]:
        address, socket = self.address_of(peer), self._socket(zmq.PUSH)
        if watch:
            self._watched[peer] = socket.get_monitor_socket(sum(_BROKEN, zmq.Event.HANDSHAKE_SUCCEEDED))
        if self._pair is not None and peer not in self._near:
            socket.curve_publickey, socket.curve_secretkey = self._pair.public, self._pair.secret
            socket.curve_serverkey = self._cards[peer].key.encode()
        if address.startswith("tcp://["):
            socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise LinkLost(peer, f"its address {address!r} cannot be used: {error}") from None
        self._peers[peer] = socket
        return socket

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        socket = self._peers.get(peer) or self._open(peer)
        last = len(frames) - 1
        try:
            for i, frame in enumerate(frames):
                socket.send(frame, _LAST if i == last else _MORE)
        except zmq.ZMQError:  # without a limit on the queue this means: no connection is left
            raise LinkLost(
                peer, f"the connection {self._ends(peer)} was closed by the other side or by the network"
            ) from None
        except BaseException:  # an interrupt: nothing may follow half a message
            socket.close(linger=0)
            raise

    def _ends(self, peer: int) -> str:
        return f"from {self.address} to {self.address_of(peer)}"

    def poll(self, deadline: float | None) -> _SocketArrival | None:
        inbox = self._inbox
        wait = SLICE if deadline is None else min(SLICE, max(0, int((deadline - self.clock()) * 1000 + 0.999)))
        if wait != self._wait:
            inbox.setsockopt(zmq.RCVTIMEO, wait)
            self._wait = wait
        while self._arrival is not None and self._arrival.more:  # unread frames
            self._arrival.read()
        self._arrival = None
        try:
            self._arrival = _SocketArrival(inbox, inbox.recv())
        except zmq.Again:
            return None
        return self._arrival

    def inject(self, frames: Sequence[bytes]) -> None:
        with self._lock:
            if not self._closed:  # else the inbox is closed too
                self._door.send_multipart(frames)

    def fileno(self) -> int:
        return cast(int, self._inbox.getsockopt(zmq.FD))

    def close(self, within: float | None = None) -> None:
        if self._closed:
            return
        with self._lock:
            self._closed = True
        if self._authenticator is not None:
            self._authenticator.stop()
        self._pair = None
        seconds = LINGER if within is None else within
        self.context.destroy(int(1000 * seconds))  # closes all sockets; their linger bounds the wait
        for address in self.address, self.near:
            if address.startswith("ipc://"):
                with suppress(FileNotFoundError):
                    os.unlink(address.removeprefix("ipc://"))  # ZeroMQ leaves it behind


class _SocketArrival:
    """A message whose header has been read; the rest is still in the socket."""

    __slots__ = ("_more", "_socket", "header")
    loan = None

    def __init__(self, socket: zmq.Socket[bytes], header: bytes) -> None:
        self._socket, self.header = socket, header
        self._more: bool | None = None  # asked once per frame: the question costs as much as a small frame

    @property
    def more(self) -> bool:
        if self._more is None:
            self._more = bool(self._socket.getsockopt(zmq.RCVMORE))
        return self._more

    def read(self) -> Frame:
        self._more = None  # first: an interrupt must not leave an old answer
        return self._socket.recv()

    def read_into(self, view: memoryview) -> int:
        self._more = None
        return self._socket.recv_into(view)
