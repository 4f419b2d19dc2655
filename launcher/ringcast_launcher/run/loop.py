"""Run the main loop of a job: poll all parts at once and carry out the decisions of the supervisor.

The supervisor decides, the control server communicates with the workers, and the process manager of each host, local or
remote, owns the processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from ringcast._util.last_line import columns
from ringcast._util.safe_text import escaped
from ringcast.config.worker import can_redraw
from ringcast.control import ControlServer, new_key
from ringcast.control.events import AllJoined as AllJoined
from ringcast.control.events import Joined
from ringcast.monitoring import flight_record, jobs
from ringcast.monitoring.rank_state import States
from ringcast.procs.liveness import Computing, Hung, Judgement, LivenessMonitor, limits_of
from ringcast.procs.portable import signal_name
from ringcast.wire import flight
from ringcast.wire.failure import Failure
from ringcast_launcher.decide.by_records import explained
from ringcast_launcher.decide.equal_errors import named_error
from ringcast_launcher.decide.job_report import JobReport, RankReport
from ringcast_launcher.decide.lost_output import BROKEN_PIPE
from ringcast_launcher.decide.program_stacks import told_once
from ringcast_launcher.decide.same_signal import LAUNCHER, SameSignal
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.decide.supervisor import (
    AbortJob,
    Action,
    Declare,
    Event,
    Exited,
    Fence,
    Fenced,
    Policy,
    SendSignal,
    Signalled,
    Supervisor,
    Tick,
)
from ringcast_launcher.decide.verdict import Verdict, missed
from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import (
    AskActivity,
    AskStacks,
    Finish,
    HostFinished,
    HostLost,
    InputTaken,
    Output,
    ProcessActivity,
    ProfilePart,
    Progress,
    Record,
    Report,
    Stacks,
    Stop,
    Stopped,
)
from ringcast_launcher.output.output import Writer
from ringcast_launcher.output.status_line import Status
from ringcast_launcher.output.streams import Outputs
from ringcast_launcher.plan.job import Job, apart_text, check_stdin, control_addresses, elsewhere, transport_text
from ringcast_launcher.run import last_words as report
from ringcast_launcher.run.input_feed import InputFeed
from ringcast_launcher.run.ps_server import PsServer
from ringcast_launcher.run.start import start_workers
from ringcast_launcher.run.status_poll import ProgressPoll, StatePoll
from ringcast_launcher.system.signals import ENDING, PASSED_ON, asks_for_states, caught

if TYPE_CHECKING:
    from ringcast_launcher.hosts.remote_host import RemoteHost

ANSWER = 3.0  # seconds in which all hosts must answer a query
FINISH = 10.0  # seconds in which all hosts must end their processes, on busy machines too
EARLY = 1.0  # seconds in which ranks only import modules, unless they have joined or written something


class Running:
    """A job from the start of its first worker to the end of its last; a context manager that closes everything."""

    def __init__(
        self,
        job: Job,
        writer: Writer,
        signals: int,
        context: zmq.Context[zmq.Socket[bytes]],
        directory: str,
        local_host: LocalHost,
        remotes: Sequence[RemoteHost],
        here: str,
        start: float,
        limit: StartDeadline,
    ) -> None:
        self._job, self._writer, self._signals, self._directory = job, writer, signals, directory
        self.asked_to_end = False
        self._same_signal = SameSignal()
        self._began = start
        self._limit = limit
        self._local_host = local_host
        self._node = {rank: i for i, node in enumerate(job.nodes) for rank in node.ranks}
        self._missed: set[int] = set()  # failed ranks without which the others continue
        self._pids: dict[int, int] = {}
        self._statuses: dict[int, int] = {}
        self._held = False
        self._open = ExitStack()
        self._unread = self._heard = self._hushed = self._joined = False
        self._silence = LivenessMonitor(limits_of(job.stall_timeout))
        self._verdict: Verdict | None = None
        self._stacks = self._last_words = self._errors = ""
        self.error_of_cause = ""  # the last text of the rank that is the cause of a failure
        self._world = replace(
            job.settings,
            size=job.size,
            hosted=True,
            nonce=int.from_bytes(os.urandom(8), "big"),
            key=new_key(),
            directory=directory,
            terminal=os.ttyname(2) if os.isatty(2) else "",
            columns=columns(2) if can_redraw(2, job.environment) else 0,
        )
        self._server = ControlServer(
            context,
            control_addresses(self._world, here),
            size=job.size,
            nonce=self._world.nonce,
            key=self._world.key,
            security=self._world.security,
            continues=job.continue_on_failure,
            start_timeout=self._world.start_timeout,
        )
        control = self._server.address
        if remotes and job.settings.advertise:
            control = f"tcp://{job.settings.advertise}:{control.rpartition(':')[2]}"
        self._world = replace(self._world, control=control)
        others = iter(remotes)
        self._all_hosts = AllHosts({i: local_host if node.here else next(others) for i, node in enumerate(job.nodes)})
        self._input_feed = InputFeed(job, self._all_hosts)
        drawn = can_redraw(2, job.environment) and not job.quiet
        status = Status(writer.show if drawn else None, job.size, start)
        self._progress_poll = ProgressPoll(status, self._all_hosts)
        self._host_names = [job.nodes[self._node[rank]].host for rank in range(job.size)]
        self._supervisor = Supervisor(
            job.size,
            start=start,
            timeout=job.timeout,
            policy=Policy(interrupted=job.interrupted, preempted=job.preempted),
            continue_on_failure=job.continue_on_failure,
        )

    def __enter__(self) -> Running:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._progress_poll.end()
        self._server.close()
        self._open.close()

    def until_verdict(self) -> Verdict:
        """Run the loop until all workers have ended and all of their output was taken."""
        while self._verdict is None:
            self._turn()
        self._finish(self._verdict)
        if self._verdict.code not in (0, BROKEN_PIPE):
            lost = {rank for rank, i in self._node.items() if i not in self._all_hosts}
            raised = self._supervisor.raised
            flights = flight_record.read(self._directory, range(self._job.size))
            self._last_words = report.last_words(flights, self._job.flight_recorder, lost, raised)
            self._verdict = explained(self._verdict, flights)
            self._errors, self.error_of_cause = self._outputs.last_errors(self._verdict)
        if not self._joined and self._verdict.code == 0 and self._job.size > 1:
            self._note(f"no rank called ringcast.init: {self._job.size} processes ran the program, each by itself")
        if self._server.dropped:
            self._debug(f"{self._server.dropped} messages to the control plane were dropped")
        # Each agent has connected to the control plane once, as a test, and closed the connection.
        strangers = self._server.strangers - len(elsewhere(self._job))
        if strangers > 0:
            self._debug(f"{strangers} connections to the control plane were not admitted")
        return self._verdict

    def report(self, verdict: Verdict) -> JobReport:
        """Return the report on the job and every rank."""
        fates = [self._supervisor.fate(rank) for rank in range(self._job.size)]
        ranks = [RankReport(r, self._host_names[r], self._pids[r], fate) for r, fate in enumerate(fates)]
        if verdict.rank is None:
            how = self._writer.losses.cause if self._unread else verdict.how
            return JobReport(verdict.code, how, ranks=tuple(ranks))
        named, traceback = ranks[verdict.rank], verdict.traceback or self._seen_traceback(verdict.rank)
        how = verdict.how
        if not (named.fate.joined or named.fate.error) and named.fate.status == 1 and (error := named_error(traceback)):
            how = f"failed: {error}"  # before init a rank can report it on its standard error only
        return JobReport(verdict.code, how, named.rank, named.host, named.pid, traceback, tuple(ranks))

    @property
    def last_words(self) -> str:
        """The text before the cause of a failure: stacks after a timeout, errors, and the last actions of all ranks."""
        return self._stacks + self._errors + self._last_words

    def _start(self) -> None:
        self._debug(f"control plane at {self._world.control}")
        self._debug(transport_text(self._world))
        self._outputs = self._open.enter_context(closing(Outputs(self._job, self._host_names, self._writer)))
        check_stdin(self._job)
        hosts = self._all_hosts, self._local_host, self._signals, self._limit
        self._pids, limits = start_workers(self._job, self._world, *hosts, meanwhile=self._server.guard)
        ps_server = self._ps_server() if elsewhere(self._job) else None
        self._state_poll = StatePoll(self._host_names, self._all_hosts, self._writer, ps_server)
        for rank, pid in sorted(self._pids.items()):
            self._debug(f"rank {rank} is pid {pid}{self._elsewhere(rank)}: {' '.join(self._job.argv)}")
        if limits and not self._job.settings.restart:
            shared = " ".join(f"{name}={value}" for name, value in limits.items())
            self._note(f"the ranks share the cores: {shared} (set them yourself to change that)")

    def _ps_server(self) -> PsServer | None:
        """Serve `ringcast ps` with the ranks on all hosts; without a server it sees only the ranks on this host."""
        try:
            ps_server = self._open.enter_context(closing(PsServer(self._directory)))
        except OSError as error:  # such as on a file system without sockets: no job fails for that
            self._debug(f"ringcast ps can show the ranks of this host only: {error}")
            return None
        if not any(node.here for node in self._job.nodes):
            jobs.describe(
                jobs.RunningJob(self._directory, self._job.size, os.getpid(), tuple(self._job.argv), time.time())
            )
        return ps_server

    def _turn(self) -> None:
        self._all_hosts.poll(
            self._wait(), (self._server.socket, self._signals, *self._state_poll.files, *self._input_feed.files)
        )
        self._input_feed.turn()
        signals = caught(self._signals)
        if signal.SIGTSTP in signals:
            self._pause_all()
        if signal.SIGCHLD in signals:
            self._local_host.note_ends()
        # Workers' messages are handled before their ends: else a rank that finished would seem to have sent nothing.
        ends = [event for i, said in self._all_hosts.reports() for event in self._take(i, said)]
        events: list[Event] = [*self._server.service(), *ends]
        self._hushed |= signal.SIGINT in signals and self._just_begun
        for number in signals:
            events += self._signalled(LAUNCHER, number)
        events += self._end_unread()
        self._look_at_silent_ranks()
        for event in [*events, Tick()]:
            self._handle(event)
        if not self._supervisor.ends_job:
            self._outputs.release(time.monotonic())
        self._progress_poll.turn(time.monotonic(), self._job.size - len(self._statuses))
        self._state_poll.turn(time.monotonic(), asks_for_states(signals))

    @property
    def _just_begun(self) -> bool:
        return not self._heard and not self._server.heard and time.monotonic() < self._began + EARLY

    def _signalled(self, source: int, number: int) -> list[Event]:
        """Take a signal that this launcher or the agent of a host got."""
        if number not in PASSED_ON and number not in ENDING:
            return []
        if not self._same_signal.is_new(source, number, time.monotonic()):
            return []
        self.asked_to_end |= number in ENDING
        return [Signalled(number)]

    def _end_unread(self) -> list[Event]:
        """End the job as soon as a reader of our output has gone."""
        if self._unread or not self._writer.losses.unread:
            return []
        self._unread = self.asked_to_end = True
        return [Signalled(signal.SIGPIPE)]

    def _take(self, i: int, found: Report) -> list[Event]:
        match found:
            case Output(_, _, data) if data and self._hushed:  # a traceback from an interrupted import
                return []
            case Output(rank, stream, data):
                self._heard |= bool(data)
                self._outputs.feed(rank, stream, data)
            case InputTaken():
                self._input_feed.hear(found)
            case Fenced():
                return [found]
            case Exited(rank, status):
                self._statuses[rank] = status
                return [found]
            case ProcessActivity(rank, activity) if rank in (heard := self._server.heard):
                now = time.monotonic()
                return self._judge(self._silence.judge(rank, now - heard[rank], activity, now))
            case Record(rank, image) if not self._job.nodes[i].here:
                Path(self._directory, flight.FILE.format(rank=rank)).write_bytes(image)
            case ProfilePart(rank, data) if not self._job.nodes[i].here:
                Path(self._directory, flight.PROFILE.format(rank=rank)).write_bytes(data)
            case Signalled(number):
                return self._signalled(i, number)
            case Progress():
                self._progress_poll.hear(i, found.snapshot)
            case States():
                self._state_poll.hear(i, found.states)
            case HostLost(cause):
                return self._lose(i, cause)
        return []

    def _lose(self, i: int, cause: str) -> list[Event]:
        """Remove a host that was lost, and return the failures of its ranks."""
        self._all_hosts.lose(i)
        ranks = self._job.nodes[i].ranks
        for rank in ranks:
            for stream in 1, 2:
                self._outputs.feed(rank, stream, b"")
        lost = [rank for rank in ranks if rank not in self._statuses]
        self._statuses |= dict.fromkeys(lost, -signal.SIGKILL)
        ends = [event for rank in lost for event in (Hung(rank, cause), Exited(rank, -signal.SIGKILL))]
        return [*map(Fenced, ranks), *ends]

    def _wait(self) -> int:
        """Return the milliseconds until something is due. A slow reader of our output is checked every 10 ms."""
        if self._held != self._writer.full:
            self._held = not self._held
            self._all_hosts.hold(self._held)
        shown = inf if self._supervisor.ends_job else self._outputs.due
        decisions = self._supervisor.due or inf, self._silence.due or inf, shown
        due = min(self._server.due, *decisions, self._all_hosts.due, self._progress_poll.due, self._state_poll.due)
        wait = max(0, int(1000 * (due - time.monotonic())) + 1)
        return min(wait, 10) if self._held else wait

    def _pause_all(self) -> None:
        """Stop the workers and ourselves (Ctrl-Z); continue them when we are continued."""
        self._all_hosts.send_all(Stop())
        self._all_hosts.answers((Stopped,), ANSWER)  # else an agent might take the coming silence for our end
        os.kill(os.getpid(), signal.SIGSTOP)
        self._all_hosts.send_all(SendSignal(signal.SIGCONT))

    def _look_at_silent_ranks(self) -> None:
        for rank in self._silence.suspects(self._server.heard, time.monotonic()):
            if self._node[rank] in self._all_hosts:
                self._all_hosts.send(self._node[rank], AskActivity(rank, self._server.process(rank)[1]))

    def _judge(self, judgement: Judgement | None) -> list[Event]:
        match judgement:
            case Hung():
                return [judgement]
            case Computing(rank, seconds, doing):
                self._note(
                    f"rank {rank} ({self._on(rank)}) has been silent for {seconds:.0f} s but {doing}; it is waited for"
                )
        return []

    def _handle(self, event: Event) -> None:
        match event:
            case Joined():
                self._joined = True
                self._debug(f"rank {event.rank} joined: {event.address}; small messages: {event.build}")
            case AllJoined():
                self._debug("all ranks joined")
                if self._job.verbose and (text := apart_text(self._world, event.cards)):
                    self._debug(text)
        for action in self._supervisor.handle(event, time.monotonic()):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Fence(rank):
                self._fence(rank)
            case Declare(rank, failure):
                self._miss(rank, failure)
                self._server.declare_failed(rank, failure)
            case AbortJob(cause):
                self._stacks = self._all_stacks()
                self._server.abort(cause)
            case SendSignal(number):
                self._debug(f"sending {signal_name(number)} to all workers")
                self._all_hosts.send_all(action)
            case Verdict():
                self._verdict = action

    def _fence(self, rank: int) -> None:
        if self._node[rank] in self._all_hosts:
            self._debug(f"killing the remaining processes of rank {rank}")
            self._all_hosts.send(self._node[rank], Fence(rank))
        else:  # the ranks of a lost host have ended before it counts as lost
            self._handle(Fenced(rank))

    def _miss(self, rank: int, failure: Failure) -> None:
        if self._job.continue_on_failure and rank not in self._missed:
            self._missed.add(rank)
            self._say(f"rank {rank} ({self._on(rank)}) {missed(failure)}")

    def _all_stacks(self) -> str:
        self._all_hosts.send_all(AskStacks(self._job.verbose))
        answers = self._all_hosts.answers((Stacks,), ANSWER).values()
        return told_once({rank: text for one in answers if isinstance(one, Stacks) for rank, text in one.texts.items()})

    def _finish(self, verdict: Verdict) -> None:
        """Have all hosts end the remaining processes, and take the rest of the output."""
        asked = [i for i in range(len(self._job.nodes)) if i in self._all_hosts]
        self._all_hosts.send_all(Finish(records=verdict.code != 0, profiles=bool(self._job.profile)))
        answers = self._all_hosts.answers((HostFinished,), FINISH)
        for i, said in self._all_hosts.reports():
            self._take(i, said)
        for i in asked:
            if not isinstance(end := answers.get(i), HostFinished):
                why = end.cause if isinstance(end, HostLost) else f"it was not reported within {FINISH:g} s"
                host = self._job.nodes[i].host
                self._writer.losses.note_cause(host, f"host {host}: the last output of its ranks may be lost: {why}")
        self._outputs.end()

    def _seen_traceback(self, rank: int) -> str:
        return self._outputs.traceback(rank) if self._statuses[rank] > 0 else ""  # a killed rank wrote no cause

    def _on(self, rank: int) -> str:
        return f"{self._host_names[rank]}, pid {self._pids[rank]}"

    def _elsewhere(self, rank: int) -> str:
        node = self._job.nodes[self._node[rank]]
        return "" if node.here else f" on {node.host}"

    def _say(self, text: str) -> None:
        self._writer.put(2, f"ringcast-launch: {escaped(text)}\n".encode())

    def _note(self, text: str) -> None:
        if not self._job.quiet:
            self._say(text)

    def _debug(self, text: str) -> None:
        if self._job.verbose:
            self._say(text)
