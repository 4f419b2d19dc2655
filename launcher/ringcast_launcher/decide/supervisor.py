"""Decide on actions for events of workers: a state machine without processes, sockets or clocks.

The first failure decides the job's fate. A worker fails when it exits with another code than 0, is killed, reports an
uncaught error, is stuck, or exits with code 0 without having said that it finished. It is fenced: all processes that
are left of it are killed, so that a failed rank acts no more. A worker that reports its own error is fenced when it has
ended, at the latest after `settle` seconds. When a rank is fenced, the others are notified; they have `grace` seconds
to raise their own errors, then get SIGTERM, and SIGKILL `patience` seconds later.

With `continue_on_failure` a failure ends no other rank: the others are notified and go on. The verdict on the job comes
last, when all events are known (`ringcast_launcher.decide.verdict`).

A worker that caught an error of communication, and went on without an answer to it (`ringcast.engine.unanswered`), has
failed too: no rank is ended for that, as the worker may have more to say, but the job has not succeeded.

A signal that asks the launcher to end is passed on to all workers, which then have a grace period: `preempted` seconds
after SIGTERM, as batch systems and Kubernetes send it, `interrupted` seconds after another signal. A second such signal
ends the workers at once. All other signals are passed on and change nothing, unless a worker dies by one.
"""

from __future__ import annotations

import signal
from dataclasses import field
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.control.events import AllJoined, ForOwner, Joined, Lost, StartFailed, TooLate, Unread
from ringcast.procs.liveness import Hung
from ringcast.procs.timing import TIMING
from ringcast.wire.control_messages import Failing, Finished
from ringcast.wire.failure import Failure
from ringcast_launcher.decide.verdict import EVERY_CALL, Past, Verdict, Worker
from ringcast_launcher.system.signals import PASSED_ON

TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker's process ended: with an exit code, or killed by signal -status."""

    rank: int
    status: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """No process of this rank is left."""

    rank: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """The launcher, or an agent, received a signal; SIGPIPE: all readers of the launcher's output have gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = ForOwner | Exited | Fenced | Signalled | Hung | Tick


@dataclass(frozen=True, slots=True)
class Fence:
    """Kill the remaining processes of a rank: its process group and its descendants."""

    rank: int


@dataclass(frozen=True, slots=True)
class Declare:
    """Notify the other ranks that this one has failed."""

    rank: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class AbortJob:
    """Notify all ranks that the job ends."""

    cause: str


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal to the process groups of all workers."""

    number: int


Action: TypeAlias = Fence | Declare | AbortJob | SendSignal | Verdict


@dataclass(frozen=True, slots=True)
class Fate:
    """The state of one rank: how far it came, or how it ended."""

    status: int | None  # exit code, or minus the signal that killed it; None while it runs
    joined: bool
    finished: bool  # whether the rank has said that it communicates no more
    failure: str  # why it counts as failed; empty where it does not
    error: str  # the error that the rank itself reported …
    traceback: str  # … and the place where it arose


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds to wait before each step of ending a job."""

    settle: float = (
        TIMING.settle
    )  # for the last words of a worker that exited with code 0, or for the end of one that failed
    grace: float = TIMING.grace  # after the first failure was declared, before SIGTERM
    patience: float = TIMING.terminate  # after SIGTERM, before SIGKILL
    interrupted: float = TIMING.interrupted  # after a signal to the launcher was passed on, before SIGKILL …
    preempted: float = TIMING.preempted  # … if the signal was SIGTERM


@dataclass(slots=True)
class _Ending:
    """The reason for ending the job (`code` is None if a worker's failure decides it), and the signals left to send."""

    code: int | None = None
    how: str = ""
    steps: list[tuple[float, int]] = field(default_factory=list)


class Supervisor:
    """The state machine of one job: `handle` takes an event and returns the actions."""

    def __init__(
        self,
        size: int,
        *,
        start: float,
        timeout: float | None = None,
        policy: Policy | None = None,
        continue_on_failure: bool = False,
    ) -> None:
        self._past = Past([Worker() for _ in range(size)], continue_on_failure)
        self._policy = policy or Policy()
        self._timeout = timeout
        self._deadline = None if timeout is None else start + timeout
        self._ending: _Ending | None = None
        self._over = False

    @property
    def due(self) -> float | None:
        """The time of the next Tick that can matter."""
        if self._over:
            return None
        times = [worker.settle_by for worker in self._past.workers if worker.settle_by is not None]
        if self._ending is not None:
            times += [time for time, _ in self._ending.steps]
        elif self._deadline is not None:
            times.append(self._deadline)
        return min(times, default=None)

    @property
    def ends_job(self) -> bool:
        """Whether it is clear that the job ends before its ranks have all finished."""
        return self._ending is not None or (bool(self._past.failed) and not self._past.continues)

    def fate(self, rank: int) -> Fate:
        """Return how a rank ended, or how far it has come."""
        worker = self._past.workers[rank]
        failure = self._past.failed.get(rank, "" if worker.caught is None else str(worker.caught))
        error, traceback = worker.report.cause, worker.report.traceback
        return Fate(worker.status, worker.joined, worker.finished, failure, error, traceback)

    @property
    def raised(self) -> dict[int, str]:
        """The names of the errors that ended programs of ranks."""
        told = {rank: worker.report.cause.partition(":")[0] for rank, worker in enumerate(self._past.workers)}
        return {rank: name for rank, name in told.items() if name}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return the actions that answer `event`, in order; the last action of a job is a Verdict."""
        if self._over:
            return []
        actions = self._answer(event, now)
        if all(w.status is not None and w.settle_by is None and w.to_declare is None for w in self._past.workers):
            self._over = True
            actions.append(self._verdict())
        return actions

    def _answer(self, event: Event, now: float) -> list[Action]:
        match event:
            case Joined():
                self._past.workers[event.rank].joined = True
            case TooLate():
                self._past.workers[event.rank].too_late = True
            case AllJoined():
                self._past.started = True
            case Finished():
                self._finished(event)
            case Failing():
                self._past.workers[event.rank].report = event.failure
                return self._let_end(event.rank, event.failure.cause, now)
            case Lost():
                self._past.workers[event.rank].lost = event.cause
                return self._let_end(event.rank, event.cause, now)
            case Hung():
                return self._fail(event.rank, event.cause)
            case Unread():
                messages = "a message" if event.count == 1 else f"{event.count} messages"
                self._note(event.rank, f"it finished without taking {messages} of rank {event.source}; {EVERY_CALL}")
                return self._end(_Ending(), now)
            case StartFailed():
                return self._end(_Ending(1, f"the job could not start: {event.reason}"), now)
            case Exited():
                return self._exited(event.rank, event.status, now)
            case Fenced():
                return self._fenced(event.rank, now)
            case Signalled():
                return self._signalled(event.number, now)
            case Tick():
                return self._tick(now)
        return []

    def _finished(self, event: Finished) -> None:
        worker = self._past.workers[event.rank]
        worker.finished, worker.report = True, event.failure
        worker.outlived = frozenset([*self._past.failed, *event.failure.blames])
        if event.unanswered is not None:
            worker.caught = event.unanswered
            self._past.caught.append(event.rank)
        if event.rank not in self._past.failed:
            worker.settle_by = None

    def _exited(self, rank: int, status: int, now: float) -> list[Action]:
        worker = self._past.workers[rank]
        worker.status = status
        if status != 0 or rank in self._past.failed:
            return self._fail(rank, self._past.described(status))
        if not worker.joined:
            return self._fence(rank, "it exited with code 0 without joining")
        if not worker.finished:
            worker.settle_by = now + self._policy.settle
        return []

    def _note(self, rank: int, cause: str) -> None:
        if rank not in self._past.failed and rank not in self._past.ended:
            self._past.failed[rank] = cause

    def _let_end(self, rank: int, cause: str, now: float) -> list[Action]:
        """Let a rank that failed, but may still run, end by itself within `settle` seconds."""
        self._note(rank, cause)
        worker = self._past.workers[rank]
        if worker.status is not None:
            return self._fail(rank, cause)
        if rank not in self._past.ended:
            worker.settle_by = worker.settle_by or now + self._policy.settle
        return []

    def _fail(self, rank: int, cause: str) -> list[Action]:
        """Fence a failed rank, to declare the failure to the others after that."""
        self._note(rank, cause)
        worker = self._past.workers[rank]
        worker.settle_by = None
        if worker.fenced:
            return []
        worker.fenced = True
        declared = self._past.failed.get(rank, cause)
        if worker.status is not None and rank in self._past.ended:
            # Children of a rank that we asked to end get SIGTERM too, once all ranks have ended.
            return [Declare(rank, self._failure(rank, declared))]
        if worker.status is None:
            self._past.ended.add(rank)
        return self._fence(rank, declared)

    def _fence(self, rank: int, cause: str) -> list[Action]:
        self._past.workers[rank].to_declare = self._failure(rank, cause)
        return [Fence(rank)]

    def _failure(self, rank: int, cause: str) -> Failure:
        """Return the failure to declare for a rank, with the failed ranks that the rank blames for it."""
        return Failure(cause, blames=tuple(sorted(self._past.causes(rank))))

    def _fenced(self, rank: int, now: float) -> list[Action]:
        """Declare the failure of a rank whose processes have all ended; the `grace` of the others begins now."""
        worker = self._past.workers[rank]
        failure, worker.to_declare = worker.to_declare, None
        if failure is None:
            return []
        if not worker.fenced:  # the worker exited with code 0 without joining: this alone ends no job
            return [Declare(rank, failure)]
        return [Declare(rank, failure), *self._end(_Ending(), now)]

    def _end(self, ending: _Ending, now: float) -> list[Action]:
        """Begin to end the job, unless that has begun already: the first reason stands.

        With `continue_on_failure` the others go on without a failed rank, unless the job has not started yet.
        """
        if ending.code is None and self._past.continues and self._past.started:
            return []
        if self._ending is None:
            asked = now + self._policy.grace
            ending.steps = [(asked, signal.SIGTERM), (asked + self._policy.patience, signal.SIGKILL)]
            self._ending = ending
        return []

    def _signalled(self, number: int, now: float) -> list[Action]:
        if number in PASSED_ON:
            self._past.passed_on.add(number)
            return [SendSignal(number)]
        if number == signal.SIGPIPE and self._ending is not None:  # SIGPIPE is no second request: the job ends anyway
            return []
        self._past.ended |= self._running()
        if self._ending is not None:  # asked twice: no more patience
            self._ending.steps = []
            return [SendSignal(signal.SIGKILL)]
        patience = self._policy.preempted if number == signal.SIGTERM else self._policy.interrupted
        steps = [(now + patience, int(signal.SIGKILL))]
        self._ending = _Ending(128 + number, f"ended by {signal.Signals(number).name}", steps)
        return [SendSignal(signal.SIGTERM if number == signal.SIGPIPE else number)]  # Python ignores SIGPIPE

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for rank, worker in enumerate(self._past.workers):
            if worker.settle_by is not None and now >= worker.settle_by:
                worker.settle_by = None
                actions += self._fail(rank, "it exited with code 0 without finishing")
        if self._ending is None and self._deadline is not None and now >= self._deadline:
            assert self._timeout is not None
            text = timed_out(self._timeout)
            how = f"{text}; still running: {ranks_in_words(sorted(self._running()))}"
            actions += [AbortJob(text), *self._end(_Ending(TIMED_OUT, how), now)]
        while self._ending is not None and self._ending.steps and now >= self._ending.steps[0][0]:
            self._past.ended |= self._running()
            actions.append(SendSignal(self._ending.steps.pop(0)[1]))
        return actions

    def _running(self) -> set[int]:
        return {rank for rank, worker in enumerate(self._past.workers) if worker.status is None}

    def _verdict(self) -> Verdict:
        if self._ending is not None and self._ending.code is not None:
            return Verdict(self._ending.code, how=self._ending.how)
        return self._past.verdict(ended=self._ending is not None)


def timed_out(seconds: float) -> str:
    """Return the message for a job that exceeded --timeout."""
    return f"timeout: the job did not end within {seconds:g} s"
