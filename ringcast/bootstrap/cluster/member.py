"""A rank of a cluster: it calls one function after the other, each with a communicator of its own.

Leftovers of a run, as messages that no rank took or collectives that were broken off, belong to communicators
that are retired before the next run. So a run that failed does not disturb the next one, as long as all ranks and their
links are there. All ranks derive the numbers of a run's two communicators from the run's number: nothing is sent.

1. The function gets the first one. The ranks meet on the second one when they return: a rank that still waits for one
   that has returned is then in a deadlock, which is found as any other.
2. A rank whose function raises revokes all communicators of the run, so that no rank waits for it.
3. The next run begins when all ranks have reported their outcomes. Then all leftovers of this one are retired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from ringcast._util.safe_text import is_a
from ringcast.bootstrap.cluster.outcome import Outcome
from ringcast.bootstrap.world import WORLD, adopt, all_frames_wanted
from ringcast.collectives.split import derived, end_of_run
from ringcast.collectives.stage import Group, part
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import expire, group_of
from ringcast.engine.drive import drive
from ringcast.engine.unanswered import UnansweredErrors
from ringcast.errors import JobAborted, PeerFailed, Revoked, UsageError
from ringcast.requests.caller import not_waited_for
from ringcast.wire.control_messages import Freed, Made
from ringcast.wire.error_text import in_a_line, trace_of
from ringcast.wire.failure import Failure, clean
from ringcast.wire.flight import Flight, decode

CONSEQUENCES = (PeerFailed, Revoked, JobAborted)  # errors that another rank's error brings about
_LEFT = "the function called ringcast.finalize()"
_LIBRARY = str(Path(__file__).parents[2])


class Member:
    """One rank of a cluster; `world` has all its ranks, and no program calls it."""

    def __init__(self, world: Group) -> None:
        self._world = world
        self._runs = 0
        self._posted: list[int] = []  # by peer, when the run began
        self._matched: list[int] = []
        self._broken_off = 0, 0.0  # number of a run, and when on the monotonic clock

    @classmethod
    def of(cls, world: Communicator) -> Member:
        """Return the `Member` of this process, or of this thread."""
        return cls(group_of(world))

    @property
    def rank(self) -> int:
        return self._world.rank

    def break_off(self, run: int) -> None:
        """Note that the caller ends a run, 1 or more, before all functions have returned; called by another thread."""
        self._broken_off = run, time.monotonic()

    @property
    def _late(self) -> bool:
        """Whether the caller has broken off this run."""
        return self._broken_off[0] == self._runs

    def run(self, call: Callable[[Communicator], Any]) -> Outcome:
        """Call the function, and return its outcome. Never raises."""
        comm, returned, late = None, False, False
        try:
            work, end = self._begin()
            comm = Communicator(work)
            adopt(comm)
            result = call(comm)
            returned, late = True, self._late
            self._finish(end)
        except BaseException as error:  # of the program's function, SystemExit too: the outcome has it
            return self._failed(error, returned, late or (self._late and not returned))
        finally:
            if comm is not None:
                expire(comm)
        caught = self._world.endpoint.unanswered.first
        if caught is not None:
            failure = Failure(str(caught), blames=caught.blames)
            return self._outcome(failure=failure, follows=caught.follows, returned=True, late=late)
        return self._outcome(result=result, returned=True, late=late)

    def _begin(self) -> tuple[Group, Group]:
        """Retire the leftovers of the last run, and return the communicators of this one."""
        endpoint = self._world.endpoint
        protocol = endpoint.protocol
        self._runs += 1
        fresh = [derived(WORLD, self._runs, which) for which in range(2)]
        with endpoint.gate:
            self._retire_all_but(fresh)
            self._posted, self._matched = [*protocol.posted], [*protocol.matched]
            for context in fresh:
                protocol.enrol(context, range(endpoint.size))
                endpoint.control.send(Made(endpoint.rank, context, tuple(range(endpoint.size))))
                endpoint.unanswered.made(context, WORLD)
        work, end = (part(self._world, context, (), self._world.hosts) for context in fresh)
        return work, end

    def _retire_all_but(self, fresh: Sequence[int]) -> None:
        """Retire all communicators but these: ranks that are ahead may have sent messages on them."""
        endpoint = self._world.endpoint
        for context in endpoint.protocol.communicators():
            if context not in (WORLD, *fresh):
                endpoint.protocol.enrol(context, range(endpoint.size))
                endpoint.protocol.retire(context, by_all=True)
                endpoint.control.send(Freed(endpoint.rank, context))
        endpoint.flush()
        endpoint.unanswered = UnansweredErrors()
        endpoint.requests.clear()
        endpoint.dropped.clear()

    def leave(self) -> None:
        """Leave the cluster, in which all runs have ended."""
        endpoint = self._world.endpoint
        if not endpoint.closed:
            with endpoint.gate:
                self._retire_all_but(())
                endpoint.leave()

    def _finish(self, end: Group) -> None:
        """Wait until all ranks have returned.

        Raises:
            UsageError: the function has left the job, or has not waited for a request.
            CollectiveMismatch: the last call was not the same on other ranks.
        """
        endpoint = self._world.endpoint
        if endpoint.closed:
            raise UsageError(f"rank {self.rank}: {_LEFT}; leave that out: the cluster does it when it is closed")
        left = [*endpoint.dropped, *((call.operation, call.site) for call in [*endpoint.requests.values()])]
        if left and not endpoint.protocol.gave_up:
            raise not_waited_for(self.rank, left)
        drive(endpoint, end_of_run(end))
        if (wrong := endpoint.protocol.unreported()) is not None:
            raise wrong

    def _failed(self, error: BaseException, returned: bool, late: bool) -> Outcome:
        """Revoke all communicators of the run, so that no rank waits for this one; return its outcome, the error."""
        endpoint = self._world.endpoint
        BaseException.with_traceback(error, _from_program(trace_of(error)))  # its class may have methods of its own
        failure = Failure.of(error, whole=all_frames_wanted())
        facts: dict[str, Any] = {
            "failure": failure,
            "error": error,
            "returned": returned,
            "late": late,
            "flight": self._flight(is_a(error, CONSEQUENCES)),
        }
        try:
            if not endpoint.closed and not endpoint.torn:
                cause = clean(f"rank {self.rank} raised {failure.cause}")
                with endpoint.gate:
                    for context in endpoint.protocol.communicators():
                        if context != WORLD and not endpoint.protocol.revoked(context):
                            endpoint.protocol.revoke(context, Revoked(self.rank, cause, self.rank))
                            endpoint.revoke(context, cause)
                    endpoint.flush()
        except BaseException as trouble:  # an interrupt too: the state of the other ranks is unknown
            return self._outcome(broken=f"rank {self.rank}: {in_a_line(trouble)}", **facts)
        return self._outcome(follows=is_a(error, CONSEQUENCES), **facts)

    def _outcome(self, *, broken: str = "", **facts: Any) -> Outcome:
        endpoint = self._world.endpoint
        protocol = endpoint.protocol
        return Outcome(
            self.rank,
            posted=tuple(now - before for now, before in zip(protocol.posted, self._posted, strict=False)),
            matched=tuple(now - before for now, before in zip(protocol.matched, self._matched, strict=False)),
            recovered=protocol.gave_up,
            broken=broken or self._broken(),
            **facts,
        )

    def _flight(self, follows: bool) -> Flight | None:
        """Return the record of this rank, with the call that it was in when the run was broken off, or that failed.

        `follows` says that another rank's error has ended the function, which this rank may meet before the break-off.
        """
        flight = None if self._world.endpoint.closed else decode(self._world.endpoint.recorder.image())
        if flight is None:
            return None
        when = self._broken_off[1] if self._late else inf
        # Of a thread, which nothing ends from outside, the last call may have begun after that.
        last = [entry for entry in flight.entries if entry.start <= when][-1:]
        ended = {entry for entry in last if self._late and not follows and entry.end is not None and entry.end < when}
        return replace(flight, entries=tuple(entry for entry in last if entry not in ended))

    def _broken(self) -> str:
        endpoint = self._world.endpoint
        if endpoint.torn:
            return f"rank {self.rank}: {endpoint.torn}"
        if endpoint.closed:
            return f"rank {self.rank}: {_LEFT}"
        if endpoint.protocol.aborted is not None:
            return f"the job was aborted: {endpoint.protocol.aborted}"
        lost = {**endpoint.protocol.failed, **endpoint.protocol.finished}
        return f"rank {self.rank} has lost rank {', '.join(map(str, lost))}" if lost else ""


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames before the program's first one, which call its function."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_LIBRARY):
        trace = trace.tb_next
    return trace
