"""Start the workers on all hosts at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from ringcast.config.worker import WorkerConfig
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import HostLost, NotStarted, Report, Start, Started
from ringcast_launcher.plan.job import Job, JobError, Node
from ringcast_launcher.system.signals import ENDING, caught

STEP = 0.5  # seconds between two looks at signals while the workers start


def start_workers(
    job: Job,
    world: WorkerConfig,
    all_hosts: AllHosts,
    here: LocalHost,
    signals: int,
    limit: StartDeadline,
    meanwhile: Callable[[], None],
) -> tuple[dict[int, int], dict[str, str]]:
    """Start all workers, and wait until they run; `world` are the settings that all ranks share.

    `meanwhile` is called at least every `STEP` seconds during the wait.

    Returns the process of each rank, and the variables by which the ranks of a host share its cores.

    Raises:
        JobError: some were not started, or not in time; or a signal asks us to end.
    """
    for i in sorted(range(len(job.nodes)), key=lambda i: job.nodes[i].here):
        all_hosts.send(i, _start_command(job, i, world))
    answers: dict[int, Report] = {}
    while len(answers) < len(all_hosts):
        answers |= all_hosts.answers((Started, NotStarted), STEP)
        meanwhile()
        if ending := [number for number in caught(signals) if number in ENDING]:
            raise JobError(f"ended by {signal.Signals(ending[0]).name}", 128 + ending[0])
        if limit.over:
            break
    here.note_ends()  # the signals of these ends have been read already
    pids: dict[int, int] = {}
    limits: dict[str, str] = {}
    failures = {node.host: why for i, node in enumerate(job.nodes) if not node.here and (why := _why(answers.get(i)))}
    for i, node in enumerate(job.nodes):
        match answers.get(i):
            case Started() as started:
                pids |= started.pids
                limits |= started.limits
            case NotStarted(reason, code):
                raise JobError(_on_host(node, reason), code, failures)
            case HostLost(cause):
                raise JobError(f"the job cannot start: {cause}", 1, failures)
            case _:
                missing = [node.host for i, node in enumerate(job.nodes) if i not in answers]
                limit.end_if_timed_out([f"host {host}" for host in missing])
                raise JobError(_on_host(node, f"its workers were not started within {limit.seconds:g} s"), 1)
    return pids, limits


def _start_command(job: Job, i: int, world: WorkerConfig) -> Start:
    node = job.nodes[i]
    # A terminal, an address, and most of the environment, mean nothing on another host.
    world = world if node.here else replace(world, terminal="", advertise="")
    environment = job.environment if node.here else job.passed_on
    stdin, debug = (-1 if rank is None else rank for rank in (job.stdin, job.debug))
    settings = dict(environment), world.environment()
    return Start(node.ranks, tuple(job.argv), *settings, job.directory, i, stdin, debug, job.preempted)


def _why(answer: Report | None) -> str:
    """Return why a host has not started its workers, from its answer or its loss; empty if neither gives a reason."""
    match answer:
        case NotStarted(why, _) | HostLost(why):
            return why
    return ""


def _on_host(node: Node, text: str) -> str:
    return text if node.here else f"host {node.host}: {text}"
