"""Compare the automatic choice of algorithm and number of blocks with the best choice by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from ringcast.commands.bench import plan
from ringcast.commands.bench.cases import OURS, Case, Measurement, title
from ringcast.commands.bench.figures import TUNE, Row, judge
from ringcast.commands.bench.report import choices, choices_title
from ringcast.events import Event

PROBES = 3  # least repetitions that decide whether to search an algorithm's best number of blocks


class Runner(Protocol):
    """A set of ranks on which cases can be measured.

    Attributes:
        rate: of the links, in bit/s; None if it is not known.
    """

    rate: int | None

    def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
        """Yield, case by case, the measurement on each system."""

    def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
        """Yield the events of all ranks in one repetition of each case by ringcast."""


def tune(place: Runner, cases: Sequence[Case], tell: Callable[[str], None]) -> list[Row]:
    """Measure each case with the automatic choice and by hand, print the comparison, and return all rows.

    Every algorithm that can do the case is tried with its automatic number of blocks; algorithms that are not hopeless
    also with a quarter to four times as many. Cases without a choice are left out.
    """
    cases = [case for case in cases if plan.by_hand(case)]
    probes = [
        [replace(one, repeat=max(PROBES, case.repeat // 5)) for one in plan.by_hand(case)] for case in cases
    ]  # fmt: skip
    probed = list(_groups(place, probes))
    wanted = [[case, *plan.around(case, found)] for case, found in zip(cases, probed, strict=True)]
    rows: list[Row] = []
    for case, measured in zip(cases, _groups(place, wanted), strict=True):
        automatic, *by_hand = [judge(one, place.rate, TUNE) for one in measured]
        if not rows or title(rows[-1].case) != title(case):
            for line in choices_title(automatic):
                tell(line)
        tell(choices(automatic, by_hand))
        rows += [automatic, *by_hand]
    return rows


def _groups(place: Runner, groups: Sequence[Sequence[Case]]) -> Iterator[list[Measurement]]:
    """Yield the measurements of each group, all from one run of the jobs."""
    everything = place.measure([OURS], [case for group in groups for case in group])
    for group in groups:
        yield list(islice(everything, len(group)))
