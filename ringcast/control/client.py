"""A worker's end of the control plane."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import zmq

from ringcast.config.worker import NONE, WorkerConfig
from ringcast.control.envelope import (
    PACE,
    PATIENCE,
    Context,
    Pace,
    longest_to_worker,
    open_sealed,
    seal,
    version,
)
from ringcast.errors import RendezvousError
from ringcast.net.keys import control_pair, member_pair
from ringcast.procs.portable import Bell
from ringcast.procs.process_mark import mark
from ringcast.wire.codec import CodecError, parse
from ringcast.wire.control_messages import (
    TO_WORKER,
    Abort,
    Accuse,
    Alive,
    Beat,
    Bye,
    Failed,
    Hello,
    Leave,
    Left,
    Notice,
    Refused,
    Roster,
    ToServer,
    ToWorker,
    notice_frames,
)
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.transport_kinds import TCP

if TYPE_CHECKING:
    from ringcast.control.link_watch import LinkWatch

Inject: TypeAlias = Callable[[list[bytes]], None]


class ControlClient:
    """A worker's end of the control plane: a daemon thread that owns the socket, from `join` to `close`.

    `lifeline` belongs to a server that rank 0 has started already; else it starts one in `join`.
    `card` tells how this rank is reached; `network` is the text of the constants that all ranks must have alike;
    `build` says whether it has the compiled part.
    `context` is one that the caller keeps; without it there is one of its own.
    `inject` is called from that thread, with the frames of a notice, and then each of the `listeners`, with the notice;
    none of them may block.
    All methods may be called from any thread; all but `join` and `close` return at once.
    """

    def __init__(
        self,
        config: WorkerConfig,
        card: EndpointCard,
        inject: Inject,
        context: Context | None = None,
        *,
        network: str = "",
        build: str = "",
        pace: Pace = PACE,
        lifeline: IO[bytes] | None = None,
    ) -> None:
        self._config, self._inject, self._pace = config, inject, pace
        self.card = card
        self.listeners: list[Callable[[Notice], object]] = []  # only appended to and removed from
        self._owns = context is None
        self._context: Context = zmq.Context() if context is None else context
        self._hello = Hello(
            version(),
            config.rank,
            config.size,
            card,
            os.getpid(),
            socket.gethostname(),
            network,
            config.pickle,
            config.deterministic,
            build,
            mark(os.getpid()),
        )
        self._outbox: queue.SimpleQueue[ToServer] = queue.SimpleQueue()
        self._answer: queue.SimpleQueue[Roster | str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._wake = Bell()
        self._closed = False
        self._heard = False  # something came from the server
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lifeline = lifeline  # standard input of the server's process, where rank 0 started one
        self._watch: LinkWatch | None = None

    def join(self, timeout: float) -> Roster:
        """Say Hello with this rank's endpoint card and return the roster, which has the cards of all ranks.

        Waits at most `timeout` seconds, and a little longer for the server's verdict, which names the missing ranks.

        Raises:
            RendezvousError: this worker was refused, or not all ranks came in time; the text tells why.
        """
        config = self._config
        if not config.hosted and config.rank == 0 and self._lifeline is None:
            from ringcast.control.process import START_SERVER, start_server  # with the server, which others do not need

            self._lifeline, _ = start_server(config, time.monotonic() + max(timeout, START_SERVER))
        deadline = time.monotonic() + timeout
        conversation = _Conversation(self, _connect(config, self._context))
        self._config = replace(config, key="")  # it has done its work
        self.send(self._hello)
        self._thread = threading.Thread(target=conversation.run, name="ringcast-control", daemon=True)
        self._thread.start()
        answer = self._await_answer(deadline)
        if isinstance(answer, str):
            raise RendezvousError(f"rank {config.rank} cannot join the job: {answer}")
        return answer

    def watch(self, links: Callable[[], Mapping[int, str]]) -> None:
        """Monitor these connections (address by rank) from now on, and report dead ones."""
        from ringcast.control.link_watch import LinkWatch  # ranks that share memory have no links

        self._watch = LinkWatch(links)

    def send(self, message: ToServer) -> None:
        """Send a message, in its turn; nothing once this is closed."""
        with self._lock:
            if not self._closed:
                self._outbox.put(message)
                self._wake.ring()

    def close(self) -> None:
        """Wait, for a bounded time, until all is delivered; then end the thread and close everything. Idempotent."""
        if self._pid != os.getpid():  # a forked child has neither the thread nor a right to speak for this rank
            return
        self.send(Leave())  # unless closed
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._wake.close()
        if self._lifeline is not None:
            self._lifeline.close()
        if self._owns:
            self._context.term()

    def _await_answer(self, deadline: float) -> Roster | str:
        try:
            return self._answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            pass
        if not self._heard:
            return (
                f"no control plane answers at {self._config.control}; is rank 0 (or the launcher) running, "
                "can it be reached from here, and does this worker have the job's RINGCAST_KEY and RINGCAST_NONCE "
                "(and RINGCAST_SECURITY)?"
            )
        try:
            return self._answer.get(timeout=self._pace.silence)
        except queue.Empty:
            return "not all ranks joined in time; look at the output of the others"


class _Conversation:
    """The client's thread, which is the only user of the socket."""

    def __init__(self, client: ControlClient, dealer: zmq.Socket[bytes]) -> None:
        self._client, self._dealer = client, dealer
        self._nonce, self._pace = client._config.nonce, client._pace
        self._sent = self._received = 0
        self._joined = self._aborted = False
        self._quiet = 0.0  # seconds of our own running time since the server was heard
        self._leave_by: float | None = None
        self._left = False

    def run(self) -> None:
        """Send and receive until the worker has left, or its ZeroMQ context is terminated."""
        with self._dealer:
            try:
                self._talk()
            except zmq.ZMQError as error:
                if error.errno not in (zmq.ETERM, zmq.ENOTSOCK):
                    raise
                self._client._answer.put("the ZeroMQ context was terminated")

    def _talk(self) -> None:
        poller = zmq.Poller()
        poller.register(self._dealer, zmq.POLLIN)
        poller.register(self._client._wake.fileno(), zmq.POLLIN)
        now = time.monotonic()
        next_alive = now + self._pace.beat
        while not self._left and (self._leave_by is None or now < self._leave_by):
            until = next_alive if self._leave_by is None else min(next_alive, self._leave_by)
            poller.poll(max(0, int(1000 * (until - now)) + 1))
            self._receive_all()
            self._send_all()
            # Only time in which this thread could have heard something counts: the process may have been stopped.
            before, now = now, time.monotonic()
            self._quiet += min(now - before, 2 * self._pace.beat)
            if now >= next_alive:
                next_alive = now + self._pace.beat
                self._send(Alive(self._client._config.rank))
                self._look_at_links(now)
            if self._client._heard and self._quiet > self._pace.silence:
                self._abort(f"the launcher is gone: nothing was heard of it for {self._pace.silence:g} s")
        if self._client._watch is not None:
            self._client._watch.close()

    def _look_at_links(self, now: float) -> None:
        watch = self._client._watch
        for peer, cause in watch.look(now) if watch is not None and self._joined else ():
            self._send(Accuse(self._client._config.rank, peer, cause))

    def _send_all(self) -> None:
        if not self._client._wake.silence():
            return
        while True:
            try:
                message = self._client._outbox.get_nowait()
            except queue.Empty:
                return
            self._send(message)
            if isinstance(message, Leave):
                waits = self._client._heard and not self._aborted
                self._leave_by = time.monotonic() + (self._pace.linger if waits else 0.0)

    def _send(self, message: ToServer) -> None:
        self._dealer.send(seal(self._nonce, self._sent, message), zmq.NOBLOCK)
        self._sent += 1

    def _receive_all(self) -> None:
        while True:
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            envelope = open_sealed(frames[0], self._nonce) if len(frames) == 1 else None
            if envelope is None:
                continue
            number, values = envelope
            self._quiet, self._client._heard = 0.0, True
            if number != self._received and self._joined:
                self._abort("messages from the control plane were lost")
            self._received = number + 1
            self._understand(values)

    def _understand(self, values: Any) -> None:
        try:
            message: ToWorker = parse(values, TO_WORKER)
        except CodecError:
            return
        match message:
            case Roster() if len(message.cards) == self._client._config.size:
                self._joined = True
                self._client._answer.put(message)
            case Refused():
                self._client._answer.put(message.reason)
            case Left():
                self._left = True
            case Abort():
                self._abort(message.cause)
            case Roster() | Beat():
                pass
            case _:
                if isinstance(message, Bye | Failed) and self._client._watch is not None:
                    self._client._watch.forget(message.rank)
                self._forward(message)

    def _abort(self, cause: str) -> None:
        if self._aborted:
            return
        self._aborted = True
        if self._joined:
            self._forward(Abort(cause))
        else:
            self._client._answer.put(cause)

    def _forward(self, notice: Notice) -> None:
        try:
            self._client._inject(notice_frames(notice, self._nonce))
        except zmq.ZMQError as error:
            if error.errno == zmq.ETERM:
                raise
            # The inbox is closed already: no call is left in this worker that the notice could concern.
        for listener in [*self._client.listeners]:
            listener(notice)


def _connect(config: WorkerConfig, context: Context) -> zmq.Socket[bytes]:
    """Return a socket that keeps trying to reach the server.

    Raises:
        RendezvousError: the address or the key cannot be used at all.
    """
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.linger = 0  # `leave` is answered: whatever was unsent after that concerns no rank
    dealer.routing_id = b"worker" + os.urandom(10)  # kept when reconnecting; a lost message is seen by its number
    dealer.sndhwm = dealer.rcvhwm = 0
    dealer.handshake_ivl = PATIENCE
    dealer.maxmsgsize = longest_to_worker(config.size)
    dealer.reconnect_ivl, dealer.reconnect_ivl_max = 50, 1000
    try:
        if config.control.startswith(TCP.scheme):
            if config.security != NONE:
                _use_curve(dealer, config.key)
            dealer.setsockopt(zmq.IPV6, int("[" in config.control))
        dealer.connect(config.control)
    except (zmq.ZMQError, ValueError) as error:
        dealer.close()
        raise RendezvousError(f"rank {config.rank} cannot connect to {config.control!r}: {error}") from error
    return dealer


def _use_curve(sock: zmq.Socket[bytes], key: str) -> None:
    mine = member_pair(key)
    sock.curve_serverkey = control_pair(key).public
    sock.curve_publickey, sock.curve_secretkey = mine.public, mine.secret
