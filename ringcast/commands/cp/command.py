"""Run `ringcast cp`: read the command line, start the ranks, print the result on each host."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ringcast._util import output_files, sizes
from ringcast._util.printable import printable
from ringcast.commands.command_line import FAILED, USAGE, checked, parser, refuse
from ringcast.commands.cp.hosts import copy_to_all
from ringcast.commands.cp.job import Job, checked_listing, job_of
from ringcast.commands.cp.launch import KEPT, Outcome, run_job
from ringcast.errors import ConfigError, TransferError
from ringcast.net.hostlist import HostError
from ringcast.transfer.manifest import DIRECTORY, Manifest, shown
from ringcast.transfer.options import AUTO, CHOICES
from ringcast.transfer.report import CopyReport
from ringcast.transfer.sources.opening import name_for_people

OK, INTERRUPTED = 0, 130  # exit codes, beside the common ones
MOST_CONNECTIONS = 64
_COMMAND = "ringcast cp"
_DESCRIPTION = """\
Copy files or directories of this host to many hosts: each host passes on the data that it gets.
Files that are there already are compared and not sent again, so that the same command continues a broken copy."""
_EPILOG = """\
SRC/ with -r means the content of the directory, SRC the directory itself. DEST is a directory if it ends with "/", if
there are several sources, or if it is a directory there; it is made if it is missing. Without a "/" in front it is
below the home directory. Hosts are reached by ssh, and need ringcast. :DEST alone: all nodes of this Slurm allocation,
by srun.

exit code:  0 if every host has every byte; 1 if one has not; 2 for wrong arguments; 130 after Ctrl-C

examples:   ringcast cp model.safetensors 'h[1-7]:/data/'
            ringcast cp -r -p dataset --hostfile hosts :/scratch/
            salloc -N 8 ringcast cp image.sif :/tmp/
            ringcast cp -r hf://org/model 'h[1-8]:/data/'
            ringcast cp --collect 'h[1-7]:/var/log/app/*.log' logs/
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_intermixed_args(argv)
    try:
        if options.json_report is not None and (problem := output_files.reason_not(options.json_report)):
            raise ValueError(f"--json-report {problem}")
        job = job_of(options)
        manifest = None if job.collects or job.order.connections else checked_listing(job).manifest
    except (TransferError, HostError, ConfigError, ValueError, OSError) as error:
        _complain(str(error))
        return USAGE
    if options.dry_run:
        _describe(manifest, job)
        return OK
    outcome, code = _run(job)
    if options.json_report is not None:
        output_files.write_text(options.json_report, json.dumps(_to_json(outcome, job.hosts), indent=1) + "\n")
    return code


def _run(job: Job) -> tuple[Outcome, int]:
    """Copy, print the result, and return the result with the exit code."""

    def run(hosts: Sequence[str]) -> Outcome:
        places = tuple(os.path.join(job.order.target, os.fsencode(host)) for host in hosts) if job.collects else ()
        return run_job(replace(job.order, places=places), hosts, job.rsh_agent, brings=job.brings)

    try:
        outcome = copy_to_all(job.hosts, run, _complain) if job.order.options.keep_going else run(job.hosts)
    except KeyboardInterrupt:
        _complain(f"interrupted; {KEPT}")
        return Outcome(error="interrupted"), INTERRUPTED
    if outcome.report is None:
        _complain(outcome.text)
    else:
        _tell(outcome.report, job.hosts, *_words(job))
    return outcome, OK if outcome.ok else FAILED


def _words(job: Job) -> tuple[str, str]:
    """Return the verbs of the last line: of the hosts, and of the bytes."""
    if job.collects:
        return "gave", "sent"
    return "have", "read" if job.order.connections else "sent"


def _tell(report: CopyReport, hosts: Sequence[str], did: str = "have", moved: str = "sent") -> None:
    """Print one line for the whole, and one for each host that lacks something."""
    failed = [each for each in report.ranks if each.error]
    for each in failed:
        _complain(f"{hosts[each.rank - 1]}: {each.error}")
    speed = f", {report.sent / report.seconds / 1e6:,.1f} MB/s" if report.sent and report.seconds else ""
    # Bytes that were not sent count as found only up to what a complete host found: on a lost host they are missing.
    there = min(report.nbytes - report.sent, max((each.found for each in report.ranks if not each.error), default=0))
    found = f"; {there:,} were there already" if there > 0 else ""
    packed = f" as {report.travelled:,}" if report.travelled < report.sent else ""
    print(
        f"{len(report.ranks) - len(failed)} of {len(report.ranks)} hosts {did} {report.files:,} files, "
        f"{report.nbytes:,} bytes: {report.sent:,} {moved}{packed} in {report.seconds:.1f} s{speed}{found}"
        f"{_slowest(report, hosts)}"
    )


def _slowest(report: CopyReport, hosts: Sequence[str]) -> str:
    """Return words on the host whose disk delayed the others most; "" below a second or a tenth of the copy's time."""
    slowest = max(report.ranks, key=lambda each: each.stalled)
    if slowest.error or slowest.stalled < max(1.0, report.seconds / 10):
        return ""
    return f"; all waited {slowest.stalled:.0f} s for the disk of {hosts[slowest.rank - 1]}"


def _to_json(outcome: Outcome, hosts: Sequence[str]) -> dict[str, object]:
    if outcome.report is None:
        failed = [{"host": host, "error": why} for host, why in outcome.failed.items()]
        return {"ok": False, "error": outcome.text, "hosts": failed}
    plain = asdict(outcome.report)
    ranks = plain.pop("ranks")
    for each in ranks:
        each["host"] = hosts[each.pop("rank") - 1]
        each["first_error"] = outcome.tried_again.get(each["host"], "")
        for name in "source", "network":
            if each[name] is None:
                del each[name]
    return {"ok": outcome.ok, **plain, "hosts": ranks}


def _describe(manifest: Manifest | None, job: Job) -> None:
    if job.order.connections:
        print(f"{name_for_people(os.fsdecode(job.order.sources[0]))}, to {shown(job.order.target)} on")
        print("\n".join(f"  {host}" for host in job.hosts))
        return
    if manifest is None:
        print(f"{', '.join(map(shown, job.order.sources))} of each of these hosts, to a directory of its name in")
        print(f"{shown(job.order.target)}:")
        print("\n".join(f"  {host}" for host in job.hosts))
        return
    files = sum(entry.kind != DIRECTORY for entry in manifest.entries)
    print(f"{files:,} files, {manifest.nbytes:,} bytes, to {shown(job.order.target)} on")
    for host in job.hosts:
        print(f"  {host}")


def _connections(text: str) -> int:
    """Return a number of connections.

    Raises:
        ValueError: there may not be so many.
    """
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_CONNECTIONS:
        return int(text)
    raise ValueError(f"expected a whole number from 1 to {MOST_CONNECTIONS}, got {text}")


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
        refuse(_COMMAND, printable(line))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        _COMMAND,
        _DESCRIPTION,
        _EPILOG,
        usage="ringcast cp [options] SRC... (HOSTS:DEST... | -H HOSTS:DEST | --hostfile FILE :DEST | :DEST)\n"
        "       ringcast cp --collect [options] HOSTS:PATH [:PATH...] DIR",
    )
    add = made.add_argument
    add("paths", nargs="+", metavar="SRC", help="files, or with -r directories; or the URL of one source")
    add("-H", "--host", dest="hosts", metavar="HOSTS:DEST", help="hosts, as a,b or h[1-50], and the path there")
    add("--hostfile", metavar="FILE", help="hosts from a file, one in each line; the path is the last argument, :DEST")
    add(
        "--collect",
        action="store_true",
        help="the other way: copy files of each host into a directory of its name in DIR on this host",
    )
    add("-r", "--recursive", action="store_true", help="copy directories with all that is in them")
    add("-p", "--preserve", action="store_true", help="keep times of changes and all permission bits")
    add(
        "--verify",
        choices=CHOICES["verify"],
        default=None,
        help="how to compare files that are there already: full: by SHA-256 (the default, but not for a URL); size: by "
        "size, with -p and time (the default for a URL); none: not at all, everything is sent. Data that is sent is "
        "always hashed at both ends",
    )
    add(
        "--compress",
        choices=CHOICES["compress"],
        default=AUTO,
        help="auto: where every host has zstd, and compression makes the copy faster (default); zstd: where it makes "
        "the data shorter; none: not at all",
    )
    add("--sparse", action="store_true", help="blocks of zeros become holes in new files")
    add(
        "--slow",
        type=_slow,
        metavar="wait|drop=SECONDS",
        help="wait for a slow disk (default), or leave out a host when all others have waited SECONDS for its disk",
    )
    add(
        "--keep-going",
        action="store_true",
        help="leave out hosts that cannot be reached or cannot take the files, "
        "instead of stopping; hosts that could not be reached, or were lost, are tried once more at the end",
    )
    add(
        "--bring",
        action="store_true",
        help="bring ringcast to hosts that lack it, for the time of the copy: they need ssh, tar and the same Python",
    )
    add(
        "--limit-rate",
        dest="rate",
        type=checked(sizes.parse),
        metavar="SIZE",
        help="send at most SIZE bytes in a second, as 10m",
    )
    add(
        "--connections",
        type=checked(_connections),
        default=4,
        metavar="N",
        help="of each host to a remote source (default 4)",
    )
    add(
        "--rsh-agent",
        metavar="COMMAND",
        help="use this instead of ssh: it takes a host and a command; srun: for nodes of this Slurm allocation",
    )
    add("--json-report", type=Path, metavar="FILE", help="write the result of each host there")
    add("--dry-run", action="store_true", help="print the number of files, the bytes and the hosts, and copy nothing")
    return made
