"""What the launcher tells of a job beside its workers' output: for others while it runs, and when it has failed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ringcast import flight, jobs
from ringcast.livestate import look, table
from ringcast.outfile import write_text
from ringcast_launcher.job import Job


def describe(directory: str, launcher: int, job: Job, pids: Sequence[int]) -> None:
    """Let `ringcast ps` find the job; OSError if its description cannot be written."""
    jobs.describe(jobs.Job(directory, launcher, tuple(job.argv), time.time(), tuple(pids)))


def live(directory: str, launcher: int, job: Job, pids: Sequence[int]) -> str:
    """Return a table of what the ranks are doing now; takes a tenth of a second."""
    known = jobs.Job(directory, launcher, tuple(job.argv), 0.0, tuple(pids))
    return "".join(line + "\n" for line in table(look(known)))


def last_words(directory: str, size: int, file: str) -> str:
    """Return a line for each rank of what it did last, and write the whole record to `file`, if there is one."""
    flights = flight.read(directory, size)
    lines = flight.summary(flights) if any(flights) else []
    if file:
        text = flight.to_json(flights) if file.endswith(".json") else flight.text(flights)
        try:
            write_text(file, text)
        except OSError as error:
            lines.append(f"the flight record was not written to {file}: {error.strerror}")
    return "".join(f"ringcast-launch: {line}\n" for line in lines)
