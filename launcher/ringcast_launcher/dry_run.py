"""Print the host and the environment of each rank, and the commands, without starting anything (`--dry-run`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ringcast.procs.portable import processors
from ringcast_launcher.hosts.ssh import remote_argv
from ringcast_launcher.plan.job import Job, elsewhere, thread_limits, worker_environment
from ringcast_launcher.plan.ranklist import compact


def describe(job: Job) -> Iterator[str]:
    """Yield the lines to print."""
    yield f"{job.size} ranks on {len(job.nodes)} host{'s' if len(job.nodes) > 1 else ''}:"
    width = max(len(node.host) for node in job.nodes)
    for node in job.nodes:
        yield f"  {node.host:{width}}  {'ranks' if len(node.ranks) > 1 else 'rank'} {compact(node.ranks)}"
    if job.rendezvous is not None:
        yield f"they meet at {job.rendezvous.endpoint}"
    for node in elsewhere(job) if job.rendezvous is None else ():
        yield f"to start host {node.host}: {shlex.join(remote_argv(node.host, job.starter, job.environment))}"
    yield f"in {job.directory}: {shlex.join(job.argv)}"
    first, *others = job.nodes
    shown = _variables(job, 0)
    yield f"variables of rank {first.ranks[0]}:"
    for name, value in sorted(shown.items()):
        yield f"  {name}={value}"
    for i, node in enumerate(others, 1):
        own = sorted(_variables(job, i).items() - shown.items())
        yield f"of rank {node.ranks[0]} on {node.host}: {_in_line(own)}"
    if elsewhere(job):
        passed = sorted(job.passed_on.items() - job.exports.items())
        yield f"and on other hosts, as here: {_in_line(passed)}"


def _variables(job: Job, i: int) -> dict[str, str]:
    """Return the variables that the first rank of a host gets beside the inherited ones, as far as they are known here.

    Addresses and keys are made when the job starts; each other host computes the shares of its cores itself.
    """
    node = job.nodes[i]
    limits = thread_limits(job.environment, len(node.ranks), processors()) if node.here else {}
    world = replace(job.settings, size=job.size, hosted=True, advertise=job.settings.advertise if node.here else "")
    own = worker_environment({**job.exports, **limits}, world, node.ranks[0], 0, len(node.ranks), i)
    return {name: value for name, value in own.items() if value and name not in ("RINGCAST_KEY", "RINGCAST_NONCE")}


def _in_line(variables: Iterable[tuple[str, str]]) -> str:
    """Return variables in shell syntax."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables)
