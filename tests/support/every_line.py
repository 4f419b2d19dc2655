"""A signal at one line of the engine of one rank, on the simulated wire; its handler raises, and the ranks go on.

Each rank is a thread, of which one runs at a time: a rank that waits hands over to one that can go on, and when there
is none the clock moves. So each run is the same, and the n-th line of a rank's engine is always the same one.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import pytest

import ringcast
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator, lifetime
from ringcast.errors import RingcastError
from ringcast.transports.base import MemoryArrival
from ringcast.transports.simulated import SimulatedTransport, SimulatedWire
from support.gates import ThreadGate

LIBRARY = str(Path(ringcast.__file__).parent)
NONE_HERE = "# no signal gets between: the interpreter looks for them at calls only, and at jumps backwards\n"
CONTEXT = 3
GRANTED = 30_000  # numbers of a message that is not sent without a grant
Result = TypeVar("Result")
ENDLESS = 60.0  # seconds of the wire's clock in which everything ends


class Alarm(BaseException):
    """Raised by the handler of the signal."""


class Stuck(BaseException):
    """Nobody can go on: ends all programs."""


class SharedWire(SimulatedWire):
    """A wire whose ranks are threads that take turns."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ends = [_End(self, rank) for rank in range(size)]
        self.stuck = False
        self._turn = [threading.Semaphore(0) for _ in range(size)]
        self._until: dict[int, float | None] = {}  # until when the ranks that do not run wait

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run the program of each rank to its end."""

        def work(rank: int) -> None:
            self._turn[rank].acquire()
            try:
                programs[rank]()
            finally:
                self._hand_over()

        self._until = dict.fromkeys(range(len(programs)), 0.0)
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(programs))]
        for thread in threads:
            thread.start()
        self._hand_over()
        for thread in threads:
            thread.join()

    def wait(self, rank: int, until: float | None) -> None:
        """Let others run until something is in the inbox, or it is so late."""
        self._until[rank] = until
        self._hand_over()
        self._turn[rank].acquire()
        if self.stuck:
            raise Stuck(f"rank {rank}, at {self.now} s")

    def _hand_over(self) -> None:
        while self._until:
            for rank, until in self._until.items():
                if self.stuck or self.ends[rank].inbox or (until is not None and until <= self.now):
                    del self._until[rank]
                    self._turn[rank].release()
                    return
            dues = [until for until in self._until.values() if until is not None]
            self.deliver(min(dues, default=None))
            self.stuck = self.now > ENDLESS or (not dues and not self._flying and not any(e.inbox for e in self.ends))


class _End(SimulatedTransport):
    """One rank's end."""

    def poll(self, deadline: float | None) -> MemoryArrival | None:
        wire = self._wire
        assert isinstance(wire, SharedWire)
        if not self.inbox and (deadline is None or deadline > wire.now):
            wire.wait(self._rank, deadline)
        return MemoryArrival(self.inbox.popleft()) if self.inbox else None


class Injector:
    """Does something at the n-th line of the library that its thread runs, from `start` on."""

    def __init__(self, line: int, what: Callable[[], None]) -> None:
        self.where = ""
        self._left, self._what = line, what

    def start(self) -> None:
        sys.settrace(self._call)

    def stop(self) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(LIBRARY) else None

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).endswith(NONE_HERE):
            self._left -= 1
            if self._left < 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self.stop()
                frame.f_trace = None
                self._what()
        return self._line


class Run:
    """p ranks that call collectives; at a line of the victim's engine a signal comes, whose handler raises."""

    def __init__(self, verb: str, size: int, victim: int, line: int) -> None:
        self.verb, self.size, self.victim = verb, size, victim
        self.injector = Injector(line, lambda: self.gate.interrupt(alarm))
        self.gate = ThreadGate()
        self.results: dict[int, Any] = {}
        self._wire = SharedWire(size)
        self._ends = endpoints(self._wire.ends)
        self._local = threading.local()

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lifetime, "gate_of_this_thread", lambda: self._local.gate)
            self._wire.run([partial(self._program, rank) for rank in range(self.size)])

    def _program(self, rank: int) -> None:
        self._local.gate = self.gate if rank == self.victim else ThreadGate()
        comm = Communicator(Group(self._ends[rank], CONTEXT, NETWORKS["threads"]))
        try:
            if rank == self.victim:
                self.injector.start()
            comm = self._epochs(comm)
            sys.settrace(None)
            self.results[rank] = comm.members, compute(comm)
        except BaseException as error:
            self.results[rank] = error
        finally:
            sys.settrace(None)

    def _epochs(self, comm: Communicator) -> Communicator:
        """Compute, and go on with those that live, as they agree or without a question; return these."""
        for _ in range(2):
            try:
                compute(comm)
                good = True
            except (Alarm, RingcastError):
                good = False
                again(comm.revoke)
            if self.verb == "shrink" or not again(lambda: comm.agree(good)):  # noqa: B023 (called at once)
                comm = again(comm.shrink)
        return comm


def alarm(*_: object) -> None:
    raise Alarm


def again(verb: Callable[[], Result]) -> Result:
    """Call a verb until it is not broken off."""
    while True:
        try:
            return verb()
        except Alarm:
            pass


def compute(comm: Communicator) -> Any:
    total = comm.allreduce(np.full(4, comm.rank + 1))
    gathered = comm.allgather(np.full(GRANTED, comm.rank))
    told = comm.bcast({"ranks": comm.size} if comm.rank == 0 else None)
    return total.tolist(), gathered[:, -1].tolist(), told


def expected(size: int) -> Any:
    return tuple(range(size)), ([size * (size + 1) // 2] * 4, list(range(size)), {"ranks": size})


def check(verb: str, size: int, victim: int, line: int) -> bool:
    """Let a signal come at this line of the victim's engine; whether there is such a line.

    Raises:
        AssertionError: not all ranks have come to the right result.
    """
    run = Run(verb, size, victim, line)
    run.run()
    at = f"{verb}, {size} ranks, a signal at line {line} of rank {victim}, {run.injector.where}"
    for rank in range(size):
        members, result = expected(size)
        assert run.results[rank] in ((members, result), ((), result)), f"{at}: rank {rank}: {run.results}"
    return bool(run.injector.where)


def main() -> None:
    """Show the lines at which a signal does harm; the last argument is the step.

    `PYTHONPATH=tests python -m support.every_line shrink 3 0 1`
    """
    verb, (size, victim, step) = sys.argv[1], map(int, sys.argv[2:])
    for line in count(0, step):
        try:
            if not check(verb, size, victim, line):
                print(f"{line} lines")
                return
        except AssertionError as error:
            print(error)


if __name__ == "__main__":
    main()
