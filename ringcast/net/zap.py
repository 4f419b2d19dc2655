"""Who is let in at a socket that listens under CURVE: those who prove that they have a key of the job (ZAP, RFC 27).

CURVE encrypts, shows the client that the server is the right one, and proves to the server which key the client has.
Any key will do, unless somebody at inproc://zeromq.zap.01, in the context of the socket, says no: the doorkeeper's
thread, or, where there must be none, its owner in his turns. Until it was told whom to admit it answers nobody, so that
who comes early waits; without it nobody gets in.

It also keeps those few, and their words short, that have not proved it (`ringcast.net.strangers`), from the beginning.

The thread needs the interpreter's lock. While native code of the user's program holds it, handshakes wait, as long as
HANDSHAKE_IVL of the socket says, and nobody is turned away; connections that are made are not concerned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from math import ceil, inf

import zmq
from zmq.utils import z85

from ringcast.net.strangers import Strangers
from ringcast.net.zmq_monitor import fact

_ZAP = "inproc://zeromq.zap.01"
_OPEN, _STOP = b"open", b"stop"
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class Doorkeeper:
    """Guards one socket that is to listen under CURVE; of a context there can be only one.

    Made, admitted and stopped by the thread that uses the socket, before it binds and before it closes it.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], members: int) -> None:
        """Let nobody in yet; `members` are how many may come at once.

        Raises:
            zmq.ZMQError: the context has a doorkeeper.
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
        """The connections so far that have not been found to be those of members: refused, broken off, or silent."""
        return self._came - self._entered

    def start(self) -> None:
        """Start the thread, which lets nobody in before `admit`: who asks waits."""
        self._thread = threading.Thread(target=self._work, name="ringcast-doorkeeper", daemon=True)
        self._thread.start()

    def admit(self, keys: Iterable[bytes]) -> None:
        """Let in who has the secret key to one of these public ones (Z85), and nobody else. Called once."""
        self.expect(keys)
        if self._thread is None:
            self.start()
        self._orders.send(_OPEN)

    def expect(self, keys: Iterable[bytes]) -> None:
        """Admit these without a thread: the owner calls `serve` when one of `files` can be read, or when it is due."""
        self._admitted = frozenset(z85.decode(key) for key in keys)

    @property
    def files(self) -> tuple[zmq.Socket[bytes], ...]:
        """Sockets that are readable when a connection is made, asks for admission, or ends."""
        return self._questions, self._events

    @property
    def due(self) -> float:
        """The time of the next `serve` or `guard` at the latest, on the monotonic clock."""
        return inf if self._unknown.due is None else self._unknown.due

    def serve(self) -> None:
        """Answer, after `expect`, all who ask now."""
        self.guard()
        while self._questions.poll(0):
            self._answer()

    def guard(self) -> None:
        """Shut down connections that are too many, or say too much; with a thread, that does it."""
        if self._thread is None:
            self._look()

    def stop(self) -> None:
        """Let nobody in any more, and give everything back but the socket. Idempotent."""
        if self._thread is not None and not self._orders.closed:
            self._orders.send(_STOP)
            self._thread.join()
        if not self._events.closed:
            self._socket.disable_monitor()  # first: ZeroMQ would wait for somebody to take the events
            self._count()
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
        """Answer a question of ZeroMQ's."""
        _, number, _, _, _, mechanism, *credentials = self._questions.recv_multipart()
        admitted = mechanism == b"CURVE" and len(credentials) == 1 and credentials[0] in self._admitted
        verdict = [b"200", b""] if admitted else [b"400", b"not a member of this job"]
        self._questions.send_multipart([b"1.0", number, *verdict, b"", b""])

    def _look(self) -> None:
        self._count()
        if self.due <= time.monotonic():
            self._unknown.look(self._count)

    def _count(self) -> None:
        """Note who has come, was let in or has gone."""
        while self._events.poll(0):
            event, file, address = fact(self._events)
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._entered += 1
                continue
            near = address.startswith(b"ipc://")  # where only the own user comes
            if event == zmq.Event.ACCEPTED:
                self._came += 1
                if not near:
                    self._unknown.come(file)
            elif not near:
                self._unknown.leave(file)
