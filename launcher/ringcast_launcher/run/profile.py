"""Write the profile of a job, from the parts that its ranks have written into the job's directory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringcast._util.safe_text import escaped
from ringcast._util.slow_work import told_if_slow
from ringcast.wire.error_text import in_a_line
from ringcast.wire.flight import PROFILE
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.plan.job import STREAM, Job


def write_profile(job: Job, directory: str, end: JobReport, show: Callable[[str], object] | None) -> str:
    """Write the profile; return the text about it for standard error, or the profile itself.

    On a terminal `show` shows a text meanwhile, if it takes long.
    """
    with told_if_slow(show, f"making the profile of {job.size:,} ranks"):
        return _made(job, directory, end)


def _made(job: Job, directory: str, end: JobReport) -> str:
    from ringcast.profiling.report import report  # imports numpy, which few jobs need here

    parts = list(parts_in(directory, job.size))
    if not parts:
        return _line("there is no profile: no rank has called ringcast.init, or none has ended a call after it")
    command = [os.fsencode(each).decode("utf-8", "replace") for each in ("ringcast-launch", *sys.argv[1:])]
    errors = {rank.rank: why for rank in end.ranks if (why := rank.fate.error or rank.fate.failure)}
    failure = end.last_words().splitlines()[-1].removeprefix(_line("").rstrip("\n")) if end.last_words() else ""
    try:
        made = report(parts, job.size, command=command, failure=failure, errors=errors)
        if restarts := job.settings.restart:
            before = "the attempt before it is" if restarts == 1 else "the attempts before it are"
            made["notes"].append(f"this is restart {restarts} of the job: {before} left out")
        return _written(job.profile, made)
    except OSError as error:
        return _line(f"the profile was not written to {job.profile}: {error.strerror}")
    except Exception as error:  # it must not hide how the job has ended
        return _line(f"the profile was not made: {in_a_line(error)}; please report this")


def parts_in(directory: str, size: int) -> Iterator[dict[str, Any]]:
    """Yield the parts of the ranks that have written one."""
    for rank in range(size):
        try:
            yield json.loads(Path(directory, PROFILE.format(rank=rank)).read_bytes())
        except (OSError, ValueError):  # it is not there, or not whole: the report says that it is missing
            continue


def _written(file: str, made: dict[str, Any]) -> str:
    if file == STREAM:
        from ringcast.profiling.table import table

        return table(made)
    from ringcast.profiling import files

    files.write(file, made)
    return _line(files.where(file, made))


def _line(text: str) -> str:
    return f"ringcast-launch: {escaped(text)}\n"
