"""Start the agents of all other hosts at once, by ssh, srun or --rsh-agent, and wait for their first messages."""

from __future__ import annotations

import errno
import ipaddress
import select
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from platform import python_version

from ringcast._util.printable import printable
from ringcast.control import version
from ringcast.errors import ConfigError
from ringcast.net import interfaces
from ringcast.net.fd_limits import why_not_started
from ringcast.net.interfaces import IP
from ringcast.net.ssh import is_not_installed, ssh_argv
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.hosts.messages import AgentHello, HostLost
from ringcast_launcher.hosts.remote_host import SshHost
from ringcast_launcher.output.status_line import starting
from ringcast_launcher.plan import slurm
from ringcast_launcher.plan.job import NOT_FOUND, JobError
from ringcast_launcher.system.polling import File, usable
from ringcast_launcher.system.signals import ENDING, caught
from ringcast_launcher.system.watchdog import Watchdog

END = 3.0  # seconds that all agents together may take to end
OTHERS = 2.0  # seconds after a first failure in which failures of other hosts are awaited
_INSTALL = f"Python with ringcast is needed there in the same place as here ({sys.executable})"
SHOWN = 5  # failures that an error names
_PASSED_ON = ("PYTHONPATH", "PYTHONHOME")  # Python may need them to find the agent


def remote_argv(host: str, starter: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts the agent on another host, where Python is in the same place.

    Except under srun a shell waits for the agent there: if the agent is killed, ssh alone would report no status.

    >>> remote_argv("h1", ["ssh"], {"PYTHONPATH": "/a b"})[:2]
    ['ssh', 'h1']
    """
    passed = [f"{name}={environment[name]}" for name in _PASSED_ON if environment.get(name)]
    agent = ["env", *passed, sys.executable, "-P", "-m", "ringcast_launcher.hosts.agent"]
    if tuple(starter) == slurm.SRUN:
        return slurm.srun_argv(host, agent)
    return ssh_argv(host, ["sh", "-c", f"{shlex.join(agent)}; exit $?"], starter)


def starter_environment(starter: Sequence[str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of the commands that start agents."""
    return slurm.for_srun(environment) if tuple(starter) == slurm.SRUN else environment


@contextmanager
def started_agents(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], watchdog: Watchdog
) -> Iterator[list[SshHost]]:
    """Start an agent on each host by its command; at the end of the block all agents and commands have ended.

    Raises:
        JobError: there is no such command.
    """
    remotes: list[SshHost] = []
    try:
        for host, argv in commands.items():
            remotes.append(_started(host, argv, environment, watchdog))
        yield remotes
    finally:
        deadline = time.monotonic() + END
        for remote in remotes:
            remote.hang_up()
        for remote in remotes:
            remote.close(deadline)


def _started(host: str, argv: Sequence[str], environment: Mapping[str, str], watchdog: Watchdog) -> SshHost:
    try:
        return SshHost(host, argv, environment, watchdog)
    except OSError as error:
        code = 1 if error.errno == errno.EMFILE else NOT_FOUND
        raise JobError(f"{argv[0]} cannot be started: {why_not_started(error)}", code) from error


def await_hellos(
    remotes: Sequence[SshHost], signals: int, limit: StartDeadline, show: Callable[[str], None] | None
) -> None:
    """Wait until all agents have said Hello; `show`, if given, gets a line about the progress.

    Raises:
        JobError: an agent is late, or has another version than this launcher; or a signal asks us to end.
    """
    deadline = limit.due
    failures: dict[str, str] = {}
    late: dict[str, str] = {}  # hosts that might still start
    while missing := [remote for remote in remotes if remote.hello is None and remote.host not in failures]:
        if time.monotonic() >= deadline:
            if not failures:
                limit.end_if_timed_out([f"host {remote.host}" for remote in missing])
            why = "its agent has not started " + ("yet" if failures else f"within {limit.seconds:g} s")
            words = {remote.host: _with_words(why, remote) for remote in missing}
            failures, late = (failures, words) if failures else (words, late)
            break
        if show is not None:
            show(starting([remote.host for remote in remotes], [r.host for r in remotes if r not in missing]))
        found = _turn(remotes, signals, deadline)
        if found and not failures:
            deadline = min(deadline, time.monotonic() + OTHERS)
        failures |= found
    failures |= {remote.host: wrong for remote in remotes if (wrong := mismatch(remote.hello))}
    if failures:
        raise JobError(_in_words(failures | late), 1, failures)


def _turn(remotes: Sequence[SshHost], signals: int, deadline: float) -> dict[str, str]:
    """Wait for reports, and return the failures by host."""
    files: dict[File, int] = {signals: select.POLLIN}
    for remote in remotes:
        files |= remote.files
    due = min(deadline, *(remote.due for remote in remotes))
    ready = usable(files, due - time.monotonic())
    end_if_asked(signals)
    reports = [(remote, report) for remote in remotes for report in remote.reports(ready)]
    return {
        remote.host: _not_started(remote, report.cause) for remote, report in reports if isinstance(report, HostLost)
    }


def _not_started(remote: SshHost, cause: str) -> str:
    why = f"its agent cannot be started ({shlex.join(remote.argv[:-2])} …)"
    if remote.hello is not None:
        why = "its agent has ended"
    if remote.garbled or not remote.words:
        silent = "" if remote.hello is not None or remote.garbled else f"; try `{remote.by_hand}`"
        return f"{why}: {cause}{silent}"
    return _with_words(why, remote) + (f"; {_INSTALL}" if is_not_installed(remote.words) else "")


def end_if_asked(signals: int) -> None:
    """Check for signals that ask us to end.

    Raises:
        JobError: such a signal has come.
    """
    for number in caught(signals):
        if number in ENDING:
            raise JobError(f"ended by {signal.Signals(number).name}", 128 + number)


def _with_words(why: str, remote: SshHost) -> str:
    lines = remote.words.splitlines()[-3:]
    return f"{why}: {'; '.join(lines)}" if lines else why


def mismatch(hello: AgentHello | None) -> str:
    """Return how an agent's versions differ from ours; ranks of different versions cannot communicate."""
    if hello is None:
        return ""
    if hello.version != version():
        theirs, fix = printable(hello.version), "install the same one everywhere"
        return f"it runs ringcast {theirs}, but this launcher is {version()}; {fix}"
    if hello.python.split(".")[:2] != python_version().split(".")[:2]:
        same = f"the same Python is needed everywhere ({sys.executable})"
        return f"it runs Python {printable(hello.python)}, but this launcher {python_version()}; {same}"
    return ""


def _in_words(failures: Mapping[str, str]) -> str:
    told = [f"host {host}: {why}" for host, why in list(failures.items())[:SHOWN]]
    more = len(failures) - len(told)
    if more:
        told.append(f"and {more} other hosts")
    doctor = f"`ringcast doctor -H {','.join(list(failures)[:SHOWN])}` shows more"
    return "the job cannot start: " + "\nringcast-launch: ".join(told) + f"; {doctor}"


def own_address(remotes: Sequence[SshHost], wish: str) -> str:
    """Return the address at which the other hosts can reach us, as it is written before a port.

    It is the address that most of them saw as the source of their ssh connection, else the address from which a route
    leads to them; loopback if all of them saw loopback, because then all are on this machine.

    Raises:
        JobError: there is no such address, or none fits the wish (RINGCAST_IFACE).
    """
    seen = Counter(address for remote in remotes if (address := _seen_from(remote)) is not None)
    if not wish and seen.total() == len(remotes) and all(address.is_loopback for address in seen):
        return interfaces.in_brackets(next(iter(seen)))
    try:
        return interfaces.in_brackets(interfaces.towards([address for address, _ in seen.most_common()], wish))
    except ConfigError as error:
        raise JobError(str(error)) from error


def _seen_from(remote: SshHost) -> IP | None:
    told = remote.hello.launcher if remote.hello is not None else ""
    with suppress(ValueError):
        return ipaddress.ip_address(told)
    with suppress(ConfigError):
        return interfaces.routed(interfaces.resolve(remote.host.rpartition("@")[2].strip("[]"))[0])
    return None
