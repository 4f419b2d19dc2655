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
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType

import psutil
import zmq

from ringcast.control import ControlServer, new_key
from ringcast.limits import raise_files
from ringcast.rendezvous import Joined, Started
from ringcast_launcher.directory import job_directory
from ringcast_launcher.job import Job, JobError, control_addresses, thread_limits, worker_environment
from ringcast_launcher.output import Both, Sink, Tail, Writer, open_sinks
from ringcast_launcher.process import Process
from ringcast_launcher.supervisor import AbortJob, Declare, Event, Exited, Send, Signalled, Supervisor, Tick, Verdict

CHUNK = 1 << 16  # bytes read from a worker at once
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run(job: Job) -> int:
    """Run the job to its end and return the exit code; says on standard error what went wrong.

    Raises:
        JobError: it could not be started; nothing is left behind.
    """
    raise_files(job.size)  # two pipes and a connection for each
    writer = Writer()
    try:
        with ExitStack() as stack:
            signals = stack.enter_context(_signals())
            directory = stack.enter_context(job_directory())
            context = stack.enter_context(zmq.Context())
            running = stack.enter_context(_Running(job, writer, signals, context, directory))
            verdict = running.until_verdict()
        report = running.report(verdict)
        writer.put(2, report.encode("utf-8", "replace"))
    finally:
        writer.close()  # by now with the usual signal handlers: a reader that never reads can be left
    return verdict.code


class _Running:
    """A job from the start of its first worker to the end of its last; a context manager that leaves nothing."""

    def __init__(self, job: Job, writer: Writer, signals: int, context: zmq.Context[zmq.Socket[bytes]], directory: str):
        self._job, self._writer, self._signals = job, writer, signals
        self._host = socket.gethostname()
        self._processes: list[Process] = []
        self._statuses: dict[int, int] = {}
        self._paused = False
        self._sinks: dict[int, Sink] = {}
        self._tails: list[Tail] = []
        self._files = ExitStack()
        self._verdict: Verdict | None = None
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
            start_timeout=self._world.start_timeout,
        )
        self._world = replace(self._world, control=self._server.address)
        self._poller = zmq.Poller()
        self._poller.register(self._server.socket, zmq.POLLIN)
        self._poller.register(signals, zmq.POLLIN)
        self._supervisor = Supervisor(job.size, start=time.monotonic(), timeout=job.timeout)

    def __enter__(self) -> _Running:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.signal_group(signal.SIGKILL)
        for process in self._processes:
            process.reap()
        self._server.close()
        self._files.close()

    def until_verdict(self) -> Verdict:
        """Run the loop until all workers have ended and all of their output was taken."""
        while self._verdict is None:
            self._turn()
        self._end_groups()
        self._drain()
        if self._server.dropped and self._job.verbose:
            self._say(f"{self._server.dropped} messages to the control plane were dropped")
        return self._verdict

    def report(self, verdict: Verdict) -> str:
        """Return the last words on the job: the traceback of the rank to name, then one line with the cause."""
        if verdict.code == 0:
            return ""
        who, traceback = "", verdict.traceback
        if verdict.rank is not None:
            who = f"rank {verdict.rank} ({self._host}, pid {self._processes[verdict.rank].pid}) "
            traceback = traceback or self._seen_traceback(verdict.rank)
        lines = [*traceback.rstrip().splitlines(), f"ringcast-launch: {who}{verdict.how}"]
        return "".join(line + "\n" for line in lines)

    def _start(self) -> None:
        job = self._job
        limits = thread_limits(job.environment, job.size, len(os.sched_getaffinity(0)))
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
            self._watch(process.stdout, out)
            self._watch(process.stderr, Both(err, tail := Tail()))
            self._tails.append(tail)
            self._debug(f"rank {rank} is pid {process.pid}: {' '.join(job.argv)}")
        if limits:
            shared = " ".join(f"{name}={value}" for name, value in limits.items())
            self._say(f"the ranks share the cores: {shared} (set them yourself to change that)")

    def _open_sinks(self, rank: int, colours: tuple[bool, bool]) -> tuple[Sink, Sink]:
        job = self._job
        try:
            return open_sinks(
                job.output, rank, job.size, self._host, writer=self._writer, colours=colours, files=self._files
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
        for file in [file for file in self._sinks if file in ready]:
            self._take(file)
        # What the workers said comes before their ends, which would else look like ends without a word.
        exits = self._exits() if signal.SIGCHLD in caught else []
        events: list[Event] = [*self._server.service(), *exits]
        events += [Signalled(number) for number in caught if number in _ENDING_SIGNALS]
        for event in [*events, Tick()]:
            self._handle(event)

    def _wait(self) -> int:
        """Return how many milliseconds nothing is due. A slow reader of our output is looked at every 10 ms."""
        if self._paused != self._writer.full:
            self._paused = not self._paused
            for file in self._sinks:
                self._poller.modify(file, 0 if self._paused else zmq.POLLIN)
        due = min(self._server.due, self._supervisor.due or self._server.due)
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

    def _handle(self, event: Event) -> None:
        match event:
            case Joined():
                self._debug(f"rank {event.rank} joined: {event.address}")
            case Started():
                self._debug("all ranks joined")
        for action in self._supervisor.handle(event, time.monotonic()):
            match action:
                case Declare():
                    self._server.declare_failed(action.rank, action.cause)
                case AbortJob():
                    self._server.abort(action.cause)
                case Send():
                    self._debug(f"sending {signal.Signals(action.number).name} to all workers")
                    for process in self._processes:
                        process.signal_group(action.number)
                case Verdict():
                    self._verdict = action

    def _end_groups(self) -> None:
        """End what the workers left running: ask, wait at most half a second, kill."""
        leaders = {process.pid for process in self._processes}
        if _inhabited(leaders):
            for process in self._processes:
                process.signal_group(signal.SIGTERM)
            deadline = time.monotonic() + 0.5
            while _inhabited(leaders) and time.monotonic() < deadline:
                time.sleep(0.01)
        for process in self._processes:
            process.signal_group(signal.SIGKILL)

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


def _inhabited(groups: set[int]) -> bool:
    """Return whether a process other than its leader lives in one of the process groups."""
    for process in psutil.process_iter():
        try:
            member = process.pid not in groups and os.getpgid(process.pid) in groups
            if member and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return False


@contextmanager
def _signals() -> Iterator[int]:
    """Turn SIGCHLD and the signals that ask us to end into bytes on a file descriptor."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    old_file = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
    # What is ignored (SIGHUP under nohup) stays ignored.
    wanted = [number for number in (*_ENDING_SIGNALS, signal.SIGTSTP) if signal.getsignal(number) != signal.SIG_IGN]
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
