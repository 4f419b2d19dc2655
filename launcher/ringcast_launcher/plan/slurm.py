"""Read a Slurm allocation from its environment, and make the command that starts an agent on one of its nodes.

Variables of one process or step, and variables that srun reads as options, are removed for agents and workers: else
every worker would take itself for the first task of a step with one task.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringcast.config import cluster
from ringcast.errors import ConfigError
from ringcast.net import ssh
from ringcast.net.hostlist import Host
from ringcast.procs.timing import TIMING
from ringcast_launcher.plan.job import JobError

# The agent may use all resources of the job on its node, also beside other steps. By default srun waits for the ends
# of lines; only with --unbuffered it passes bytes on as they come.
SRUN = (
    *("srun", "--quiet", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--overlap", "--unbuffered"),
    *("--mpi=none", "--cpu-bind=none", "--mem-bind=none", "--export=ALL"),
)
_NEEDED = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_WORKING_CLUSTER")  # by srun, to find the job
_OF_NODE = ("SLURM_CPUS_ON_NODE",)
_OF_PROCESS = (
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_PRIO_PROCESS"),
    *("SLURM_STEP*", "SLURM_SRUN_*", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_TOPOLOGY_*"),
)
_CONF = "/etc/slurm/slurm.conf"  # where SLURM_CONF names no other file
_KILL_WAIT = re.compile(r"^\s*KillWait\s*=\s*([0-9]+)", re.MULTILINE | re.IGNORECASE)


def allocation(env: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the nodes of this process's allocation, with their tasks as slots; nothing without an allocation.

    Raises:
        JobError: the variables of Slurm are invalid.
    """
    try:
        return tuple(Host(name, slots) for name, slots in cluster.tasks(env).items())
    except ConfigError as error:
        raise JobError(str(error)) from error


def kill_wait(env: Mapping[str, str]) -> float:
    """Return the seconds from SIGTERM to SIGKILL when Slurm ends a job: KillWait in Slurm's file, or its default.

    The file is read, because `scontrol show config` would ask a server that may not answer.
    """
    try:
        said = _KILL_WAIT.search(Path(env.get("SLURM_CONF") or _CONF).read_text("utf-8", "replace"))
    except OSError:
        said = None
    return float(said[1]) if said else TIMING.grace_period


def srun_argv(host: str, agent: Sequence[str]) -> list[str]:
    """Return the command that starts the agent on a node of the allocation; no shell is needed there.

    >>> srun_argv("n1", ["true"])[-2:]
    ['--nodelist=n1', 'true']
    """
    return [*SRUN, f"--nodelist={host}", *agent]


def for_srun(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for srun, which passes it on to the agent.

    Options that users and Slurm have set for other steps, and the address of this node, are left out.

    >>> for_srun({"SLURM_JOB_ID": "7", "SLURM_LABELIO": "1", "HOME": "/root", "RINGCAST_ADVERTISE": "n0"})
    {'SLURM_JOB_ID': '7', 'HOME': '/root', 'SLURM_EXIT_ERROR': '255'}
    """
    others = ("SLURM_", "SRUN_", "RINGCAST_ADVERTISE")
    kept = {name: value for name, value in env.items() if name in _NEEDED or not name.startswith(others)}
    return kept | {"SLURM_EXIT_ERROR": str(ssh.FAILED)}  # if srun itself fails, it has ssh's exit status


def of_job(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Slurm's variables of one process or step.

    >>> of_job({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "HOME": "/root"})
    {'SLURM_JOB_ID': '7', 'HOME': '/root'}
    """
    return {name: env[name] for name in env if not any(fnmatch.fnmatchcase(name, one) for one in _OF_PROCESS)}


def passed_on(env: Mapping[str, str]) -> dict[str, str]:
    """Return Slurm's variables of the whole job, for workers on other nodes.

    >>> passed_on({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "HOME": "/root"})
    {'SLURM_JOB_ID': '7'}
    """
    found = {name: value for name, value in of_job(env).items() if name.startswith("SLURM_")}
    return {name: value for name, value in found.items() if name not in _OF_NODE}


def of_agent(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent without Slurm's variables of the agent's step.

    >>> of_agent({"SLURM_NTASKS": "1", "SLURM_CPUS_ON_NODE": "8", "HOME": "/root"})
    {'SLURM_CPUS_ON_NODE': '8', 'HOME': '/root'}
    """
    return {name: env[name] for name in env if name in _OF_NODE or not name.startswith(("SLURM_", "SRUN_"))}
