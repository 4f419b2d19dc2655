"""Connect a node's launcher to node 0, by ZeroMQ under CURVE; see `ringcast_launcher.nodes.node_server`."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Container, Mapping
from typing import Any

import zmq

from ringcast.control.envelope import PATIENCE, Context
from ringcast.net.keys import control_pair, member_pair
from ringcast.net.zmq_monitor import read_event_type
from ringcast.wire.codec import CodecError
from ringcast.wire.header import LARGEST_FRAME
from ringcast_launcher.hosts.framing import cut, joined
from ringcast_launcher.hosts.pipe import Connection
from ringcast_launcher.nodes.node_server import AT_ONCE, LINGER, WINDOW
from ringcast_launcher.system.polling import File

REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS = REFUSED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class NodeClient(Connection):
    """A connection that is tried until it succeeds once; a lost connection is not tried again.

    `heard` is true once a message of node 0 arrived, `connected` once there was a connection, `refused` if the last
    handshake failed.
    """

    def __init__(self, context: Context, address: str, key: str, now: float) -> None:
        super().__init__(now)
        self.heard = self.refused = self.connected = self._lost = False
        self._waiting: deque[list[bytes]] = deque()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._socket.linger = int(1000 * LINGER)
        self._socket.sndhwm = WINDOW
        self._socket.rcvhwm = 0  # commands are few
        self._socket.handshake_ivl = PATIENCE
        self._socket.maxmsgsize = LARGEST_FRAME
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = 50, 1000
        self._socket.ipv6 = "[" in address
        own = member_pair(key)
        self._socket.curve_serverkey = control_pair(key).public
        self._socket.curve_publickey, self._socket.curve_secretkey = own.public, own.secret
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(address)

    @property
    def unsent(self) -> int:
        return sum(len(frame) for frames in self._waiting for frame in frames)

    @property
    def files(self) -> Mapping[File, int]:
        if self.ended:
            return {}
        wanted = select.POLLIN | (select.POLLOUT if self._waiting else 0)
        return {self._socket: wanted, self._monitor: select.POLLIN}

    def send(self, message: Any) -> None:
        self._waiting.append(cut(message))
        self._flush()

    def close(self) -> None:
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close()
            # Messages that were not delivered must not reach the next server at this address: this client has gone.
            self._socket.close(None if self.heard else 0)
        self._waiting.clear()
        self.ended = self.ended or "it was closed"

    def _receive(self, ready: Container[File]) -> list[Any]:
        found = self._messages() if self._socket in ready else []
        if self.ended:
            return found
        if self._monitor in ready:
            self._watch()
        if self._lost and not self._socket.poll(0):  # messages that came before the loss are taken first
            self.ended = self.ended or "it was lost"
        return found

    def _messages(self) -> list[Any]:
        found: list[Any] = []
        try:
            while len(found) < AT_ONCE:
                found.append(joined(self._socket.recv_multipart(zmq.NOBLOCK)))
        except zmq.Again:
            pass
        except CodecError as error:
            self.refuse(str(error))
        if found:
            self.silent, self.heard = 0.0, True
        return found

    def _watch(self) -> None:
        while self._monitor.poll(0):
            event = read_event_type(self._monitor)
            if event == zmq.EVENT_DISCONNECTED:
                self._lost |= self.connected
            else:
                self.refused = bool(event & REFUSED)
                self.connected |= not self.refused

    def _flush(self) -> None:
        try:
            while self._waiting and not self.ended:
                self._socket.send_multipart(self._waiting[0], zmq.NOBLOCK)
                self._waiting.popleft()
        except zmq.Again:
            pass
