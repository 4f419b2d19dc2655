"""Admit only clients with a key of the job to a CURVE socket, by ZAP authentication (RFC 27).

CURVE encrypts, authenticates the server to the client, and proves to the server which key the client has. ZeroMQ
accepts any key unless a ZAP handler at inproc://zeromq.zap.01, in the context of the socket, rejects it. The handler
runs in a thread of the authenticator, or, where there must be no thread, in its owner's loop. It answers no request
before it knows the admitted keys, so early clients wait; without a handler no client is admitted.

From the beginning the authenticator also bounds the number of unauthenticated connections, and the bytes that they may
send (`ringcast.net.strangers`).

The thread needs the interpreter's lock. While native code of the user's program holds the lock, handshakes wait, as
long as HANDSHAKE_IVL of the socket allows, and no client is refused; established connections are not affected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from math import ceil, inf

import zmq
from zmq.utils import z85

from ringcast.net.strangers import Strangers
from ringcast.net.zmq_monitor import read_event

_ZAP = "inproc://zeromq.zap.01"
_OPEN, _STOP = b"open", b"stop"
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class ZapAuthenticator:
    """Authenticates the clients of one CURVE socket; a context can have only one authenticator.

    The thread that uses the socket constructs it before the socket is bound, and stops it before the socket is closed.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], members: int) -> None:
        """Let all clients wait; `members` is the number of members that may connect at the same time.

        Raises:
            zmq.ZMQError: the context has an authenticator already.
        """
        self._socket = socket
        self._admitted: frozenset[bytes] = frozenset()
        self._came = self._entered = 0
        self._unknown = Strangers(members)
        self._thread: threading.Thread | None = None
        self._questions: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._events: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._orders: zmq.Socket[bytes] = context.socket(zmq.PAIR)  # from the owner …
        self._heard: zmq.Socket[bytes] = context.socket(zmq.PAIR)  # … to the thread
        for own in self._questions, self._events, self._orders, self._heard:
            own.linger = 0
        self._events.rcvhwm = 0  # a queue that is full would stop ZeroMQ's own thread
        try:
            self._questions.bind(_ZAP)
            socket.zap_domain = b"ringcast"
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            events = f"inproc://door-{id(self)}"
            socket.monitor(events, _EVENTS)
            self._events.connect(events)
            self._heard.bind(f"inproc://orders-{id(self)}")
            self._orders.connect(f"inproc://orders-{id(self)}")
        except BaseException:
            self.stop()
            raise

    @property
    def strangers(self) -> int:
        """Number of connections so far that were not authenticated: refused, broken off, or silent."""
        return self._came - self._entered

    def start(self) -> None:
        """Start the thread; requests wait until `admit` is called."""
        self._thread = threading.Thread(target=self._work, name="ringcast-zap", daemon=True)
        self._thread.start()

    def admit(self, keys: Iterable[bytes]) -> None:
        """Admit the owners of these public keys (Z85), and refuse all others. Called once."""
        self.expect(keys)
        if self._thread is None:
            self.start()
        self._orders.send(_OPEN)

    def expect(self, keys: Iterable[bytes]) -> None:
        """Admit these keys without a thread: the owner calls `serve` when one of `files` is readable, and at `due`."""
        self._admitted = frozenset(z85.decode(key) for key in keys)

    @property
    def files(self) -> tuple[zmq.Socket[bytes], ...]:
        """Sockets that become readable when a connection is made, requests authentication, or ends."""
        return self._questions, self._events

    @property
    def due(self) -> float:
        """The time of the next `serve` or `guard` at the latest, on the monotonic clock."""
        return inf if self._unknown.due is None else self._unknown.due

    def serve(self) -> None:
        """Answer all pending requests; only after `expect`."""
        self.guard()
        while self._questions.poll(0):
            self._answer()

    def guard(self) -> None:
        """Shut down excess connections, and connections that sent too much; do nothing where the thread does this."""
        if self._thread is None:
            self._look()

    def stop(self) -> None:
        """Admit no more clients, and release everything but the socket. Idempotent."""
        if self._thread is not None and not self._orders.closed:
            self._orders.send(_STOP)
            self._thread.join()
        if not self._events.closed:
            self._socket.disable_monitor()  # first: ZeroMQ would wait for a reader of the events
            self._count()
        with suppress(zmq.ZMQError):  # the socket was not bound, or is closed
            self._questions.unbind(_ZAP)  # at once: after a mere close ZeroMQ may still send a request, and wait
        for own in self._events, self._questions, self._orders, self._heard:
            own.close()

    def _work(self) -> None:
        poller = zmq.Poller()
        for socket in self._heard, self._events:
            poller.register(socket, zmq.POLLIN)
        try:
            while True:
                wait = None if self.due == inf else max(0, ceil(1000 * (self.due - time.monotonic())))
                ready = dict(poller.poll(wait))
                self._look()
                if self._questions in ready:
                    self._answer()
                if self._heard in ready:
                    if self._heard.recv() == _STOP:
                        return
                    poller.register(self._questions, zmq.POLLIN)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.ETERM, zmq.ENOTSOCK):  # the context was terminated
                raise

    def _answer(self) -> None:
        """Answer one ZAP request."""
        _, number, _, _, _, mechanism, *credentials = self._questions.recv_multipart()
        admitted = mechanism == b"CURVE" and len(credentials) == 1 and credentials[0] in self._admitted
        verdict = [b"200", b""] if admitted else [b"400", b"not a member of this job"]
        self._questions.send_multipart([b"1.0", number, *verdict, b"", b""])

    def _look(self) -> None:
        self._count()
        if self.due <= time.monotonic():
            self._unknown.look(self._count)

    def _count(self) -> None:
        """Count the connections that were made, authenticated, or closed."""
        while self._events.poll(0):
            event, file, address = read_event(self._events)
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._entered += 1
                continue
            near = address.startswith(b"ipc://")  # only the own user can connect to these
            if event == zmq.Event.ACCEPTED:
                self._came += 1
                if not near:
                    self._unknown.come(file)
            elif not near:
                self._unknown.leave(file)
