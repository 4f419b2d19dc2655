"""A rank's inbox: its addresses, and the endpoint card that the other ranks get.

Modules are imported only for a transport that needs them: on one host no start waits for TLS, and none needs epoll.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import zmq

from ringcast._util.socket_path import open_to_all
from ringcast.config.worker import CURVE, WorkerConfig
from ringcast.errors import ConfigError, RendezvousError
from ringcast.net.fd_limits import raise_files
from ringcast.net.keys import is_key
from ringcast.net.ports import BACKLOG, endpoints
from ringcast.procs import colocation
from ringcast.procs.libc import reason_not_shared
from ringcast.procs.portable import processors, reason_not_sockets
from ringcast.transports.base import Transport
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.transport_kinds import IPC, KINDS, SHM, SOCKETS, TCP

if TYPE_CHECKING:
    from ringcast.net.interfaces import ListenAddress
    from ringcast.transports.memory.transport import ShmTransport
    from ringcast.transports.sockets.transport import SocketTransport
    from ringcast.transports.zeromq import ZeroMQTransport

_ALIKE = "start all ranks as one user on one host, or choose a transport (--transport, RINGCAST_TRANSPORT)"


class Inbox(NamedTuple):
    """A rank's inbox, before the rank has met the others."""

    card: EndpointCard
    inject: Callable[[Sequence[bytes]], None]  # of its transport
    meet: Callable[[Sequence[EndpointCard]], Transport]  # takes the cards of all ranks
    close: Callable[[], None]


def open_inbox(config: WorkerConfig) -> tuple[WorkerConfig, Inbox]:
    """Bind the inbox of this rank.

    Returns the configuration with the address of the rendezvous that was found for its name, and the inbox.

    Raises:
        ConfigError: the environment asks for something that is not there.
        RendezvousError: the inbox cannot be bound, or the system does not allow enough open files.
    """
    raise_files(config.size)
    place = _place(config)
    if place is not None and config.control.startswith(TCP.scheme):  # a name may have more than one, and 127.0.1.1 too
        from ringcast.net.interfaces import in_brackets

        port = config.control.rpartition(":")[2]
        config = replace(config, control=f"{TCP.scheme}{in_brackets(place.rendezvous)}:{port}")
    return config, OPENERS[config.transport](config, place)


def _open_shm(config: WorkerConfig, _: ListenAddress | None) -> Inbox:
    if config.near:
        return _open_local(config)
    from ringcast.transports.memory.segment import parse
    from ringcast.transports.memory.transport import ShmTransport

    if config.control.startswith(IPC.scheme):
        _check_private(os.path.dirname(config.control.removeprefix(IPC.scheme)))
    if reason := reason_not_shared():
        raise ConfigError(f"RINGCAST_TRANSPORT=shm: {reason}; use ipc")
    try:
        transport = ShmTransport(config.rank, config.size, spin=config.size <= processors())
    except OSError as error:
        raise RendezvousError(f"rank {config.rank} gets no shared memory: {error}; use --transport ipc") from error

    def meet(cards: Sequence[EndpointCard]) -> Transport:
        _check_one_host(config.rank, cards)
        texts = {rank: card.address.removeprefix(SHM.scheme) for rank, card in enumerate(cards) if rank != config.rank}
        others = {rank: card for rank, text in texts.items() if (card := parse(text)) is not None}
        for rank in texts.keys() - others.keys():
            raise RendezvousError(f"rank {config.rank} uses shared memory and rank {rank} does not: {_ALIKE}")
        for rank, error in transport.meet(others).items():
            if not isinstance(error, FileNotFoundError):  # else it has left: only its senders need to know
                raise RendezvousError(f"rank {config.rank} shares no memory with rank {rank}: {error}; {_ALIKE}")
        return transport

    card = EndpointCard(f"{SHM.scheme}{transport.card}", host=f"{colocation.kernel()} {socket.gethostname()}")
    return Inbox(card, transport.inject, meet, transport.close)


def _open_local(config: WorkerConfig) -> Inbox:
    """Open shared memory, and an ipc socket for ranks of this host that cannot share it, as they have other rights.

    The socket listens from now on, so that such ranks can connect at once; ZeroMQ takes it over where there are any.
    """
    address, near = _ipc_address(config), _shared(config, spin=config.size <= processors())
    if near is None:
        return _open_ipc(config, None)
    path = address.removeprefix(IPC.scheme)
    try:
        listener = _listen(path)
    except OSError as error:
        near.close()
        raise _cannot_listen(config, [address], error) from error

    def meet(cards: Sequence[EndpointCard]) -> Transport:
        found = _map(config, near, cards)
        if len(found) == config.size - 1:
            listener.close()
            _unlink(path)
            return near
        from ringcast.transports.routed import RoutedTransport

        far = _bind(config, [address], listener=listener.detach())
        far.meet(cards)
        return RoutedTransport(near, far)

    def close() -> None:
        listener.close()
        _unlink(path)
        near.close()

    own = EndpointCard(address, memory=f"{colocation.kernel()} {near.card}")
    return Inbox(own, near.inject, meet, close)


def _check_one_host(rank: int, cards: Sequence[EndpointCard]) -> None:
    """Refuse ranks of another host, where equal process numbers, users and namespaces mean other things."""
    kernel, _, host = cards[rank].host.partition(" ")
    for other, card in enumerate(cards):
        theirs, _, there = card.host.partition(" ")
        if kernel and theirs and theirs != kernel and card.address.startswith(SHM.scheme):
            hosts = f"rank {rank} is on host {host} and rank {other} on host {there}"
            raise RendezvousError(f"{hosts}, which share no memory (RINGCAST_TRANSPORT=shm); choose auto or sockets")


def _open_ipc(config: WorkerConfig, _: ListenAddress | None) -> Inbox:
    transport = _bind(config, [_ipc_address(config)])
    return _zeromq_inbox(config, transport, transport.card)


def _open_tcp(config: WorkerConfig, place: ListenAddress | None) -> Inbox:
    assert place is not None
    from ringcast.net.interfaces import in_brackets

    near = colocation.socket_path(config.directory, config.rank) if config.near else ""
    transport = _bind(config, _tcp_addresses(config, in_brackets(place.address)), near)
    if config.debug and transport.near:
        print(f"ringcast: rank {config.rank} listens at {transport.near} too", file=sys.stderr)
    advertised = colocation.advertisement(colocation.system(), near) if transport.near else ""
    return _zeromq_inbox(config, transport, replace(_network_card(config, place, transport), near=advertised))


def _zeromq_inbox(config: WorkerConfig, transport: ZeroMQTransport, own: EndpointCard) -> Inbox:
    def meet(cards: Sequence[EndpointCard]) -> Transport:
        transport.meet(cards, near_ranks(config, cards))
        return transport

    return Inbox(own, transport.inject, meet, transport.close)


def _open_sockets(config: WorkerConfig, place: ListenAddress | None) -> Inbox:
    assert place is not None
    if reason := reason_not_sockets():
        raise ConfigError(f"RINGCAST_TRANSPORT={SOCKETS.name}: {reason}; use {TCP.name}")
    from ringcast.net.interfaces import in_brackets
    from ringcast.transports.sockets.transport import SocketTransport

    addresses = _tcp_addresses(config, in_brackets(place.address))
    try:
        transport = SocketTransport(addresses, size=config.size, secure=config.security == CURVE)
    except OSError as error:
        raise _cannot_listen(config, addresses, error) from error
    own, system = _network_card(config, place, transport), colocation.system()
    shared = _shared(config) if config.near and system else None
    if shared is None:
        return _sockets_inbox(transport, own)
    return _routed_inbox(config, transport, shared, replace(own, memory=f"{system} {shared.card}"))


def _network_card(
    config: WorkerConfig, place: ListenAddress, transport: ZeroMQTransport | SocketTransport
) -> EndpointCard:
    """Return the card of a rank that listens at a port, with the address at which others are to call it."""
    if config.debug:
        print(f"ringcast: rank {config.rank} listens at {transport.address} ({place.why})", file=sys.stderr)
    port = transport.address.rpartition(":")[2]
    address = f"{TCP.scheme}{config.advertise}:{port}" if config.advertise else transport.address
    return replace(transport.card, address=address)


def _shared(config: WorkerConfig, *, spin: bool = False) -> ShmTransport | None:
    """Return shared memory for the ranks of this host, if there is some."""
    reason = reason_not_shared()
    if not reason:
        from ringcast.transports.memory.transport import ShmTransport

        try:
            return ShmTransport(config.rank, config.size, spin=spin)
        except OSError as error:
            reason = str(error)
    if config.debug:
        print(f"ringcast: rank {config.rank} gets no shared memory: {reason}", file=sys.stderr)
    return None


def _sockets_inbox(transport: SocketTransport, own: EndpointCard) -> Inbox:
    def meet(cards: Sequence[EndpointCard]) -> Transport:
        transport.meet(cards)
        return transport

    return Inbox(own, transport.inject, meet, transport.close)


def _routed_inbox(config: WorkerConfig, far: SocketTransport, near: ShmTransport, own: EndpointCard) -> Inbox:
    """Return the inbox of a rank that reaches other hosts by sockets, and ranks of its own host by shared memory."""
    from ringcast.transports.routed import RoutedTransport

    def meet(cards: Sequence[EndpointCard]) -> Transport:
        _map(config, near, cards)
        far.meet(cards)
        if near.lenders:
            return RoutedTransport(near, far)
        near.close()
        return far

    def close() -> None:
        try:
            far.close()
        finally:
            near.close()

    return Inbox(own, far.inject, meet, close)


OPENERS = {  # of the transports in `ringcast.wire.transport_kinds`
    SHM.name: _open_shm,
    IPC.name: _open_ipc,
    SOCKETS.name: _open_sockets,
    TCP.name: _open_tcp,
}


def _map(config: WorkerConfig, shared: ShmTransport, cards: Sequence[EndpointCard]) -> Collection[int]:
    """Map the segments of other ranks on this host; return the ranks that share memory with this one, or did.

    Raises:
        RendezvousError: one of them cannot be mapped. Its rank may have mapped this rank's, and both must do the same.
    """
    from ringcast.transports.memory.segment import reachable

    found, reasons = reachable(config.rank, cards)
    for rank, error in shared.meet(found).items():
        if not isinstance(error, FileNotFoundError):  # else it has left
            fix = "free memory or descriptors, or choose --transport tcp"
            raise RendezvousError(f"rank {config.rank} shares no memory with rank {rank}: {error}; {fix}") from error
        reasons[rank] = str(error)
    if config.debug:
        for rank, reason in sorted(reasons.items()):
            print(f"ringcast: rank {config.rank} shares no memory with rank {rank}: {reason}", file=sys.stderr)
        others = f"{len(shared.lenders)} of {config.size - 1} other ranks"
        if reasons or config.transport != SHM.name:  # on one host it goes without saying
            print(f"ringcast: rank {config.rank} shares memory with {others}, on its own host", file=sys.stderr)
    return found.keys()


def near_ranks(config: WorkerConfig, cards: Sequence[EndpointCard]) -> dict[int, str]:
    """Return the ipc addresses of the ranks on this host; `cards` are the cards of all ranks."""
    if not cards[config.rank].near:
        return {}
    found = colocation.reachable(colocation.system(), [card.near for card in cards])
    near = {rank: f"ipc://{path}" for rank, path in found.items() if rank != config.rank}
    if config.debug:
        others = f"{len(near)} of {config.size - 1} other ranks"
        print(f"ringcast: rank {config.rank} reaches {others} over ipc, on its own host", file=sys.stderr)
    return near


def _place(config: WorkerConfig) -> ListenAddress | None:
    """Return the tcp addresses of this rank and of the rendezvous; None where all is ipc."""
    named = config.control.startswith(TCP.scheme)
    if not named and KINDS[config.transport].local:
        return None
    from ringcast.net import interfaces

    return interfaces.place(
        config.control.removeprefix(TCP.scheme).rpartition(":")[0] if named else "127.0.0.1", config.iface
    )


def _bind(config: WorkerConfig, addresses: Sequence[str], near: str = "", listener: int = -1) -> ZeroMQTransport:
    from ringcast.transports.zeromq import ZeroMQTransport

    secure, near = config.security == CURVE, near and f"ipc://{near}"
    try:
        return ZeroMQTransport(addresses, size=config.size, secure=secure, near=near, listener=listener)
    except zmq.ZMQError as error:
        raise _cannot_listen(config, addresses, error) from error


def _listen(path: str) -> socket.socket:
    """Return a socket that listens at a path, as ZeroMQ makes one."""
    _unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _cannot_listen(config: WorkerConfig, addresses: Sequence[str], error: zmq.ZMQError | OSError) -> RendezvousError:
    if config.ports is None or error.errno != errno.EADDRINUSE:
        return RendezvousError(f"rank {config.rank} cannot listen at {addresses[0]}: {error}")
    host = addresses[0].rpartition(":")[0]
    return RendezvousError(
        f"rank {config.rank} cannot listen at {host}: none of the ports {config.ports} is free; "
        "end the programs that use them, or allow more (RINGCAST_PORTS, --port-range)"
    )


def _ipc_address(config: WorkerConfig) -> str:
    if not config.directory and not config.control.startswith("ipc://"):
        raise ConfigError("RINGCAST_DIR: with RINGCAST_TRANSPORT=ipc and a tcp control plane a directory is needed")
    directory = config.directory or os.path.dirname(config.control.removeprefix("ipc://"))
    _check_private(directory)
    return f"ipc://{directory}/rank-{config.rank}"


def _check_private(directory: str) -> None:
    """Refuse a directory of sockets that others may enter: messages that arrive there are unpickled."""
    try:
        os.stat(directory)
    except OSError as error:
        raise ConfigError(f"{directory}, the directory of the job's sockets: {error.strerror}") from None
    if not colocation.is_private(directory):
        raise ConfigError(f"{directory}: sockets need a directory that is yours alone (chmod 700, or mktemp -d)")
    if found := open_to_all(directory):
        raise ConfigError(f"{directory}: all users can rename what is in {found}; use another one (mktemp -d)")


def _tcp_addresses(config: WorkerConfig, host: str) -> list[str]:
    if config.security == CURVE and not is_key(config.key):
        raise ConfigError("RINGCAST_KEY is not a key: expected 40 characters of Z85, as zmq.curve_keypair makes them")
    addresses = endpoints(host, config.ports, config.rank, config.size)
    port = config.control.rpartition(":")[2]  # it belongs to rank 0's control plane, which is not there yet
    return [address for address in addresses if not address.endswith(f":{port}")] or addresses
