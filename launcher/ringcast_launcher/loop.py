"""The loop that connects the parts of a running job: it waits for all of them at once and carries out decisions.

The supervisor decides, the control server talks to the workers, processes and sinks are what they are.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from types import FrameType

import zmq

from ringcast.activity import Lookout
from ringcast.control import ControlServer, new_key
from ringcast.family import kill, members, orphans, send
from ringcast.limits import raise_files
from ringcast.rendezvous import Joined, Started
from ringcast.silence import Busy, Stuck
from ringcast_launcher import report, stacks
from ringcast_launcher.directory import job_directory
from ringcast_launcher.guardian import Guardian
from ringcast_launcher.job import Job, JobError, control_addresses, marks, thread_limits, worker_environment
from ringcast_launcher.jobreport import JobReport, RankReport
from ringcast_launcher.output import Both, Sink, Tail, Writer, open_sinks
from ringcast_launcher.process import Process, subreaper
from ringcast_launcher.supervisor import (
    AbortJob,
    Declare,
    Event,
    Exited,
    Fence,
    Send,
    Signalled,
    Supervisor,
    Tick,
    Verdict,
)

CHUNK = 1 << 16  # bytes read from a worker at once
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OTHER_SIGNALS = (signal.SIGTSTP, signal.SIGUSR1)  # stop; tell what the ranks are doing


def run(job: Job) -> JobReport:
    """Run the job to its end, again if it shall be; return what became of it; say on standard error what went wrong.

    Raises:
        JobError: it could not be started; nothing is left behind.
    """
    raise_files(job.size)  # two pipes and a connection for each
    writer, start, attempt = Writer(), time.monotonic(), 0
    try:
        with _signals() as signals, subreaper():
            while True:
                settings = replace(job.settings, restart=attempt)
                end, words, again = _run_once(replace(job, settings=settings), writer, signals, start)
                if not again or attempt == job.max_restarts:
                    break
                attempt += 1
                words += f"ringcast-launch: starting the job afresh (restart {attempt} of {job.max_restarts})\n"
                writer.put(2, words.encode("utf-8", "replace"))
        writer.put(2, words.encode("utf-8", "replace"))
    finally:
        writer.close()  # by now with the usual signal handlers: a reader that never reads can be left
    return end


def _run_once(job: Job, writer: Writer, signals: int, start: float) -> tuple[JobReport, str, bool]:
    """Run the job once; return what became of it, the last words, and whether to start afresh might help."""
    with ExitStack() as stack:
        guardian = stack.enter_context(Guardian(job.environment))
        directory = stack.enter_context(job_directory())
        guardian.tell("directory", directory)
        context = stack.enter_context(zmq.Context())
        running = stack.enter_context(_Running(job, writer, signals, context, directory, guardian, start))
        verdict = running.until_verdict()
    end = running.report(verdict)
    return end, running.last_words + end.last_words(), verdict.rank is not None and not running.asked_to_end


class _Running:
    """A job from the start of its first worker to the end of its last; a context manager that leaves nothing."""

    def __init__(
        self,
        job: Job,
        writer: Writer,
        signals: int,
        context: zmq.Context[zmq.Socket[bytes]],
        directory: str,
        guardian: Guardian,
        start: float,
    ) -> None:
        self._job, self._writer, self._signals, self._guardian = job, writer, signals, guardian
        self.asked_to_end = False
        self._missed: set[int] = set()  # failed ranks without which the others go on
        self._not_ours = orphans(os.getpid(), ())  # our children from before the start
        self._host = socket.gethostname()
        self._processes: list[Process] = []
        self._statuses: dict[int, int] = {}
        self._paused = False
        self._sinks: dict[int, Sink] = {}
        self._tails: list[Tail] = []
        self._files = ExitStack()
        self._lookout = Lookout(self._family, lambda rank: self._server.process(rank)[1])
        self._verdict: Verdict | None = None
        self._stacks = self._last_words = ""
        self._world = replace(
            job.settings,
            size=job.size,
            hosted=True,
            nonce=secrets.randbits(64),
            key=new_key(),
            directory=directory,
            terminal=os.ttyname(2) if os.isatty(2) else "",
        )
        self._server = ControlServer(
            context,
            control_addresses(self._world),
            size=job.size,
            nonce=self._world.nonce,
            key=self._world.key,
            security=self._world.security,
            start_timeout=self._world.start_timeout,
        )
        self._world = replace(self._world, control=self._server.address)
        self._poller = zmq.Poller()
        self._poller.register(self._server.socket, zmq.POLLIN)
        self._poller.register(signals, zmq.POLLIN)
        self._supervisor = Supervisor(job.size, start=start, timeout=job.timeout, go_on=job.go_on)

    def __enter__(self) -> _Running:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        kill(self._everyone)
        for process in self._processes:
            process.reap()
        self._reap_orphans()
        self._server.close()
        self._files.close()

    def until_verdict(self) -> Verdict:
        """Run the loop until all workers have ended and all of their output was taken."""
        while self._verdict is None:
            self._turn()
        self._end_family()
        self._drain()
        if self._verdict.code != 0:
            self._last_words = report.last_words(self._world.directory, self._job.size, self._job.flight_recorder)
        if self._server.dropped and self._job.verbose:
            self._say(f"{self._server.dropped} messages to the control plane were dropped")
        if self._server.strangers and self._job.verbose:
            self._say(f"{self._server.strangers} connections to the control plane were not admitted")
        return self._verdict

    def report(self, verdict: Verdict) -> JobReport:
        """Return what became of the job, and of every rank."""
        fates = [self._supervisor.fate(rank) for rank in range(self._job.size)]
        ranks = [RankReport(r, self._host, self._processes[r].pid, fate) for r, fate in enumerate(fates)]
        if verdict.rank is None:
            return JobReport(verdict.code, verdict.how, ranks=tuple(ranks))
        named, traceback = ranks[verdict.rank], verdict.traceback or self._seen_traceback(verdict.rank)
        return JobReport(verdict.code, verdict.how, named.rank, named.host, named.pid, traceback, tuple(ranks))

    @property
    def last_words(self) -> str:
        """What is told of a job that failed before its cause: stacks after a timeout, and what every rank did last."""
        return self._stacks + self._last_words

    @property
    def _pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _start(self) -> None:
        job = self._job
        limits = thread_limits(job.environment, job.size, len(os.sched_getaffinity(0)))
        for mark in marks(self._world, "RINGCAST_NONCE"):
            self._guardian.tell("mark", mark.decode())
        self._debug(f"control plane at {self._server.address}")
        colours = (os.isatty(1), os.isatty(2))
        for rank in range(job.size):
            environment = {**worker_environment(job, rank, self._world), **limits}
            out, err = self._open_sinks(rank, colours)
            try:
                process = Process(job.argv, environment, job.directory)
            except OSError as error:
                raise JobError(f"{job.argv[0]} cannot be started: {error.strerror}", 126) from error
            self._processes.append(process)
            self._guardian.tell("worker", str(process.pid))
            self._watch(process.stdout, out)
            self._watch(process.stderr, Both(err, tail := Tail()))
            self._tails.append(tail)
            self._debug(f"rank {rank} is pid {process.pid}: {' '.join(job.argv)}")
        report.describe(self._world.directory, os.getpid(), job, self._pids)
        if limits:
            shared = " ".join(f"{name}={value}" for name, value in limits.items())
            self._say(f"the ranks share the cores: {shared} (set them yourself to change that)")

    def _open_sinks(self, rank: int, colours: tuple[bool, bool]) -> tuple[Sink, Sink]:
        job = self._job
        try:
            return open_sinks(
                job.output,
                rank,
                job.size,
                self._host,
                writer=self._writer,
                colours=colours,
                files=self._files,
                mode="ab" if job.settings.restart else "wb",
            )
        except OSError as error:
            raise JobError(f"--output {job.output}: {error}") from error

    def _watch(self, file: int, sink: Sink) -> None:
        self._sinks[file] = sink
        self._poller.register(file, zmq.POLLIN)

    def _turn(self) -> None:
        ready = dict(self._poller.poll(self._wait()))
        caught = _read(self._signals) or b"" if self._signals in ready else b""
        if signal.SIGTSTP in caught:
            self._pause_all()
        if signal.SIGUSR1 in caught:
            self._writer.put(2, report.live(self._world.directory, os.getpid(), self._job, self._pids).encode())
        for file in [file for file in self._sinks if file in ready]:
            self._take(file)
        # What the workers said comes before their ends, which would else look like ends without a word.
        exits = self._exits() if signal.SIGCHLD in caught else []
        if signal.SIGCHLD in caught:
            self._reap_orphans()
        events: list[Event] = [*self._server.service(), *exits]
        self.asked_to_end |= any(number in _ENDING_SIGNALS for number in caught)
        events += [*self._stuck(), *(Signalled(number) for number in caught if number in _ENDING_SIGNALS)]
        for event in [*events, Tick()]:
            self._handle(event)

    def _wait(self) -> int:
        """Return how many milliseconds nothing is due. A slow reader of our output is looked at every 10 ms."""
        if self._paused != self._writer.full:
            self._paused = not self._paused
            for file in self._sinks:
                self._poller.modify(file, 0 if self._paused else zmq.POLLIN)
        due = min(self._server.due, self._supervisor.due or inf, self._lookout.due or inf)
        wait = max(0, int(1000 * (due - time.monotonic())) + 1)
        return min(wait, 10) if self._paused else wait

    def _pause_all(self) -> None:
        """Stop the workers and ourselves (Ctrl-Z); go on together when somebody continues us."""
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in self._processes:
                process.signal_group(number)
            if number == signal.SIGSTOP:
                os.kill(os.getpid(), number)

    def _take(self, file: int) -> bool:
        """Take what a pipe has; returns whether there may be more."""
        data = _read(file)
        if data is None:
            return False
        sink = self._sinks[file]
        if not data:
            sink.end()
            self._poller.modify(file, 0)
            del self._sinks[file]
            return False
        sink.feed(data)
        return True

    def _exits(self) -> list[Event]:
        found: list[Event] = []
        for rank, process in enumerate(self._processes):
            if rank not in self._statuses and (status := process.status()) is not None:
                self._statuses[rank] = status
                found.append(Exited(rank, status))
        return found

    def _stuck(self) -> list[Stuck]:
        """Look at the ranks that are silent, and return those of which nothing moves."""
        found: list[Stuck] = []
        for judgement in self._lookout.look(self._server.heard, time.monotonic()):
            match judgement:
                case Stuck():
                    found.append(judgement)
                case Busy(rank, seconds, doing):
                    who = f"rank {rank} ({self._host}, pid {self._processes[rank].pid})"
                    self._say(f"{who} has been silent for {seconds:.0f} s but {doing}; it is waited for")
        return found

    def _handle(self, event: Event) -> None:
        match event:
            case Joined():
                self._debug(f"rank {event.rank} joined: {event.address}")
            case Started():
                self._debug("all ranks joined")
        for action in self._supervisor.handle(event, time.monotonic()):
            match action:
                case Fence():
                    self._debug(f"killing what is left of rank {action.rank}")
                    kill(partial(self._family, action.rank))
                case Declare():
                    self._miss(action.rank, action.cause)
                    self._server.declare_failed(action.rank, action.cause)
                case AbortJob():
                    self._stacks = stacks.collect(self._world.directory, self._pids)
                    self._server.abort(action.cause)
                case Send():
                    self._debug(f"sending {signal.Signals(action.number).name} to all workers")
                    for process in self._processes:
                        process.signal_group(action.number)
                case Verdict():
                    self._verdict = action

    def _miss(self, rank: int, cause: str) -> None:
        if self._job.go_on and rank not in self._missed:
            self._missed.add(rank)
            self._say(f"rank {rank} ({self._host}, pid {self._processes[rank].pid}) failed: {cause}")

    def _family(self, rank: int) -> set[int]:
        """Return the processes of a rank, as they are now."""
        world = replace(self._world, rank=rank)
        return members({self._processes[rank].pid}, marks(world, "RINGCAST_NONCE", "RINGCAST_RANK"))

    def _orphans(self) -> set[int]:
        """Return what came to us when the worker, or the child of one, that had started it ended."""
        return orphans(os.getpid(), self._not_ours.union(process.pid for process in self._processes))

    def _everyone(self) -> set[int]:
        """Return all processes of the job, as they are now."""
        leaders = self._orphans().union(process.pid for process in self._processes)
        return members(leaders, marks(self._world, "RINGCAST_NONCE"))

    def _reap_orphans(self) -> None:
        for pid in self._orphans():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _end_family(self) -> None:
        """End what the workers left running: ask, wait at most half a second, kill."""
        send(self._everyone(), signal.SIGTERM)
        deadline = time.monotonic() + 0.5
        while self._everyone() and time.monotonic() < deadline:
            time.sleep(0.01)
        kill(self._everyone)

    def _drain(self) -> None:
        """Take the rest of the output. Who left its session and holds a pipe open is not waited for."""
        for file in list(self._sinks):
            while self._take(file):
                pass
            if file in self._sinks:
                self._sinks.pop(file).end()
        self._files.close()

    def _seen_traceback(self, rank: int) -> str:
        return self._tails[rank].traceback() if self._statuses[rank] > 0 else ""  # who was killed told no cause

    def _say(self, text: str) -> None:
        self._writer.put(2, f"ringcast-launch: {text}\n".encode())

    def _debug(self, text: str) -> None:
        if self._job.verbose:
            self._say(text)


def _read(file: int) -> bytes | None:
    """Return what there is, empty at the end of file, None if there is nothing now."""
    try:
        return os.read(file, CHUNK)
    except BlockingIOError:
        return None


@contextmanager
def _signals() -> Iterator[int]:
    """Turn SIGCHLD and the signals that ask us to end into bytes on a file descriptor."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    old_file = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
    # What is ignored (SIGHUP under nohup) stays ignored.
    wanted = [number for number in (*_ENDING_SIGNALS, *_OTHER_SIGNALS) if signal.getsignal(number) != signal.SIG_IGN]
    old = {number: signal.signal(number, _noted) for number in [*wanted, signal.SIGCHLD]}
    try:
        yield here.fileno()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_file)
        here.close()
        there.close()


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the byte on the wakeup file descriptor is what matters."""
