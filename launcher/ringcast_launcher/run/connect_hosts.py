"""Connect the launcher with the other hosts of a job: agents started by ssh or srun, or nodes that join."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import Job, elsewhere
from ringcast_launcher.system.watchdog import Watchdog

if TYPE_CHECKING:
    from ringcast_launcher.hosts.remote_host import RemoteHost
    from ringcast_launcher.nodes.joined_node import Show


@contextmanager
def connected_hosts(
    job: Job, watchdog: Watchdog, signals: int, limit: StartDeadline, show: Show | None
) -> Iterator[tuple[Job, Sequence[RemoteHost], str]]:
    """Yield the job with its ranks placed, the other hosts, and the address at which they reach this one.

    The address is "" if there are no other hosts. At the end of the block their agents have ended. `show`, if given,
    gets a line about the progress of the start.

    Raises:
        JobError: a host is late, or does not fit; or a signal asks us to end.
    """
    if job.rendezvous is not None:
        from ringcast_launcher.nodes.joined_node import accepted_nodes

        with accepted_nodes(job, job.rendezvous, watchdog, signals, limit, show) as (placed, joined_nodes):
            yield placed, joined_nodes, node_rendezvous.listening(job.rendezvous, job.settings.iface)
        return
    if not elsewhere(job):
        yield job, (), ""
        return
    # A job on one host does not wait for imports that only other jobs need.
    from ringcast_launcher.hosts.ssh import await_hellos, own_address, remote_argv, started_agents, starter_environment

    commands = {node.host: remote_argv(node.host, job.starter, job.environment) for node in elsewhere(job)}
    with started_agents(commands, starter_environment(job.starter, os.environ), watchdog) as remotes:
        await_hellos(remotes, signals, limit, show)
        yield job, remotes, own_address(remotes, job.settings.iface)
