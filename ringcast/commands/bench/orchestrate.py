"""Measure several systems on the same hosts, in turn, so that drift of the machine affects all equally.

The ranks of all systems live side by side; only the ranks of one system work, the others sleep. The repetitions of a
case come in a few turns; in each turn every system has its share, and the order rotates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench.cases import OURS, Case, Measurement
from ringcast.commands.bench.job import BenchJob, JobLost
from ringcast.commands.bench.launch import Launch
from ringcast.commands.bench.limits import busiest
from ringcast.commands.bench.peers import PeerMissing
from ringcast.events import Event
from ringcast.monitoring.trace import from_json

TURNS = 5  # of every system in a case

# Returns the bytes that each host has sent and received so far.
Meter = Callable[[], Sequence[tuple[int, int]]]


class Site(Protocol):
    """A place where the ranks of all systems run side by side.

    Attributes:
        size: number of ranks of each system.
        rate: of the links, in bit/s; None if there are none, or it is not known.
        meter: reads the bytes that the links have carried; None if the site has no counters.
    """

    @property
    def size(self) -> int: ...
    @property
    def rate(self) -> int | None: ...
    @property
    def meter(self) -> Meter | None: ...

    def ours(self) -> Launch:
        """Return the launch of ringcast's ranks."""

    def peer(self, name: str, folder: Path, stack: ExitStack, /) -> Launch:
        """Return the launch of a peer's ranks.

        Args:
            name: of `peers.PEERS`.
            folder: an existing directory, private to this user, which stays until all ranks have connected.
            stack: ends the helpers of the start after that.

        Raises:
            PeerMissing: the peer is not installed and cannot be.
        """

    def objection(self, hosts: Sequence[str], /) -> str:
        """Return why ranks on these hosts (by rank) cannot be measured; "" if they can."""


@dataclass
class Contestant:
    """A measured system: its job, the command that started it, and the problem for which it was dropped."""

    name: str
    job: BenchJob | None = None
    problem: str = ""
    command: str = ""

    def drop(self, problem: str) -> None:
        """End the job of this system, because of a problem; its rows name the problem."""
        self.problem = problem
        if self.job is not None:
            self.job.close(patience=0)


@dataclass
class Run:
    """The measurements of one case on one system."""

    seconds: list[float] = field(default_factory=list)
    chosen: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    carried: int = 0  # bytes in the busiest direction of the busiest link, warm-ups included
    calls: int = 0  # warm-ups included


class SideBySide:
    """Several systems on one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.rate = site.rate

    def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
        """Yield the measurements of every case on every system, case by case; all jobs end with the iterator.

        Args:
            systems: "ringcast" and names of `peers.PEERS`.
            cases: to measure.
        """
        with ExitStack() as stack:
            contestants = [_enter(stack, self._site, name) for name in systems]
            yield from compete(contestants, cases, self._site.meter)

    def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
        """Yield for every case the events of all ranks in one repetition on ringcast.

        Raises:
            JobLost: ringcast did not start, or failed.
        """
        with ExitStack() as stack:
            job, _ = _job(stack, self._site, OURS)
            for case in cases:
                answers = job.ask("prepare", case=case.to_json())
                if not _first(answers, "error"):
                    answers = job.ask("trace")
                if problem := _first(answers, "error"):
                    raise JobLost(f"{case.collective}: {problem}")
                yield [[from_json(values) for values in answer["events"]] for answer in answers]


def compete(contestants: Sequence[Contestant], cases: Sequence[Case], meter: Meter | None) -> Iterator[Measurement]:
    """Yield the measurements of every case on every contestant; a lost contestant is dropped, and its rows say why."""
    for case in cases:
        runs = [Run() for _ in contestants]
        for one, run in zip(contestants, runs, strict=True):
            _guard(one, run, _prepare, case)
        for turn, share in enumerate(shares(case.repeat)):
            warmup = case.warmup if turn == 0 else int(share > 1)  # short ones: the caches hold another system's data
            for i in range(len(contestants)):
                which = (i + turn) % len(contestants)
                _guard(contestants[which], runs[which], _measure, meter, warmup, share)
        for one, run in zip(contestants, runs, strict=True):
            yield _result(one, run, case, watched=meter is not None)


def shares(repeat: int) -> list[int]:
    """Return the number of repetitions of each turn.

    >>> shares(3), shares(12)
    ([1, 1, 1], [3, 3, 2, 2, 2])
    """
    turns = min(repeat, TURNS)
    return [repeat // turns + (turn < repeat % turns) for turn in range(turns)]


def _guard(one: Contestant, run: Run, act: Callable[..., str], *arguments: Any) -> None:
    """Let a contestant act, unless it or its run has a problem; note a new problem."""
    if one.job is None or one.problem or run.problem:
        run.problem = run.problem or one.problem
        return
    try:
        run.problem = act(one.job, run, *arguments)
    except JobLost as error:
        one.drop(str(error))
        run.problem = str(error)


def _prepare(job: BenchJob, _: Run, case: Case) -> str:
    answers = job.ask("prepare", case=case.to_json())
    if any("unsupported" in answer for answer in answers):
        return "not supported"
    if problem := _first(answers, "error"):
        return problem
    if not case.check:
        return ""
    answers = job.ask("check")
    if problem := _first(answers, "error"):
        raise JobLost(problem)  # the state of its ranks is not known now
    wrong = _first(answers, "wrong")
    return f"wrong result: {wrong}" if wrong else ""


def _measure(job: BenchJob, run: Run, meter: Meter | None, warmup: int, repeat: int) -> str:
    before = meter() if meter else ()
    answers = job.ask("measure", calls=warmup + repeat, warmup=warmup, repeat=repeat)
    if problem := _first(answers, "error"):
        raise JobLost(problem)
    after = meter() if meter else ()
    moved = (b - a for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=True))
    run.carried += max(moved, default=0)
    run.calls += warmup + repeat
    run.seconds += map(max, zip(*(answer["seconds"] for answer in answers), strict=True))
    run.chosen = {name: answers[0].get(name) for name in ("algorithm", "nblocks", "rounds")}
    return ""


def _first(answers: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the value of `name` in the first answer that has it, with the rank; "" if no answer has it."""
    return next((f"rank {rank}: {answer[name]}" for rank, answer in enumerate(answers) if name in answer), "")


def _result(one: Contestant, run: Run, case: Case, *, watched: bool) -> Measurement:
    version = one.job.version if one.job is not None else ""
    problem = run.problem or (_detour(run, case) if watched else "")
    seconds = tuple(run.seconds)
    return Measurement(case, one.name, seconds, version=version, command=one.command, problem=problem, **run.chosen)


def _detour(run: Run, case: Case) -> str:
    """Return a complaint if fewer bytes went over the busiest link than the case needs with any algorithm."""
    needed = run.calls * (busiest(case) or 0)
    if run.carried >= needed:
        return ""
    return (
        f"went around the wire: the busiest link carried {run.carried / run.calls:.3g} bytes a repetition, "
        f"at least {float(needed / run.calls):.3g} have to be"
    )


def _enter(stack: ExitStack, site: Site, name: str) -> Contestant:
    try:
        job, command = _job(stack, site, name)
    except (JobLost, PeerMissing) as error:
        return Contestant(name, problem=str(error))
    if objection := site.objection(job.hosts):
        return Contestant(name, problem=objection)
    return Contestant(name, job, command=command)


def _job(stack: ExitStack, site: Site, name: str) -> tuple[BenchJob, str]:
    """Start a system on the site, until the end of `stack`; return its job, and the command that started it."""
    with tempfile.TemporaryDirectory(prefix="rb-") as folder:  # not needed any more when all ranks have connected
        launch = site.ours() if name == OURS else site.peer(name, Path(folder), stack)
        return stack.enter_context(BenchJob(site.size, launch.start)), launch.command
