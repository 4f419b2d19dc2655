"""Read a process's launch context from the environment of its engine: Slurm, Open MPI, PMI, torchrun, Kubernetes.

Pure: the environment is an argument. An engine gives rank and size, and often the host of rank 0; the rendezvous is
derived from the name of the job. Cluster job IDs are public, so the job's key is never derived from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringcast._util.dataclass import dataclass
from ringcast.errors import ConfigError
from ringcast.net.host_ranges import expand, items

PORTS = range(20_000, 30_000)  # for the control plane, where rank 0 cannot send a free port's number to the others
SPECIAL_STEP = 0xFFFF_FFF0  # from here on Slurm's steps are scripts and shells, one process each
NAMES = 100  # of directories in which the ranks of a host may meet; other users may have taken the first ones
_COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")
LONGEST_NAME = 40  # characters of a job's name in the name of a file

NEW_KEY = "export RINGCAST_KEY=$(python -c 'import zmq; print(zmq.curve_keypair()[1].decode())')"

KUBERNETES_SERVICE = """apiVersion: v1
kind: Service
metadata: {name: ringcast}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {job-name: JOB}"""
KUBERNETES_POD = """# in the Job's spec
completionMode: Indexed
completions: N
parallelism: N
template:
  spec:
    subdomain: ringcast
    containers:
      - env:
          - {name: RINGCAST_SIZE, value: "N"}
          - {name: RINGCAST_CONTROL, value: "tcp://JOB-0.ringcast:20000"}
          - name: RINGCAST_KEY
            valueFrom: {secretKeyRef: {name: ringcast, key: key}}"""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Rank, size and hosts of a process's job, as `engine` gives them."""

    engine: str
    rank: int
    size: int
    local_rank: int | None = None
    nodes: int | None = None  # number of hosts; None: unknown
    head: str = ""  # host of rank 0; empty: unknown
    other: str = ""  # another host of the job, if there is one and it is known
    job: str = ""  # unique among the jobs of the user; empty: unknown


def find(env: Mapping[str, str]) -> LaunchContext | None:
    """Return the launch context that the innermost engine gives; None where no engine has started this process.

    Raises:
        ConfigError: the engine's variables make no sense, or are not enough.
    """
    inner = _open_mpi(env) or _pmi(env) or _torchrun(env)
    step = _slurm(env)
    if inner is not None and step is not None and (inner.rank, inner.size) == (step.rank, step.size):
        return step  # srun sets PMI's variables too, but its own say more
    return inner or step or _kubernetes(env)


def port(job: str) -> int:
    """Return the port of the job's control plane: the same on all hosts; another job rarely has the same port."""
    return PORTS[_hash(job) % len(PORTS)]


def nonce(job: str) -> int:
    """Return the number of the job, of 64 bits."""
    return _hash(f"nonce {job}")


def file_name(job: str) -> str:
    """Return the job's name in a form that the name of a file may have.

    >>> file_name("slurm big/17.0")
    'slurm-big-17.0'
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", job)
    return name if len(name) <= LONGEST_NAME else f"{_hash(job):016x}"


def hosts(nodelist: str) -> list[str]:
    """Return the hosts of one of Slurm's lists, in order.

    >>> hosts("a[01-03,7],b,r[1-2]n[0-1]")
    ['a01', 'a02', 'a03', 'a7', 'b', 'r1n0', 'r1n1', 'r2n0', 'r2n1']

    Raises:
        ConfigError: the text is not such a list.
    """
    if not re.fullmatch(r"(?:[^\[\],\s]|\[[0-9,-]+\])+(?:,(?:[^\[\],\s]|\[[0-9,-]+\])+)*", nodelist):
        raise ConfigError(f"{nodelist!r} is not a list of Slurm's nodes")
    try:
        return [host for item in items(nodelist) for host in expand(item)]
    except ValueError as error:
        raise ConfigError(f"not a list of Slurm's nodes: {error}") from None


def allocated(env: Mapping[str, str]) -> list[str]:
    """Return the nodes of the Slurm allocation that this process is in; none outside of one.

    Raises:
        ConfigError: Slurm's variable holds no valid list.
    """
    return hosts(env["SLURM_JOB_NODELIST"]) if env.get("SLURM_JOB_ID") and env.get("SLURM_JOB_NODELIST") else []


def tasks(env: Mapping[str, str]) -> dict[str, int]:
    """Return the nodes of the Slurm allocation that this process is in, with the number of tasks on each.

    >>> tasks({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"})
    {'n1': 4, 'n2': 4}

    Raises:
        ConfigError: the variables of Slurm are invalid.
    """
    names = allocated(env)
    return dict(zip(names, _tasks_of_each(env, len(names)), strict=True)) if names else {}


def _tasks_of_each(env: Mapping[str, str], nodes: int) -> list[int]:
    """Return the tasks of each node; inside a step, whose variables hide the allocation's tasks, count processors."""
    told = _counts(env, "SLURM_TASKS_PER_NODE")
    if len(told) == nodes:
        return told
    each = max([*_counts(env, "SLURM_CPUS_PER_TASK"), 1])
    processors = _counts(env, "SLURM_JOB_CPUS_PER_NODE")
    if len(processors) != nodes:
        raise ConfigError(f"Slurm gives {nodes} nodes but not their tasks (SLURM_TASKS_PER_NODE); name the hosts by -H")
    return [max(1, number // each) for number in processors]


def _counts(env: Mapping[str, str], name: str) -> list[int]:
    """Return the numbers of a list such as 2(x3),1."""
    text = env.get(name, "")
    found = [_COUNT.fullmatch(item) for item in text.split(",")] if text else []
    if not all(found):
        raise ConfigError(f"{name}={text!r} is no list of numbers such as 2(x3),1")
    return [int(match[1]) for match in found if match for _ in range(int(match[2] or 1))]


def _slurm(env: Mapping[str, str]) -> LaunchContext | None:
    """Return the launch context of a task of a Slurm step; None in a batch script or a shell, and without Slurm.

    Raises:
        ConfigError: Slurm's variables make no sense.
    """
    step = _number(env, "SLURM_STEP_ID")
    rank = _number(env, "SLURM_PROCID")
    size = _number(env, "SLURM_STEP_NUM_TASKS", _number(env, "SLURM_NTASKS"))
    if step is None or rank is None or size is None or step >= SPECIAL_STEP:
        return None
    names = hosts(env["SLURM_STEP_NODELIST"]) if env.get("SLURM_STEP_NODELIST") else []
    cluster, job = env.get("SLURM_CLUSTER_NAME", ""), env.get("SLURM_JOB_ID", "")
    restarts = env.get("SLURM_RESTART_COUNT", "0")  # of a job that was put into the queue again
    nodes = _number(env, "SLURM_STEP_NUM_NODES", len(names) or None)
    told = {"head": names[0] if names else "", "other": names[-1] if len(names) > 1 else ""}
    return _context(
        env, "Slurm", rank, size, "SLURM_LOCALID", nodes, job=f"slurm-{cluster}-{job}.{step}.{restarts}", **told
    )


def _open_mpi(env: Mapping[str, str]) -> LaunchContext | None:
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    nodes = 1 if _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE") == size else None
    space = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid")
    job = f"openmpi-{space}" if space else ""
    return _context(env, "Open MPI", rank, size, "OMPI_COMM_WORLD_LOCAL_RANK", nodes, job=job)


def _pmi(env: Mapping[str, str]) -> LaunchContext | None:
    rank, size = _number(env, "PMI_RANK"), _number(env, "PMI_SIZE")
    if rank is None or size is None:
        return None
    nodes = 1 if _number(env, "MPI_LOCALNRANKS") == size else None
    job = f"pmi-{env['PMI_JOBID']}" if env.get("PMI_JOBID") else ""
    return _context(env, "PMI", rank, size, "MPI_LOCALRANKID", nodes, job=job)


def _torchrun(env: Mapping[str, str]) -> LaunchContext | None:
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if rank is None or size is None:
        return None
    nodes = 1 if _number(env, "LOCAL_WORLD_SIZE") == size else None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    head = env.get("MASTER_ADDR", "")
    job = "-".join(["torchrun", *(env.get(name, "") for name in names)]) if head and env.get("MASTER_PORT") else ""
    return _context(env, "RANK and WORLD_SIZE", rank, size, "LOCAL_RANK", nodes, head=head, job=job)


def _kubernetes(env: Mapping[str, str]) -> LaunchContext | None:
    rank = _number(env, "JOB_COMPLETION_INDEX")
    if rank is None:
        return None
    size = _number(env, "RINGCAST_SIZE")
    if size is None or (size > 1 and not env.get("RINGCAST_CONTROL")):
        raise ConfigError(
            f"Kubernetes says that this is pod {rank} of an Indexed Job, but not of how many, nor where they meet. "
            'If every pod is to work alone, set RINGCAST_SIZE to "1". Else the job needs what configs/kubernetes.yaml '
            f"has:\n{KUBERNETES_POD}\nand a headless service:\n{KUBERNETES_SERVICE}"
        )
    return _context(env, "Kubernetes", rank, size, "", None, job=f"kubernetes-{env.get('RINGCAST_CONTROL', '')}")


def _context(
    env: Mapping[str, str], engine: str, rank: int, size: int, local: str, nodes: int | None, **told: str
) -> LaunchContext:
    if not rank < size:
        raise ConfigError(
            f"{engine} says that this is rank {rank} of {size}: they are numbered from 0. Where several programs make "
            "one job, set RINGCAST_RANK and RINGCAST_SIZE"
        )
    return LaunchContext(engine, rank, size, _number(env, local), nodes, **told)


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    text = env.get(name, "")
    if text and not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name}={text!r}: must be a whole number, 0 or more")
    return int(text) if text else default


def _hash(text: str) -> int:
    import hashlib  # with OpenSSL, for which no start under a launcher waits

    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
