"""The control plane on real sockets: one server a job, one client in each worker.

Messages are `[nonce, number, message]` in msgpack over ZeroMQ ROUTER and DEALER; nothing is ever unpickled. `number`
counts the messages on a connection, so that a lost one is noticed. What a message means is decided by
`ringcast.rendezvous`; here it is only carried. tcp runs under CURVE: the server's public key belongs to the job's
secret key, and who does not know it cannot complete the handshake. An ipc socket is open to its owner only.

The server runs in the launcher's loop, or, where no launcher is, in a process of its own that rank 0 starts with
`python -m ringcast.control`, and that ends with the job.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, TypeAlias

import msgpack
import zmq

from ringcast import wire
from ringcast.config import WorkerConfig
from ringcast.errors import RendezvousError
from ringcast.rendezvous import (
    Abort,
    Action,
    Alive,
    Died,
    Event,
    Failing,
    Finished,
    Hello,
    Leave,
    Lost,
    Message,
    Notice,
    Revoke,
    Roster,
    SendTo,
    Tick,
)

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
Inject: TypeAlias = Callable[[list[bytes]], None]

MAX_TEXT = 100_000  # characters of one error or traceback
START_SERVER = 20.0  # seconds that a busy machine may take to start the server's process, however short the timeout
MAX_AT_ONCE = 1000  # messages that one call of `service` handles, so that its owner's loop stays responsive


@dataclass(frozen=True, slots=True)
class Pace:
    """How often signs of life are sent, and for how long their absence is borne; seconds."""

    beat: float = 1.0
    silence: float = 10.0
    linger: float = 2.0  # how long a leaving worker waits until all that it said was heard


PACE = Pace()


def version() -> str:
    """Return what all workers of a job must agree on: the package's version and the protocol's."""
    try:
        return f"{metadata.version('ringcast')} (protocol {wire.VERSION})"
    except metadata.PackageNotFoundError:  # run from a source tree
        return f"unknown (protocol {wire.VERSION})"


def new_key() -> str:
    """Return a secret key for a job: 40 characters of Z85."""
    return zmq.curve_keypair()[1].decode()


class ControlServer:
    """Binds the control plane's socket and answers the workers whenever its owner calls `service`.

    The owner waits for `socket` to become readable, or for the time `due`, together with its own files. One thread
    uses it. `dropped` counts messages that were malformed, of another job, or from strangers.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        *,
        size: int,
        nonce: int,
        key: str = "",
        hosted: bool = True,
        start_timeout: float = 60.0,
        pace: Pace = PACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind to `address`: ipc://PATH, or tcp://HOST:PORT (PORT `*` for a free one; needs `key`).

        Raises:
            RendezvousError: the address cannot be bound.
        """
        self._nonce, self._clock = nonce, clock
        self._roster = Roster(
            size,
            version=version(),
            hosted=hosted,
            start_timeout=start_timeout,
            beat=pace.beat,
            silence=pace.silence,
        )
        self._sent: dict[bytes, int] = {}
        self._received: dict[bytes, int] = {}
        self.dropped = 0
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.sndhwm = 0  # a stopped worker costs a beat per second; a drop would go unnoticed
        self.socket.maxmsgsize = 10 * MAX_TEXT + 32 * size
        self.socket.backlog = max(100, 2 * size)
        try:
            if address.startswith("tcp://"):
                _serve_curve(self.socket, key)
            self.socket.bind(address)
            if address.startswith("ipc://"):
                os.chmod(address.removeprefix("ipc://"), 0o600)
        except (zmq.ZMQError, OSError, ValueError) as error:
            self.socket.close()
            raise RendezvousError(f"the control plane cannot listen at {address}: {error}") from error
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = endpoint.rstrip(b"\0").decode()

    @property
    def due(self) -> float:
        """The latest time, on the owner's clock, for the next call of `service`."""
        return self._roster.due

    @property
    def over(self) -> bool:
        """Whether all ranks have left or failed."""
        return self._roster.over

    def service(self) -> list[Notice]:
        """Handle what has arrived and what is due; never blocks. Returns what the owner should know, in order."""
        notices: list[Notice] = []
        for _ in range(MAX_AT_ONCE):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            notices += self._receive(frames)
        return notices + self._handle(Tick())

    def declare_failed(self, rank: int, cause: str) -> None:
        """Tell the other ranks that `rank` is gone; the caller has made sure that it is. Repeats are ignored."""
        self._handle(Died(rank, cause))

    def abort(self, cause: str) -> None:
        """Tell all ranks that the job ends."""
        self._handle(Abort(cause))

    def close(self, linger: float = 0.0) -> None:
        """Close the socket; what is unsent may take `linger` seconds, and the context waits for it. Idempotent."""
        if not self.socket.closed and self.address.startswith("ipc://"):
            Path(self.address.removeprefix("ipc://")).unlink(missing_ok=True)  # ZeroMQ leaves it behind
        self.socket.close(linger=int(1000 * linger))

    def _receive(self, frames: list[bytes]) -> list[Notice]:
        connection, body = frames[0], frames[1:]
        envelope = _open(body[0], self._nonce) if len(body) == 1 else None
        if envelope is None:
            self.dropped += 1
            return []
        number, message = envelope
        rank = self._roster.rank_of(connection)
        notices = [] if rank is None else self._check_number(rank, number, self._received[connection])
        event = _event(message, connection, rank)
        if event is None:
            self.dropped += 1
        else:
            notices += self._handle(event)
        if self._roster.rank_of(connection) is not None:  # nothing is kept for strangers
            self._received[connection] = number + 1
        return notices

    def _check_number(self, rank: int, number: int, expected: int) -> list[Notice]:
        if number == expected:
            return []
        cause = "messages on its control connection were lost"
        return [Lost(rank, cause), *self._handle(Died(rank, cause))]

    def _handle(self, event: Event) -> list[Notice]:
        return [notice for action in self._roster.handle(event, self._clock()) for notice in self._perform(action)]

    def _perform(self, action: Action) -> list[Notice]:
        if not isinstance(action, SendTo):
            return [action]
        number = self._sent.get(action.connection, 0)
        if self._roster.rank_of(action.connection) is not None:
            self._sent[action.connection] = number + 1
        self.socket.send_multipart([action.connection, _seal(self._nonce, number, action.message)], zmq.NOBLOCK)
        return []


class ControlClient:
    """A worker's end of the control plane: a daemon thread that owns the socket, from `join` to `close`.

    `inject` is called from that thread, with `[header]` or `[header, cause]` of a `wire.notice`; it must not block.
    All methods may be called from any thread; all but `join` and `close` return at once.
    """

    def __init__(
        self, config: WorkerConfig, address: str, inject: Inject, context: Context, *, pace: Pace = PACE
    ) -> None:
        self._config, self._address, self._inject, self._context, self._pace = config, address, inject, context, pace
        self._outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._answer: queue.SimpleQueue[list[str] | str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._heard = False  # something came from the server
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lifeline: IO[bytes] | None = None  # standard input of the server's process, where rank 0 started one

    def join(self, timeout: float) -> list[str]:
        """Say Hello with this rank's data address and return the addresses of all ranks, by rank.

        Waits at most `timeout` seconds, and a little longer for the server's verdict, which names the missing ranks.

        Raises:
            RendezvousError: this worker was refused, or not all ranks came in time; the text tells why.
        """
        config = self._config
        if not config.hosted and config.rank == 0:
            self._lifeline = _start_server(config, time.monotonic() + max(timeout, START_SERVER))
        deadline = time.monotonic() + timeout
        conversation = _Conversation(self, _connect(config, self._context))
        self._post(_hello(config, self._address))
        self._thread = threading.Thread(target=conversation.run, name="ringcast-control", daemon=True)
        self._thread.start()
        answer = self._await_answer(deadline)
        if isinstance(answer, str):
            raise RendezvousError(f"rank {config.rank} cannot join the job: {answer}")
        return answer

    def revoke(self, context: int, cause: str) -> None:
        """Tell all other ranks that communicator `context` is given up."""
        self._post({"type": "revoke", "context": context, "cause": _clean(cause)})

    def finished(
        self, sent: Mapping[int, int], posted: Mapping[int, int] | None = None, matched: Mapping[int, int] | None = None
    ) -> None:
        """Tell all other ranks that this one communicates no more.

        `sent[i]` is the number of messages to rank i, `posted[i]` that of transfers begun to it, and `matched[i]`
        that of transfers taken from it.
        """
        counts = {"sent": sent, "posted": posted or {}, "matched": matched or {}}
        self._post({"type": "finished", **{name: dict(numbers) for name, numbers in counts.items()}})

    def failing(self, error: str, traceback: str, blames: tuple[int, ...] = ()) -> None:
        """Tell all other ranks, and the launcher, that this one ends with an uncaught error.

        `blames` are the ranks that the error names as its cause; empty when it arose here.
        """
        message = {
            "type": "failing",
            "error": _clean(error),
            "traceback": _clean(traceback),
            "blames": [*map(int, blames)],
        }
        self._post(message)

    def close(self) -> None:
        """Wait, for a bounded time, until all was heard; then end the thread and close everything. Idempotent."""
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

    def _await_answer(self, deadline: float) -> list[str] | str:
        try:
            return self._answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            pass
        if not self._heard:
            return (
                f"no control plane answers at {self._config.control}; is rank 0 (or the launcher) running, "
                "can it be reached from here, and does this worker have the job's RINGCAST_KEY and RINGCAST_NONCE?"
            )
        try:
            return self._answer.get(timeout=self._pace.silence)
        except queue.Empty:
            return "not all ranks joined in time; look at the output of the others"


class _Conversation:
    """What the client's thread does: the only user of the socket."""

    def __init__(self, client: ControlClient, dealer: zmq.Socket[bytes]) -> None:
        self._client, self._dealer = client, dealer
        self._nonce, self._pace = client._config.nonce, client._pace
        self._sent = self._received = 0
        self._joined = self._aborted = False
        self._quiet = 0.0  # seconds of our own running time since the server was heard
        self._leave_by: float | None = None
        self._left = False

    def run(self) -> None:
        """Talk until the worker has left, or its ZeroMQ context is terminated."""
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
            if self._client._heard and self._quiet > self._pace.silence:
                self._abort(f"the launcher is gone: nothing was heard of it for {self._pace.silence:g} s")

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
        self._dealer.send(_seal(self._nonce, self._sent, message), zmq.NOBLOCK)
        self._sent += 1

    def _receive_all(self) -> None:
        while True:
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            envelope = _open(frames[0], self._nonce) if len(frames) == 1 else None
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
            case {"type": "roster", "addresses": [*addresses]}:
                self._joined = True
                self._client._answer.put([str(address) for address in addresses])
            case {"type": "refused", "reason": str(reason)}:
                self._client._answer.put(reason)
            case {"type": "left"}:
                self._left = True
            case {"type": "bye", "rank": int(rank), "sent": int(sent)}:
                self._forward(wire.notice(wire.Kind.BYE, self._nonce, source=rank, length=sent))
            case {"type": "failed", "rank": int(rank), "cause": str(cause)}:
                self._forward(wire.notice(wire.Kind.FAILED, self._nonce, source=rank), cause)
            case {"type": "revoke", "rank": int(rank), "context": int(context), "cause": str(cause)}:
                self._forward(wire.notice(wire.Kind.REVOKE, self._nonce, source=rank, context=context), cause)
            case {"type": "abort", "cause": str(cause)}:
                self._abort(cause)

    def _abort(self, cause: str) -> None:
        if self._aborted:
            return
        self._aborted = True
        if self._joined:
            self._forward(wire.notice(wire.Kind.ABORT, self._nonce), cause)
        else:
            self._client._answer.put(cause)

    def _forward(self, header: bytes, cause: str | None = None) -> None:
        frames = [header] if cause is None else [header, cause.encode("utf-8", "replace")]
        try:
            self._client._inject(frames)
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
    dealer.maxmsgsize = 10 * MAX_TEXT + 300 * config.size
    dealer.reconnect_ivl, dealer.reconnect_ivl_max = 50, 1000
    try:
        if config.control.startswith("tcp://"):
            _use_curve(dealer, config.key)
        dealer.connect(config.control)
    except (zmq.ZMQError, ValueError) as error:
        dealer.close()
        raise RendezvousError(f"rank {config.rank} cannot connect to {config.control!r}: {error}") from error
    return dealer


def _serve_curve(sock: zmq.Socket[bytes], key: str) -> None:
    sock.curve_server = True
    sock.curve_secretkey = _checked(key)


def _use_curve(sock: zmq.Socket[bytes], key: str) -> None:
    sock.curve_serverkey = zmq.curve_public(_checked(key))
    sock.curve_publickey, sock.curve_secretkey = zmq.curve_keypair()


def _checked(key: str) -> bytes:
    if len(key) != 40:
        raise ValueError("tcp needs the job's secret key (RINGCAST_KEY, 40 characters of Z85)")
    return key.encode("ascii")


def _seal(nonce: int, number: int, message: Message) -> bytes:
    data: bytes = msgpack.packb([nonce, number, message])
    return data


def _open(data: bytes, nonce: int) -> tuple[int, Message] | None:
    """Return number and message; None for what is malformed or of another job."""
    try:
        content = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    match content:
        case [int(job), int(number), dict(message)] if job == nonce:
            return number, message
    return None


def _event(message: Message, connection: bytes, rank: int | None) -> Event | None:
    """Return what a worker's message means; None for what is malformed or not a stranger's to say.

    Who speaks is known by the connection, not by what the message claims.
    """
    match message:
        case {
            "type": "hello",
            "rank": int(claimed),
            "size": int(size),
            "address": str(address),
            "pid": int(pid),
            "host": str(host),
            "version": str(release),
        }:
            return Hello(connection, claimed, size, address, pid, host, release)
        case {"type": "leave"}:
            return Leave(connection)
    return None if rank is None else _member_event(message, rank)


def _member_event(message: Message, rank: int) -> Event | None:
    match message:
        case {"type": "alive"}:
            return Alive(rank)
        case {"type": "revoke", "context": int(context), "cause": str(cause)} if context >= 0:
            return Revoke(rank, context, cause)
        case {"type": "failing", "error": str(error), "traceback": str(traceback), "blames": [*blames]}:
            return Failing(rank, error, traceback, tuple(blames)) if _counts(blames) else None
        case {"type": "finished", "sent": dict(sent), "posted": dict(posted), "matched": dict(matched)}:
            counts = sent, posted, matched
            fine = all(_counts(numbers) and _counts(numbers.values()) for numbers in counts)
            return Finished(rank, *counts) if fine else None
    return None


def _counts(values: Iterable[object]) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in values)


def _hello(config: WorkerConfig, address: str) -> Message:
    return {
        "type": "hello",
        "rank": config.rank,
        "size": config.size,
        "address": address,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "version": version(),
    }


def _clean(text: str) -> str:
    """Return `text` in a form that always travels: bounded (its end tells most), without lone surrogates."""
    return text[-MAX_TEXT:].encode("utf-8", "replace").decode()


# The child forks before it imports anything, so that rank 0 has no child to wait for; -P keeps the modules of the
# user's directory from standing in for the library's.
_CHILD = """import os, sys
if os.fork(): os._exit(0)
sys.path.append(sys.argv[1])
from ringcast.control import main
main()"""


def _start_server(config: WorkerConfig, deadline: float) -> IO[bytes]:
    """Start the control plane in its own process and session; return the pipe whose end tells that rank 0 has ended.

    Raises:
        RendezvousError: it did not come up; the text has what it said.
    """
    root = str(Path(__file__).resolve().parents[1])
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    settings = {
        "address": config.control,
        "size": config.size,
        "nonce": config.nonce,
        "key": config.key,
        "start_timeout": config.start_timeout,
    }
    with child.stdout:
        try:
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            said = _read_line(child.stdout, deadline)
        except BrokenPipeError:
            said = "its process ended at once"
        finally:
            child.wait()  # ends at once: see above
    if said != "ready":
        child.stdin.close()
        raise RendezvousError(f"rank {config.rank} could not start the control plane: {said or 'no answer'}")
    return child.stdin


def _read_line(pipe: IO[bytes], deadline: float) -> str:
    """Return the one line of success, or all that was said until the end of file or the deadline."""
    said = b""
    while said != b"ready\n" and select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            break
        said += chunk
    return said.decode("utf-8", "replace").strip()


def main() -> None:
    """Run the control plane of a job without launcher; the settings come as one line of JSON on standard input.

    Says "ready" once it listens. The end of standard input means that rank 0 has ended.
    """
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        settings = json.loads(stdin.readline())
    with zmq.Context() as context:
        try:
            server = ControlServer(
                context,
                settings["address"],
                size=settings["size"],
                nonce=settings["nonce"],
                key=settings["key"],
                hosted=False,
                start_timeout=settings["start_timeout"],
            )
        except RendezvousError as error:
            sys.exit(str(error))
        os.write(1, b"ready\n")
        _to_nowhere(1, 2)
        serve(server, lifeline=0)


def serve(server: ControlServer, lifeline: int) -> None:
    """Serve until all ranks have left or failed; the end of file on `lifeline` means that rank 0 is gone."""
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    poller.register(lifeline, zmq.POLLIN)
    while not server.over:
        ready = dict(poller.poll(max(0, int(1000 * (server.due - time.monotonic())) + 1)))
        server.service()
        if lifeline in ready and not os.read(lifeline, 4096):
            poller.unregister(lifeline)
            server.service()  # what rank 0 said before it ended comes first
            server.declare_failed(0, "its process ended")
    server.close(linger=PACE.linger)


def _to_nowhere(*files: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nowhere, file)
    os.close(nowhere)


if __name__ == "__main__":
    main()
