"""A rank's inbox: its addresses, and the endpoint card that the other ranks get."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import zmq

from ringcast.config.worker import CURVE, WorkerConfig
from ringcast.errors import ConfigError, RendezvousError
from ringcast.net import colocation, interfaces
from ringcast.net.fd_limits import raise_files
from ringcast.net.interfaces import ListenAddress, in_brackets
from ringcast.net.keys import is_key
from ringcast.net.ports import endpoints
from ringcast.transports.registry import IPC, TCP
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.endpoint_card import EndpointCard


def open_inbox(config: WorkerConfig) -> tuple[WorkerConfig, ZeroMQTransport, EndpointCard]:
    """Bind the inbox of this rank.

    Returns the configuration with the address of the rendezvous that was found for its name, the transport, and the
    endpoint card for the other ranks.

    Raises:
        ConfigError: the environment asks for something that is not there.
        RendezvousError: the inbox cannot be bound, or the system does not allow enough open files.
    """
    raise_files(config.size)
    place = _place(config)
    if place is not None and config.control.startswith(TCP.scheme):  # a name may have more than one, and 127.0.1.1 too
        port = config.control.rpartition(":")[2]
        config = replace(config, control=f"{TCP.scheme}{in_brackets(place.rendezvous)}:{port}")
    return config, *OPENERS[config.transport](config, place)


def _open_ipc(config: WorkerConfig, _: ListenAddress | None) -> tuple[ZeroMQTransport, EndpointCard]:
    transport = _bind(config, [_ipc_address(config)])
    return transport, transport.card


def _open_tcp(config: WorkerConfig, place: ListenAddress | None) -> tuple[ZeroMQTransport, EndpointCard]:
    assert place is not None
    near = colocation.socket_path(config.directory, config.rank) if config.same_host_ipc else ""
    transport = _bind(config, _tcp_addresses(config, in_brackets(place.address)), near)
    if config.debug:
        too = f", and at {transport.near}" if transport.near else ""
        print(f"ringcast: rank {config.rank} listens at {transport.address} ({place.why}){too}", file=sys.stderr)
    port = transport.address.rpartition(":")[2]
    address = f"{TCP.scheme}{config.advertise}:{port}" if config.advertise else transport.address
    advertised = colocation.advertisement(colocation.system(), near) if transport.near else ""
    return transport, replace(transport.card, address=address, near=advertised)


OPENERS = {IPC.name: _open_ipc, TCP.name: _open_tcp}  # of the transports in `ringcast.transports.registry`


def near_ranks(config: WorkerConfig, cards: Sequence[EndpointCard]) -> dict[int, str]:
    """Return the ipc addresses of the ranks on this host; `cards` has those of all ranks."""
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
    if config.control.startswith(TCP.scheme):
        return interfaces.place(config.control.removeprefix(TCP.scheme).rpartition(":")[0], config.iface)
    return interfaces.place("127.0.0.1", config.iface) if config.transport == TCP.name else None


def _bind(config: WorkerConfig, addresses: Sequence[str], near: str = "") -> ZeroMQTransport:
    try:
        return ZeroMQTransport(
            addresses, size=config.size, secure=config.security == CURVE, near=near and f"ipc://{near}"
        )
    except zmq.ZMQError as error:
        if config.ports is None or error.errno != errno.EADDRINUSE:
            raise RendezvousError(f"rank {config.rank} cannot listen at {addresses[0]}: {error}") from error
        host = addresses[0].rpartition(":")[0]
        raise RendezvousError(
            f"rank {config.rank} cannot listen at {host}: none of the ports {config.ports} is free; "
            "end what uses them, or allow more (RINGCAST_PORTS, --port-range)"
        ) from error


def _ipc_address(config: WorkerConfig) -> str:
    if not config.directory and not config.control.startswith("ipc://"):
        raise ConfigError("RINGCAST_DIR: with RINGCAST_TRANSPORT=ipc and a tcp control plane a directory is needed")
    directory = config.directory or str(Path(config.control.removeprefix("ipc://")).parent)
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


def _tcp_addresses(config: WorkerConfig, host: str) -> list[str]:
    if config.security == CURVE and not is_key(config.key):
        raise ConfigError("RINGCAST_KEY is not a key: expected 40 characters of Z85, as zmq.curve_keypair makes them")
    addresses = endpoints(host, config.ports, config.rank, config.size)
    port = config.control.rpartition(":")[2]  # which is rank 0's control plane's, that is not there yet
    return [address for address in addresses if not address.endswith(f":{port}")] or addresses
