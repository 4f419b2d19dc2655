"""Start one copying job: a rank on this host, which has the files, and a rank on each host that gets them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from tempfile import TemporaryFile
from typing import IO, Any

from ringcast._util.dataclass import dataclass
from ringcast.commands.cp.bring import BringError, brought, worker_of
from ringcast.commands.cp.order import Order, answer
from ringcast.commands.cp.progress_line import CopyProgress
from ringcast.config.worker import without_pickles
from ringcast.net.hostlist import is_own
from ringcast.procs.libc import end_with_parent
from ringcast.transfer.records import Failed
from ringcast.transfer.report import CopyReport, Progress
from ringcast.transfer.seal import new_keys
from ringcast.wire.codec import encode

_WORKER = "ringcast.commands.cp.worker"
_PATIENCE = 3.0  # seconds in which a job ends after its report
KEPT = "data that has arrived is kept, and the same command sends only the rest"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a copy: a report, in which rank r is the r-th of the hosts, counted from 1; or errors.

    Attributes:
        report: None if there was an error.
        failed: errors of hosts, by name.
        error: an error that belongs to no host.
        started: whether the ranks were started; if not, `failed` has the hosts that prevented it.
        tried_again: the first error of each host that was tried twice.
    """

    report: CopyReport | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    started: bool = True
    tried_again: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All errors, one in each line."""
        lines = [f"{host}: {why}" for host, why in self.failed.items()]
        return "\n".join([*lines, self.error] if self.error else lines)

    @property
    def ok(self) -> bool:
        """Whether all files are complete on every host."""
        return self.report is not None and self.report.ok


def run_job(order: Order, hosts: Sequence[str], rsh_agent: str, *, brings: bool = False) -> Outcome:
    """Copy to these hosts; with `brings`, all hosts but this one get ringcast for the time of the copy.

    Raises:
        KeyboardInterrupt: the user interrupted the copy; the ranks have ended.
    """
    if not brings:
        return _run(order, hosts, rsh_agent, ["python", "-P", "-m", _WORKER])
    own = socket.gethostname()
    try:
        with brought([host for host in hosts if not is_own(host, own)], rsh_agent) as agent:
            return _run(order, hosts, agent, worker_of(_WORKER))
    except BringError as error:
        return Outcome(failed=error.hosts, started=False)


def _run(order: Order, hosts: Sequence[str], rsh_agent: str, worker: Sequence[str]) -> Outcome:
    """Copy to these hosts, by ranks that this command runs.

    Raises:
        KeyboardInterrupt: the user interrupted the copy; the ranks have ended.
    """
    shown = CopyProgress(hosts)
    public, secret = new_keys()
    with TemporaryFile() as job_report, TemporaryFile("w+", errors="replace") as said:
        with subprocess.Popen(
            _argv(hosts, rsh_agent, job_report.fileno(), [*worker, public.hex()]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=without_pickles(),
            pass_fds=[job_report.fileno()],
            preexec_fn=end_with_parent,  # this command may be killed while nothing moves that the job could print
        ) as launcher:
            assert launcher.stdin is not None
            assert launcher.stdout is not None
            try:
                # Not an argument: the system bounds the length of arguments, and files may be many.
                with suppress(BrokenPipeError), launcher.stdin as first:  # the job may not even start
                    first.write(encode(replace(order, secret=secret)))
                report, error = _follow(launcher.stdout, shown)
                _end(launcher)
            except KeyboardInterrupt:
                launcher.terminate()  # it ends the ranks
                _follow(launcher.stdout, shown)
                raise
            finally:
                shown.clear()
        if report is not None:
            return Outcome(report)
        return _of_ranks(error, hosts) if error else _of_launcher(job_report, said, launcher.returncode)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the job, then kill the launcher; a rank in a stuck disk call may outlive it on its host."""
    try:
        launcher.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(_PATIENCE)
        launcher.kill()


def _argv(hosts: Sequence[str], rsh_agent: str, report: int, worker: Sequence[str]) -> list[str]:
    """Return the command that starts the ranks, in a directory that every host has."""
    agent = ["--rsh-agent", rsh_agent] if rsh_agent else []
    names = ",".join(f"[{host}]" if ":" in host else host for host in ("localhost", *hosts))
    launch = [sys.executable, "-P", "-m", "ringcast_launcher", "-H", names, *agent, "--on-failure", "continue"]
    # Output of the other hosts is dropped, so that no host can forge an answer of the rank that has the files.
    told = ["--wdir", "/", "--output", "none", "--ranks-filter", "0", "--stdin", "0"]
    told += ["--json-report", f"/dev/fd/{report}"]
    return [*launch, *told, *worker]


def _follow(lines: Iterable[bytes], shown: CopyProgress) -> tuple[CopyReport | None, str]:
    """Show the progress that rank 0 prints, until its report; return the report, or rank 0's error."""
    for text in lines:
        told = answer(text.decode("utf-8", "replace"))  # None: whatever else is printed
        if isinstance(told, Progress):
            shown.show(told)
        elif isinstance(told, Failed):
            return None, told.error
        elif told is not None:
            return told, ""
    return None, ""


def _of_ranks(text: str, hosts: Sequence[str]) -> Outcome:
    """Return the ranks' errors by host; each line of `text` that begins with "rank R: " is the error of a host."""
    failed: dict[str, str] = {}
    others: list[str] = []
    for line in text.splitlines():
        rank, colon, why = line.removeprefix("rank ").partition(": ")
        if line.startswith("rank ") and colon and rank.isdigit() and 0 < int(rank) <= len(hosts):
            failed[hosts[int(rank) - 1]] = why
        else:
            others.append(line)
    return Outcome(failed=failed, error="\n".join(others))


def _of_launcher(job_report: IO[bytes], said: IO[str], code: int) -> Outcome:
    """Return the cause when no rank answered: from the launcher's report, its last line on stderr, or its exit code."""
    job_report.seek(0)
    said.seek(0)
    told: dict[str, Any] = json.loads(job_report.read() or b"{}")
    if told and not told["ranks"]:
        hosts = told["unusable_hosts"]
        return Outcome(failed=hosts, error="" if hosts else told["cause"], started=False)
    if code < 0:
        return Outcome(error=f"the launcher of the copy was killed by {signal.Signals(-code).name}; {KEPT}")
    last = [line.removeprefix("ringcast-launch: ").strip() for line in said][-1:]
    return Outcome(error="; ".join([*(last or ["the copy ended without a report"]), KEPT]))
