"""Start the workers of one host's ranks, watch them, and end them with their descendants.

The process manager executes commands and makes reports; the launcher has one in its own process, an agent has one on
another host.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from subprocess import DEVNULL, PIPE

from ringcast.config.worker import WorkerConfig, from_environment
from ringcast.errors import ConfigError
from ringcast.monitoring import jobs
from ringcast.monitoring.progress import progress_snapshot
from ringcast.monitoring.rank_state import RankState, States
from ringcast.net.fd_limits import why_not_started
from ringcast.procs.portable import Seen, processes, processors
from ringcast.procs.process_tree import kill, members, new_imprints, orphans, send
from ringcast.procs.procfs import look_at
from ringcast.wire import flight
from ringcast_launcher.decide.supervisor import Exited, Fence, Fenced, SendSignal
from ringcast_launcher.hosts import stacks
from ringcast_launcher.hosts.messages import (
    AskActivity,
    AskProgress,
    AskStacks,
    AskStates,
    Command,
    Finish,
    HoldOutput,
    HostFinished,
    Input,
    InputTaken,
    NotStarted,
    Output,
    ProcessActivity,
    ProfilePart,
    Progress,
    Record,
    Report,
    Stacks,
    Start,
    Started,
    Stop,
    Stopped,
)
from ringcast_launcher.hosts.worker_input import WorkerInput
from ringcast_launcher.plan.job import USAGE, debugged, environment_tags, thread_limits, worker_environment
from ringcast_launcher.system.child import Process
from ringcast_launcher.system.polling import File
from ringcast_launcher.system.watchdog import Watchdog

CHUNK = 1 << 16  # bytes read from a worker at once
LAST_CALL = 0.5  # seconds in which remaining processes can end by themselves, after SIGTERM
_NOT_RUNNABLE = 126


class LocalHost:
    """The processes of this host's ranks, from the start to the end of the last one; `close` kills the rest."""

    def __init__(
        self, directory: str, watchdog: Watchdog, environment: Mapping[str, str], stdin: int | None = None
    ) -> None:
        """Manage no rank yet; a command `Start` starts the workers.

        Args:
            directory: the job's directory on this host.
            environment: common to the workers; Start adds to it.
            stdin: the file that the rank with standard input gets; None: a pipe, for data from the launcher.
            watchdog: it learns of all workers.
        """
        self._directory, self.watchdog, self._environment = directory, watchdog, environment
        self._not_ours = orphans(os.getpid(), ())  # our children from before the start
        self._imprints = new_imprints()
        self._to_start: deque[int] = deque()
        self._limits: dict[str, str] = {}
        self._processes: dict[int, Process] = {}
        self._ended: set[int] = set()
        self._pipes: dict[int, tuple[int, int]] = {}  # file: rank and stream
        self._stdin = stdin
        self._input: WorkerInput | None = None
        self._held = False
        self._world = WorkerConfig()
        self._reports: deque[Report] = deque()

    @property
    def files(self) -> dict[File, int]:
        """The files to poll, and for which events."""
        outputs: dict[File, int] = {} if self._held else dict.fromkeys(self._pipes, select.POLLIN)
        return outputs if self._input is None else outputs | self._input.files

    @property
    def due(self) -> float:
        """The time at which `reports` is to be called at the latest."""
        return 0.0 if self._reports or self._to_start else inf

    def send(self, command: Command) -> None:
        """Execute a command; `reports` returns the answer."""
        match command:
            case Start():
                self._start(command)
            case Fence(rank):
                kill(partial(self._family, rank))
                self._reports.append(Fenced(rank))
            case SendSignal(number):
                self._signal(number)
            case AskActivity(rank, speaker):
                self._look(rank, speaker)
            case HoldOutput(held):
                self._held = held
            case Input(rank, data) if self._input is None or self._input.closed:
                self._reports.append(InputTaken(rank, len(data), closed=True))
            case Input(_, data) if self._input is not None:
                self._input.feed(data)
            case Stop():
                self._signal(signal.SIGSTOP)
                self._reports.append(Stopped())
            case AskStacks(whole):
                self._reports.append(Stacks(stacks.collect(self._directory, self._pids, whole=whole)))
            case AskStates():
                self._reports.append(States(self._states()))
            case AskProgress():
                self._reports.append(Progress(progress_snapshot(self._directory, self._processes)))
            case Finish(records, profiles):
                self._end_remaining()
                self._drain()
                self._reports += [*self._records(records), *self._profiles(profiles), HostFinished()]

    def reports(self, ready: Container[File] = ()) -> list[Report]:
        """Return the reports since the last call; `ready` are files that can be read."""
        for file in [file for file in self._pipes if file in ready]:
            self._take(file)
        if self._input is not None:
            self._reports += self._input.turn(ready)
        if self._to_start:
            self._start_next()
        found, self._reports = list(self._reports), deque()
        return found

    def close(self) -> None:
        """Kill the remaining processes, and wait for their ends. Idempotent."""
        kill(self._everyone)
        if self._input is not None:
            self._input.close()
        for process in self._processes.values():
            process.reap()
        self._pipes.clear()
        self._reap_orphans()

    @property
    def _pids(self) -> dict[int, int]:
        return {rank: process.pid for rank, process in self._processes.items()}

    def _start(self, command: Start) -> None:
        if not Path(command.directory).is_dir():
            where = f"there is no directory {command.directory} (--wdir names another)"
            self._reports.append(NotStarted(where, USAGE))
            return
        # Without this check Python would find the missing file only in the middle of a job.
        if command.argv[:1] == (sys.executable,) and (script := _script(command)) and not script.is_file():
            self._reports.append(NotStarted(f"there is no script {script}", USAGE))
            return
        try:
            self._world = from_environment({**command.world, "RINGCAST_DIR": self._directory})
        except ConfigError as error:
            self._reports.append(NotStarted(str(error), USAGE))
            return
        self.watchdog.tell("imprints", f"{self._imprints.start} {self._imprints.stop}")
        for tag in self._tags:
            self.watchdog.tell("tag", tag.decode())
        environment = {**self._environment, **command.environment}
        self._limits = thread_limits(environment, len(command.ranks), processors())
        self._environment = {**environment, **self._limits}
        self._started_by, self._to_start = command, deque(command.ranks)

    def _start_next(self) -> None:
        """Start one worker; between two of them other work is done, as a busy host may need long for all."""
        command, rank = self._started_by, self._to_start.popleft()
        local = len(self._processes), len(command.ranks), command.node
        own = worker_environment(self._environment, self._world, rank, *local)
        stdin = (PIPE if self._stdin is None else self._stdin) if rank == command.stdin else DEVNULL
        try:
            argv = debugged(command.argv) if rank == command.debug else command.argv
            process = Process(argv, own, command.directory, self._imprint(rank)[0], stdin)
        except OSError as error:
            self._to_start.clear()
            self._reports.append(
                NotStarted(f"{command.argv[0]} cannot be started: {why_not_started(error)}", _NOT_RUNNABLE)
            )
            return
        self._processes[rank] = process
        if stdin == PIPE:
            self._input = WorkerInput(rank, process.stdin)
        self.watchdog.tell("worker", str(process.pid))
        self._pipes[process.stdout], self._pipes[process.stderr] = (rank, 1), (rank, 2)
        if not self._to_start:
            self._describe(command)
            self._reports.append(Started(self._pids, self._limits))

    def _describe(self, command: Start) -> None:
        """Let `ringcast ps` find the job."""
        ranks, pids = tuple(self._pids), tuple(self._pids.values())
        size = self._world.size
        jobs.describe(jobs.RunningJob(self._directory, size, os.getpid(), command.argv, time.time(), pids, ranks))

    def _records(self, wanted: bool) -> Iterator[Record]:
        for rank in self._processes if wanted else ():
            with suppress(OSError):  # the rank has no record
                yield Record(rank, Path(self._directory, flight.FILE.format(rank=rank)).read_bytes())

    def _profiles(self, wanted: bool) -> Iterator[ProfilePart]:
        for rank in self._processes if wanted else ():
            with suppress(OSError):  # the rank has written none
                yield ProfilePart(rank, Path(self._directory, flight.PROFILE.format(rank=rank)).read_bytes())

    def _signal(self, number: int) -> None:
        for process in self._processes.values():
            process.signal_group(number)

    def _look(self, rank: int, speaker: int) -> None:
        if pids := self._family(rank):
            self._reports.append(ProcessActivity(rank, look_at(pids, speaker)))

    def _states(self) -> tuple[RankState, ...]:
        from ringcast.monitoring.live import look_here  # imports psutil, which no start needs

        return tuple(look_here(self._directory, self._pids))

    def _take(self, file: int) -> bool:
        """Read a pipe once; return True if there may be more."""
        rank, stream = self._pipes[file]
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            del self._pipes[file]
        self._reports.append(Output(rank, stream, data))
        return bool(data)

    def note_ends(self) -> None:
        """Find the workers that have ended (after SIGCHLD); `reports` returns them."""
        before = len(self._ended)
        for rank, process in self._processes.items():
            if rank not in self._ended and (status := process.status()) is not None:
                self._ended.add(rank)
                self._reports.append(Exited(rank, status))
        if len(self._ended) == before:  # if an orphan ended too, the next signal or `close` reaps it
            self._reap_orphans()

    @property
    def _tags(self) -> list[bytes]:
        """The environment tags of this host's workers; other agents on this machine have other directories."""
        return environment_tags(self._world, "RINGCAST_NONCE", "RINGCAST_DIR")

    def _family(self, rank: int) -> set[int]:
        """Return the processes of a rank, as they are now."""
        own = environment_tags(replace(self._world, rank=rank), "RINGCAST_NONCE", "RINGCAST_RANK")
        return members({self._processes[rank].pid}, own, self._imprint(rank))

    def _imprint(self, rank: int) -> range:
        at = rank % len(self._imprints)
        return self._imprints[at : at + 1]

    def _orphans(self, seen: Mapping[int, Seen] | None = None) -> set[int]:
        """Return the processes that were reparented to us: descendants of workers whose own parents have ended."""
        return orphans(os.getpid(), self._not_ours.union(self._pids.values()), seen)

    def _everyone(self) -> set[int]:
        """Return all processes of the job on this host, as they are now."""
        if not self._processes:
            return set()
        seen = processes()
        return members(self._orphans(seen).union(self._pids.values()), self._tags, seen=seen)

    def _reap_orphans(self) -> None:
        for pid in self._orphans():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _end_remaining(self) -> None:
        """End the remaining processes: SIGTERM, a short wait, SIGKILL."""
        found = self._everyone() or self._everyone()  # one that forks and ends may escape one look
        if not found:
            return
        send(found, signal.SIGTERM)
        deadline = time.monotonic() + LAST_CALL
        while self._everyone() and time.monotonic() < deadline:
            time.sleep(0.01)
        kill(self._everyone)

    def _drain(self) -> None:
        """Read the rest of the output, without a wait for processes outside the session that hold a pipe open."""
        for file in list(self._pipes):
            while self._take(file):
                pass
            if file in self._pipes:
                rank, stream = self._pipes.pop(file)
                self._reports.append(Output(rank, stream, b""))


def _script(command: Start) -> Path | None:
    """Return the script that Python is to run; None if the command runs something else."""
    named = command.argv[1] if len(command.argv) > 1 else ""
    return Path(command.directory, named) if named.endswith(".py") and not named.startswith("-") else None
