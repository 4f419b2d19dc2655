"""Who is let in at a socket that listens under CURVE: those who prove that they have a key of the job (ZAP, RFC 27).

CURVE encrypts, shows the client that the server is the right one, and proves to the server which key the client has.
Any key will do, unless somebody at inproc://zeromq.zap.01, in the context of the socket, says no: the doorkeeper's
thread, or, where there must be none, its owner in his turns. Until it was told whom to admit it answers nobody, so that
who comes early waits; without it nobody gets in.

The thread needs the interpreter's lock. While native code of the user's program holds it, handshakes wait, as long as
HANDSHAKE_IVL of the socket says; connections that are made are not concerned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import zmq
from zmq.utils import z85

from ringcast.monitor import told

_ZAP = "inproc://zeromq.zap.01"
_STOP = b"stop"


class Doorkeeper:
    """Guards one socket that is to listen under CURVE; of a context there can be only one.

    Made, admitted and stopped by the thread that uses the socket, before it binds and before it closes it.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> None:
        """Let nobody in yet.

        Raises:
            zmq.ZMQError: the context has a doorkeeper.
        """
        self._context, self._socket = context, socket
        self._admitted: frozenset[bytes] = frozenset()
        self._came = self._entered = 0
        self._thread: threading.Thread | None = None
        self._questions: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._events: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self._questions.linger = self._events.linger = 0
        self._events.rcvhwm = 0  # a queue that is full would stop ZeroMQ's own thread
        try:
            self._questions.bind(_ZAP)
            socket.zap_domain = b"ringcast"
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            events = f"inproc://door-{id(self)}"
            socket.monitor(events, zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED)
            self._events.connect(events)
        except BaseException:
            self.stop()
            raise

    @property
    def strangers(self) -> int:
        """The connections so far that have not been found to be those of members: refused, broken off, or silent."""
        return self._came - self._entered

    def admit(self, keys: Iterable[bytes]) -> None:
        """Let in who has the secret key to one of these public ones (Z85), and nobody else. Called once."""
        self.expect(keys)
        self._thread = threading.Thread(target=self._work, name="ringcast-doorkeeper", daemon=True)
        self._thread.start()

    def expect(self, keys: Iterable[bytes]) -> None:
        """Admit these without a thread: when there are `questions`, the owner has to call `serve`."""
        self._admitted = frozenset(z85.decode(key) for key in keys)

    @property
    def questions(self) -> zmq.Socket[bytes]:
        """What can be read when somebody asks to be let in."""
        return self._questions

    def serve(self) -> None:
        """Answer, after `expect`, all who ask now."""
        self._count()
        while self._questions.poll(0):
            self._answer()

    def stop(self) -> None:
        """Let nobody in any more, and give everything back but the socket. Idempotent."""
        if self._thread is not None:
            with self._context.socket(zmq.REQ) as order:
                order.linger = 0
                order.connect(_ZAP)
                order.send(_STOP)
                self._thread.join()
        if not self._events.closed:
            self._socket.disable_monitor()  # first: ZeroMQ would wait for somebody to take the events
            self._count()
        self._events.close()
        self._questions.close()

    def _work(self) -> None:
        poller = zmq.Poller()
        for socket in self._questions, self._events:
            poller.register(socket, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll())
                if self._events in ready:
                    self._count()
                if self._questions in ready and not self._answer():
                    return
        except zmq.ZMQError as error:
            if error.errno not in (zmq.ETERM, zmq.ENOTSOCK):  # the context was terminated
                raise

    def _answer(self) -> bool:
        """Answer a question of ZeroMQ's; returns whether it was one."""
        asked = self._questions.recv_multipart()
        if asked == [_STOP]:
            return False
        _, number, _, _, _, mechanism, *credentials = asked
        admitted = mechanism == b"CURVE" and len(credentials) == 1 and credentials[0] in self._admitted
        verdict = [b"200", b""] if admitted else [b"400", b"not a member of this job"]
        self._questions.send_multipart([b"1.0", number, *verdict, b"", b""])
        return True

    def _count(self) -> None:
        while self._events.poll(0):
            if told(self._events) == zmq.Event.ACCEPTED:
                self._came += 1
            else:
                self._entered += 1
