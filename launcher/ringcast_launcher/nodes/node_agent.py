"""Run the launcher of a node other than 0: connect to node 0, and manage this node's ranks by its commands.

Program, environment and directory come from the command on this node. The launcher ends with the exit code of the job.
"""

from __future__ import annotations

import platform
import select
import signal
import socket
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import zmq

from ringcast._util.safe_text import escaped
from ringcast._util.streams import write_all
from ringcast.control import version
from ringcast.wire.codec import plain
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.decide.supervisor import Signalled
from ringcast_launcher.hosts.agent import PATIENCE, Agent
from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import AgentHello, Command, JobEnd, NodeHello, Report, Start
from ringcast_launcher.hosts.ssh import end_if_asked
from ringcast_launcher.nodes.node_client import NodeClient
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import Job, JobError, Rendezvous
from ringcast_launcher.system.child import subreaper
from ringcast_launcher.system.job_dir import job_directory
from ringcast_launcher.system.polling import usable
from ringcast_launcher.system.signals import CAUGHT, noted
from ringcast_launcher.system.watchdog import Watchdog

REFUSED = 5.0  # seconds after a failed handshake in which another may succeed: an earlier job may just be ending
_AWAITED = ("node 0",)
_LOOK_AGAIN = 0.2  # seconds between two looks for the key, or the address, of node 0, and between two calls


class _NodeAgent(Agent):
    """An agent that the user started, and from which the user can end the job.

    It waits until the deadline for node 0 to answer, but at most `patience` seconds after node 0 has refused its key.
    """

    def __init__(
        self, client: NodeClient, local_host: LocalHost, signals: int, job: Job, deadline: float, patience: float
    ) -> None:
        super().__init__(client, local_host, signals, job.settings.advertise)
        self._client, self._job, self._deadline, self._patience = client, job, deadline, patience
        self.over: JobEnd | None = None

    @property
    def _abandoned(self) -> bool:
        if self._client.heard:
            return super()._abandoned
        if self._client.refused:
            self._deadline = min(self._deadline, time.monotonic() + self._patience)
        return bool(self._client.ended) or time.monotonic() >= self._deadline

    def _asked_to_end(self, number: int) -> None:
        if self._client.heard:
            self._tell(Signalled(number))  # node 0 ends the job
        else:
            super()._asked_to_end(number)

    def _execute(self, command: Command) -> None:
        match command:
            case JobEnd():
                self.over, self._over = command, True
            case Start():
                argv, directory = tuple(self._job.argv), self._job.directory
                super()._execute(replace(command, argv=argv, environment={}, directory=directory))
            case _:
                super()._execute(command)

    def _tell(self, report: Report) -> None:
        self._connection.send(plain(report))


def serve(job: Job, one: Rendezvous) -> JobReport:
    """Take part in the job and its restarts until it is over; print errors on standard error.

    Raises:
        JobError: node 0 is not found in time, or was lost, or a signal came before it was found; no process is left.
    """
    start = time.monotonic()
    with noted((*CAUGHT, signal.SIGTSTP)) as signals, subreaper():  # the last one is for node 0
        limit = StartDeadline(job.settings.start_timeout, start=start, timeout=job.timeout)
        address = _address(one, signals, limit)
        while (over := _serve_once(job, one, address, signals, limit)).again:
            _say(over.words)
            limit = StartDeadline(job.settings.start_timeout, start=start, timeout=job.timeout)
        _say(over.words)
    return JobReport(over.code, over.words)


def _say(words: str) -> None:
    with suppress(OSError):  # the exit code shows the failure as well
        write_all(2, escaped(words).encode())


def _address(one: Rendezvous, signals: int, limit: StartDeadline) -> str:
    """Return the address of node 0; wait for it, as the name of a pod is known only once the pod exists."""
    while True:
        try:
            return node_rendezvous.address(one)
        except JobError:
            if limit.over:
                limit.end_if_timed_out(_AWAITED)
                raise
        _pause(signals, limit)


def _key(one: Rendezvous, signals: int, limit: StartDeadline) -> str:
    while (key := node_rendezvous.find_key(one)) is None:
        if limit.over:
            limit.end_if_timed_out(_AWAITED)
            what = f"node 0 has not written {one.file} within {limit.seconds:g} s; is it running"
            raise JobError(
                f"node {one.node}: {what}, and do all nodes share that directory? If not, {node_rendezvous.ONE_KEY}", 1
            )
        _pause(signals, limit)
    return key


def _pause(signals: int, limit: StartDeadline) -> None:
    usable({signals: select.POLLIN}, min(_LOOK_AGAIN, limit.due - time.monotonic()))
    end_if_asked(signals)


def _serve_once(job: Job, one: Rendezvous, address: str, signals: int, limit: StartDeadline) -> JobEnd:
    with ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog(job.environment, speaks=True))
        directory = stack.enter_context(job_directory())
        watchdog.tell("directory", directory)
        context = stack.enter_context(zmq.Context())
        local_host = LocalHost(directory, watchdog, job.environment)
        stack.callback(local_host.close)
        return _answered(job, one, address, context, local_host, signals, limit)


def _answered(
    job: Job,
    one: Rendezvous,
    address: str,
    context: zmq.Context[zmq.Socket[bytes]],
    local_host: LocalHost,
    signals: int,
    limit: StartDeadline,
) -> JobEnd:
    """Connect to node 0 until it answers, then execute its commands until the job is over.

    A node 0 that closes the connection without an answer may belong to an earlier start of the job; a refused key may
    belong to a node 0 that was killed. The next node 0, and its key in the file, may come soon.
    """
    key, refused = _key(one, signals, limit), False
    while True:
        with closing(NodeClient(context, address, key, time.monotonic())) as client:
            _introduce(client, one, address)
            agent = _NodeAgent(client, local_host, signals, job, limit.due, 0.0 if one.file else REFUSED)
            agent.run()
        if agent.over is not None:
            return agent.over
        if agent.asked:
            raise JobError(f"ended by {signal.Signals(agent.asked).name}", 128 + agent.asked)
        refused = client.refused or (refused and not client.connected)
        if client.heard or (refused and not one.file) or limit.over:
            if not client.heard:
                limit.end_if_timed_out(_AWAITED)
            raise JobError(f"node {one.node} ({socket.gethostname()}) {_lost(one, client, refused, limit.seconds)}", 1)
        _pause(signals, limit)
        key = node_rendezvous.find_key(one) or key


def _introduce(client: NodeClient, one: Rendezvous, address: str) -> None:
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    client.send(plain(AgentHello(version(), platform.python_version(), socket.gethostname(), host)))
    client.send(plain(NodeHello(one.node, one.nnodes, one.ranks, one.program)))


def _lost(one: Rendezvous, client: NodeClient, refused: bool, seconds: float) -> str:
    if client.heard:
        silence = f", from which nothing came for {PATIENCE:g} s" if client.silent > PATIENCE else ""
        what = f"lost its connection to node 0 at {one.endpoint}{silence}"
        return f"{what}; its ranks were ended, and node 0's messages say more"
    if refused:
        return (
            f"found something at {one.endpoint} that does not have the same key; is that node 0 of this job? "
            f"Unset RINGCAST_KEY on all nodes, or {node_rendezvous.ONE_KEY}"
        )
    return (
        f"got no answer from node 0 at {one.endpoint} within {seconds:g} s: is it running there, is that its address, "
        "and is the port open (firewall)?"
    )
