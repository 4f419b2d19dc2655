"""Run `ringcast ps`: print the running jobs of this user, and the state of each of their ranks."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringcast._util.printable import printable
from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.monitoring import jobs
from ringcast.monitoring.jobs import RunningJob
from ringcast.monitoring.live import look
from ringcast.monitoring.rank_state import RankState, as_data, rows, table

_COMMAND = "ringcast ps"
PERIOD = 1.0  # seconds between two looks of --watch
_DESCRIPTION = """\
Show the jobs of ringcast-launch that run on this machine, and for each rank: the operation and its number, the round
(known when the rank has waited for a second), the ranks that it waits for, since when, memory and use of a CPU. On the
launcher's host the ranks on all hosts are shown; on another host of a job only the ranks there."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 1 if there is no such job."""
    made = parser(_COMMAND, _DESCRIPTION)
    made.add_argument("job", nargs="?", metavar="JOB", help="name of a job, or pid of its launcher (default: all)")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON: a list of jobs")
    how.add_argument("--watch", action="store_true", help="on a terminal: show them again each second until they end")
    options = made.parse_args(argv)
    found = jobs.running()
    chosen = _chosen(found, options.job)
    if not chosen:
        return refuse(_COMMAND, _nothing(options.job, found), FAILED)
    if options.watch:
        if not sys.stdout.isatty():
            return refuse(_COMMAND, "--watch: standard output is no terminal; leave it out, or print --json")
        _watch(options.job)
        return 0
    if options.json:
        print(json.dumps([as_data(job, look(job)) for job in chosen], indent=1))
        return 0
    for job in chosen:
        _show(job, look(job))
    return 0


def _chosen(found: Sequence[RunningJob], wanted: str | None) -> list[RunningJob]:
    return [job for job in found if wanted in (None, job.name, str(job.launcher))]


def _watch(wanted: str | None) -> None:
    """Show the jobs again each second, until they have ended or the user has enough."""
    with suppress(KeyboardInterrupt), Live(screen=True, auto_refresh=False) as screen:
        while chosen := _chosen(jobs.running(), wanted):
            screen.update(Group(*(part for job in chosen for part in _drawn(job, look(job)))), refresh=True)
            time.sleep(PERIOD)


def _nothing(wanted: str | None, found: Sequence[RunningJob]) -> str:
    if wanted is None or not found:
        return f"no job of yours runs on this machine (looked in {', '.join(jobs.bases())})"
    known = ", ".join(f"{job.name} (launcher {job.launcher})" for job in found)
    return f"there is no job {wanted}; there are: {known}"


def _show(job: RunningJob, states: Sequence[RankState]) -> None:
    if sys.stdout.isatty():
        Console().print(*_drawn(job, states), sep="\n")
    else:
        print("\n".join([_heading(job, states), *table(states)]))


def _heading(job: RunningJob, states: Sequence[RankState]) -> str:
    seconds = time.time() - job.started
    seen = f"{job.size} ranks" if len(states) == job.size else f"{len(states)} of {job.size} ranks"
    facts = f"job {job.name}: {seen} for {seconds:.0f} s, launcher {job.launcher}"
    return printable(f"{facts}: {shlex.join(job.command)}")


def _drawn(job: RunningJob, states: Sequence[RankState]) -> tuple[Text, Table]:
    """Return heading and table for a terminal."""
    headings, *told = rows(states)
    drawn = Table(*headings, box=None)
    for row in told:
        drawn.add_row(*map(Text, row))
    return Text(_heading(job, states)), drawn
