"""Measure inside a launched job: all ranks do the same cases, and all get the times of the slowest rank."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ringcast.commands.bench.cases import Case, Measurement
from ringcast.commands.bench.systems.harness import System, measure
from ringcast.communicator import Communicator
from ringcast.events import Event
from ringcast.monitoring.trace import align, from_json, shifted


class Here:
    """The ranks of the job that this process belongs to; every rank makes one, and does the same with it.

    `system` does the cases; `comm` exchanges their results, outside of the timed part.
    """

    rate: int | None = None  # bit/s of the links: not known

    def __init__(self, comm: Communicator, system: System) -> None:
        self._comm, self._system = comm, system

    def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
        """Yield the measurement of each case, the same on all ranks; `systems` has only the system of this job."""
        assert list(systems) == [self._system.name], "peers do not run in a job"
        return map(self._measure, cases)

    def _measure(self, case: Case) -> Measurement:
        done = Measurement(case, self._system.name, version=self._system.version)
        call, short = None, False
        try:
            call = self._system.prepare(case.to_json())
        except MemoryError:
            short = True
        if any(self._comm.allgather(short)):
            return replace(done, problem="not enough memory")
        if call is None:
            return replace(done, problem="not supported")
        wrong = self._system.check() if case.check else ""
        if problems := [text for text in self._comm.allgather(wrong) if text]:
            return replace(done, problem=f"wrong result: {problems[0]}")
        mine = measure(self._system, call, case.warmup, case.repeat)
        slowest = self._comm.allgather(np.array(mine)).max(axis=0)
        return replace(done, seconds=tuple(slowest.tolist()), **self._system.chosen())

    def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
        """Yield the events of all ranks in one repetition of each case; ranks other than 0 get none.

        On several hosts, whose clocks differ, `ringcast.monitoring.trace.align` converts times to the clock of rank 0.
        """
        apart = len(set(self._comm.allgather(socket.gethostname()))) > 1
        for case in cases:
            self._system.prepare(case.to_json())
            gathered = self._comm.gather(self._system.trace(barrier=apart))
            events = [[from_json(values) for values in one] for one in gathered or ()]
            yield aligned(events) if apart and events else events


def aligned(events_by_rank: Sequence[Sequence[Event]]) -> list[list[Event]]:
    """Return the events of ranks that began with a barrier, without the barrier's, by the clock of rank 0.

    `align` lets every trace begin at time 0; by a clock, the traces of several cases come one after the other.
    """
    first = events_by_rank[0]
    left = max(event.time for event in first if event.number == first[0].number)
    return [[shifted(event, left) for event in events] for events in align(events_by_rank)]
