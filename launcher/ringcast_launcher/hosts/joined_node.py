"""Node 0 and the launchers that come to it from the other nodes: each becomes the crew of a host."""

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

from ringcast_launcher.decide.start_deadline import StartLimit
from ringcast_launcher.decide.supervisor import Signalled
from ringcast_launcher.hosts.messages import Hello, Joins, Over, Report, plain
from ringcast_launcher.hosts.node_server import Extension, Reception
from ringcast_launcher.hosts.remote_host import SILENCE, Distant
from ringcast_launcher.hosts.ssh import end_if_asked, mismatch
from ringcast_launcher.output.status_line import starting
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import Job, JobError, Node, Rendezvous
from ringcast_launcher.plan.ranklist import compact
from ringcast_launcher.system.polling import File, usable
from ringcast_launcher.system.watchdog import Guardian

TWICE = 2.0  # seconds in which it is found out that the first of two with the same number has left
Show: TypeAlias = Callable[[str], None]


class Visitor(Distant):
    """The crew of a node whose launcher came by itself."""

    def __init__(self, line: Extension) -> None:
        super().__init__()
        self._line, self.came = line, time.monotonic()
        self.host = "?"  # by the name that it has for itself
        self.joins: Joins | None = None

    @property
    def lost(self) -> bool:
        """Whether the connection is known to be lost."""
        return bool(self._line.ended)

    def dismiss(self, over: Over) -> None:
        self._line.send(plain(over))

    def _note(self, report: Report) -> None:
        super()._note(report)
        if isinstance(report, Hello):
            self.host = report.host
        elif isinstance(report, Joins):
            self.joins = report

    def _cause(self) -> str:
        if self._line.silent <= SILENCE:  # also where the connection was lost its launcher may live, as may its workers
            return ""
        return f"the connection to {self} was lost" if self.lost else f"nothing was heard of {self} for {SILENCE:.0f} s"

    def __str__(self) -> str:
        return f"node {self.joins.node if self.joins is not None else '?'} ({self.host})"


@contextmanager
def visited(
    job: Job, one: Rendezvous, guardian: Guardian, signals: int, limit: StartLimit, show: Show | None
) -> Iterator[tuple[Job, list[Visitor]]]:
    """Wait for the launchers of all other nodes; yield the job with the ranks that each node takes, and their crews.

    When an error ends the block, the others are told.

    Raises:
        JobError: one cannot listen there, some have not come in time, they do not fit, or a signal asks us to end.
    """
    with zmq.Context() as context:
        reception = _reception(context, one)
        try:
            with node_rendezvous.told_key(one, guardian):
                visitors = _await(reception, one, signals, limit, show)
            reception.be_full(
                f"all {one.nnodes} nodes of the job at {one.endpoint} are there already; for another job at the same "
                "time give another --rdzv-endpoint"
            )
            yield replace(job, nodes=_placed(one, visitors)), visitors
        except JobError as error:
            reception.tell_all(plain(Over(error.code, f"ringcast-launch: {error}\n", False)))
            raise
        except BaseException as error:
            reception.tell_all(plain(Over(1, f"ringcast-launch: node 0 has ended: {error!r}\n", False)))
            raise
        finally:
            reception.close()


def _reception(context: zmq.Context[zmq.Socket[bytes]], one: Rendezvous) -> Reception:
    address = node_rendezvous.address(one)
    try:
        return Reception(context, address, one.key, one.nnodes)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            why = "the port is taken; does another job have the same --rdzv-endpoint? Give another port on all nodes"
            raise JobError(f"{one.endpoint}: {why}", 1) from error
        raise JobError(f"cannot listen at {address}: {error}", 1) from error


def _await(reception: Reception, one: Rendezvous, signals: int, limit: StartLimit, show: Show | None) -> list[Visitor]:
    """Return the visitors, by node."""
    coming: list[Visitor] = []
    there: dict[int, Visitor] = {}
    while missing := [node for node in range(1, one.nnodes) if node not in there]:
        if limit.over:
            limit.end_if_timed_out([f"node {node}" for node in missing])
            raise JobError(_missing(one, missing, limit.seconds, reception.strangers), 1)
        if show is not None:
            show(starting([f"node {node}" for node in range(1, one.nnodes)], [f"node {node}" for node in there]))
        due = min([limit.due, reception.due, *(visitor.due for visitor in coming)])
        ready = usable({**reception.files, signals: select.POLLIN}, due - time.monotonic())
        end_if_asked(signals)
        coming += [Visitor(line) for line in reception.newcomers()]
        for visitor in list(coming):
            if _is_left(visitor, ready):
                coming.remove(visitor)
        there = _check(one, coming)
    return [there[node] for node in sorted(there)]


def _is_left(visitor: Visitor, ready: set[File]) -> bool:
    """Take what a visitor says; returns whether it has left again, so that another may come in its place."""
    for report in visitor.reports(ready):
        if isinstance(report, Signalled):
            raise JobError(f"ended by {signal.Signals(report.number).name} on {visitor}", 128 + report.number)
    return visitor.lost


def _check(one: Rendezvous, coming: Sequence[Visitor]) -> dict[int, Visitor]:
    """Return those that are there, by node; JobError if one does not fit."""
    claims: dict[int, list[Visitor]] = {}
    for visitor in coming:
        wrong = mismatch(visitor.hello)
        if wrong:
            raise JobError(f"the job cannot start: {visitor}: {wrong}", 1)
        if visitor.hello is None or visitor.joins is None:
            continue
        if problem := _objection(one, visitor.joins):
            raise JobError(f"the job cannot start: {visitor} {problem}; give all nodes the same command", 1)
        claims.setdefault(visitor.joins.node, []).append(visitor)
    for node, claiming in claims.items():
        if len(claiming) > 1 and time.monotonic() > claiming[-1].came + TWICE:
            hosts = " and ".join(visitor.host for visitor in claiming)
            raise JobError(f"the job cannot start: hosts {hosts} have the same --node-rank {node}", 1)
    return {node: claiming[0] for node, claiming in claims.items() if len(claiming) == 1}


def _objection(one: Rendezvous, joins: Joins) -> str:
    if joins.nnodes != one.nnodes:
        return f"has --nnodes {joins.nnodes}, but node 0 --nnodes {one.nnodes}"
    if joins.program != one.program:
        return f"runs {shlex.join(joins.program)!r}, but node 0 {shlex.join(one.program)!r}"
    return ""


def _missing(one: Rendezvous, missing: Sequence[int], seconds: float, strangers: int) -> str:
    who = f"nodes {compact(missing)} have" if len(missing) > 1 else f"node {missing[0]} has"
    text = f"the job cannot start: {who} not come to {one.endpoint} within {seconds:g} s; is the command running there"
    if strangers:
        return f"{text} with the same key? {strangers} connections did not show it; {node_rendezvous.ONE_KEY}"
    home = f", and do the nodes share {one.file}? If not, {node_rendezvous.ONE_KEY}" if one.file else "?"
    return f"{text}, can it reach port {one.port} (firewall){home}"


def _placed(one: Rendezvous, visitors: Sequence[Visitor]) -> tuple[Node, ...]:
    """Return where all ranks run: those of a node in a row, in the order of the nodes."""
    found, first = [Node(socket.gethostname(), tuple(range(one.ranks)), True)], one.ranks
    for visitor in visitors:
        assert visitor.joins is not None
        found.append(Node(visitor.host, tuple(range(first, first + visitor.joins.ranks)), False))
        first += visitor.joins.ranks
    return tuple(found)
