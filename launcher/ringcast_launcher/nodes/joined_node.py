"""Wait on node 0 for the launchers of the other nodes (`--nnodes`), and send them commands for their ranks."""

from __future__ import annotations

import errno
import select
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

import zmq

from ringcast.wire.codec import plain
from ringcast.wire.error_text import in_a_line
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.decide.supervisor import Signalled
from ringcast_launcher.hosts.messages import AgentHello, JobEnd, NodeHello, Report
from ringcast_launcher.hosts.remote_host import SILENCE, RemoteHost
from ringcast_launcher.hosts.ssh import end_if_asked, mismatch
from ringcast_launcher.nodes.node_server import NodeConnection, NodeServer
from ringcast_launcher.output.status_line import starting
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import Job, JobError, Node, Rendezvous
from ringcast_launcher.plan.ranklist import compact
from ringcast_launcher.system.polling import File, usable
from ringcast_launcher.system.signals import ENDING
from ringcast_launcher.system.watchdog import Watchdog

TWICE = 2.0  # seconds in which the first of two nodes with the same number must be seen to have left
Show: TypeAlias = Callable[[str], None]


class JoinedNode(RemoteHost):
    """A node whose launcher connected by itself."""

    def __init__(self, connection: NodeConnection) -> None:
        super().__init__()
        self._connection, self.came = connection, time.monotonic()
        self.host = "?"  # the node's own hostname
        self.node_hello: NodeHello | None = None

    @property
    def lost(self) -> bool:
        """True if the connection is known to be lost."""
        return bool(self._connection.ended)

    def end_job(self, over: JobEnd) -> None:
        self._connection.send(plain(over))

    def _note(self, report: Report) -> None:
        super()._note(report)
        if isinstance(report, AgentHello):
            self.host = report.host
        elif isinstance(report, NodeHello):
            self.node_hello = report

    def _cause(self) -> str:
        if self._connection.silent <= SILENCE:
            return ""  # even if the connection was lost, the node's launcher and workers may live
        return f"the connection to {self} was lost" if self.lost else f"nothing was heard of {self} for {SILENCE:.0f} s"

    def __str__(self) -> str:
        return f"node {self.node_hello.node if self.node_hello is not None else '?'} ({self.host})"


@contextmanager
def accepted_nodes(
    job: Job, one: Rendezvous, watchdog: Watchdog, signals: int, limit: StartDeadline, show: Show | None
) -> Iterator[tuple[Job, list[JoinedNode]]]:
    """Wait for the launchers of all other nodes; yield the job with the ranks of each node, and the nodes.

    If an error ends the block, it is sent to the other nodes.

    Raises:
        JobError: the address cannot be bound, a node is missing or does not fit, or a signal asks us to end.
    """
    with zmq.Context() as context:
        server = _server(context, one)
        try:
            with node_rendezvous.published_key(one, watchdog):
                joined_nodes = _await(server, one, signals, limit, show)
            server.be_full(
                f"all {one.nnodes} nodes of the job at {one.endpoint} are there already; for another job at the same "
                "time give another --rdzv-endpoint"
            )
            yield replace(job, nodes=_placed(one, joined_nodes)), joined_nodes
        except JobError as error:
            server.tell_all(plain(JobEnd(error.code, f"ringcast-launch: {error}\n", False)))
            raise
        except BaseException as error:  # an interrupt too: the other nodes must not wait for this one
            server.tell_all(plain(JobEnd(1, f"ringcast-launch: node 0 has ended: {in_a_line(error)}\n", False)))
            raise
        finally:
            server.close()


def _server(context: zmq.Context[zmq.Socket[bytes]], one: Rendezvous) -> NodeServer:
    address = node_rendezvous.address(one)
    try:
        return NodeServer(context, address, one.key, one.nnodes)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            why = "the port is taken; does another job have the same --rdzv-endpoint? Give another port on all nodes"
            raise JobError(f"{one.endpoint}: {why}", 1) from error
        raise JobError(f"cannot listen at {address}: {error}", 1) from error


def _await(
    server: NodeServer, one: Rendezvous, signals: int, limit: StartDeadline, show: Show | None
) -> list[JoinedNode]:
    """Return the nodes that joined, in order of their numbers."""
    coming: list[JoinedNode] = []
    there: dict[int, JoinedNode] = {}
    while missing := [node for node in range(1, one.nnodes) if node not in there]:
        if limit.over:
            limit.end_if_timed_out([f"node {node}" for node in missing])
            raise JobError(_missing(one, missing, limit.seconds, server.strangers), 1)
        if show is not None:
            show(starting([f"node {node}" for node in range(1, one.nnodes)], [f"node {node}" for node in there]))
        due = min([limit.due, server.due, *(joined.due for joined in coming)])
        ready = usable({**server.files, signals: select.POLLIN}, due - time.monotonic())
        end_if_asked(signals)
        coming += [JoinedNode(connection) for connection in server.newcomers()]
        for joined in list(coming):
            if _is_left(joined, ready):
                coming.remove(joined)
        there = _check(one, coming)
    return [there[node] for node in sorted(there)]


def _is_left(joined: JoinedNode, ready: set[File]) -> bool:
    """Take the reports of a node; return True if it has left, so that another may take its place."""
    for report in joined.reports(ready):
        if isinstance(report, Signalled) and report.number in ENDING:
            raise JobError(f"ended by {signal.Signals(report.number).name} on {joined}", 128 + report.number)
    return joined.lost


def _check(one: Rendezvous, coming: Sequence[JoinedNode]) -> dict[int, JoinedNode]:
    """Return the nodes that have joined, by number; JobError if one does not fit."""
    claims: dict[int, list[JoinedNode]] = {}
    for joined in coming:
        wrong = mismatch(joined.hello)
        if wrong:
            raise JobError(f"the job cannot start: {joined}: {wrong}", 1)
        if joined.hello is None or joined.node_hello is None:
            continue
        if problem := _reason_not(one, joined.node_hello):
            raise JobError(f"the job cannot start: {joined} {problem}; give all nodes the same command", 1)
        claims.setdefault(joined.node_hello.node, []).append(joined)
    for node, claiming in claims.items():
        if len(claiming) > 1 and time.monotonic() > claiming[-1].came + TWICE:
            hosts = " and ".join(joined.host for joined in claiming)
            raise JobError(f"the job cannot start: hosts {hosts} have the same --node-rank {node}", 1)
    return {node: claiming[0] for node, claiming in claims.items() if len(claiming) == 1}


def _reason_not(one: Rendezvous, node_hello: NodeHello) -> str:
    if node_hello.nnodes != one.nnodes:
        return f"has --nnodes {node_hello.nnodes}, but node 0 --nnodes {one.nnodes}"
    if node_hello.program != one.program:
        return f"runs {shlex.join(node_hello.program)!r}, but node 0 {shlex.join(one.program)!r}"
    return ""


def _missing(one: Rendezvous, missing: Sequence[int], seconds: float, strangers: int) -> str:
    who = f"nodes {compact(missing)} have" if len(missing) > 1 else f"node {missing[0]} has"
    text = f"the job cannot start: {who} not come to {one.endpoint} within {seconds:g} s; is the command running there"
    if strangers:
        return f"{text} with the same key? {strangers} connections did not show it; {node_rendezvous.ONE_KEY}"
    home = f", and do the nodes share {one.file}? If not, {node_rendezvous.ONE_KEY}" if one.file else "?"
    return f"{text}, can it reach port {one.port} (firewall){home}"


def _placed(one: Rendezvous, joined_nodes: Sequence[JoinedNode]) -> tuple[Node, ...]:
    """Return the ranks of each node: consecutive, in the order of the nodes."""
    found, first = [Node(socket.gethostname(), tuple(range(one.ranks)), True)], one.ranks
    for joined in joined_nodes:
        assert joined.node_hello is not None
        found.append(Node(joined.host, tuple(range(first, first + joined.node_hello.ranks)), False))
        first += joined.node_hello.ranks
    return tuple(found)
