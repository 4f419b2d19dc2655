"""The world communicator of a launched worker: `init` makes it from the environment, `finalize` ends it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal, TextIO

from ringcast._util.safe_text import class_name, is_a, safe_text
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.bootstrap.connectivity import GRACE, connect_neighbours, reach
from ringcast.bootstrap.exit_code import end_with
from ringcast.bootstrap.inbox import open_inbox
from ringcast.bootstrap.rendezvous import JoinInfo, rendezvous
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.config import worker
from ringcast.config.worker import NONE, WorkerConfig, from_environment, misspelled
from ringcast.control import PACE, ControlClient
from ringcast.engine import recorder
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import JobAborted, PeerFailed, Revoked, RingcastError, UsageError
from ringcast.monitoring import progress, stacks
from ringcast.net.keys import OPEN
from ringcast.procs import child_processes, green_threads
from ringcast.protocol.compiled import build
from ringcast.schedules.placement import hosts_of
from ringcast.transports.base import RemoteTransport
from ringcast.wire.control_messages import Failing
from ringcast.wire.error_text import in_a_line, message, of_the_program, origin, text_of
from ringcast.wire.failure import Failure, clean
from ringcast.wire.transport_kinds import KINDS, SHM

KEY, JOINED = "RINGCAST_KEY", "RINGCAST_JOINED"
WORLD = 1  # context number of the world communicator

_NO_INPUT = "this rank has no standard input: ringcast-launch --stdin RANK gives it the launcher's, as a terminal"
_world: Communicator | None = None
_config: WorkerConfig | None = None  # by which this process has joined its job, without the key
_joined: child_processes.RankProcess | None = None  # this process, or the one from which it was forked
_ranks = threading.local()  # the communicator of each thread that is a rank


def init(
    *,
    timeout: float | None = None,
    threads: Literal["single", "multiple"] = "single",
    deterministic: bool | None = None,
) -> Communicator:
    """Return the communicator of all ranks of this job; the same one when called again.

    Ranks are started by `ringcast-launch`, or by anything else that sets the RINGCAST_* variables
    (docs/use/launching.md); a program started alone is a world of one rank. The world ends by itself with the program,
    or with `finalize`, or as a context manager. The job's key is removed from os.environ: a program that this one
    starts cannot join by mistake, or leak it. In a function that `run`, `on_dask` or `on_ray` calls, that rank's
    communicator is returned.

    Cost: one message to the control plane and back, and connections to at most 4 ceil(log2 p) ranks, p the number of
    ranks; waits until all ranks have called it.

    Args:
        timeout: seconds, above 0, that any call may take before CollectiveTimeout; None takes RINGCAST_TIMEOUT, or no
            limit.
        threads: "single": this thread alone uses the communicator, and all that are made of it; "multiple": all threads
            of this process do (`Communicator.progress_thread`). Ranks need not give the same.
        deterministic: True: reductions combine in an order that follows from the number of ranks and the data alone, so
            that they give the same bits over every transport and on any hosts (docs/understand/bit-for-bit.md). None
            takes RINGCAST_DETERMINISTIC, or False. The same on all ranks.

    Returns:
        A Communicator.

    Raises:
        ValueError: `threads` or `deterministic` is something else.
        ConfigError: the environment, or the file of RINGCAST_CONFIG, holds something unusable.
        UsageError: this process has left its job; or it was started by a rank and is none; or gevent or eventlet has
            replaced Python's blocking calls; or the world is there already, and was made with another `deterministic`.
        RendezvousError: the ranks did not find each other in RINGCAST_START_TIMEOUT seconds, or, when they had, this
            one did not reach a neighbour in as many.

    >>> ringcast.init(timeout=60)
    <Communicator: rank 0 of 1>
    """
    if threads not in ("single", "multiple"):
        raise ValueError(f"threads={safe_text(threads)}: expected 'single' or 'multiple'")
    if not isinstance(deterministic, bool | None):
        raise ValueError(f"deterministic={safe_text(deterministic)}: expected True, False or None")
    world: Communicator = getattr(_ranks, "communicator", None) or _join(timeout, deterministic)  # adopt has set it
    if deterministic not in (None, world._group.deterministic):
        set_before = f"RINGCAST_DETERMINISTIC={int(deterministic)} before the ranks are started"
        raise UsageError(f"rank {world.rank}: deterministic={deterministic}, but the world is not; set {set_before}")
    if threads == "multiple":
        world.progress_thread()
    return world


def init_or_alone() -> Communicator:
    """Return what `init` does; in a process that a rank has started, a world of one rank.

    For programs that import MPI wherever they run, as in each process of their own pools.
    """
    world: Communicator = getattr(_ranks, "communicator", None) or _join(None, children=True)
    return world


def _join(timeout: float | None, deterministic: bool | None = None, *, children: bool = False) -> Communicator:
    """Return the communicator of this process, which joins its job if it has not; `children` of a rank are alone."""
    global _world, _config, _joined
    if _joined is not None:
        child_processes.refuse(_joined)
    if _world is None or _world.closed:
        if _config is not None:
            raise UsageError(f"rank {_config.rank}: this process has left its job; a process joins once")
        config = from_environment()
        if config.parent is not None:
            if not children:
                child_processes.refuse(config.parent)
            config = WorkerConfig(pickle=config.pickle)
        if deterministic is not None:
            config = replace(config, deterministic=deterministic)
        _fold_uncaught_errors(config)
        network = network_of(config)
        if not config.hosted and config.rank == 0:
            _warn(config)
        if config.control:
            green_threads.refuse(f"rank {config.rank}")
            group = _member(config, network)
            os.environ.pop(KEY, None)
            _joined = _listen_to_children(config, group)
            _config = config = replace(config, key="")
        else:
            from ringcast.bootstrap.in_process import thread_endpoints  # with a control plane of its own

            endpoint, fixed = thread_endpoints(1)[0], config.deterministic
            group = Group(endpoint, WORLD, network, pickle=config.pickle, deterministic=fixed)
        world = connected(group, config, network, timeout)
        _world = world
        if config.debug:
            atexit.register(_tell_strangers, group.endpoint)  # after finalize
        if not config.hosted:
            atexit.register(_fail_at_the_end, group.endpoint, os.getpid())  # after finalize
        atexit.register(_leave_at_the_end, world)
    return _world


def finalize() -> None:
    """Leave the job; idempotent, and done by itself at the end of the program.

    Not collective: no rank waits for another.

    Raises:
        CollectiveMismatch: the last call was not the same on other ranks.

    >>> ringcast.finalize()
    >>> comm.closed
    True
    """
    if _world is not None:
        _world.finalize()


def thread_group(endpoint: Endpoint) -> Group:
    """Return the group of all ranks, for a rank that is a thread of this process."""
    return Group(endpoint, WORLD, NETWORKS["threads"], deterministic=worker.deterministic())


def adopt(communicator: Communicator | None) -> Communicator | None:
    """Let `init` return this communicator in this thread, which is a rank, or no longer one (None); return the last."""
    before: Communicator | None = getattr(_ranks, "communicator", None)
    _ranks.communicator = communicator
    return before


def whoami() -> tuple[int, WorkerConfig]:
    """Return the rank that this thread is, and the settings of this process, whether `init` has been called or not.

    Raises:
        ConfigError: as in `init`, if that has not been called.
    """
    communicator: Communicator | None = getattr(_ranks, "communicator", None)
    config = _config or from_environment()
    return config.rank if communicator is None else communicator.rank, config


def terminal() -> TextIO | None:
    """Return the terminal of the person who started the job, for progress on long work.

    Only rank 0 has it: output of ranks goes through the launcher, line by line, which no progress bar survives. The
    launcher's own status line is not drawn any more in this job.

    Returns:
        A text file, which the caller closes; None on other ranks, or if there is no terminal.

    Raises:
        ConfigError: as in `init`, if that has not been called.
        OSError: the terminal is gone.

    >>> if (screen := ringcast.terminal()) is not None:
    ...     with screen: print("nearly there", file=screen)
    """
    rank, config = whoami()
    if rank != 0:
        return None
    path = config.terminal if config.control else os.ttyname(2) if os.isatty(2) else ""
    if path and config.directory:
        progress.draws(config.directory)
    # O_NOCTTY: the terminal belongs to the session of the launcher.
    return open(os.open(path, os.O_WRONLY | os.O_NOCTTY), "w", encoding="utf-8") if path else None


def network_of(config: WorkerConfig) -> Network:
    """Return the constants of the job's network; a world of one rank without a job has none, and reads no file."""
    if not config.control:
        return NETWORKS["threads"]
    network = NETWORKS[config.transport]
    if config.file:
        from ringcast.algorithms import network_file  # few jobs have one

        network = network_file.read(config.file, config.transport)
    if config.transport != SHM.name:
        return network
    return replace(network, ranks_per_cpu=max(1.0, config.size / os.sysconf("SC_NPROCESSORS_ONLN")))


def _member(config: WorkerConfig, network: Network) -> Group:
    """Join as this whole process: the other ranks learn of an error that ends it."""
    with rendezvous(config) as info:
        group = join(info, network)
    control = group.endpoint.control
    assert isinstance(control, ControlClient)
    _report_uncaught_errors(control, config.rank)
    return group


def _warn(config: WorkerConfig) -> None:
    """Print the launcher's warnings once for the job, where there is no launcher."""
    texts = misspelled()
    if config.security == NONE and not KINDS[config.transport].local:
        texts.append(OPEN)
    for text in texts:
        print(f"ringcast: warning: {text}", file=sys.stderr)


def _listen_to_children(config: WorkerConfig, group: Group) -> child_processes.RankProcess:
    """Mark this process as the rank, which ends when a child of it comes to `init`."""
    control = group.endpoint.control
    assert isinstance(control, ControlClient)

    def fail(error: str) -> None:
        if not config.hosted:  # else the launcher says it
            os.write(2, f"ringcast.{UsageError.__name__}: {error}\n".encode())
        control.send(Failing(config.rank, Failure(f"{UsageError.__name__}: {error}")))
        control.close()
        os._exit(1)  # the main thread may wait for results of these processes

    joined = child_processes.listen(config.nonce, config.rank, fail)
    os.environ[JOINED] = str(joined)
    return joined


def join(info: JoinInfo, network: Network) -> Group:
    """Bind this rank's inbox and meet the others."""
    config, inbox = open_inbox(info.config)
    small = build() if config.direct else "not predicted (RINGCAST_DIRECT=0)"
    control = ControlClient(
        config, inbox.card, inbox.inject, network=repr(network), build=small, lifeline=info.lifeline
    )
    mapped = None
    if config.hosted and config.directory:  # there is a launcher, which looks at them and removes them
        mapped = recorder.mapped(config.directory, config.rank, config.size)
        stacks.listen(config.directory, config.rank)
    try:
        roster = control.join(config.start_timeout)
        transport = inbox.meet(roster.cards)
    except BaseException as error:
        _leave_with(control, config.rank, error)
        inbox.close()
        raise
    if isinstance(transport, RemoteTransport):
        control.watch(transport.links)
    endpoint = Endpoint(
        config.rank,
        config.size,
        config.nonce,
        transport,
        control,
        lookahead=network.lookahead,
        continues=roster.continues,
        recorder=mapped,
        direct=config.direct,
    )
    endpoint.protocol.enrol(WORLD, range(config.size))  # so that a rank that is lost before the first call concerns it
    # Without its port an address names the host, or at least the link: of a host with several, each counts as a host.
    hosts = hosts_of([each.address.rpartition(":")[0] for each in roster.cards])
    return Group(endpoint, WORLD, network, hosts=hosts, pickle=config.pickle, deterministic=config.deterministic)


def connected(group: Group, config: WorkerConfig, network: Network, timeout: float | None = None) -> Communicator:
    """Return the communicator of a rank that has joined, when it is connected to its neighbours."""
    if config.debug and config.rank == 0:
        from ringcast.collectives.choice_log import stage_log  # with the table of algorithms

        group.on_stage = stage_log(network, sys.stderr)
    world = Communicator(group, timeout if timeout is not None else config.timeout)
    connect_neighbours(group)
    _reach_neighbours(group.endpoint, config)
    if config.profile and config.hosted:
        from ringcast.profiling.attach import attach  # few jobs are profiled
        from ringcast.profiling.part import write_part

        attach(group, partial(write_part, config.directory))
    return world


def _tell_strangers(endpoint: Endpoint) -> None:
    """Report on standard error the strangers that connected to the inbox, if any."""
    strangers = endpoint.transport.strangers if isinstance(endpoint.transport, RemoteTransport) else 0
    dropped = sum(endpoint.protocol.dropped.values())
    if strangers or dropped:
        counts = f"{strangers} connections to its inbox were not admitted, {dropped} messages were dropped"
        print(f"ringcast: rank {endpoint.rank}: {counts}", file=sys.stderr)


def _fail_at_the_end(endpoint: Endpoint, pid: int) -> None:
    """End with code 1 where an error was caught and not answered; Python reports an uncaught one."""
    error = endpoint.unanswered.first
    if error is not None and os.getpid() == pid and getattr(sys, "last_value", None) is None:
        print(f"ringcast: rank {endpoint.rank} failed: {error}", file=sys.stderr)
        end_with(1)


def _reach_neighbours(endpoint: Endpoint, config: WorkerConfig) -> None:
    """Wait until the connections to the neighbours are made; a rank that cannot make them leaves the job."""
    if not isinstance(endpoint.transport, RemoteTransport):
        return
    # Without a launcher it takes longer to make sure that a rank is gone.
    grace = GRACE if config.hosted else PACE.unreachable + PACE.answer
    try:
        reach(endpoint, endpoint.transport, config.start_timeout, grace)
    except BaseException as error:
        assert isinstance(endpoint.control, ControlClient)
        _leave_with(endpoint.control, config.rank, error)
        endpoint.transport.close()
        raise


def _leave_with(control: ControlClient, rank: int, error: BaseException) -> None:
    """Leave the job with the error that keeps this rank from taking part; only a rank that has joined is heard."""
    control.send(Failing(rank, Failure(clean(in_a_line(error)))))
    control.close()


def _leave_at_the_end(world: Communicator) -> None:
    """Finalize. An error that shows only now is printed without a traceback, as the program does not occur in it."""
    try:
        world.finalize()
    except RingcastError as error:
        print(f"stopped at its end: {in_a_line(error)}", file=sys.stderr)
        end_with(1)


def _fold_uncaught_errors(config: WorkerConfig) -> None:
    """Print the error that ends this program without ringcast's frames, unless they are wanted."""
    if not config.debug and sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_folded


def all_frames_wanted() -> bool:
    """Return whether errors of this process are printed with ringcast's frames."""
    return _config is not None and bool(_config.debug)


def _print_folded(_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if sys.stderr is not None:  # as where a program was started without
        print(text_of(BaseException.with_traceback(error, trace)), end="", file=sys.stderr)


def _report_uncaught_errors(control: ControlClient, rank: int) -> None:
    """Let the launcher and the other ranks know the error that ends this program, with its traceback."""
    previous, pid = sys.excepthook, os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if is_a(error, EOFError) and _reads_nothing():
            error.add_note(_NO_INPUT)
        if os.getpid() == pid:
            control.send(Failing(rank, Failure.of(error, whole=all_frames_wanted())))
            cause = origin(error)
            if is_a(cause, (PeerFailed, Revoked, JobAborted, KeyboardInterrupt)):
                print(_in_one_line(cause, trace), file=sys.stderr)
                return
        previous(kind, error, trace)

    sys.excepthook = hook


def _reads_nothing() -> bool:
    """Return whether standard input is the empty one that a rank has which gets none."""
    try:
        return os.path.samestat(os.fstat(0), os.stat(os.devnull))
    except OSError:
        return False


def _in_one_line(error: BaseException, trace: TracebackType | None) -> str:
    """Return the line of the user's program at which it was ended from outside; more would hide the cause."""
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith("<frozen ")]
    of_program = of_the_program(frames) or frames[:1]  # ours may be the main program
    place = f"{of_program[-1].filename}:{of_program[-1].lineno}" if of_program else "?"
    text = message(error).partition("\n")[0]  # the rank that is the cause shows its traceback itself
    return f"stopped at {place}: {class_name(type(error))}: {text}".rstrip(": ")
