"""Strangers at the sockets of a job, and what they got in."""

from __future__ import annotations

import contextlib

import zmq
from zmq.utils.monitor import recv_monitor_message

from ringcast.control import new_key
from ringcast.net.keys import KeyPair, member_pair
from ringcast.transports.zeromq import ZeroMQTransport
from support.patience import patience

LIMIT = 100  # seconds; nothing here takes nearly as long


def knock(sock: zmq.Socket[bytes], address: str, message: bytes, pair: KeyPair | None, server: str) -> bool:
    """Connect and send; whether the handshake succeeded."""
    sock.linger, sock.reconnect_ivl = 0, -1
    if pair is not None:
        sock.curve_publickey, sock.curve_secretkey, sock.curve_serverkey = pair.public, pair.secret, server.encode()
    monitor = sock.get_monitor_socket()
    try:
        sock.connect(address)
        with contextlib.suppress(zmq.Again):  # refused already
            sock.send(message, zmq.DONTWAIT)
        while monitor.poll(1000 * LIMIT):
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return True
            if event == zmq.EVENT_DISCONNECTED:
                return False
        raise AssertionError("neither admitted nor refused")
    finally:
        sock.disable_monitor()
        monitor.close()


def another_jobs_member() -> KeyPair:
    return member_pair(new_key())


def arrivals(transport: ZeroMQTransport, until: bytes) -> list[bytes]:
    """Return the headers of what arrives, up to one."""
    got: list[bytes] = []
    deadline = transport.clock() + patience(LIMIT)
    while until not in got:
        assert transport.clock() < deadline, got
        if (arrival := transport.poll(deadline)) is not None:
            got.append(arrival.header)
    return got
