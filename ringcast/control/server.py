"""The server of the control plane: one for a job, in the loop of its owner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from ringcast.config.worker import CURVE, NONE
from ringcast.control.envelope import (
    PACE,
    PATIENCE,
    Context,
    Pace,
    longest_to_server,
    open_sealed,
    seal_encoded,
    version,
)
from ringcast.control.events import Action, Died, End, Event, ForOwner, Joining, Leaving, SendTo, Tick
from ringcast.control.membership import Membership
from ringcast.errors import RendezvousError
from ringcast.net.keys import control_pair, is_key, member_pair
from ringcast.net.ports import BACKLOG, bind_first
from ringcast.wire.codec import CodecError, encode, parse
from ringcast.wire.control_messages import TO_SERVER, Beat, Hello, Leave, ToServer, ToWorker
from ringcast.wire.failure import Failure
from ringcast.wire.transport_kinds import IPC, TCP

if TYPE_CHECKING:
    from ringcast.net.zap import ZapAuthenticator

MAX_AT_ONCE = 1000  # messages that one call of `service` handles, so that its owner's loop stays responsive


class ControlServer:
    """Binds the control plane's socket and answers the workers whenever its owner calls `service`.

    The owner waits for `socket` to become readable, or for the time `due`, together with its own files. One thread
    uses it. `dropped` counts messages that were malformed, of another job, or from strangers; `strangers` counts
    connections over tcp.
    """

    def __init__(
        self,
        context: Context,
        address: str | Sequence[str],
        *,
        size: int,
        nonce: int,
        key: str = "",
        security: str = CURVE,
        hosted: bool = True,
        continues: bool = False,
        start_timeout: float = 60.0,
        pace: Pace = PACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind to `address`: ipc://PATH, or tcp://HOST:PORT (PORT `*` for a free one; needs `key`).

        Of several addresses it is the first one whose port is free. With `security` none there is no key on tcp.

        Raises:
            RendezvousError: the address cannot be bound.
        """
        self._nonce, self._clock = nonce, clock
        self._membership = Membership(
            size,
            version=version(),
            hosted=hosted,
            continues=continues,
            start_timeout=start_timeout,
            beat=pace.beat,
            silence=pace.unreachable,
        )
        self._sent: dict[bytes, int] = {}
        self._encoded: tuple[ToWorker | None, bytes] = None, b""  # the last message, as it often goes to all ranks
        self._received: dict[bytes, int] = {}
        self._unreachable: set[int] = set()
        self.dropped = 0
        self.address = ""
        self._authenticator: ZapAuthenticator | None = None
        self._members: list[bytes] = []  # keys that the authenticator does not admit yet
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.sndhwm = 0  # a stopped worker costs a beat per second; a drop would go unnoticed
        self.socket.handshake_ivl = PATIENCE
        self.socket.maxmsgsize = longest_to_server(size)
        self.socket.backlog = max(BACKLOG, 2 * size)
        self.socket.router_mandatory = True
        if not hosted:
            self.socket.heartbeat_ivl = int(1000 * pace.beat)
            self.socket.heartbeat_timeout = int(1000 * pace.answer)
        addresses = [address] if isinstance(address, str) else address
        try:
            if addresses[0].startswith(TCP.scheme) and security != NONE:
                self._authenticator = _serve_curve(context, self.socket, key, size)
                self._members = [member_pair(key).public]
            bind_first(self.socket, addresses)
            if addresses[0].startswith(IPC.scheme):
                os.chmod(addresses[0].removeprefix(IPC.scheme), 0o600)
        except (zmq.ZMQError, OSError, ValueError) as error:
            self.close()
            raise RendezvousError(f"the control plane cannot listen at {', '.join(addresses[:3])}: {error}") from error
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = endpoint.rstrip(b"\0").decode()

    @property
    def due(self) -> float:
        """The latest time, on the owner's clock, for the next call of `service`."""
        return self._membership.due

    @property
    def over(self) -> bool:
        """Whether all ranks have left or failed."""
        return self._membership.over

    @property
    def heard(self) -> dict[int, float]:
        """The time, on the owner's clock, of the last message of each rank that joined and neither left nor failed."""
        return self._membership.heard

    @property
    def strangers(self) -> int:
        """Number of connections over tcp that were not authenticated."""
        return 0 if self._authenticator is None else self._authenticator.strangers

    def process(self, rank: int) -> tuple[str, int]:
        """Return the host and the process number of a rank that joined."""
        return self._membership.process(rank)

    def mark(self, rank: int) -> str:
        """Return the mark of the process of a rank that joined, see `ringcast.procs.process_mark`."""
        return self._membership.mark(rank)

    def guard(self) -> None:
        """Shut down excess unauthenticated connections; needed only until `service` is first called."""
        if self._authenticator is not None:
            self._authenticator.guard()

    def service(self) -> list[ForOwner]:
        """Handle messages that have arrived and timers that are due; never blocks. Returns notices for the owner."""
        if self._authenticator is not None and self._members:  # only now: a launcher forks before there are threads
            self._authenticator.admit(self._members)
            self._members = []
        notices: list[ForOwner] = []
        for _ in range(MAX_AT_ONCE):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            notices += self._receive(frames)
        return notices + self._handle(Tick(frozenset(self._unreachable)))

    def declare_failed(self, rank: int, failure: Failure) -> None:
        """Notify the other ranks that `rank` failed; the caller has made sure that it is gone. Repeats are ignored."""
        self._handle(Died(rank, failure))

    def abort(self, cause: str) -> None:
        """Tell all ranks that the job ends."""
        self._handle(End(cause))

    def close(self, linger: float = 0.0) -> None:
        """Close the socket; unsent messages have `linger` seconds, for which the context waits. Idempotent."""
        if self._authenticator is not None:
            self._authenticator.stop()
        if not self.socket.closed and self.address.startswith(IPC.scheme):
            Path(self.address.removeprefix(IPC.scheme)).unlink(missing_ok=True)  # ZeroMQ leaves it behind
        self.socket.close(linger=int(1000 * linger))

    def _receive(self, frames: list[bytes]) -> list[ForOwner]:
        connection, body = frames[0], frames[1:]
        envelope = open_sealed(body[0], self._nonce) if len(body) == 1 else None
        if envelope is None:
            self.dropped += 1
            return []
        number, values = envelope
        rank = self._membership.rank_of(connection)
        notices = [] if rank is None else self._check_number(rank, number, self._received[connection])
        event = _event(values, connection, rank)
        if event is None:
            self.dropped += 1
        else:
            notices += self._handle(event)
        if self._membership.rank_of(connection) is not None:  # nothing is kept for strangers
            self._received[connection] = number + 1
        return notices

    def _check_number(self, rank: int, number: int, expected: int) -> list[ForOwner]:
        if number == expected:
            return []
        return self._perform_all(self._membership.lose(rank, "messages on its control connection were lost"))

    def _handle(self, event: Event) -> list[ForOwner]:
        return self._perform_all(self._membership.handle(event, self._clock()))

    def _perform_all(self, actions: Iterable[Action]) -> list[ForOwner]:
        return [notice for action in actions for notice in self._perform(action)]

    def _perform(self, action: Action) -> list[ForOwner]:
        if not isinstance(action, SendTo):
            return [action]
        rank, number = self._membership.rank_of(action.connection), self._sent.get(action.connection, 0)
        if action.message is not self._encoded[0]:
            self._encoded = action.message, encode(action.message)
        reached = self._send(action.connection, seal_encoded(self._nonce, number, self._encoded[1]))
        if rank is None:
            return []
        (self._unreachable.discard if reached else self._unreachable.add)(rank)
        if reached or not isinstance(action.message, Beat):  # beats that are lost are no loss
            self._sent[action.connection] = number + 1
        return []

    def _send(self, connection: bytes, sealed: bytes) -> bool:
        try:
            self.socket.send_multipart([connection, sealed], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True


def _serve_curve(context: Context, sock: zmq.Socket[bytes], key: str, size: int) -> ZapAuthenticator:
    from ringcast.net.zap import ZapAuthenticator  # over ipc there are no strangers

    sock.curve_server = True
    sock.curve_secretkey = control_pair(key).secret
    return ZapAuthenticator(context, sock, size)


def _event(values: Any, connection: bytes, rank: int | None) -> Event | None:
    """Return the event of a worker's message; None if it is malformed, or its sender has not joined.

    The sender is identified by the connection: a message that names another rank is dropped.
    """
    try:
        message: ToServer = parse(values, TO_SERVER)
    except CodecError:
        return _of_another_version(values, connection)
    match message:
        case Hello():
            key = message.card.key
            return Joining(connection, message) if not key or is_key(key) else None
        case Leave():
            return Leaving(connection)
    return message if message.rank == rank else None


def _of_another_version(values: Any, connection: bytes) -> Event | None:
    """Return the event of a hello that this version does not understand, so that its sender is refused by name."""
    match values:
        case [Hello.__name__, str(release), int(rank), *_] if release != version():
            return Joining(connection, Hello(release, rank))
    return None
