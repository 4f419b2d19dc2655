"""Examine several hosts by a doctor on each, started over ssh; compare them, and try the links between them."""

from __future__ import annotations

import json
import os
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from ringcast.commands.doctor import clock, link, network, software
from ringcast.commands.doctor.examine import Examined
from ringcast.commands.doctor.finding import Finding, fail
from ringcast.commands.doctor.question import Question
from ringcast.net.hostlist import is_own
from ringcast.net.ssh import SSH, is_not_installed, ssh_argv

STARTER = (*SSH, "-oConnectTimeout=10")
START = 40.0  # seconds until a host has examined itself, Python's start on a busy machine included
ANSWER = 2 * link.WAIT + 2.0  # seconds for a question: a host waits as long for a stream that does not come
END = 2.0  # seconds that ssh has to end by itself
LONGEST = 1 << 20  # bytes of an answer

Finds = list[tuple[str, Finding]]  # host ("" for all), finding


class NoAnswer(Exception):
    """A host does not answer, or its answer is not a doctor's."""

    def __init__(self, host: str, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.host, self.fix = host, fix


def remote_argv(host: str, agent: Sequence[str]) -> list[str]:
    """Return the command that starts a doctor on a host with Python in the same place; without `agent` on this host.

    >>> remote_argv("h1", ["ssh"])[:2]
    ['ssh', 'h1']
    """
    probe = [sys.executable, "-P", "-m", "ringcast", "doctor", "--probe"]
    return probe if is_own(host, socket.gethostname()) else ssh_argv(host, probe, agent)


class Remote:
    """A doctor on another host, until it is closed."""

    def __init__(self, host: str, agent: Sequence[str]) -> None:
        """Start the doctor.

        Raises:
            NoAnswer: there is no such agent.
        """
        self.host, self._said = host, b""
        try:
            self._process = subprocess.Popen(
                remote_argv(host, agent),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
            )
        except OSError as error:
            fix = "install it, or name another command by --rsh-agent"
            raise NoAnswer(host, f"{agent[0]}: {error.strerror}", fix) from None

    def ask(self, question: Mapping[str, object]) -> None:
        """Send a question; `answer` returns the answer, or raises the reason why there is none."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(question).encode() + b"\n")

    def answer(self, seconds: float) -> Any:
        """Return the other doctor's next answer.

        Raises:
            NoAnswer: there is no answer in time, it cannot be understood, or the doctor has ended.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not _readable(self._process.stdout, deadline):
                raise NoAnswer(self.host, "it did not answer in time")
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk or len(self._said) > LONGEST:
                raise NoAnswer(self.host, self._last_words())
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            raise NoAnswer(self.host, f"it said: {line.decode(errors='replace'):.200}") from None

    def _last_words(self) -> str:
        """Return the last line of the error output of a process whose output has ended."""
        assert self._process.stderr is not None
        said, deadline = b"", time.monotonic() + END
        while _readable(self._process.stderr, deadline):
            chunk = os.read(self._process.stderr.fileno(), 65536)
            if not chunk:
                break
            said = (said + chunk)[-LONGEST:]
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def hang_up(self) -> None:
        """Close the doctor's input, so that it ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self, deadline: float) -> None:
        """Wait for the doctor's end, and kill it at the deadline."""
        self.hang_up()
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._process.stdout, self._process.stderr:
            assert pipe is not None
            pipe.close()


def _readable(pipe: IO[bytes], deadline: float) -> bool:
    """Wait until there is something to read, or until the deadline."""
    poller = select.poll()  # select itself cannot wait for the files of hundreds of hosts
    poller.register(pipe, select.POLLIN)
    return bool(poller.poll(max(0.0, 1000 * (deadline - time.monotonic()))))


def examine_hosts(hosts: Sequence[str], agent: Sequence[str], question: Question) -> Finds:
    """Examine all hosts at the same time, then compare them, then try the link from each host to the next one.

    `question` is for the first host; the ranks are spread evenly.
    """
    found: Finds = []
    with ExitStack() as stack:
        remotes: dict[str, Remote] = {}
        stack.callback(_end, remotes)
        for i, host in enumerate(hosts):
            with _noting(found):
                remotes[host] = Remote(host, agent)
                remotes[host].ask(_for_host(question, i, hosts).to_json())
        examined: dict[str, Examined] = {}
        deadline = time.monotonic() + START
        for host, remote in remotes.items():
            with _noting(found):
                examined[host] = _understood(host, remote.answer(max(0.0, deadline - time.monotonic())))
                found += [(host, finding) for finding in examined[host].findings]
        found += [("", finding) for finding in _compare(examined)]
        found += _together({host: remotes[host] for host in examined if examined[host].address})
    return found


def _end(remotes: Mapping[str, Remote]) -> None:
    for remote in remotes.values():
        remote.hang_up()
    deadline = time.monotonic() + END
    for remote in remotes.values():
        remote.close(deadline)


def _for_host(question: Question, i: int, hosts: Sequence[str]) -> Question:
    here = question.size // len(hosts) + (i < question.size % len(hosts))
    return Question(question.size, here, hosts[0], question.iface, question.ports)


def _understood(host: str, answer: object) -> Examined:
    try:
        return Examined.from_json(answer)
    except ValueError as error:
        raise NoAnswer(host, str(error)) from None


@contextmanager
def _noting(found: Finds) -> Iterator[None]:
    """Turn `NoAnswer` into a finding."""
    try:
        yield
    except NoAnswer as error:
        found.append((error.host, fail("ssh", str(error), error.fix or _fix(error))))


def _fix(error: NoAnswer) -> str:
    if is_not_installed(str(error)):
        return f"install ringcast there, in the same place as here ({sys.executable})"
    asked = shlex.join([*SSH, error.host, f"{shlex.quote(sys.executable)} -m ringcast --version"])
    return f"make `{asked}` work, which asks nothing"


def _compare(examined: Mapping[str, Examined]) -> list[Finding]:
    if not examined:
        return []
    versions = software.compare({host: told.versions for host, told in examined.items()})
    return versions + network.compare_mtu({host: told.mtu for host, told in examined.items() if told.mtu})


def _together(remotes: Mapping[str, Remote]) -> Finds:
    """Compare the clocks, and try the links from each host to the next."""
    found: Finds = []
    offsets: dict[str, clock.Offset] = {}
    for host, remote in remotes.items():
        with _noting(found):
            offsets[host] = clock.measure(time.time, lambda remote=remote: _time(remote))  # type: ignore[misc]
    if len(offsets) > 1:
        found.append(("", clock.judge(offsets)))
    answering = list(offsets)
    following = answering[1:] + answering[:1]
    for source, sink in zip(answering, following, strict=True) if len(answering) > 1 else ():
        with _noting(found):
            found.append((source, _link(remotes[source], remotes[sink])))
    return found


def _time(remote: Remote) -> float:
    remote.ask({"ask": "clock"})
    match remote.answer(ANSWER):
        case {"time": float(seconds)}:
            return seconds
    raise NoAnswer(remote.host, "its answer has no time")


def _link(source: Remote, sink: Remote) -> Finding:
    sink.ask({"ask": "listen"})
    match sink.answer(ANSWER):
        case {"host": str(host), "port": int(port)}:
            address = f"{host} port {port}"
        case answer:
            return link.judge(source.host, sink.host, sink.host, 0.0, f"it cannot listen: {_error(answer)}")
    source.ask({"ask": "send", "to": [host, port]})
    failed = _error(source.answer(ANSWER))
    match sink.answer(ANSWER):
        case {"rate": float(rate)} if not failed:
            return link.judge(source.host, sink.host, address, rate, "")
        case answer:
            return link.judge(source.host, sink.host, address, 0.0, failed or _error(answer))


def _error(answer: object) -> str:
    return answer["error"] if isinstance(answer, dict) and isinstance(answer.get("error"), str) else "no answer"
