"""The benchmark on emulated hosts: ringcast and its peers on the same links."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ringcast.commands.bench import orchestrate
from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.cases import Case, Measurement
from ringcast.events import Event
from ringcast.monitoring.trace import from_json


class OnBed:
    """The hosts of a bed, one rank of each system on each."""

    def __init__(self, bed: Bed, config: Path) -> None:
        """`config` has the constants by which ringcast chooses."""
        self._bed = bed
        self._env = {**os.environ, "RINGCAST_CONFIG": str(config.absolute())}
        self.rate = bed.rate_bits

    def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
        """Yield, case by case, what it took on each system."""
        return orchestrate.measure(self._bed, systems, cases, self._env)

    def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
        """Yield the events of all ranks in one repetition of each case by ringcast."""
        for by_rank in orchestrate.trace(self._bed, cases, self._env):
            yield [[from_json(values) for values in one] for one in by_rank]
