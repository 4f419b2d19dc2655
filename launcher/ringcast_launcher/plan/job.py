"""Describe a job and the start of its workers by pure functions of arguments and environment."""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType

from ringcast._util.dataclass import dataclass
from ringcast.config.worker import WorkerConfig
from ringcast.errors import ConfigError
from ringcast.net import interfaces
from ringcast.net.ports import PortRange, endpoints
from ringcast.procs.libc import reason_not_read, reason_not_shared
from ringcast.procs.timing import TIMING
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.transport_kinds import IPC, KINDS, SHM, TCP
from ringcast_launcher.plan.ranklist import shown

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STALL = TIMING.stall  # seconds after which a silent rank that does nothing is stuck, where the user says nothing else
DEBUGGER = "ringcast.bootstrap.debugger"
USAGE, NOT_FOUND = 2, 127  # exit codes: a wrong argument; a program that is nowhere on PATH (as in a shell)
STREAM = "-"  # in place of a file for the profile: standard error


class JobError(Exception):
    """The job cannot be started as asked; the text is one sentence for the user.

    `code` is the launcher's exit code; `hosts` has the reason for each host that could not be used.
    """

    def __init__(self, text: str, code: int = USAGE, hosts: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.code, self.hosts = code, hosts


@dataclass(frozen=True, slots=True)
class Node:
    """A host, and the ranks that run there."""

    host: str
    ranks: tuple[int, ...]
    here: bool  # whether it is the launcher's own host


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The same command runs on `nnodes` nodes; this is number `node`, with `ranks` ranks; see `node_rendezvous`."""

    nnodes: int
    node: int
    host: str
    port: int
    ranks: int
    program: tuple[str, ...]  # as the user gave it
    key: str = field(repr=False)  # "": not known yet
    file: str  # the file into which node 0 writes the key; "": the user gave the key to all nodes

    @property
    def endpoint(self) -> str:
        """The address of the rendezvous, as a user writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Job:
    """A job as the user asked for it, before anything is started. Times are seconds."""

    nodes: Sequence[Node]
    argv: Sequence[str]
    environment: Mapping[str, str]  # common to all workers on this host
    directory: str  # where the workers run
    passed_on: Mapping[str, str] = field(
        default_factory=dict
    )  # added to the login environment of workers on other hosts
    exports: Mapping[str, str] = field(default_factory=dict)  # set by the user (-x) for all workers
    starter: Sequence[str] = ()  # starts agents on other hosts: a command that takes a host and a command
    rendezvous: Rendezvous | None = None  # with --nnodes: where the launchers of the other nodes connect
    output: str = "tag"
    stdin: int | None = None  # the rank that gets our standard input
    debug: int | None = None  # the rank that runs in the debugger
    ranks_filter: str = ""  # the ranks whose output is shown, as 0,2-3; empty for all
    timeout: float | None = None  # of the whole job
    settings: WorkerConfig = field(default_factory=WorkerConfig)  # settings for all workers
    verbose: bool = False
    quiet: bool = False  # without notes of the launcher's own; errors are shown
    flight_recorder: str = ""  # file for the flight record, written if the job fails
    profile: str = ""  # file for the profile; "-" for standard error
    last_words: str = ""  # file for the text at the end of the job; empty for standard error
    continue_on_failure: bool = False  # the other ranks go on without failed ranks
    stall_timeout: float = STALL  # of a rank that is silent, and does nothing
    interrupted: float = TIMING.interrupted  # for ranks to end in after a signal to the launcher …
    preempted: float = TIMING.preempted  # … after SIGTERM
    max_restarts: int = 0  # of the whole job, after failures

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(len(node.ranks) for node in self.nodes)


def elsewhere(job: Job) -> list[Node]:
    """Return the hosts other than the launcher's own."""
    return [node for node in job.nodes if not node.here]


def shown_ranks(job: Job) -> frozenset[int]:
    """Return the ranks whose output is shown.

    Raises:
        JobError: the filter names a rank that the job does not have, or no rank.
    """
    try:
        return shown(job.ranks_filter, job.size)
    except ValueError as error:
        raise JobError(f"--ranks-filter {error}") from error


def check_stdin(job: Job) -> None:
    """Check that the rank which gets standard input is one of the job.

    Raises:
        JobError: the job has no such rank.
    """
    if job.stdin is not None and job.stdin >= job.size:
        raise JobError(f"--stdin {job.stdin}: a job of {job.size} has no such rank; the last one is {job.size - 1}")


def check_debug(job: Job, *, terminal: bool) -> None:
    """Check that the rank to debug runs on this host, is a program of Python, and has a terminal.

    Raises:
        JobError: one of these does not hold.
    """
    if job.debug is None:
        return
    here = {rank for node in job.nodes if node.here for rank in node.ranks}
    python = job.argv[0] == sys.executable and (job.argv[1:2] == ["-m"] or "".join(job.argv[1:2]).endswith(".py"))
    if job.debug not in here:
        what = "it is on another host" if job.debug < job.size else f"a job of {job.size} has no such rank"
        raise JobError(f"--debug {job.debug}: {what}; ranks of this host can be debugged")
    if not python:
        raise JobError(f"--debug {job.debug}: only a script *.py, or a module with -m, can be run in Python's debugger")
    if not terminal:
        raise JobError(f"--debug {job.debug}: standard error is no terminal, which the debugger needs")


def debugged(argv: Sequence[str]) -> list[str]:
    """Return the command that runs a program of Python in the debugger.

    -P keeps a `ringcast.py` of the working directory from replacing ours; the debugger gives the program the same path
    as Python does.

    >>> debugged(["/bin/python", "-m", "timeit"])
    ['/bin/python', '-P', '-m', 'ringcast.bootstrap.debugger', '-m', 'timeit']
    """
    return [argv[0], "-P", "-m", DEBUGGER, *argv[1:]]


def worker_argv(program: Sequence[str], *, module: bool, directory: str, path: str) -> list[str]:
    """Return the command of a worker: a module, a script for our own Python, or any program.

    `python` and `python3` are the launcher's own interpreter too, so that the workers have the launcher's packages.

    Raises:
        JobError: no program is given, or it does not exist.
    """
    if not program:
        raise JobError("nothing to run: give a script, a program, or -m MODULE")
    name, *arguments = program
    if module:
        return [sys.executable, "-m", name, *arguments]
    if name in ("python", "python3"):
        return [sys.executable, *arguments]
    if name.endswith(".py"):
        if not Path(directory, name).is_file():
            raise JobError(f"there is no script {name} in {directory}")
        return [sys.executable, name, *arguments]
    found = shutil.which(str(Path(directory, name)) if os.sep in name else name, path=path)
    if found is None:
        raise JobError(f"there is no program {name} that can be run", NOT_FOUND)
    return [found, *arguments]


def exported(wishes: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that -x sets: VAR=value sets one, VAR must exist, FOO* names any number of them.

    >>> exported(["A=1", "HO*"], {"HOME": "/root"})
    {'A': '1', 'HOME': '/root'}

    Raises:
        JobError: a variable does not exist.
    """
    chosen: dict[str, str] = {}
    for wish in wishes:
        name, equals, value = wish.partition("=")
        if not name:
            raise JobError(f"-x {wish}: a variable needs a name")
        if equals:
            chosen[name] = value
        elif any(sign in name for sign in "*?["):
            chosen |= {known: environment[known] for known in environment if fnmatch.fnmatchcase(known, name)}
        elif name in environment:
            chosen[name] = environment[name]
        else:
            raise JobError(f"-x {name}: there is no such variable in the environment; -x {name}=value sets one")
    return chosen


def thread_limits(environment: Mapping[str, str], size: int, cores: int) -> dict[str, str]:
    """Return the variables that share the cores among the ranks; variables that the user has set are left out.

    One rank needs none, as it has all cores.

    >>> thread_limits({"OMP_NUM_THREADS": "8"}, size=4, cores=16)
    {'OPENBLAS_NUM_THREADS': '4', 'MKL_NUM_THREADS': '4'}
    """
    if size == 1:
        return {}
    threads = str(max(1, cores // size))
    return {name: threads for name in THREAD_VARIABLES if not environment.get(name)}


def environment_tags(world: WorkerConfig, *names: str) -> list[bytes]:
    """Return the entries of the environment that identify processes of the job, or of a rank."""
    environment = world.environment()
    return [os.fsencode(f"{name}={environment[name]}") for name in names]


def transport_text(world: WorkerConfig) -> str:
    """Return the transport of the ranks as text for `--verbose`, on this host with the reason for the choice."""
    if world.transport == TCP.name and world.near:
        return f"ranks talk over {world.medium}; within a host over {IPC.name}"
    if unshared := reason_not_shared():
        return f"ranks talk over {world.medium}; they cannot share memory: {unshared}"
    unread = reason_not_read()
    large = f"copied twice: {unread}" if unread else "read out of the sender's memory"
    if world.transport == SHM.name:
        return f"ranks talk over shm: large messages are {large}"
    return f"ranks talk over {world.medium}" + (
        f"; within a host over shm: large messages are {large}" if world.near else ""
    )


def apart_text(world: WorkerConfig, cards: Sequence[EndpointCard]) -> str:
    """Return a text on ranks of a job on one host that share no memory, with the reason; empty if all share it."""
    if world.transport != SHM.name or not world.near:
        return ""
    from ringcast.transports.memory.segment import reachable

    for rank in range(len(cards)):
        found, reasons = reachable(rank, cards)
        for other in range(rank + 1, len(cards)):
            if other not in found:
                why = reasons.get(other, "one of them gets none")
                return f"not all ranks share memory, as ranks {rank} and {other}, which talk over {IPC.name} ({why})"
    return ""


def control_addresses(world: WorkerConfig, here: str = "") -> list[str]:
    """Return the addresses at which the control plane may listen; it binds the first one that is free.

    `here` is the address by which other hosts reach this one, if there are others.

    Raises:
        JobError: no interface fits the wish (RINGCAST_IFACE).
    """
    if KINDS[world.transport].local:
        return [f"{IPC.scheme}{world.directory}/control"]
    try:
        address = here or interfaces.in_brackets(interfaces.place("127.0.0.1", world.iface).address)
    except ConfigError as error:
        raise JobError(str(error)) from error
    return endpoints(address, world.ports, world.size, world.size + 1)  # behind all ranks


def check_ports(nodes: Sequence[Node], ports: PortRange | None) -> None:
    """Check that a range has enough ports for the ranks of each host, and for the control plane on this one.

    Raises:
        JobError: the range has too few ports.
    """
    for node in nodes if ports is not None else ():
        needed = len(node.ranks) + node.here
        if ports is not None and len(ports) < needed:
            whose = f"{len(node.ranks)} ranks" + (" and the launcher" if node.here else "")
            raise JobError(
                f"--port-range {ports}: {len(ports)} are too few: host {node.host} needs {needed}, for {whose}"
            )


def parsed_address(control: str) -> tuple[str, int]:
    """Return host and port of the control plane.

    >>> parsed_address("tcp://[::1]:7000")
    ('::1', 7000)
    """
    host, _, port = control.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def worker_environment(
    environment: Mapping[str, str], world: WorkerConfig, rank: int, local_rank: int, local_size: int, node: int
) -> dict[str, str]:
    """Return the whole environment of a worker; `world` has the ranks' common settings, `node` is the host's number."""
    common = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world.size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(node),
        "PYTHONUNBUFFERED": "1",
    }
    own = replace(world, rank=rank)
    if rank != 0:
        own = replace(own, columns=0)
    return {"PYTHONBREAKPOINT": f"{DEBUGGER}.stop", **environment, **common, **own.environment()}
