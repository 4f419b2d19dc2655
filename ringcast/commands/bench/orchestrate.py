"""Measure several systems on the same emulated hosts, in turn, so that drift of the machine hits all alike.

The ranks of all systems live side by side, one of each on every host; those that are not measured sleep. The
repetitions of a case come in a few turns; in each turn every system has its share, and the order rotates.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench import peers
from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.cases import OURS, Case, Measurement
from ringcast.commands.bench.job import BenchJob, JobLost, Starter
from ringcast.commands.bench.limits import busiest
from ringcast.commands.bench.peers import PeerMissing
from ringcast.commands.bench.remote import RemoteStarter
from ringcast.commands.bench.workers import start_workers

TURNS = 5  # of every system in a case

# Returns the bytes that each host has sent and received so far.
Meter = Callable[[], Sequence[tuple[int, int]]]


@dataclass
class Contestant:
    """A system, its job, and, once it has none any more, why."""

    name: str
    job: BenchJob | None = None
    problem: str = ""

    def drop(self, problem: str) -> None:
        """Leave the race."""
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


def measure(
    bed: Bed, systems: Sequence[str], cases: Sequence[Case], env: Mapping[str, str] = os.environ
) -> Iterator[Measurement]:
    """Yield what every case took on every system, case by case; all jobs end with the iterator.

    Args:
        bed: the hosts, one rank of each system on each.
        systems: "ringcast" and names of `peers.PEERS`.
        cases: what to do.
        env: the whole environment of ringcast's ranks, without what tells them of the job.
    """
    with ExitStack() as stack:
        contestants = [_enter(stack, bed, name, env) for name in systems]
        yield from compete(contestants, cases, lambda: [bed.carried(i) for i in range(len(bed.hosts))])


def trace(bed: Bed, cases: Sequence[Case], env: Mapping[str, str] = os.environ) -> Iterator[list[list[Any]]]:
    """Yield for every case the events of all ranks, as JSON, in one repetition on ringcast.

    Raises:
        JobLost: ringcast did not start, or failed.
    """
    with ExitStack() as stack:
        job = _job(stack, bed, OURS, env)
        for case in cases:
            answers = job.ask("prepare", case=case.to_json())
            if not _first(answers, "error"):
                answers = job.ask("trace")
            if problem := _first(answers, "error"):
                raise JobLost(f"{case.collective}: {problem}")
            yield [answer["events"] for answer in answers]


def compete(contestants: Sequence[Contestant], cases: Sequence[Case], meter: Meter) -> Iterator[Measurement]:
    """Yield what every case took on every contestant; one that is lost is dropped, and its rows say why."""
    for case in cases:
        runs = [Run() for _ in contestants]
        for one, run in zip(contestants, runs, strict=True):
            _guard(one, run, _prepare, case)
        for turn, share in enumerate(shares(case.repeat)):
            warmup = case.warmup if turn == 0 else int(share > 1)  # short ones: caches belong to the last one's turn
            for i in range(len(contestants)):
                which = (i + turn) % len(contestants)
                _guard(contestants[which], runs[which], _measure, meter, warmup, share)
        for one, run in zip(contestants, runs, strict=True):
            yield _result(one, run, case)


def shares(repeat: int) -> list[int]:
    """Return how many repetitions each turn has.

    >>> shares(3), shares(12)
    ([1, 1, 1], [3, 3, 2, 2, 2])
    """
    turns = min(repeat, TURNS)
    return [repeat // turns + (turn < repeat % turns) for turn in range(turns)]


def _guard(one: Contestant, run: Run, act: Callable[..., str], *arguments: Any) -> None:
    """Let a contestant do something, if all is well with it and its run; note what goes wrong."""
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
        raise JobLost(problem)  # whatever state its ranks are in now
    wrong = _first(answers, "wrong")
    return f"wrong result: {wrong}" if wrong else ""


def _measure(job: BenchJob, run: Run, meter: Meter, warmup: int, repeat: int) -> str:
    before = meter()
    answers = job.ask("measure", calls=warmup + repeat, warmup=warmup, repeat=repeat)
    if problem := _first(answers, "error"):
        raise JobLost(problem)
    after = meter()
    run.carried += max(b - a for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=True))
    run.calls += warmup + repeat
    run.seconds += map(max, zip(*(answer["seconds"] for answer in answers), strict=True))
    run.chosen = {name: answers[0].get(name) for name in ("algorithm", "nblocks", "rounds")}
    return ""


def _first(answers: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return what the lowest rank says that has `name` in its answer, with the rank; "" if none has."""
    return next((f"rank {rank}: {answer[name]}" for rank, answer in enumerate(answers) if name in answer), "")


def _result(one: Contestant, run: Run, case: Case) -> Measurement:
    version = one.job.version if one.job is not None else ""
    problem = run.problem or _detour(run, case)
    return Measurement(case, one.name, tuple(run.seconds), version=version, problem=problem, **run.chosen)


def _detour(run: Run, case: Case) -> str:
    """Return a complaint if less went over the busiest link than the case needs, whatever the algorithm."""
    needed = run.calls * (busiest(case) or 0)
    if run.carried >= needed:
        return ""
    return (
        f"went around the wire: the busiest link carried {run.carried / run.calls:.3g} bytes a repetition, "
        f"at least {float(needed / run.calls):.3g} have to be"
    )


def _enter(stack: ExitStack, bed: Bed, name: str, env: Mapping[str, str]) -> Contestant:
    try:
        job = _job(stack, bed, name, env)
    except (JobLost, PeerMissing) as error:
        return Contestant(name, problem=str(error))
    if len(set(job.hosts)) < len(job.hosts):
        return Contestant(name, problem=f"ranks share a host, so that not all goes over the wire: {job.hosts}")
    return Contestant(name, job)


def _job(stack: ExitStack, bed: Bed, name: str, env: Mapping[str, str]) -> BenchJob:
    """Start a system on the bed, one rank on each host, until the end of `stack`."""
    if name == OURS:
        return stack.enter_context(BenchJob(len(bed.hosts), _ours(bed, env)))
    with tempfile.TemporaryDirectory(prefix="rb-") as folder:  # not needed any more when all ranks are there
        return stack.enter_context(BenchJob(len(bed.hosts), _peer(stack, bed, name, Path(folder))))


def _ours(bed: Bed, env: Mapping[str, str]) -> Starter:
    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        argv = [sys.executable, "-P", "-m", "ringcast.commands.bench.systems.ringcast_system", str(path)]
        return start_workers(bed, argv, env, **_files(log))

    return start


def _peer(stack: ExitStack, bed: Bed, name: str, folder: Path) -> Starter:
    venv = peers.install(name)
    env = peers.environment(name, venv)
    mpirun = peers.PEERS[name].mpirun
    if mpirun is None:
        return _each_by_itself(bed, lambda path: peers.worker(name, venv, path), env)
    agent = stack.enter_context(RemoteStarter(bed, folder, env)).agent
    hosts = [host.name for host in bed.hosts]
    return _by_mpirun(bed, lambda path: mpirun(peers.Start(venv, hosts, agent, peers.worker(name, venv, path))), env)


def _each_by_itself(bed: Bed, argv: Callable[[Path], list[str]], env: Mapping[str, str]) -> Starter:
    port, address, size = next(bed.ports), bed.hosts[0].address, len(bed.hosts)

    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        return [
            bed.start(i, argv(path), env={**env, **peers.of_torch(i, size, address, port)}, **_files(log))
            for i in range(size)
        ]

    return start


def _by_mpirun(bed: Bed, argv: Callable[[Path], list[str]], env: Mapping[str, str]) -> Starter:
    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        return [bed.start(0, argv(path), env=env, **_files(log))]

    return start


def _files(log: int) -> dict[str, Any]:
    return {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
