"""The benchmark inside a launched job: all ranks do the same cases, and all get the times of the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ringcast.bench.cases import Case, Measurement
from ringcast.bench.systems.harness import System, measure
from ringcast.communicator import Communicator
from ringcast.events import Event
from ringcast.trace import from_json


class Here:
    """The ranks of the job that this process belongs to; every rank makes one, and does the same with it.

    `system` does the cases; `comm` carries what is told about them, outside the timed part.
    """

    rate: int | None = None  # bit/s of the links: not known

    def __init__(self, comm: Communicator, system: System) -> None:
        self._comm, self._system = comm, system

    def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
        """Yield what each case took, the same on all ranks; `systems` is the one that is here."""
        assert list(systems) == [self._system.name], "peers run on a bed only"
        return map(self._measure, cases)

    def _measure(self, case: Case) -> Measurement:
        done = Measurement(case, self._system.name, version=self._system.version)
        call = self._system.prepare(case.to_json())
        if call is None:
            return replace(done, problem="not supported")
        wrong = self._system.check() if case.check else ""
        if problems := [text for text in self._comm.allgather(wrong) if text]:
            return replace(done, problem=f"wrong result: {problems[0]}")
        mine = measure(self._system, call, case.warmup, case.repeat)
        slowest = self._comm.allgather(np.array(mine)).max(axis=0)
        return replace(done, seconds=tuple(slowest.tolist()), **self._system.chosen())

    def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
        """Yield the events of all ranks in one repetition of each case; on ranks but 0 without any."""
        for case in cases:
            self._system.prepare(case.to_json())
            gathered = self._comm.gather(self._system.trace())
            yield [[from_json(values) for values in one] for one in gathered or ()]
