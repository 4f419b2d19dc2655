"""Serve on node 0 the connections from the launchers of the other nodes, over one socket.

The socket uses CURVE: without the key of the rendezvous there is no handshake, and all data is encrypted. Requests for
admission are answered in the main loop, not by a thread: node 0 has not forked its workers yet.
Both ends make fresh session keys for every connection, so that nothing recorded in an earlier job with the same key can
be played again.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Container, Mapping
from typing import Any

import zmq

from ringcast.control.envelope import PATIENCE, Context
from ringcast.net.keys import control_pair, member_pair
from ringcast.net.ports import BACKLOG
from ringcast.net.zap import ZapAuthenticator
from ringcast.wire.codec import CodecError, plain
from ringcast.wire.header import LARGEST_FRAME
from ringcast_launcher.hosts.framing import cut, joined
from ringcast_launcher.hosts.messages import JobEnd
from ringcast_launcher.hosts.pipe import Connection
from ringcast_launcher.system.polling import File

WINDOW = 16  # messages that wait at either end of a connection before the sender has to wait
AT_ONCE = 64  # messages taken in one turn at most: others have to be served as well
LINGER = 2.0  # seconds for sending the last messages


class NodeServer:
    """Listens at an address of this machine, and accepts connections until it is full."""

    def __init__(self, context: Context, address: str, key: str, nodes: int = 2) -> None:
        """Bind the socket; up to `nodes` nodes may connect at the same time.

        Raises:
            zmq.ZMQError: the address cannot be bound.
        """
        self._full = ""  # the text for nodes that come too late
        self._connections: dict[bytes, NodeConnection] = {}
        self._newcomers: list[NodeConnection] = []
        self.socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self.socket.linger = int(1000 * LINGER)
        self.socket.sndhwm, self.socket.rcvhwm = 0, WINDOW  # commands are few; a node that sends much has to wait
        self.socket.router_mandatory = True
        self.socket.handshake_ivl = PATIENCE
        self.socket.backlog = BACKLOG
        self.socket.maxmsgsize = LARGEST_FRAME
        self.socket.ipv6 = "[" in address
        self.socket.curve_server = True
        self.socket.curve_secretkey = control_pair(key).secret
        self._authenticator = ZapAuthenticator(context, self.socket, nodes)
        self._authenticator.expect([member_pair(key).public])
        try:
            self.socket.bind(address)
        except zmq.ZMQError:
            self.close()
            raise

    @property
    def files(self) -> Mapping[File, int]:
        """The files to poll, and for which events."""
        return dict.fromkeys((self.socket, *self._authenticator.files), select.POLLIN)

    @property
    def due(self) -> float:
        """The time of the next `take` at the latest."""
        return self._authenticator.due

    @property
    def strangers(self) -> int:
        """The number of connections that did not show the key."""
        return self._authenticator.strangers

    def newcomers(self) -> list[NodeConnection]:
        """Return the connections accepted since the last call."""
        self.take()
        found, self._newcomers = self._newcomers, []
        return found

    def be_full(self, why: str) -> None:
        """Accept no more connections, and send them the reason."""
        self._full = why

    def take(self) -> None:
        """Admit connections, and receive for all of them."""
        self._authenticator.serve()
        for _ in range(AT_ONCE):
            try:
                peer, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if peer not in self._connections:
                if self._full:
                    self.tell(peer, plain(JobEnd(1, f"ringcast-launch: {self._full}\n", False)))
                    continue
                self._connections[peer] = NodeConnection(self, peer)
                self._newcomers.append(self._connections[peer])
            self._connections[peer].arrived.append(frames)

    def tell(self, peer: bytes, message: Any) -> bool:
        """Send a message; return False if the connection is lost."""
        try:
            self.socket.send_multipart([peer, *cut(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def tell_all(self, message: Any) -> None:
        """Send a message to all nodes that have connected."""
        for peer in self._connections:
            self.tell(peer, message)

    def forget(self, peer: bytes) -> None:
        """Forget a connection."""
        self._connections.pop(peer, None)

    def close(self) -> None:
        """Close the socket; the context waits a moment until the last messages are sent. Idempotent."""
        self._authenticator.stop()
        self.socket.close()


class NodeConnection(Connection):
    """Node 0's end of the connection to a node, over the common socket."""

    def __init__(self, server: NodeServer, peer: bytes) -> None:
        super().__init__(0.0)
        self._server, self._peer = server, peer
        self.arrived: deque[list[bytes]] = deque()

    @property
    def due(self) -> float:
        return 0.0 if self.arrived else min(super().due, self._server.due)

    @property
    def unsent(self) -> int:
        return 0

    @property
    def files(self) -> Mapping[File, int]:
        return {} if self.ended else self._server.files

    def send(self, message: Any) -> None:
        if not self.ended and not self._server.tell(self._peer, message):
            self.ended = "it was lost"

    def close(self) -> None:
        self._server.forget(self._peer)
        self.ended = self.ended or "it was closed"

    def _receive(self, ready: Container[File]) -> list[Any]:
        if self._server.due <= time.monotonic() or any(file in ready for file in self._server.files):
            self._server.take()
        found = []
        while self.arrived:
            self.silent = 0.0
            try:
                found.append(joined(self.arrived.popleft()))
            except CodecError as error:
                self.refuse(str(error))
        return found

    def _flush(self) -> None:
        """Do nothing: nothing waits here."""
