"""Outcome of one rank's part in a run of a cluster, and the verdict on the outcomes of all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.errors import RunFailed
from ringcast.wire.failure import Failure
from ringcast.wire.flight import Flight


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rank's result, or its failure, and the numbers of messages that it sent and took in this run, by peer."""

    rank: int
    result: Any = field(default=None, repr=False)
    failure: Failure | None = None
    error: BaseException | None = None  # the error itself, where the rank is in this process
    returned: bool = False  # the function has; an error then came in the meeting of the ranks at the end of the run
    late: bool = False  # the function went on when the run was broken off
    flight: Flight | None = None  # of a rank that failed or was late: the call in which it was, if it was in one
    follows: bool = False  # another rank's error has brought it about
    broken: str = ""  # why this rank can communicate no more, even on another communicator
    posted: tuple[int, ...] = ()
    matched: tuple[int, ...] = ()
    recovered: bool = False  # messages were lost in an error that the ranks have recovered from


def verdict(outcomes: Sequence[Outcome]) -> RunFailed | None:
    """Return the error of a run, whose outcomes are given in the order in which they came; None if it went well."""
    failed = [one for one in outcomes if one.failure is not None]
    if failed:
        # A rank in a call of the program and one that has returned may report the same deadlock.
        first = min(failed, key=lambda one: (one.follows, one.returned))
        assert first.failure is not None
        error = RunFailed(first.rank, first.failure.cause, first.failure.traceback)
        error.__cause__ = first.error
        return error
    if any(one.recovered for one in outcomes):
        return None
    for source, sink in itertools.permutations(outcomes, 2):
        if source.posted[sink.rank] > sink.matched[source.rank]:
            return RunFailed(sink.rank, f"it finished without taking a message of rank {source.rank}")
    return None
