"""Read and check the settings of a worker. No other module reads the environment.

| variable | meaning |
|---|---|
| RINGCAST_RANK, RINGCAST_SIZE | this worker's number, and the number of workers |
| RINGCAST_CONTROL | address of the control plane, ipc:///… or tcp://host:port; file:///… if rank 0 writes it there |
| RINGCAST_HOSTED | 1: a launcher runs the control plane; else rank 0 starts a process for it |
| RINGCAST_NONCE | number of the job (64 bit); messages of other jobs are dropped |
| RINGCAST_KEY | secret key of the job (Z85, 40 characters); required for tcp; `init` removes it from os.environ |
| RINGCAST_SECURITY | curve (default): tcp is encrypted, and only members are admitted; none: neither |
| RINGCAST_NO_PICKLE | 1: no Python objects are sent or taken, only arrays; the same for all ranks |
| RINGCAST_TRANSPORT | shm, ipc, sockets, tcp, zeromq, or auto (default): sockets between hosts, shm within, or ipc |
| RINGCAST_IFACE | interface for tcp, see `ringcast.net.interfaces` (default: the one that leads to RINGCAST_CONTROL) |
| RINGCAST_PORTS | FIRST-LAST: the ports that the job may listen at (default: the system chooses) |
| RINGCAST_ADVERTISE | host name or address by which other ranks reach this one, where its own address does not do |
| RINGCAST_DIR | directory of the job's sockets on this host (mode 0700) for ipc |
| RINGCAST_START_TIMEOUT | seconds to wait for all ranks at start (default 60) |
| RINGCAST_TIMEOUT | seconds a call may take before CollectiveTimeout (default: no limit) |
| RINGCAST_GRACE | seconds that ranks have to end after a signal to the launcher (read by the launcher) |
| RINGCAST_CONFIG | file with the network's constants (`ringcast.algorithms.network_file`; default: the transport's) |
| RINGCAST_DETERMINISTIC | 1: reductions combine in an order that neither transport, hosts nor constants change |
| RINGCAST_PURE | 1: the compiled part is not used where it is installed |
| RINGCAST_DIRECT | 0: no message is predicted, so every one goes through the whole engine |
| RINGCAST_PROFILE | 1: each rank writes into the job's directory where its time went (set by the launcher) |
| RINGCAST_DEBUG | info: rank 0 prints algorithm and time of every stage of a collective to standard error |
| RINGCAST_RESTART | how often the job has been started afresh after a failure (default 0) |
| RINGCAST_JOINED | set by `init`: the process that has joined as this rank, see `ringcast.procs.child_processes` |
| RINGCAST_TERMINAL | terminal of the person who started the job, where there is one on this host |
| RINGCAST_COLUMNS | width of the terminal that the launcher draws on, where there is one (rank 0 only) |

Where rank and size are not set, the engine that started the process may give them: see `ringcast.config.cluster`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ringcast._util import socket_path
from ringcast._util.dataclass import dataclass
from ringcast._util.near_words import did_you_mean
from ringcast.config import cluster
from ringcast.errors import ConfigError
from ringcast.net import ports as port_ranges
from ringcast.net.ports import PortRange
from ringcast.procs.child_processes import RankProcess, parse
from ringcast.procs.libc import reason_not_futexes
from ringcast.procs.portable import reason_not_sockets
from ringcast.wire.transport_kinds import IPC, KINDS, SHM, SOCKETS, TCP, ZEROMQ, TransportKind, kind_of

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)

_PREFIX = "RINGCAST_"
CURVE, NONE = "curve", "none"  # values of RINGCAST_SECURITY
AUTO = "auto"
WISHES = (AUTO, ZEROMQ)  # values of RINGCAST_TRANSPORT beside the names of transports
FILE = "file:///"  # of RINGCAST_CONTROL: a file into which rank 0 writes the control plane's address
_LONGEST_SOCKET = f"-{cluster.NAMES}/rank-999999"  # behind the name of the directory in which ranks meet
_OF_A_JOB = (  # not wishes
    "RINGCAST_RANK", "RINGCAST_SIZE", "RINGCAST_CONTROL", "RINGCAST_HOSTED", "RINGCAST_NONCE", "RINGCAST_KEY",
    "RINGCAST_DIR", "RINGCAST_GRACE", "RINGCAST_TERMINAL", "RINGCAST_COLUMNS", "RINGCAST_RESTART", "RINGCAST_JOINED",
    "RINGCAST_PROFILE",
)  # fmt: skip
HOMES = ".ringcast"  # directory in the user's home for the files by which ranks meet


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings of one worker. `control` is empty for a world of one rank without a launcher."""

    rank: int = 0
    size: int = 1
    control: str = ""
    hosted: bool = False
    nonce: int = 0
    key: str = ""
    transport: str = "ipc"
    near: bool = False  # ranks of one host share memory, or with ZeroMQ over tcp use ipc, where that is possible
    security: str = CURVE
    pickle: bool = True
    iface: str = ""
    ports: PortRange | None = None
    advertise: str = ""
    directory: str = ""
    start_timeout: float = 60.0
    timeout: float | None = None
    grace: float | None = None
    file: str = ""
    deterministic: bool = False
    pure: bool = False
    direct: bool = True
    debug: str = ""
    profile: bool = False
    terminal: str = ""
    columns: int = 0
    restart: int = 0
    parent: RankProcess | None = None  # the process that joined as this rank, if this process is a child of it
    temporary: bool = False  # the job makes `directory`, and removes it
    launch_context: cluster.LaunchContext | None = None  # where an engine gave rank, size or rendezvous

    @property
    def medium(self) -> str:
        """The transport's name for messages; if the network carries it, with a word on its encryption."""
        kind = KINDS.get(self.transport)
        if kind is None or kind.local:
            return self.transport
        return f"{self.transport}, encrypted" if self.security == CURVE else f"{self.transport}, not encrypted"

    @property
    def _wish(self) -> str:
        """The value of RINGCAST_TRANSPORT that means this transport."""
        if not self.near:
            return self.transport
        return AUTO if self.transport in (SHM.name, automatic(far=True).name) else ZEROMQ

    def environment(self) -> dict[str, str]:
        """Return the variables that `from_environment` reads back as this configuration."""
        return {
            "RINGCAST_RANK": str(self.rank),
            "RINGCAST_SIZE": str(self.size),
            "RINGCAST_CONTROL": self.control,
            "RINGCAST_HOSTED": str(int(self.hosted)),
            "RINGCAST_NONCE": str(self.nonce),
            "RINGCAST_KEY": self.key,
            "RINGCAST_TRANSPORT": self._wish,
            "RINGCAST_SECURITY": self.security,
            "RINGCAST_NO_PICKLE": "" if self.pickle else "1",
            "RINGCAST_IFACE": self.iface,
            "RINGCAST_PORTS": str(self.ports or ""),
            "RINGCAST_ADVERTISE": self.advertise,
            "RINGCAST_DIR": self.directory,
            "RINGCAST_START_TIMEOUT": str(self.start_timeout),
            "RINGCAST_TIMEOUT": "" if self.timeout is None else str(self.timeout),
            "RINGCAST_GRACE": "" if self.grace is None else str(self.grace),
            "RINGCAST_CONFIG": self.file,
            "RINGCAST_DETERMINISTIC": str(int(self.deterministic)),
            "RINGCAST_PURE": "1" if self.pure else "",
            "RINGCAST_DIRECT": "" if self.direct else "0",
            "RINGCAST_PROFILE": "1" if self.profile else "",
            "RINGCAST_DEBUG": self.debug,
            "RINGCAST_TERMINAL": self.terminal,
            "RINGCAST_COLUMNS": str(self.columns or ""),
            "RINGCAST_RESTART": str(self.restart),
            "RINGCAST_JOINED": str(self.parent or ""),
        }


def from_environment(env: Mapping[str, str] | None = None) -> WorkerConfig:
    """Return the configuration from the environment; a world of one rank when no variable is set.

    A child of a rank cannot join, and so needs neither key nor address: the rank has removed its key.

    Raises:
        ConfigError: a variable is missing or has an invalid value.
    """
    env = os.environ if env is None else env
    context, temporary = _engine(env), False
    if context is not None:
        env = {**_place(context), **{name: value for name, value in env.items() if value}}
    size, rank = _integer(env, "RINGCAST_SIZE", 1), _integer(env, "RINGCAST_RANK", 0)
    nonce = _integer(env, "RINGCAST_NONCE", 0)
    if size < 1:
        raise ConfigError(f"RINGCAST_SIZE={size}: must be at least 1")
    if not 0 <= rank < size:
        raise ConfigError(f"RINGCAST_RANK={rank}: must be in 0..{size - 1} (RINGCAST_SIZE={size})")
    if not 0 <= nonce < 1 << 64:
        raise ConfigError(f"RINGCAST_NONCE={nonce}: must be a number of 64 bits, 0 or more")
    parent = _parent(env, nonce, rank, size)
    joins = size > 1 and parent is None
    if joins and context is not None and not env.get("RINGCAST_CONTROL"):
        meeting = _meeting(context, env)
        temporary = "RINGCAST_DIR" in meeting
        env = {**meeting, **env}
    control = env.get("RINGCAST_CONTROL", "")
    wish = env.get("RINGCAST_TRANSPORT") or AUTO
    far = control.startswith((TCP.scheme, FILE))
    transport = wish if wish not in WISHES else automatic(wish, far=far).name if control else IPC.name
    if joins and not far and kind_of(control) is None:
        needed = f"with RINGCAST_SIZE={size} an ipc:// or tcp:// address is needed (unset it to run alone)"
        raise ConfigError(f"RINGCAST_CONTROL={control!r}: {needed}")
    if transport not in KINDS:
        raise ConfigError(f"RINGCAST_TRANSPORT={transport!r}: must be {', '.join((*KINDS, ZEROMQ))} or {AUTO}")
    security = env.get("RINGCAST_SECURITY") or CURVE
    if security not in (CURVE, NONE):
        raise ConfigError(f"RINGCAST_SECURITY={security!r}: must be {CURVE} or {NONE}")
    key = env.get("RINGCAST_KEY", "")
    unneeded = security == NONE or control.startswith(FILE)  # the file holds the key together with the address
    if (far or not KINDS[transport].local) and joins and len(key) != 40 and not unneeded:
        raise ConfigError(f"RINGCAST_KEY: tcp needs the job's secret key (40 characters of Z85): {cluster.NEW_KEY}")
    debug = env.get("RINGCAST_DEBUG", "")
    if debug not in ("", "info"):
        raise ConfigError(f"RINGCAST_DEBUG={debug!r}: must be info, or not set")
    return WorkerConfig(
        rank=rank,
        size=size,
        control=control,
        hosted=_switch(env, "RINGCAST_HOSTED"),
        nonce=nonce,
        key=key,
        transport=transport,
        near=wish in WISHES and transport != IPC.name,
        security=security,
        pickle=not _switch(env, "RINGCAST_NO_PICKLE"),
        iface=_iface(env),
        ports=_ports(env, control),
        advertise=_advertise(env),
        directory=env.get("RINGCAST_DIR", ""),
        start_timeout=start_timeout(env),
        timeout=_seconds(env, "RINGCAST_TIMEOUT"),
        grace=_seconds(env, "RINGCAST_GRACE"),
        file=env.get("RINGCAST_CONFIG", ""),
        deterministic=deterministic(env),
        pure=_switch(env, "RINGCAST_PURE"),
        direct=_switch(env, "RINGCAST_DIRECT", default=True),
        profile=_switch(env, "RINGCAST_PROFILE"),
        debug=debug,
        terminal=env.get("RINGCAST_TERMINAL", ""),
        columns=_integer(env, "RINGCAST_COLUMNS", 0),
        restart=_integer(env, "RINGCAST_RESTART", 0),
        parent=parent,
        temporary=temporary,
        launch_context=context,
    )


def joining(
    rank: int,
    size: int,
    control: str,
    *,
    nonce: int,
    key: str,
    transport: str,
    env: Mapping[str, str] | None = None,
) -> WorkerConfig:
    """Return the configuration of a rank that knows its job from elsewhere.

    `transport` is as a value of RINGCAST_TRANSPORT. The environment adds wishes only, as RINGCAST_IFACE; the job that
    it may describe is another one.

    Raises:
        ConfigError: a variable has an invalid value.
    """
    wishes = {name: value for name, value in (os.environ if env is None else env).items() if name.startswith(_PREFIX)}
    own = WorkerConfig(rank, size, control, nonce=nonce, key=key).environment()
    return from_environment({**wishes, **{name: own[name] for name in _OF_A_JOB}, "RINGCAST_TRANSPORT": transport})


def transport_wish(env: Mapping[str, str] | None = None) -> str:
    """Return the transport that the user wants (RINGCAST_TRANSPORT)."""
    return (os.environ if env is None else env).get("RINGCAST_TRANSPORT") or AUTO


def start_timeout(env: Mapping[str, str] | None = None) -> float:
    """Return the seconds to wait for a start (RINGCAST_START_TIMEOUT).

    Raises:
        ConfigError: the variable is not a number.
    """
    return _seconds(os.environ if env is None else env, "RINGCAST_START_TIMEOUT") or 60.0


def deterministic(env: Mapping[str, str] | None = None) -> bool:
    """Return whether reductions are to combine in the same order everywhere (RINGCAST_DETERMINISTIC).

    Raises:
        ConfigError: the variable is not a number.
    """
    return _switch(os.environ if env is None else env, "RINGCAST_DETERMINISTIC")


def pure(env: Mapping[str, str] | None = None) -> bool:
    """Return whether no compiled part is to be used (RINGCAST_PURE); `from_environment` refuses other values."""
    return (os.environ if env is None else env).get("RINGCAST_PURE") == "1"


def automatic(wish: str = AUTO, *, far: bool) -> TransportKind:
    """Return the transport that one of `WISHES` means, where ranks are on several hosts (`far`) or on one.

    It depends on the system, and on nothing that may differ between the processes of a job.
    """
    if wish == ZEROMQ:
        return TCP if far else IPC
    if far:
        return TCP if reason_not_sockets() else SOCKETS
    return IPC if reason_not_futexes() else SHM


def directories(env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return the values of TMPDIR (temporary files) and XDG_RUNTIME_DIR (files of the session), "" where not set."""
    env = os.environ if env is None else env
    return env.get("TMPDIR", ""), env.get("XDG_RUNTIME_DIR", "")


def cache_directory(env: Mapping[str, str] | None = None) -> str:
    """Return the user's directory for files that can be fetched again (XDG_CACHE_HOME)."""
    named = (os.environ if env is None else env).get("XDG_CACHE_HOME", "")
    return named if os.path.isabs(named) else os.path.expanduser("~/.cache")


def safe_path(env: Mapping[str, str] | None = None) -> bool:
    """Return whether Python keeps the directory of the program out of its path (PYTHONSAFEPATH)."""
    return bool((os.environ if env is None else env).get("PYTHONSAFEPATH"))


def without_pickles(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a job in which nothing is unpickled."""
    return {**(os.environ if env is None else env), "RINGCAST_NO_PICKLE": "1"}


def let_bars_be_drawn(columns: int, margin: int) -> None:
    """Let progress bars of ringcast, tqdm and rich in this process be drawn, as the caller shows them as they change.

    Args:
        columns: width at the caller.
        margin: columns of the prefix there.
    """
    os.environ |= {"RINGCAST_COLUMNS": str(columns), "COLUMNS": str(columns - margin), "TTY_COMPATIBLE": "1"}


def unattended(env: Mapping[str, str] | None = None) -> bool:
    """Return whether no person watches this process, by the variable CI."""
    return bool((os.environ if env is None else env).get("CI"))


def can_redraw(file: int, env: Mapping[str, str] | None = None) -> bool:
    """Return whether a file descriptor is a terminal on which a line can be redrawn, and a person may look at it."""
    env = os.environ if env is None else env
    return os.isatty(file) and env.get("TERM", "dumb") != "dumb" and not unattended(env)


def misspelled(env: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each variable that looks like a misspelled variable of ringcast.

    >>> misspelled({"RINGCAST_TIMOUT": "3", "RINGCAST_TIMEOUT": "3", "RINGCAST_OF_THE_PROGRAM": "1"})
    ['RINGCAST_TIMOUT is no variable of ringcast; did you mean RINGCAST_TIMEOUT?']
    """
    known = {name.removeprefix(_PREFIX) for name in WorkerConfig().environment()}
    names = sorted(os.environ if env is None else env)
    given = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    meant = {name: did_you_mean(name, known, prefix=_PREFIX) for name in given if name not in known}
    return [f"{_PREFIX}{name} is no variable of ringcast{text}" for name, text in meant.items() if text]


def _engine(env: Mapping[str, str]) -> cluster.LaunchContext | None:
    """Return an engine's launch context of several ranks; None if RINGCAST_* set rank and size, or a size of 1."""
    if env.get("RINGCAST_SIZE") == "1" or (env.get("RINGCAST_RANK") and env.get("RINGCAST_SIZE")):
        return None
    context = cluster.find(env)
    return context if context is not None and context.size > 1 else None


def _parent(env: Mapping[str, str], nonce: int, rank: int, size: int) -> RankProcess | None:
    """Return the rank that has started this process, if the environment still describes that rank's job."""
    joined = parse(env.get("RINGCAST_JOINED", ""))
    if joined is None or joined.pid == os.getpid() or (joined.nonce, joined.rank) != (nonce, rank):
        return None
    return joined if size > 1 or env.get("RINGCAST_CONTROL") else None


def _place(context: cluster.LaunchContext) -> dict[str, str]:
    """Return the variables RINGCAST_* that a launch context stands for: rank, size and number of the job."""
    said = {"RINGCAST_RANK": str(context.rank), "RINGCAST_SIZE": str(context.size)}
    return said | ({"RINGCAST_NONCE": str(cluster.nonce(context.job))} if context.job else {})


def _meeting(context: cluster.LaunchContext, env: Mapping[str, str]) -> dict[str, str]:
    """Return variables for the ranks' rendezvous: a directory of their host, rank 0's host, or a file in the home."""
    tcp = env.get("RINGCAST_TRANSPORT") in (SOCKETS.name, TCP.name)
    if not tcp and env.get("RINGCAST_DIR"):
        return {"RINGCAST_CONTROL": f"ipc://{env['RINGCAST_DIR']}/control"}
    name = cluster.file_name(context.job)
    if not tcp and context.nodes == 1 and context.job:
        own = f"ringcast-{os.getuid()}-{name}"
        directory = f"{env.get('TMPDIR') or '/tmp'}/{own}"
        directory = directory if socket_path.fits(f"{directory}{_LONGEST_SOCKET}") else f"/tmp/{own}"
        return {"RINGCAST_CONTROL": f"ipc://{directory}/control", "RINGCAST_DIR": directory}
    head = "127.0.0.1" if context.nodes == 1 else context.head
    if env.get("RINGCAST_KEY") and head and context.job:
        return {"RINGCAST_CONTROL": f"tcp://{head}:{cluster.port(context.job)}"}
    if context.job and env.get("HOME"):
        return {"RINGCAST_CONTROL": f"file://{env['HOME']}/{HOMES}/{name}"}
    raise ConfigError(
        f"{context.engine}: this is rank {context.rank} of {context.size}, but no variable says where the ranks meet. "
        "On one host, before the job: export RINGCAST_DIR=$(mktemp -d); on several, "
        f"export RINGCAST_CONTROL=tcp://HOST_OF_RANK_0:PORT and {cluster.NEW_KEY}; to work alone, RINGCAST_SIZE=1"
    )


def _iface(env: Mapping[str, str]) -> str:
    text = env.get("RINGCAST_IFACE", "")
    if text:
        from ringcast.net import interfaces  # most jobs name none

        try:
            interfaces.parse(text)
        except ConfigError as error:
            raise ConfigError(f"RINGCAST_IFACE: {error}") from None
    return text


def _ports(env: Mapping[str, str], control: str) -> PortRange | None:
    text = env.get("RINGCAST_PORTS", "")
    try:
        ports = port_ranges.parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"RINGCAST_PORTS={error}") from None
    port = control.rpartition(":")[2] if control.startswith("tcp://") else ""
    if ports is not None and port.isdecimal() and int(port) not in ports:
        raise ConfigError(f"RINGCAST_CONTROL={control!r}: its port is not within RINGCAST_PORTS={ports}")
    return ports


def _advertise(env: Mapping[str, str]) -> str:
    text = env.get("RINGCAST_ADVERTISE", "")
    if not text:
        return ""
    import ipaddress

    from ringcast.net import interfaces

    try:
        return interfaces.in_brackets(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        if not _HOST_NAME.fullmatch(text):
            expected = "must be a host name or an address, without a port"
            raise ConfigError(f"RINGCAST_ADVERTISE={text!r}: {expected}") from None
    return text


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigError(f"{name}={text!r}: must be a whole number") from None


def _switch(env: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = env.get(name, "")
    if text not in ("", "0", "1"):
        raise ConfigError(f"{name}={text!r}: must be 0 or 1")
    return text == "1" if text else default


def _seconds(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "")
    try:
        value = float(text) if text else None
    except ValueError:
        raise ConfigError(f"{name}={text!r}: must be a number of seconds") from None
    if value is not None and not value > 0:
        raise ConfigError(f"{name}={text!r}: must be more than 0 seconds")
    return value


def allocated_hosts(env: Mapping[str, str] | None = None) -> list[str]:
    """Return the nodes of the Slurm allocation that this process is in; none outside of one.

    Raises:
        ConfigError: Slurm's variable holds no valid list.
    """
    return cluster.allocated(os.environ if env is None else env)


def allocated_tasks(env: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return the nodes of the Slurm allocation that this process is in, with the number of tasks on each.

    Raises:
        ConfigError: Slurm's variables make no sense.
    """
    return cluster.tasks(os.environ if env is None else env)
