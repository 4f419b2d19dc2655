"""Start the ranks of a job on emulated hosts without a launcher, over the transport of `auto` between hosts."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ringcast.commands.bench.bed import TRANSPORT, Bed
from ringcast.config.worker import WorkerConfig
from ringcast.control import new_key

# Variables that the job does not set.
_OF_THE_USER = (
    *("RINGCAST_TIMEOUT", "RINGCAST_START_TIMEOUT", "RINGCAST_CONFIG", "RINGCAST_DEBUG"),
    *("RINGCAST_IFACE", "RINGCAST_PORTS", "RINGCAST_ADVERTISE", "RINGCAST_SECURITY"),
    *("RINGCAST_PURE", "RINGCAST_DIRECT"),
)


def start_workers(
    bed: Bed, argv: Sequence[str], env: Mapping[str, str], hosts: Sequence[int] = (), **options: Any
) -> list[subprocess.Popen[Any]]:
    """Start `argv` once on each host of `bed`, as rank i of a new job on host i; several jobs may share a bed.

    Args:
        bed: the hosts.
        argv: the program, which calls `ringcast.init`.
        env: the whole environment of the workers, without the variables of the job.
        hosts: the host of each rank; by default rank i is on host i.
        options: further arguments of subprocess.Popen, such as the standard files.

    Raises:
        BedError: the bed is closed, or a host has ended; no worker is left.
    """
    places = hosts or range(len(bed.hosts))
    control = f"tcp://{bed.hosts[places[0]].address}:{next(bed.ports)}"
    nonce, key = secrets.randbits(64), new_key()
    users = {name: env[name] for name in _OF_THE_USER if name in env}
    workers: list[subprocess.Popen[Any]] = []
    try:
        for rank, host in enumerate(places):
            config = WorkerConfig(rank, len(places), control, nonce=nonce, key=key, transport=TRANSPORT)
            workers.append(bed.start(host, argv, env={**env, **config.environment(), **users}, **options))
    except BaseException:
        for worker in workers:
            worker.kill()
            worker.wait()
        raise
    return workers
