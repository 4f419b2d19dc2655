"""Find the options, address and key of a rendezvous of nodes (`--nnodes`): the same command runs on every node.

A node is the part of a job that one launcher starts, as with torchrun, whose options have the same names. The launcher
of node 0 runs the job; the others connect to it and execute its commands. The key protects these connections only: the
keys of the ranks are made afresh for every job, and travel over these connections.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ringcast.bootstrap import rendezvous as meeting
from ringcast.config import cluster
from ringcast.config.worker import HOMES
from ringcast.errors import ConfigError, RendezvousError
from ringcast.net import interfaces
from ringcast.net.keys import is_key, new_key
from ringcast.net.ports import LARGEST
from ringcast_launcher.plan.job import JobError, Node, Rendezvous
from ringcast_launcher.system.watchdog import Watchdog

PORT = 29400  # where none is given, as with torchrun
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # another host on every machine, though machines may share the home
ONE_KEY = f"make a key once, and export the same one on all nodes: {cluster.NEW_KEY}"


def rendezvous(
    nnodes: int | None,
    node: int | None,
    endpoint: str | None,
    per_node: int | None,
    program: Sequence[str],
    environment: Mapping[str, str],
) -> Rendezvous | None:
    """Return the rendezvous by the options and RINGCAST_KEY; None without --nnodes.

    Raises:
        JobError: something is missing or invalid.
    """
    if nnodes is None:
        if node is not None or endpoint is not None:
            raise JobError("--node-rank and --rdzv-endpoint go with --nnodes N, the number of nodes")
        return None
    if nnodes < 1:
        raise JobError(f"--nnodes {nnodes}: at least one node is needed")
    if node is None or endpoint is None:
        raise JobError("--nnodes needs --node-rank K (0 to N - 1) and --rdzv-endpoint HOST:PORT, an address of node 0")
    if not 0 <= node < nnodes:
        raise JobError(f"--node-rank {node}: must be in 0..{nnodes - 1} (--nnodes {nnodes})")
    if per_node is not None and per_node < 1:
        raise JobError(f"-N {per_node}: at least one rank is needed on each node")
    host, port = parse_endpoint(endpoint)
    key, home = environment.get("RINGCAST_KEY", ""), environment.get("HOME", "")
    if key:
        _check(key)
    elif not home:
        raise JobError(f"there is no RINGCAST_KEY, and no HOME for a file by which nodes could meet; {ONE_KEY}")
    name = f"nodes-{host}-{port}" + (f"-{socket.gethostname()}" if host in _LOOPBACK else "")
    file = "" if key else f"{home}/{HOMES}/{cluster.file_name(name)}"
    if node == 0:
        key = key or new_key()
    return Rendezvous(nnodes, node, host, port, per_node or 1, tuple(program), key, file)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return host and port.

    >>> parse_endpoint("h0:29500"), parse_endpoint("[::1]"), parse_endpoint("10.0.0.1")
    (('h0', 29500), ('::1', 29400), ('10.0.0.1', 29400))

    Raises:
        JobError: the text is no HOST:PORT.
    """
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(PORT)
    bare = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not bare or (":" in bare and not host.startswith("[")) or not 1 <= number <= LARGEST:
        raise JobError(f"--rdzv-endpoint {text}: expected HOST:PORT, such as node0:29500 or [2001:db8::1]:29500")
    return bare, number


def _check(key: str) -> None:
    if not is_key(key):
        raise JobError(f"RINGCAST_KEY: must be 40 characters of Z85; {ONE_KEY}")


def placed(one: Rendezvous) -> tuple[Node, ...]:
    """Return the nodes before the others have joined: as if all had as many ranks as this one."""
    ranks = (range(k * one.ranks, (k + 1) * one.ranks) for k in range(one.nnodes))
    return tuple(Node(f"node {k}", tuple(own), k == one.node) for k, own in enumerate(ranks))


def address(one: Rendezvous) -> str:
    """Return the numeric endpoint: the one that node 0 binds, or that another node connects to.

    127.0.1.1, to which Debian's /etc/hosts maps the machine's own name, is not used.

    Raises:
        JobError: the host has no address, there is no route to it, or on node 0 the address is another machine's.
    """
    try:
        found = interfaces.place(one.host, "").rendezvous
    except ConfigError as error:
        raise JobError(f"--rdzv-endpoint {one.endpoint}: {error}", 1) from error
    own = interfaces.own_addresses() if one.node == 0 and not found.is_loopback else []
    if own and not any(o.address == found for o in own):
        here = ", ".join(str(o) for o in own if not o.address.is_loopback)
        fix = f"give an address of node 0 ({here}), or start node 0 there"
        raise JobError(f"--rdzv-endpoint {one.endpoint}: {found} is no address of this machine; {fix}", 1)
    return f"tcp://{interfaces.in_brackets(found)}:{one.port}"


def listening(one: Rendezvous, wish: str) -> str:
    """Return the address at which node 0's control plane listens, as it is written before a port.

    Raises:
        JobError: no interface fits `wish`.
    """
    try:
        return interfaces.in_brackets(interfaces.place(one.host, wish).address)
    except ConfigError as error:
        raise JobError(str(error), 1) from error


@contextmanager
def published_key(one: Rendezvous, watchdog: Watchdog) -> Iterator[None]:
    """Publish the key of node 0 in a file during the `with` block, if the user gave no key.

    Node 0 listens at its port already. So an existing file comes from a node 0 that was killed together with its
    watchdog, and can be replaced.

    Raises:
        JobError: the file cannot be written.
    """
    if not one.file:
        yield
        return
    path = Path(one.file)
    try:
        meeting.private(path.parent, ONE_KEY)
        path.unlink(missing_ok=True)
        watchdog.tell("file", f"{one.key} {path}")
        meeting.publish(path, {"key": one.key}, "node 0")
    except (ConfigError, OSError) as error:
        raise JobError(str(error), 1) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_key(one: Rendezvous) -> str | None:
    """Return node 0's key on another node; None as long as node 0 has not published it.

    Raises:
        JobError: the file does not hold a key.
    """
    if one.key:
        return one.key
    path = Path(one.file)
    try:
        meeting.private(path.parent, ONE_KEY)
        told = meeting.published(path, "node 0")
    except (ConfigError, RendezvousError) as error:
        raise JobError(str(error), 1) from error
    if told is None:
        return None
    key = told.get("key", "")
    if not isinstance(key, str) or not is_key(key):
        raise JobError(f"{path} has other contents than a file of node 0 of this job; remove it", 1)
    return key
