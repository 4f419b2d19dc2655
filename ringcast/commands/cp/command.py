"""The command `ringcast cp`: reads the command line, starts the ranks, and says what became of each host."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

from ringcast._util import output_files, sizes
from ringcast._util.dataclass import dataclass
from ringcast.commands.cp.order import ERROR, PROGRESS, REPORT, Order
from ringcast.commands.cp.progress_line import ProgressLine
from ringcast.errors import TransferError
from ringcast.net.hostlist import Host, HostError, listed
from ringcast.transfer.manifest import FILE, Manifest, scan
from ringcast.transfer.options import AUTO, CHOICES, FULL, Options
from ringcast.transfer.report import CopyReport, Progress, RankReport

_PATIENCE = 3.0  # seconds in which a job ends after its report
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_DESCRIPTION = """\
Copy files or directories of this host to many hosts: each host passes on what it gets.
What is there already is compared and not sent again, so that the same command goes on where one was broken off."""
_EPILOG = """\
SRC/ with -r means what is in the directory, SRC the directory itself. DEST is a directory if it ends with "/", if there
are several sources, or if it is one there; it is made if it is missing. Hosts are reached by ssh, and need ringcast.

exit code:  0 if every host has every byte; 1 if one has not; 2 for wrong arguments; 130 after Ctrl-C

examples:   ringcast cp model.safetensors -H h[1-7]:/data/
            ringcast cp -r -p dataset --hostfile hosts :/scratch/
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_intermixed_args(argv)
    try:
        if options.json_report is not None and (problem := output_files.reason_not(options.json_report)):
            raise ValueError(f"--json-report {problem}")
        job = _job(options)
        manifest, _ = scan(job.order.sources, options.recursive)
    except (TransferError, HostError, ValueError) as error:
        _complain(str(error))
        return USAGE
    if options.dry_run:
        _describe(manifest, job)
        return OK
    outcome = _run(job)
    if options.json_report is not None:
        output_files.write_text(options.json_report, json.dumps(_to_json(outcome, job.hosts), indent=1) + "\n")
    return outcome.code


@dataclass(frozen=True, slots=True)
class _Job:
    order: Order
    hosts: tuple[str, ...]
    rsh_agent: str

    def argv(self) -> list[str]:
        """Return the command that starts a rank here, and one on each host."""
        agent = ["--rsh-agent", self.rsh_agent] if self.rsh_agent else []
        hosts = ",".join(f"[{host}]" if ":" in host else host for host in ("localhost", *self.hosts))
        launch = [sys.executable, "-P", "-m", "ringcast_launcher", "-H", hosts, *agent, "--on-failure", "continue"]
        return [*launch, "--output", "none", "--stdin", "0", "-m", "ringcast.commands.cp.worker"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How the job ended: with a report, or with an error."""

    code: int
    report: CopyReport | None = None
    error: str = ""


def _run(job: _Job) -> _Outcome:
    line = ProgressLine(sys.stderr, job.hosts)
    said: list[str] = []
    with subprocess.Popen(
        job.argv(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        errors = threading.Thread(target=said.extend, args=(launcher.stderr,), name="ringcast-cp-stderr", daemon=True)
        errors.start()
        try:
            with suppress(BrokenPipeError), launcher.stdin as first:  # the job may not even start
                first.write(job.order.encode())  # not an argument: these are bounded, and names of files are many
            report, error = _follow(launcher.stdout, line)
            _end(launcher)
        except KeyboardInterrupt:
            launcher.terminate()  # it ends the ranks
            _follow(launcher.stdout, line)
            line.clear()
            _complain("interrupted; what is whole stays, and the same command sends only what is missing")
            return _Outcome(INTERRUPTED, error="interrupted")
        errors.join(_PATIENCE)
    line.clear()
    if report is None:
        text = _by_hosts(error, job.hosts) or _last_words(said)
        _complain(text)
        return _Outcome(FAILED, error=text)
    _tell(report, job.hosts)
    return _Outcome(OK if report.ok else FAILED, report)


def _end(launcher: subprocess.Popen[str]) -> None:
    """Wait for the end of the job; a process whose disk is stuck cannot end, and is left to its host."""
    try:
        launcher.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(_PATIENCE)
        launcher.kill()


def _follow(lines: Iterable[str], line: ProgressLine) -> tuple[CopyReport | None, str]:
    """Show what the rank with the files prints, to its report; return that, or its error."""
    report, error = None, ""
    for text in lines:
        with suppress(ValueError, TypeError):  # whatever else a host prints
            kind, value = json.loads(text)
            if kind == PROGRESS:
                line.show(Progress(**value))
            elif kind == ERROR:
                error = value
            elif kind == REPORT:
                report = CopyReport(**{**value, "ranks": tuple(RankReport(**each) for each in value["ranks"])})
                break
    return report, error


def _tell(report: CopyReport, hosts: Sequence[str]) -> None:
    """Print one line for the whole, and one for each host that lacks something."""
    failed = [each for each in report.ranks if each.error]
    for each in failed:
        _complain(f"{hosts[each.rank - 1]}: {each.error}")
    speed = f", {report.sent / report.seconds / 1e6:,.1f} MB/s" if report.sent and report.seconds else ""
    there = report.nbytes - report.sent
    found = f"; {there:,} were there already" if there > 0 else ""
    packed = f" as {report.travelled:,}" if report.travelled < report.sent else ""
    print(
        f"{len(report.ranks) - len(failed)} of {len(report.ranks)} hosts have {report.files:,} files, "
        f"{report.nbytes:,} bytes: {report.sent:,} sent{packed} in {report.seconds:.1f} s{speed}{found}"
        f"{_slowest(report, hosts)}"
    )


def _slowest(report: CopyReport, hosts: Sequence[str]) -> str:
    """Return what to say of the host whose disk has held up the others; nothing where that is not worth a word."""
    slowest = max(report.ranks, key=lambda each: each.stalled)
    if slowest.error or slowest.stalled < max(1.0, report.seconds / 10):
        return ""
    return f"; all waited {slowest.stalled:.0f} s for the disk of {hosts[slowest.rank - 1]}"


def _last_words(said: Sequence[str]) -> str:
    """Return what the launcher said of a job without a report: why it did not start, or last, why it failed."""
    lines = [line.removeprefix("ringcast-launch: ").strip() for line in said]
    not_started = [line for line in lines if line.startswith("the job cannot start")]
    last = lines[-1] if lines else "the copy ended without a report"
    return (
        not_started[0]
        if not_started
        else f"{last}; what has arrived is kept, and the same command sends only what is missing"
    )


def _by_hosts(text: str, hosts: Sequence[str]) -> str:
    """Return an error's lines with the names of hosts in place of ranks."""
    lines = []
    for each in text.splitlines():
        rank, colon, rest = each.removeprefix("rank ").partition(": ")
        known = each.startswith("rank ") and colon and rank.isdigit() and 0 < int(rank) <= len(hosts)
        lines.append(f"{hosts[int(rank) - 1]}: {rest}" if known else each)
    return "\n".join(lines)


def _to_json(outcome: _Outcome, hosts: Sequence[str]) -> dict[str, object]:
    if outcome.report is None:
        return {"ok": False, "error": outcome.error}
    plain = asdict(outcome.report)
    ranks = plain.pop("ranks")
    return {"ok": outcome.report.ok, **plain, "hosts": [{**each, "host": hosts[each["rank"] - 1]} for each in ranks]}


def _describe(manifest: Manifest, job: _Job) -> None:
    files = sum(entry.kind == FILE for entry in manifest.entries)
    print(f"{files:,} files of {len(manifest.entries):,} entries, {manifest.nbytes:,} bytes, to {job.order.target} on")
    for host in job.hosts:
        print(f"  {host}")


def _job(options: argparse.Namespace) -> _Job:
    """Return what the options ask for.

    Raises:
        HostError, ValueError: they cannot be met.
    """
    paths: list[str] = options.paths
    if options.hostfile is not None:
        if not paths[-1].startswith(":"):
            raise ValueError("with --hostfile, the last argument is the destination, written as :DEST")
        hosts, target, paths = listed(None, options.hostfile), paths[-1][1:], paths[:-1]
    elif options.hosts is not None:
        named, target = _split(options.hosts)
        hosts = listed([named], None)
    else:
        raise ValueError("where to? name hosts and destination, as -H h[1-7]:/data/, or --hostfile FILE and :DEST")
    if not paths:
        raise ValueError("what shall be copied? name a file or a directory")
    if not target:
        raise ValueError("the destination is missing after the hosts; expected is HOSTS:DEST")
    if twice := [host.name for host in hosts if host.slots > 1]:
        raise ValueError(f"{twice[0]} is named twice, or with a number; each host gets one copy")
    order = Order(paths, target, Options(**{field.name: getattr(options, field.name) for field in fields(Options)}))
    return _Job(order, tuple(_names(hosts)), options.rsh_agent or "")


def _names(hosts: Sequence[Host]) -> list[str]:
    return [host.name for host in hosts]


def _split(text: str) -> tuple[str, str]:
    """Return hosts and destination: what is before the first colon outside of brackets, and after it.

    >>> _split("[fe80::1],h[1-3]:/data/a:b")
    ('[fe80::1],h[1-3]', '/data/a:b')
    """
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == ":" and depth == 0:
            return text[:at], text[at + 1 :]
    return text, ""


def _rate(text: str) -> float:
    try:
        return float(sizes.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _slow(text: str) -> float | None:
    """Return the seconds of drop=SECONDS; None for wait."""
    if text == "wait":
        return None
    how, _, seconds = text.partition("=")
    try:
        if how == "drop" and (value := float(seconds)) > 0:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is neither wait nor drop=SECONDS")


def _complain(text: str) -> None:
    for line in text.splitlines() or [""]:
        print(f"ringcast cp: {line}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringcast cp",
        usage="ringcast cp [options] SRC... (-H HOSTS:DEST | --hostfile FILE :DEST)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="SRC", help="files, or with -r directories")
    add("-H", "--host", dest="hosts", metavar="HOSTS:DEST", help="hosts, as a,b or h[1-50], and the path there")
    add("--hostfile", metavar="FILE", help="hosts from a file, one in each line; the path is the last argument, :DEST")
    add("-r", "--recursive", action="store_true", help="copy directories with all that is in them")
    add("-p", "--preserve", action="store_true", help="keep times of changes and all permission bits")
    add(
        "--verify",
        choices=CHOICES["verify"],
        default=FULL,
        help="how what is there is judged: full: by SHA-256 (default); size: by size, with -p and time; none: not at "
        "all, everything is sent. What travels is always hashed at both ends",
    )
    add("--resume", action="store_true", help="the default: what is there already is kept, and not sent again")
    add(
        "--compress",
        choices=CHOICES["compress"],
        default=AUTO,
        help="auto: where every host has zstd, and it makes the copy faster (default); zstd: wherever it makes it "
        "shorter; none: not at all",
    )
    add("--sparse", action="store_true", help="blocks of zeros become holes in new files")
    add(
        "--slow",
        type=_slow,
        metavar="wait|drop=SECONDS",
        help="wait for a slow disk (default), or leave out a host when all others have waited so long for its disk",
    )
    add("--keep-going", action="store_true", help="leave out hosts that cannot take the files, instead of stopping")
    add("--limit-rate", dest="rate", type=_rate, metavar="SIZE", help="send at most so much in a second, as 10m")
    add("--rsh-agent", metavar="COMMAND", help="use this instead of ssh: it takes a host and a command")
    add("--json-report", type=Path, metavar="FILE", help="write there what became of each host")
    add("--dry-run", action="store_true", help="say what would be copied where")
    return parser
