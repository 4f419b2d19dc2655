"""Emulate hosts: a network within one machine whose links have a given rate. Linux only, needs root and iproute2.

A host is a set of namespaces (network, host name, System V and POSIX IPC, mounts, processes) with its own /proc, /sys,
/etc/hosts and /dev/shm; it shares all other files with the machine. A veth pair joins each host to one bridge, the
switch, which is in namespaces of its own, so that no packet leaves the machine.

Each set of namespaces is held by a shell, on a host its process 1, that reads commands from a pipe of this process.
When this process ends, in any way, the pipe and therefore the shell end too, and the kernel kills all processes of the
host and removes namespaces, links and mounts. Nothing has a global name, so that beds never meet.

Links need these settings to be faithful (8 hosts at 100 Mbit/s in pairs, one tcp stream each way at the same time: 92
to 95 % of the rate in both directions on a busy machine, where headers leave 95.6 % at best):

* a token bucket at both ends of each pair, as a queue shapes only packets that it sends;
* receive packet steering: two processors reorder the packets of a veth pair, which TCP takes for loss;
* a bound on the bytes of one socket in the queue of the sender (tcp_limit_output_bytes): behind a deep queue the
  acknowledgements of incoming data are late;
* the same congestion control everywhere, independent of the machine's own;
* permanent neighbour entries: all namespaces share one table of 1024 other entries, which 33 hosts overflow.

Limits: a burst of 64 kB goes at once, so that small messages are faster than the rate; the machine's scheduler
determines the latency; and the processors must carry the rates of all hosts together (two cores: 0.8 Gbit/s).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench.bedscripts import CONGESTION, SWITCH_FILES, host_files, host_setup, switch_setup
from ringcast.config.worker import automatic
from ringcast.errors import RingcastError

TRANSPORT = automatic(far=True).name  # of ringcast, between the hosts
MOST_HOSTS = 1000  # a bridge has 1024 ports at most
FIRST_PORT = 20000  # below the ports that the kernel itself chooses (32768 and up)
START_TIME = 120.0  # seconds that a busy machine may take to make a bed
END_TIME = 10.0  # seconds for the kernel to end everything on all hosts
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # not the user's, so that the system's tools are found
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
_SPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_FORM = re.compile(r"(?P<count>[0-9]{1,9})(x(?P<rate>[0-9]{1,9})(?P<unit>[kmg]bit))?", re.ASCII)


class BedError(RingcastError):
    """Emulated hosts cannot be made, or are gone."""


@dataclass(frozen=True, slots=True)
class BedHost:
    """One emulated host: its name, which all hosts can resolve, and its address."""

    name: str
    address: str


def parse(text: str) -> tuple[int, int | None]:
    """Return the number of hosts and the rate of their links in bit/s (None: unlimited).

    >>> parse("8x100mbit"), parse("4")
    ((8, 100000000), (4, None))

    Raises:
        ValueError: the text has another form, or there are no or too many hosts, or the rate is 0.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r}: expected HOSTS or HOSTSxRATE with kbit, mbit or gbit, such as 4 or 8x100mbit")
    count = int(found["count"])
    if not 1 <= count <= MOST_HOSTS:
        raise ValueError(f"{text!r}: there can be 1 to {MOST_HOSTS} hosts")
    if found["rate"] is None:
        return count, None
    rate = int(found["rate"]) * _UNITS[found["unit"]]
    if rate == 0:
        raise ValueError(f"{text!r}: the rate must be more than 0")
    return count, rate


class Bed:
    """`count` emulated hosts, h0, h1, …, whose links carry `rate_bits` bit/s in each direction (None: unlimited).

    A context manager. The hosts are gone after `close`, and also when this process ends without it, unless a forked
    child that has inherited the pipes lives on.

    Attributes:
        hosts: name and address of each host.
        rate_bits: the rate of the links.
        ports: numbers of tcp ports that no job on this bed has used yet.

    Raises:
        BedError: not Linux, not root, a tool is missing, or the kernel refuses.
    """

    def __init__(self, count: int, rate_bits: int | None = None) -> None:
        check_machine()
        self.hosts = tuple(BedHost(f"h{i}", f"10.77.{i // 200}.{i % 200 + 1}") for i in range(count))
        self.rate_bits = rate_bits
        self.ports = itertools.count(FIRST_PORT)
        self._shells: list[_Shell] = []  # of the hosts, then of the switch
        self._closed = False
        try:
            self._make(time.monotonic() + START_TIME)
        except BaseException:
            self.close()
            raise

    def _make(self, deadline: float) -> None:
        table = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            self._shells.append(_Shell(host.name, *_SPACES))
            self._shells[-1].begin(host_files(host.name, table))
        self._shells.append(_Shell("switch", "--net", "--mount"))  # without --pid: it names the hosts by their pid
        self._shells[-1].begin(SWITCH_FILES)
        for shell in self._shells:
            shell.finish(deadline)
        *hosts, switch = self._shells
        switch.begin(switch_setup([shell.pid for shell in hosts], self.rate_bits))
        switch.finish(deadline)  # the hosts' ends of the links are there from now on
        addresses = [host.address for host in self.hosts]
        for i, shell in enumerate(hosts):
            shell.begin(host_setup(i, addresses, self.rate_bits))
        for shell in hosts:
            shell.finish(deadline)

    def argv(self, i: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on host i, with this environment, directory and standard files.

        It has the exit status of `command`. Prefer `start` where signals are to be sent: they would go to nsenter, the
        parent of `command`; when nsenter is killed, so is `command`.

        Raises:
            BedError: the bed is closed, or the host has ended.
        """
        pid = self._holder(i)
        enter = [_tool("nsenter"), "-t", str(pid), *_SPACES, f"--wdns={os.getcwd()}", "--"]
        return [*enter, _tool("setpriv"), "--pdeathsig", "KILL", "--", *command]

    def start(self, i: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `command` on host i, with `options` of subprocess.Popen. `close` ends commands that still run.

        Raises:
            BedError: as for `argv`.
        """
        return _Remote(self.argv(i, command), **options)

    def carried(self, i: int) -> tuple[int, int]:
        """Return the bytes that host i has sent and received over its link since the bed was made.

        The bytes of Ethernet frames count, acknowledgements included; on unlimited links, where the kernel does not cut
        segments (up to 64 kB) into frames, each segment has one header. So the result is never less than the data.

        Raises:
            BedError: as for `argv`.
        """
        lines = Path(f"/proc/{self._holder(i)}/net/dev").read_text().splitlines()
        fields = next(line.split() for line in lines if line.lstrip().startswith("e0:"))
        return int(fields[9]), int(fields[1])

    def close(self) -> None:
        """End everything on the hosts and remove them; waits until they are gone; idempotent.

        Raises:
            BedError: something on a host did not end in time.
        """
        self._closed = True
        deadline = time.monotonic() + END_TIME
        for shell in self._shells:
            shell.end()
        stuck = [shell.name for shell in self._shells if not shell.gone(deadline)]
        if stuck:
            raise BedError(f"emulated hosts {', '.join(stuck)} did not end in {END_TIME:g} s, and were killed")

    def _holder(self, i: int) -> int:
        if self._closed:
            raise BedError("the emulated hosts were closed")
        return self._shells[i].living()

    def __enter__(self) -> Bed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Remote(subprocess.Popen[Any]):
    """A command on a host: signals go to the command, not to nsenter, its parent, which ends with the same status.

    If nsenter were killed, the machine's process 1 would inherit the command, and `close` would have to wait for it.
    """

    def send_signal(self, sig: int) -> None:
        if self.poll() is not None:
            return
        commands = psutil.Process(self.pid).children()
        if not commands:  # nsenter has not started the command yet
            super().send_signal(sig)
        for command in commands:
            with contextlib.suppress(psutil.NoSuchProcess):
                command.send_signal(sig)
        if sig == signal.SIGKILL:  # nsenter stops when its command does, and would not see it end
            super().send_signal(signal.SIGCONT)


class _Shell:
    """The first process in new namespaces, which keeps them alive: a shell that reads from a pipe."""

    def __init__(self, name: str, *spaces: str) -> None:
        self.name, self.pid = name, 0
        self._process = subprocess.Popen(
            [_tool("unshare"), *spaces, "--fork", "--kill-child", "sh", "-e"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env={"PATH": _PATH, "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C is for this process, which then closes the bed in its own time
        )

    def begin(self, script: str) -> None:
        """Begin to run commands that print READY at their end; `finish` waits for them."""
        assert self._process.stdin is not None
        data = script.encode()
        try:
            while data:
                data = data[os.write(self._process.stdin.fileno(), data) :]
        except BrokenPipeError:  # the shell has ended; its output says why
            pass

    def finish(self, deadline: float) -> None:
        """Wait for the commands.

        Raises:
            BedError: one of them failed; or the deadline has passed.
        """
        assert self._process.stdout is not None
        poller = select.poll()
        poller.register(self._process.stdout, select.POLLIN)
        said = b""
        while not said.endswith(b" ready\n"):
            if not poller.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                raise BedError(f"emulated host {self.name} was not there after {START_TIME:g} s: {_line(said)}")
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                hint = "a container may have to be privileged for this"
                raise BedError(f"emulated host {self.name} cannot be made ({hint}); the system says: {_line(said)}")
            said += chunk
        self.pid = int(said.split()[-2])

    def living(self) -> int:
        """Return the number of the process.

        Raises:
            BedError: the process has ended.
        """
        if self._process.poll() is not None:
            raise BedError(f"emulated host {self.name} has ended: its first process was killed")
        return self.pid

    def end(self) -> None:
        """Let the shell end; with process 1 the kernel ends all other processes."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def gone(self, deadline: float) -> bool:
        """Wait until all processes of these namespaces have ended; kill them at the deadline."""
        assert self._process.stdout is not None
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()  # and, by --kill-child, the shell
            self._process.wait()
            return False
        finally:
            self._process.stdout.close()
        return True


def check_machine() -> None:
    """Check the known needs of emulated hosts on this machine.

    Raises:
        BedError: not Linux, not root, or a tool or the congestion control is missing.
    """
    if sys.platform != "linux":
        raise BedError("emulated hosts need Linux (network namespaces); leave out --hosts-bed")
    missing = [name for name in _PACKAGES if shutil.which(name, path=_PATH) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise BedError(f"emulated hosts need {', '.join(missing)}; on Debian: apt-get install {packages}")
    if os.geteuid() != 0:
        raise BedError("emulated hosts need root (network namespaces); run with sudo, or leave out --hosts-bed")
    _allow_congestion_control()


def _allow_congestion_control() -> None:
    """Let namespaces choose the congestion control: the one setting of the machine that a bed may have to change."""
    allowed = ALLOWED.read_text().split()
    if CONGESTION in allowed:
        return
    try:
        ALLOWED.write_text(" ".join([*allowed, CONGESTION]))
    except OSError as error:
        facts = f"{CONGESTION}; {ALLOWED}: {error.strerror}"
        raise BedError(f"emulated hosts need the congestion control {facts}") from None
    logging.getLogger(__name__).warning("%s: added %s, which stays allowed on this machine", ALLOWED, CONGESTION)


def _tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def _line(said: bytes) -> str:
    return "; ".join(said.decode(errors="replace").split("\n")).strip("; ") or "nothing"
