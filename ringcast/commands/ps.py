"""Run `ringcast ps`: print the running jobs of this user, and the state of each of their ranks."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringcast._util.printable import printable
from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.monitoring import jobs
from ringcast.monitoring.jobs import RunningJob
from ringcast.monitoring.live import look
from ringcast.monitoring.rank_state import RankState, as_data, rows, table

_COMMAND = "ringcast ps"
_DESCRIPTION = """\
Show the jobs of ringcast-launch that run on this machine, and for each rank: the operation and its number, the round
(known when the rank has waited for a second), the ranks that it waits for, since when, memory and use of a CPU. On the
launcher's host the ranks on all hosts are shown; on another host of a job only the ranks there."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 1 if there is no such job."""
    made = parser(_COMMAND, _DESCRIPTION)
    made.add_argument("job", nargs="?", metavar="JOB", help="name of a job, or pid of its launcher (default: all)")
    made.add_argument("--json", action="store_true", help="print JSON: a list of jobs")
    options = made.parse_args(argv)
    found = jobs.running()
    chosen = [job for job in found if options.job in (None, job.name, str(job.launcher))]
    if not chosen:
        return refuse(_COMMAND, _nothing(options.job, found), FAILED)
    if options.json:
        print(json.dumps([as_data(job, look(job)) for job in chosen], indent=1))
        return 0
    for job in chosen:
        _show(job, look(job))
    return 0


def _nothing(wanted: str | None, found: Sequence[RunningJob]) -> str:
    if wanted is None or not found:
        return f"no job of yours runs on this machine (looked in {', '.join(jobs.bases())})"
    known = ", ".join(f"{job.name} (launcher {job.launcher})" for job in found)
    return f"there is no job {wanted}; there are: {known}"


def _show(job: RunningJob, states: Sequence[RankState]) -> None:
    seconds = time.time() - job.started
    seen = f"{job.size} ranks" if len(states) == job.size else f"{len(states)} of {job.size} ranks"
    facts = f"job {job.name}: {seen} for {seconds:.0f} s, launcher {job.launcher}"
    heading = printable(f"{facts}: {shlex.join(job.command)}")
    if not sys.stdout.isatty():
        print("\n".join([heading, *table(states)]))
        return
    headings, *told = rows(states)
    drawn = Table(*headings, box=None)
    for row in told:
        drawn.add_row(*map(Text, row))
    Console().print(Text(heading), drawn, sep="\n")
