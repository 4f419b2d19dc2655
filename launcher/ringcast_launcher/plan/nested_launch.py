"""Detect a launcher that mpirun, srun or torchrun started several times: each would start a job of its own."""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.config import cluster
from ringcast.errors import ConfigError
from ringcast_launcher.plan.job import JobError

_INSTEAD = {
    "Slurm": "once inside the allocation (salloc, or a script for sbatch), or leave it out: srun -n {} python PROGRAM",
    "Open MPI": "once, without mpirun, or leave it out: mpirun -n {} python PROGRAM",
    "torchrun": "once on each node, with --nnodes, or leave it out: torchrun --nproc-per-node {} PROGRAM",
}


def check(env: Mapping[str, str]) -> None:
    """Raise JobError if this process is one of several that an engine started; only the first one prints the reason.

    A rank may start a job, and RINGCAST_SIZE switches the check off.
    """
    if env.get("RINGCAST_SIZE"):
        return
    try:
        place = cluster.find(env)
    except ConfigError as error:
        raise JobError(str(error)) from error
    if place is None or place.size == 1:
        return
    if place.rank:
        raise JobError("")
    instead = _INSTEAD.get(place.engine, "once").format(place.size)
    several = f"{place.engine} has started this launcher {place.size} times, and each would start a job of its own"
    raise JobError(f"{several}: call ringcast-launch {instead} (RINGCAST_SIZE=1 if that is wanted)")
