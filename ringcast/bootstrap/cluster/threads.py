"""The ranks of a cluster as threads of this process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ringcast.bootstrap.cluster.interrupts import Interrupts
from ringcast.bootstrap.cluster.member import Member
from ringcast.bootstrap.cluster.outcome import Outcome
from ringcast.bootstrap.cluster.ranks import BrokenOff
from ringcast.bootstrap.in_process import abort, thread_endpoints
from ringcast.bootstrap.time_limit import GRACE, left
from ringcast.bootstrap.world import thread_group
from ringcast.communicator import Communicator

Call: TypeAlias = Callable[[Communicator], Any]
Calls: TypeAlias = "queue.SimpleQueue[Call | None]"  # None: there are no more
Outcomes: TypeAlias = "queue.SimpleQueue[Outcome | None]"  # None: look at the interrupts
PATIENCE = 1.0  # seconds in which threads that are idle must have ended


class ThreadRanks:
    """Ranks that wait in threads for calls; fulfils `Ranks`."""

    def __init__(self, size: int) -> None:
        self._endpoints = thread_endpoints(size)
        self._members = [Member(thread_group(endpoint)) for endpoint in self._endpoints]
        self._runs = 0
        self._outcomes: Outcomes = queue.SimpleQueue()
        self._calls: list[Calls] = [queue.SimpleQueue() for _ in range(size)]
        # Idle threads must not keep the interpreter from its end.
        self._threads = [
            threading.Thread(target=_serve, args=(member, calls, self._outcomes), name=name, daemon=True)
            for member, calls in zip(self._members, self._calls, strict=True)
            for name in [f"ringcast-rank-{member.rank}"]
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        self._outcomes.put(None)

    def prepare(self, fn: Callable[..., Any], args: Sequence[Any]) -> Call:
        """Return the call: the ranks share function and arguments."""
        return lambda comm: fn(comm, *args)

    def run(self, call: Call, until: float | None, interrupts: Interrupts) -> list[Outcome]:
        self._runs += 1
        for calls in self._calls:
            calls.put(call)
        outcomes: list[Outcome] = []
        try:
            while len(outcomes) < len(self._threads):
                interrupts.deliver()
                self._take(outcomes, until)
                if until is not None and time.monotonic() >= until and len(outcomes) < len(self._threads):
                    raise TimeoutError
        except BaseException as error:  # an interrupt, or an error of a signal's handler
            unended = self._unended(outcomes)
            raise BrokenOff(error, unended, *self._break_off(outcomes, error)) from error
        return outcomes

    def _unended(self, outcomes: list[Outcome]) -> list[int]:
        return sorted({*range(len(self._threads))} - {one.rank for one in outcomes})

    def _take(self, outcomes: list[Outcome], until: float | None) -> bool:
        """Take an outcome, if one comes until then."""
        try:
            outcome = self._outcomes.get(timeout=left(until))
        except queue.Empty:
            return False
        if outcome is not None:
            outcomes.append(outcome)
        return True

    def _break_off(self, outcomes: list[Outcome], error: BaseException) -> tuple[list[Outcome], str]:
        """End the communication for good, as nothing else ends a thread; return outcomes and a text for the error."""
        for member in self._members:
            member.break_off(self._runs)
        abort(self._endpoints, f"the run was ended by {type(error).__name__}")
        until = time.monotonic() + GRACE
        while len(outcomes) < len(self._threads) and self._take(outcomes, until):
            pass
        busy = self._unended(outcomes)
        running = f"; these ranks still run, as nothing ends a thread from outside: {busy}" if busy else ""
        return outcomes, f"its communication was ended by {type(error).__name__}{running}"

    def close(self) -> None:
        """End idle threads; busy ones end when their function returns."""
        for calls in self._calls:
            calls.put(None)
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread():  # which may collect the last reference
                thread.join(left(until))


def _serve(member: Member, calls: Calls, outcomes: Outcomes) -> None:
    """Be a rank: make the calls that come, to the end."""
    while (call := calls.get()) is not None:
        outcome = member.run(call)
        del call  # or it would keep the arguments until the next one
        outcomes.put(outcome)
        del outcome
    member.leave()
