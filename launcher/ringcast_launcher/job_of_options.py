"""Make a job of the options of `ringcast-launch`: check that they fit each other, this machine and the environment."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ringcast import mpi4py
from ringcast._util import output_files
from ringcast._util.safe_text import escaped
from ringcast._util.streams import write_all
from ringcast.config.worker import AUTO, NONE, WISHES, WorkerConfig, automatic, from_environment, misspelled
from ringcast.errors import ConfigError
from ringcast.net.hostlist import Host, HostError, listed, oversubscribed
from ringcast.net.keys import OPEN
from ringcast.net.ssh import SSH
from ringcast.procs.libc import reason_not_shared
from ringcast.procs.portable import reason_not_sockets
from ringcast.procs.timing import TIMING
from ringcast.wire.transport_kinds import IPC, KINDS, SHM, SOCKETS
from ringcast_launcher.output import output
from ringcast_launcher.plan import capacity, nested_launch, node_rendezvous, placement, slurm
from ringcast_launcher.plan.job import (
    STREAM,
    USAGE,
    Job,
    JobError,
    Node,
    Rendezvous,
    check_debug,
    check_ports,
    check_stdin,
    exported,
    shown_ranks,
    worker_argv,
)
from ringcast_launcher.plan.ranklist import ranges

LONG = 86400.0  # seconds that a rank in the debugger may take to join
_USER_VARIABLES = (
    *("RINGCAST_TIMEOUT", "RINGCAST_START_TIMEOUT", "RINGCAST_GRACE", "RINGCAST_CONFIG", "RINGCAST_DEBUG"),
    *("RINGCAST_IFACE", "RINGCAST_PORTS", "RINGCAST_ADVERTISE", "RINGCAST_SECURITY", "RINGCAST_NO_PICKLE"),
    *("RINGCAST_DETERMINISTIC", "RINGCAST_PURE", "RINGCAST_DIRECT"),
)
# Options that take precedence over a variable with the same meaning.
_OPTIONS = {"iface": "RINGCAST_IFACE", "port_range": "RINGCAST_PORTS", "security": "RINGCAST_SECURITY"}
_HOW_MANY = ("-n", "-np", "--np", "-H", "--host", "--hostfile", "-N", "--nproc-per-node", "--nnodes")


def job_of(options: argparse.Namespace, program: Sequence[str], environment: Mapping[str, str]) -> Job:
    """Return the job that the options ask for.

    Raises:
        JobError: they do not fit; the text names the option.
    """
    if options.size is not None and options.size < 1:
        raise JobError(f"-n {options.size}: at least one rank is needed", USAGE)
    hosts = _hosts(options)
    meeting = node_rendezvous.rendezvous(
        options.nnodes,
        options.node_rank,
        options.rdzv_endpoint,
        options.per_node,
        _words(options, program),
        environment,
    )
    if meeting is None:
        nested_launch.check(environment)
    allocated = () if hosts or meeting is not None else slurm.allocation(environment)
    hosts = hosts or allocated
    called = environment.get("SLURMD_NODENAME", "") if allocated else None
    _need_hosts(options, hosts)
    placed = _placed(options, program, hosts, meeting, called)
    far = any(not node_agent.here for node_agent in placed)
    if far and options.transport not in WISHES and KINDS[options.transport].local:
        raise JobError(f"--transport {options.transport}: only on one host", USAGE)
    if options.transport == SHM.name and (reason := reason_not_shared()):
        raise JobError(f"--transport shm: {reason}; use ipc, or leave the choice to the launcher", USAGE)
    if options.transport == SOCKETS.name and (reason := reason_not_sockets()):
        raise JobError(f"--transport sockets: {reason}; use tcp, or leave the choice to the launcher", USAGE)
    if options.flight_recorder and (problem := output_files.reason_not(Path(options.flight_recorder))):
        raise JobError(f"--flight-recorder {problem}", USAGE)
    profile = _profile_file(options.profile or "")
    directory = _absolute(options.wdir or ".")
    if not Path(directory).is_dir():
        raise JobError(f"--wdir {options.wdir}: there is no such directory", USAGE)
    restarts = _max_restarts(options)
    exports = exported(options.exports, environment)
    if options.as_mpi4py:
        exports["PYTHONPATH"] = mpi4py.path({**environment, **exports})
    starter = _starter(options.rsh_agent or "", bool(allocated))
    of_slurm = bool(allocated) or starter == slurm.SRUN
    environment = {**(slurm.of_job(environment) if of_slurm else environment), **exports}
    told = slurm.passed_on(environment) if of_slurm else {}
    if hosts and options.size is not None and (told_of := oversubscribed(hosts, options.size)):
        _note(options, f"there are more ranks than slots: {told_of}")
    settings = _settings(options, environment, far)
    period = slurm.kill_wait(environment) if of_slurm else TIMING.grace_period
    if not KINDS[settings.transport].local and meeting is None:
        check_ports(placed, settings.ports)
    job = Job(
        nodes=placed,
        rendezvous=meeting if far else None,
        passed_on={**told, **placement.passed_on(environment, exports)},
        exports=exports,
        starter=starter,
        argv=worker_argv(program, module=options.module, directory=directory, path=environment.get("PATH", os.defpath)),
        environment=environment,
        directory=directory,
        output=options.output,
        stdin=_input_rank(options),
        debug=options.debug,
        ranks_filter=_ranks_filter(options),
        timeout=options.timeout,
        settings=settings,
        verbose=options.verbose,
        quiet=options.quiet,
        flight_recorder=options.flight_recorder or "",
        profile=profile,
        continue_on_failure=options.on_failure == "continue",
        stall_timeout=options.stall_timeout,
        interrupted=settings.grace or TIMING.interrupted,
        preempted=settings.grace or TIMING.within(period),
        max_restarts=restarts,
    )
    check_debug(job, terminal=os.isatty(2))
    if job.rendezvous is None:  # else the other nodes' numbers of ranks are not known yet
        shown_ranks(job)
        check_stdin(job)
    return job


def _placed(
    options: argparse.Namespace,
    program: Sequence[str],
    hosts: Sequence[Host],
    meeting: Rendezvous | None,
    called: str | None,
) -> tuple[Node, ...]:
    capacity.check_all(max(options.size or 0, options.per_node or 0, sum(host.slots for host in hosts)))
    if not hosts:
        capacity.check(max(options.size or 0, options.per_node or 0))
    if meeting is not None:
        if hosts or options.size is not None:
            raise JobError("--nnodes goes with -N, the ranks on this node, and neither with -n, -H nor --hostfile")
        return node_rendezvous.placed(meeting)
    if not hosts and options.size is None and options.per_node is None:
        unknown = "how many ranks? give -n N, or hosts by -H or --hostfile"
        raise JobError(_misplaced(options, program) or unknown, USAGE)
    placed = placement.nodes(hosts, options.size, options.per_node, options.placement or "block", called=called)
    for each in placed:
        if each.here:
            capacity.check(len(each.ranks))
    return placed


def _misplaced(options: argparse.Namespace, program: Sequence[str]) -> str:
    """Return an error text if an option for the number of ranks stands after the program; empty if none does.

    Call this only where the number is not known otherwise: in a Slurm allocation these are the program's own options.
    """
    late = next((i for i, word in enumerate(program) if i and word in _HOW_MANY), None)
    if late is None:
        return ""
    moved, rest = program[late : late + 2], [*program[:late], *program[late + 2 :]]
    first = ["-m"] if options.module else []
    return f"options come before the program: ringcast-launch {shlex.join([*moved, *first, *rest])}"


def _starter(text: str, allocated: bool) -> Sequence[str]:
    """Return the command that starts agents, by --rsh-agent; srun gets the options that it needs."""
    if text.strip() == slurm.SRUN[0] or (allocated and not text.strip()):
        return slurm.SRUN
    try:
        return shlex.split(text) or SSH
    except ValueError as error:
        raise JobError(f"--rsh-agent {text}: {str(error).lower()}", USAGE) from None


def _need_hosts(options: argparse.Namespace, hosts: Sequence[Host]) -> None:
    for name, value in {"--placement": options.placement, "--rsh-agent": options.rsh_agent}.items():
        if value is not None and not hosts:
            raise JobError(f"{name}: only with hosts, named by -H or --hostfile or allocated by Slurm", USAGE)


def _words(options: argparse.Namespace, program: Sequence[str]) -> list[str]:
    """Return the program and its arguments as the user gave them."""
    return ["-m", *program] if options.module else list(program)


def _hosts(options: argparse.Namespace) -> tuple[Host, ...]:
    try:
        return listed(options.hosts, options.hostfile)
    except HostError as error:
        raise JobError(str(error), USAGE) from error


def _input_rank(options: argparse.Namespace) -> int | None:
    if options.stdin is None:
        return None if os.isatty(0) else 0
    return None if options.stdin == NONE else int(options.stdin)


def _ranks_filter(options: argparse.Namespace) -> str:
    chosen: str = options.ranks_filter
    if chosen and output.parse(options.output)[0] not in ("tag", "none"):
        raise JobError("--ranks-filter: only with --output tag or none; files have the output of all ranks", USAGE)
    try:
        if chosen:
            ranges(chosen)
    except ValueError as error:
        raise JobError(f"--ranks-filter {error}", USAGE) from error
    return chosen


def _max_restarts(options: argparse.Namespace) -> int:
    if options.on_failure != "restart":
        if options.max_restarts is not None:
            raise JobError("--max-restarts: only with --on-failure restart", USAGE)
        return 0
    restarts: int = 3 if options.max_restarts is None else options.max_restarts
    if restarts < 0:
        raise JobError(f"--max-restarts {restarts}: must be 0 or more", USAGE)
    return restarts


def by_options(text: str, options: argparse.Namespace) -> str:
    """Return an error's text with the given options in place of the equivalent variables."""
    for name, variable in _OPTIONS.items():
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            text = text.replace(f"{variable}=", f"{option} ").replace(f"{variable}:", f"{option}:")
    return text


def _absolute(path: str) -> str:
    try:
        return str(Path(path).absolute())
    except FileNotFoundError:
        raise JobError("the working directory was removed; go to another one, or name one by --wdir", USAGE) from None


def _settings(options: argparse.Namespace, environment: Mapping[str, str], far: bool) -> WorkerConfig:
    """Return the settings of the workers, from the environment and from options, which take precedence."""
    try:
        stated = {_OPTIONS[name]: value for name, value in vars(options).items() if name in _OPTIONS and value}
        users = {name: environment[name] for name in _USER_VARIABLES if name in environment}
        said = from_environment({**users, **stated})
        wish = options.transport
        chosen = automatic(wish, far=far).name if wish in WISHES else wish
        if wish == AUTO and chosen == SHM.name and reason_not_shared():  # ranks have no more rights than this process
            chosen = IPC.name
        file = _config_file(options.config or said.file, chosen)
    except ConfigError as error:
        raise JobError(str(error), USAGE) from error
    for text in misspelled(environment):
        _note(options, f"warning: {text}")
    if said.security == NONE and not KINDS[chosen].local:
        _note(options, f"warning: {OPEN}")
    patience = said.start_timeout if options.debug is None else LONG  # a person may think before a rank joins
    start_timeout, grace = options.start_timeout or patience, options.grace or said.grace
    near = wish in WISHES and chosen != IPC.name
    return replace(
        said,
        transport=chosen,
        near=near,
        file=file,
        start_timeout=start_timeout,
        grace=grace,
        profile=bool(options.profile),
    )


def _profile_file(path: str) -> str:
    """Return the absolute path of the profile, or -; JobError if it cannot be written."""
    if path in ("", STREAM):
        return path
    from ringcast.profiling import files  # imports numpy, which few launchers need

    if problem := files.reason_not(path):
        raise JobError(f"--profile {problem}", USAGE)
    return _absolute(path)


def _config_file(path: str, transport: str) -> str:
    """Return the absolute path of the configuration file; ConfigError if it is invalid."""
    if not path:
        return ""
    from ringcast.algorithms import network_file  # imports numpy, which a launcher without a file does not need

    network_file.read(path, transport)
    return _absolute(path)


def _note(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        write_all(2, f"ringcast-launch: {escaped(text)}\n".encode())
