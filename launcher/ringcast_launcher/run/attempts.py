"""Run a job to its end: prepare an attempt, hand it to the main loop, and begin afresh where restarts are asked for."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import zmq

from ringcast._util.safe_text import escaped
from ringcast.config.worker import can_redraw
from ringcast.net.fd_limits import CROWD, OTHERS, allow_files, raise_files
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import JobEnd
from ringcast_launcher.output.output import Writer
from ringcast_launcher.plan.job import Job
from ringcast_launcher.run import last_words as report
from ringcast_launcher.run.connect_hosts import connected_hosts
from ringcast_launcher.run.loop import Running
from ringcast_launcher.run.profile import write_profile
from ringcast_launcher.system.child import subreaper
from ringcast_launcher.system.job_dir import job_directory
from ringcast_launcher.system.signals import CAUGHT, noted
from ringcast_launcher.system.terminal import kept_modes
from ringcast_launcher.system.watchdog import Watchdog

SETTLE = 1.0  # seconds for our output to be written before the other nodes get the end of the job


def run(job: Job) -> JobReport:
    """Run the job to its end, with restarts; print errors on standard error, or in `job.last_words`; return the report.

    Raises:
        JobError: the job could not be started; no process is left.
    """
    writer, start, attempt = Writer(), time.monotonic(), 0
    try:
        with (
            noted((*CAUGHT, signal.SIGTSTP, signal.SIGPIPE)) as signals,
            subreaper(),
            kept_modes(2),
        ):
            while True:
                settings = replace(job.settings, restart=attempt)
                end, words, again = _run_once(replace(job, settings=settings), writer, signals, start)
                if not again:
                    break
                attempt += 1
                words += f"ringcast-launch: starting the job afresh (restart {attempt} of {job.max_restarts})\n"
                writer.put(2, words.encode("utf-8", "replace"))
    finally:
        writer.close()  # the usual signal handlers are back: Ctrl-C ends the wait for a reader that never reads
    lost = "".join(f"ringcast-launch: {escaped(cause)}\n" for cause in writer.losses.causes)
    with suppress(OSError):  # standard error itself may be lost
        report.say_last(lost + words, job.last_words)
    return end.but_for(writer.losses)


def _run_once(job: Job, writer: Writer, signals: int, start: float) -> tuple[JobReport, str, bool]:
    """Run the job once; return its report, the text to print, and whether to restart it."""
    with ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog(job.environment))
        directory = stack.enter_context(job_directory())
        watchdog.tell("directory", directory)
        _allow_files(job)
        limit = StartDeadline(job.settings.start_timeout, start=start, timeout=job.timeout)
        show = writer.show if can_redraw(2, job.environment) else None
        several = show if len(job.nodes) > 1 else None
        try:
            job, remotes, here = stack.enter_context(connected_hosts(job, watchdog, signals, limit, several))
        finally:
            if several is not None:
                several("")
        _allow_files(job)  # with --nnodes the other nodes' ranks are known only now
        context = stack.enter_context(zmq.Context())
        local_host = LocalHost(directory, watchdog, {}, stdin=0)
        stack.callback(local_host.close)
        running = Running(job, writer, signals, context, directory, local_host, remotes, here, start, limit)
        stack.enter_context(running)
        verdict = running.until_verdict()
        end = running.report(verdict)
        failed = verdict.rank is not None and not running.asked_to_end
        again = failed and job.settings.restart < job.max_restarts
        profile = write_profile(job, directory, end, show) if job.profile else ""
        if remotes:
            writer.settle(SETTLE)  # the other nodes end with the same code
            over = _over(end.but_for(writer.losses), again)
            for remote in remotes:
                remote.end_job(over)
    return end, profile + running.last_words + end.last_words(running.error_of_cause, job.argv), again


def _over(end: JobReport, again: bool) -> JobEnd:
    """Return the message about the job's end for the launchers on other nodes: the exit code, and the last line."""
    return JobEnd(end.exit_code, "".join(end.last_words().splitlines(keepends=True)[-1:]), again)


def _allow_files(job: Job) -> None:
    """Let the launcher open a connection, two pipes and two files for each rank, and three pipes for each host.

    Raises:
        RendezvousError: the system does not allow the files that the job needs at least.
    """
    allow_files(OTHERS + CROWD + 5 * job.size + 3 * len(job.nodes))
    raise_files(job.size)
