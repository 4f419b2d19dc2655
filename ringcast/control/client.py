"""A worker's end of the control plane."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, TypeAlias

import zmq

from ringcast.config.worker import NONE, WorkerConfig
from ringcast.control.agreement import Vote
from ringcast.control.deadlocks import Report
from ringcast.control.envelope import (
    PACE,
    PATIENCE,
    Context,
    Pace,
    clean,
    longest_to_worker,
    open_sealed,
    seal,
    version,
)
from ringcast.control.events import Message
from ringcast.control.process import START_SERVER, start_server
from ringcast.errors import RendezvousError
from ringcast.net.keys import control_pair, member_pair
from ringcast.net.link_watch import LinkWatch
from ringcast.wire import header as wire
from ringcast.wire.unanswered import Unanswered

Inject: TypeAlias = Callable[[list[bytes]], None]


class ControlClient:
    """A worker's end of the control plane: a daemon thread that owns the socket, from `join` to `close`.

    `lifeline` belongs to a server that rank 0 has started already; else it starts one in `join`.
    `network` is the text of the constants that all ranks must have alike; `public_key` that of this rank's inbox,
    `near` is what ranks of its own host need to find that inbox.
    `inject` is called from that thread, with `[header]` or `[header, cause]` of a `wire.notice`; it must not block.
    All methods may be called from any thread; all but `join` and `close` return at once.
    """

    def __init__(
        self,
        config: WorkerConfig,
        address: str,
        inject: Inject,
        context: Context,
        *,
        network: str = "",
        public_key: str = "",
        near: str = "",
        pace: Pace = PACE,
        lifeline: IO[bytes] | None = None,
    ) -> None:
        self._config, self._inject, self._context, self._pace = config, inject, context, pace
        self._hello = _hello(config, address, network, public_key, near)
        self.keys: list[str] = []  # the public keys of all ranks, by rank, from `join` on
        self.near: list[str] = []  # the `near` of all ranks, likewise
        self._outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._answer: queue.SimpleQueue[tuple[list[str], ...] | str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._heard = False  # something came from the server
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lifeline = lifeline  # standard input of the server's process, where rank 0 started one
        self._watch: LinkWatch | None = None

    def join(self, timeout: float) -> list[str]:
        """Say Hello with this rank's data address and return the addresses of all ranks, by rank.

        Waits at most `timeout` seconds, and a little longer for the server's verdict, which names the missing ranks.

        Raises:
            RendezvousError: this worker was refused, or not all ranks came in time; the text tells why.
        """
        config = self._config
        if not config.hosted and config.rank == 0 and self._lifeline is None:
            self._lifeline, _ = start_server(config, time.monotonic() + max(timeout, START_SERVER))
        deadline = time.monotonic() + timeout
        conversation = _Conversation(self, _connect(config, self._context))
        self._config = replace(config, key="")  # it has done its work
        self._post(self._hello)
        self._thread = threading.Thread(target=conversation.run, name="ringcast-control", daemon=True)
        self._thread.start()
        answer = self._await_answer(deadline)
        if isinstance(answer, str):
            raise RendezvousError(f"rank {config.rank} cannot join the job: {answer}")
        addresses, self.keys, self.near = answer
        return addresses

    def watch(self, links: Callable[[], Mapping[int, str]]) -> None:
        """Monitor these connections (address by rank) from now on, and report dead ones."""
        self._watch = LinkWatch(links)

    def revoke(self, context: int, cause: str, failed: int | None = None) -> None:
        """Tell all other ranks that communicator `context` is given up, perhaps because a rank `failed`."""
        self._post({"type": "revoke", "context": context, "cause": clean(cause), "failed": failed})

    def vote(self, vote: Vote) -> None:
        """Take part in an agreement."""
        fields = {"context": vote.context, "number": vote.number, "verb": vote.verb, "flag": vote.flag}
        self._post({"type": "vote", **fields, "acknowledged": list(vote.acknowledged)})

    def finished(
        self,
        sent: Mapping[int, int],
        posted: Mapping[int, int] | None = None,
        matched: Mapping[int, int] | None = None,
        blames: tuple[int, ...] = (),
        error: str = "",
        traceback: str = "",
        unanswered: Unanswered | None = None,
    ) -> None:
        """Tell all other ranks that this one communicates no more, perhaps because of an error.

        `sent[i]` is the number of messages to rank i, `posted[i]` that of transfers begun to it, and `matched[i]`
        that of transfers taken from it. `blames` are the ranks that the errors of communicators name as their cause.
        `unanswered` is an error that the program caught, with which the job has failed nevertheless.
        """
        counts = {"sent": sent, "posted": posted or {}, "matched": matched or {}}
        told = {name: dict(numbers) for name, numbers in counts.items()}
        why = {"error": clean(error), "traceback": clean(traceback)}
        caught = [] if unanswered is None else unanswered.plain()
        self._post({"type": "finished", **told, "blames": [*map(int, blames)], **why, "unanswered": caught})

    def failing(self, error: str, traceback: str, blames: tuple[int, ...] = ()) -> None:
        """Tell all other ranks, and the launcher, that this one ends with an uncaught error.

        `blames` are the ranks that the error names as its cause; empty when it arose here.
        """
        message = {
            "type": "failing",
            "error": clean(error),
            "traceback": clean(traceback),
            "blames": [*map(int, blames)],
        }
        self._post(message)

    def waiting(self, report: Report) -> None:
        """Report to the control plane that this rank is stalled, and what it waits for."""
        self._post({"type": "waiting", "report": report.message()})

    def moving(self) -> None:
        """Report to the control plane that this rank does not wait any more."""
        self._post({"type": "moving"})

    def close(self) -> None:
        """Wait, for a bounded time, until all is delivered; then end the thread and close everything. Idempotent."""
        if self._pid != os.getpid():  # a forked child has neither the thread nor a right to speak for this rank
            return
        self._post({"type": "leave"})  # unless closed
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake)
        if self._lifeline is not None:
            self._lifeline.close()

    def _post(self, message: Message) -> None:
        with self._lock:
            if not self._closed:
                self._outbox.put(message)
                os.eventfd_write(self._wake, 1)

    def _await_answer(self, deadline: float) -> tuple[list[str], ...] | str:
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
        poller.register(self._client._wake, zmq.POLLIN)
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
                self._send({"type": "alive"})
                self._look_at_links(now)
            if self._client._heard and self._quiet > self._pace.silence:
                self._abort(f"the launcher is gone: nothing was heard of it for {self._pace.silence:g} s")
        if self._client._watch is not None:
            self._client._watch.close()

    def _look_at_links(self, now: float) -> None:
        watch = self._client._watch
        for peer, cause in watch.look(now) if watch is not None and self._joined else ():
            self._send({"type": "accuse", "peer": peer, "cause": cause})

    def _gone(self, rank: int) -> None:
        """Stop monitoring the link to a rank that has left or failed."""
        if self._client._watch is not None:
            self._client._watch.forget(rank)

    def _send_all(self) -> None:
        wake = self._client._wake
        try:
            os.eventfd_read(wake)
        except BlockingIOError:
            return
        while True:
            try:
                message = self._client._outbox.get_nowait()
            except queue.Empty:
                return
            self._send(message)
            if message["type"] == "leave":
                waits = self._client._heard and not self._aborted
                self._leave_by = time.monotonic() + (self._pace.linger if waits else 0.0)

    def _send(self, message: Message) -> None:
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
            number, message = envelope
            self._quiet, self._client._heard = 0.0, True
            if number != self._received and self._joined:
                self._abort("messages from the control plane were lost")
            self._received = number + 1
            self._understand(message)

    def _understand(self, message: Message) -> None:
        match message:
            case {"type": "roster", "addresses": [*addresses], "keys": [*keys], "near": [*near]}:
                if len(addresses) == len(keys) == len(near) == self._client._config.size:
                    self._joined = True
                    self._client._answer.put(([*map(str, addresses)], [*map(str, keys)], [*map(str, near)]))
            case {"type": "refused", "reason": str(reason)}:
                self._client._answer.put(reason)
            case {"type": "left"}:
                self._left = True
            case {"type": "bye", "rank": int(rank), "sent": int(sent), "failure": bytes(failure)}:
                if self._member(rank) and sent >= 0:
                    self._gone(rank)
                    self._forward(wire.notice(wire.Kind.BYE, self._nonce, source=rank, length=sent), failure)
            case {"type": "failed", "rank": int(rank), "failure": bytes(failure)} if self._member(rank):
                self._gone(rank)
                self._forward(wire.notice(wire.Kind.FAILED, self._nonce, source=rank), failure)
            case {"type": "revoke", "rank": int(rank), "context": int(context), "cause": str(cause), "failed": failed}:
                if self._member(rank) and context >= 0:
                    word = failed + 1 if isinstance(failed, int) and self._member(failed) else 0
                    header = wire.notice(wire.Kind.REVOKE, self._nonce, source=rank, context=context, word=word)
                    self._forward(header, cause.encode("utf-8", "replace"))
            case {"type": "finding", "kind": int(kind), "context": int(context), "payload": bytes(payload)}:
                if kind in (wire.Kind.DEADLOCK, wire.Kind.MISMATCH) and context >= 0:
                    self._forward(wire.notice(wire.Kind(kind), self._nonce, context=context), payload)
            case {"type": "agreed", "context": int(context), "number": int(number), "decision": bytes(decision)}:
                if context >= 0 and number >= 0:
                    self._forward(wire.notice(wire.Kind.AGREED, self._nonce, context=context, length=number), decision)
            case {"type": "abort", "cause": str(cause)}:
                self._abort(cause)

    def _member(self, rank: int) -> bool:
        return 0 <= rank < self._client._config.size

    def _abort(self, cause: str) -> None:
        if self._aborted:
            return
        self._aborted = True
        if self._joined:
            self._forward(wire.notice(wire.Kind.ABORT, self._nonce), cause.encode("utf-8", "replace"))
        else:
            self._client._answer.put(cause)

    def _forward(self, header: bytes, *payload: bytes) -> None:
        try:
            self._client._inject([header, *payload])
        except zmq.ZMQError as error:
            if error.errno == zmq.ETERM:
                raise
            # The inbox is closed already: nobody is left in this worker whom the news could concern.


def _connect(config: WorkerConfig, context: Context) -> zmq.Socket[bytes]:
    """Return a socket that keeps trying to reach the server.

    Raises:
        RendezvousError: the address or the key cannot be used at all.
    """
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.linger = 0  # `leave` is answered: whatever was unsent after that is nobody's concern
    dealer.routing_id = b"worker" + os.urandom(10)  # kept when reconnecting; a lost message is seen by its number
    dealer.sndhwm = dealer.rcvhwm = 0
    dealer.handshake_ivl = PATIENCE
    dealer.maxmsgsize = longest_to_worker(config.size)
    dealer.reconnect_ivl, dealer.reconnect_ivl_max = 50, 1000
    try:
        if config.control.startswith("tcp://"):
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


def _hello(config: WorkerConfig, address: str, network: str, public_key: str, near: str) -> Message:
    return {
        "type": "hello",
        "rank": config.rank,
        "size": config.size,
        "address": address,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "version": version(),
        "network": network,
        "key": public_key,
        "pickle": config.pickle,
        "near": near,
    }
