"""Jobs of systems under test: the protocol with their ranks, turns, what becomes of one that fails, and on a bed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcast.commands.bench import peers
from ringcast.commands.bench.bed import BedError, BedHost
from ringcast.commands.bench.cases import COLLECTIVES, IRREGULAR, PARTED, REGULAR, Case
from ringcast.commands.bench.distributions import DISTRIBUTIONS, parts
from ringcast.commands.bench.job import BenchJob, JobLost
from ringcast.commands.bench.launch import Where, by_peer
from ringcast.commands.bench.onbed import OnBed
from ringcast.commands.bench.onehost import OneHost
from ringcast.commands.bench.orchestrate import Contestant, SideBySide, compete, shares
from ringcast.commands.bench.remote import RemoteStarter
from ringcast.commands.bench.systems.harness import measure
from ringcast.commands.bench.systems.ringcast_system import RingcastSystem
from ringcast.commands.bench.systems.workload import Workload
from ringcast.errors import ArgumentError
from ringcast.net.ssh import FAILED
from ringcast.procs.process_tree import members
from support.beds import make_bed
from support.jobs import Job as RingcastJob
from support.patience import patience
from support.places import ROOT, SUPPORT, python
from support.ports import free_port

FAKE = SUPPORT / "fake_system.py"
SCRIPTS = ROOT / "ringcast/commands/bench/systems"
CONSTANTS = ROOT / "configs/sockets-100mbit.toml"
BCAST = Case("bcast", 3, 1000, warmup=1, repeat=4)


def fakes(size: int, fault: str = "") -> Callable[[Path, int], list[subprocess.Popen[bytes]]]:
    """Return a function that starts a job of fake ranks; the last one has the fault."""

    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        return [
            subprocess.Popen([sys.executable, FAKE, path, str(rank), str(size), fault], stdout=log, stderr=log)
            for rank in range(size)
        ]

    return start


def far(links: int = 3) -> Callable[[], list[tuple[int, int]]]:
    """Return a meter on whose links a lot moves."""
    moved = iter(range(0, 10**12, 10**9))

    def meter() -> list[tuple[int, int]]:
        return [(now := next(moved), now)] * links

    return meter


# -- the oracle ------------------------------------------------------------------------------------------------------


def case_of(collective: str, size: int, nbytes: int, root: int = 0, distribution: str = "mod3") -> Case:
    """Return a case whose bytes and parts are as the benchmark makes them."""
    unit = size if collective in REGULAR else 8
    nbytes = 0 if collective == "barrier" else nbytes // unit * unit
    made: tuple[int, ...] = ()
    if collective in PARTED:
        made = parts(distribution if collective in IRREGULAR else "regular", nbytes, size)
    if collective in ("reduce_scatter", "merge_sorted"):
        made = tuple(8 * n for n in parts("geometric", nbytes // 8, size))
    return Case(collective, size, nbytes, parts=made, root=root, check=True)


def naive(collective: str, given: list[Any], root: int, counts: tuple[int, ...]) -> list[Any]:
    """Return the results of all ranks; None where a rank gets none. `counts` are those of rank 0."""
    p = len(given)
    ends = np.cumsum(counts)
    only = lambda value: [value if r == root else None for r in range(p)]  # noqa: E731
    match collective:
        case "bcast":
            return [given[root]] * p
        case "reduce":
            return only(np.sum(given, axis=0))
        case "allreduce":
            return [np.sum(given, axis=0)] * p
        case "allgather" | "allgatherv":
            return [np.concatenate(given)] * p
        case "gather":
            return only(np.concatenate(given))
        case "reduce_scatter":
            return np.split(np.sum(given, axis=0), ends[:-1])
        case "scatter":
            return np.split(given[root], ends[:-1])
        case "scan":
            return list(np.cumsum(given, axis=0))
        case "exscan":
            return [None, *np.cumsum(given, axis=0)[:-1]]
        case "alltoall" | "alltoallv":
            rows = [np.roll(counts, -r) for r in range(p)]  # which are equal in an alltoall
            pieces = [np.split(mine, np.cumsum(row)[:-1]) for mine, row in zip(given, rows, strict=True)]
            return [np.concatenate([piece[r] for piece in pieces]) for r in range(p)]
        case "shift":
            return [given[-1], *given[:-1]]
        case "merge_sorted":
            return [np.sort(np.concatenate(given))] * p
        case "latency":
            return [given[1], given[0], *[None] * (p - 2)]
        case "bandwidth":
            return [None, given[0], *[None] * (p - 2)]
        case _:
            return [None] * p


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_right_result_is_right_and_every_other_wrong(collective: str) -> None:
    for p, root, nbytes in product((2, 3, 8), (0, 1), (8, 1000, 8000)):
        case = case_of(collective, p, nbytes, root)
        works = [Workload(case.to_json(), rank) for rank in range(p)]
        results = naive(collective, [work.given for work in works], root, works[0].counts)
        for rank, (work, result) in enumerate(zip(works, results, strict=True)):
            if result is None:
                assert (len(work.out), work.verdict()) == (0, ""), f"{case} {rank=}"
                continue
            work.clear()
            work.out[...] = result
            assert work.verdict() == "", f"{case} {rank=}"
            if len(work.out):
                work.out[-1] += 1
                assert f"rank {rank}: 1 of {len(result)} items are wrong" in work.verdict()


def test_a_repetition_that_does_nothing_is_wrong() -> None:
    old = ("bcast", 1), ("allreduce", 0), ("allgatherv", 2), ("reduce_scatter", 0), ("scatter", 1)
    for collective, rank in (*old, ("scan", 0), ("exscan", 1), ("alltoallv", 2), ("shift", 0), ("merge_sorted", 1)):
        work = Workload(case_of(collective, 3, 6000).to_json(), rank)
        work.out[...] = 1
        work.clear()
        assert "items are wrong" in work.verdict(), collective


# -- ringcast as a system --------------------------------------------------------------------------------------------


def threads(size: int, work: Callable[[Any], Any]) -> list[Any]:
    with contextlib.closing(RingcastJob("threads", size)) as job:
        return job.ask(work)


@pytest.mark.live
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ringcast_does_every_case_right(size: int) -> None:
    cases = [
        case_of(collective, size, nbytes, root)
        for collective, nbytes, root in product(COLLECTIVES, (64, 6_000, 300_000), {0, size - 1})
        if size > 1 or collective not in ("latency", "bandwidth")
    ]
    cases += [case_of(one, size, 10_000, distribution=name) for one in IRREGULAR for name in DISTRIBUTIONS]

    def work(comm: Any) -> list[str]:
        system = RingcastSystem(comm)
        problems = []
        for case in cases:
            call = system.prepare(case.to_json())
            problems.append(system.check())
            assert len(measure(system, call, 1, 2)) == 2
            problems.append(system.check())
            assert (case.collective in ("latency", "bandwidth")) == (not system.chosen())
        return problems

    assert all(problem == "" for rank in threads(size, work) for problem in rank)


def test_the_wish_for_an_algorithm_is_followed_or_refused() -> None:
    def work(comm: Any) -> dict[str, Any]:
        system = RingcastSystem(comm)
        with pytest.raises(ArgumentError, match="no such algorithm"):
            system.prepare(replace(case_of("bcast", 3, 1000), algorithm="magic").to_json())
        system.prepare(replace(case_of("bcast", 3, 100_000), algorithm="circulant", nblocks=7).to_json())
        assert system.check() == ""
        events = system.trace()
        assert sum(event[0] == "start" for event in events) >= system.chosen()["rounds"]
        return system.chosen()

    assert threads(3, work) == [{"algorithm": "circulant", "nblocks": 7, "rounds": 8}] * 3


def test_every_repetition_has_its_barrier_and_warmups_are_not_timed() -> None:
    seen: list[str] = []

    class Recorded:
        def barrier(self) -> None:
            seen.append("barrier")

    assert len(measure(Recorded(), lambda: seen.append("call"), warmup=2, repeat=3)) == 3
    assert seen == ["barrier", "call"] * 5


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_a_job_does_what_it_is_told(nothing_left: None) -> None:
    with BenchJob(3, fakes(3)) as job:
        assert job.version == "fake 1.0"
        assert job.hosts == [os.uname().nodename] * 3
        assert job.ask("prepare", case=BCAST.to_json()) == [{"ok": True}] * 3
        assert job.ask("check") == [{"ok": True}] * 3
        answers = job.ask("measure", warmup=1, repeat=5)
        assert [len(answer["seconds"]) for answer in answers] == [5] * 3
        assert answers[0]["algorithm"] == "none"
        assert job.ask("trace") == [{"events": [["start", rank]]} for rank in range(3)]
        assert "error" in job.ask("dance")[0]
        processes = list(job._processes)
    assert [process.returncode for process in processes] == [0] * 3, "they left by themselves"
    job.close()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("does not start", "ended before all ranks were there; its last words: no such library"),
        ("starts alone", "says that it is one of 1, not of 2"),
        ("comes never", "0 of 2 ranks were there after 1 s"),
    ],
)
def test_a_job_that_does_not_start_says_why(fault: str, text: str, nothing_left: None) -> None:
    with pytest.raises(JobLost, match=text):
        BenchJob(2, fakes(2, fault), start_time=1.0 if fault == "comes never" else 30.0)


def test_an_answer_may_take_longer_the_more_repetitions_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with BenchJob(2, fakes(2, "hangs"), patience=0.1) as job:
        job.ask("prepare", calls=100, case=BCAST.to_json())
        monkeypatch.setattr("ringcast.commands.bench.job.LONGEST", 0.5)
        with pytest.raises(JobLost, match=r"no answer to 'measure' within 0\.5 s from rank 1"):
            job.ask("measure", calls=100, warmup=0, repeat=100)
        with pytest.raises(JobLost, match=r"within 0\.3 s"):
            job.ask("measure", calls=3, warmup=0, repeat=3)
        job.close(patience=0)


def test_a_path_too_long_for_a_socket_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    words = "no socket can be made there .*too long.*; set TMPDIR to a short path"
    with pytest.raises(JobLost, match=words):
        BenchJob(2, fakes(2))
    with pytest.raises(JobLost, match=words):
        RemoteStarter(Here(), folder, {})
    assert {path.name for path in folder.iterdir()} == {"agent"}  # whose folder the caller removes


def test_ranks_that_never_listen_again_are_killed(nothing_left: None) -> None:
    with contextlib.suppress(JobLost), BenchJob(2, fakes(2, "hangs"), patience=patience(0.3)) as job:
        job.ask("prepare", case=BCAST.to_json())
        processes = list(job._processes)
        try:
            job.ask("measure", warmup=0, repeat=1)
        finally:
            job.close(patience=patience(1.0))
    assert [process.returncode for process in processes] == [0, -9]


# -- several of them -------------------------------------------------------------------------------------------------


class Stub:
    """A job whose ranks are not there: it says what it was told, and to whom it belongs."""

    version = "stub"

    def __init__(self, name: str, said: list[tuple[str, ...]]) -> None:
        self.name, self.said = name, said

    def ask(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        self.said.append((self.name, do, *(str(arguments[name]) for name in ("warmup", "repeat") if name in arguments)))
        repeat = arguments.get("repeat", 0)
        return [{"ok": True, "seconds": [0.1 * (rank == i % 3) + 0.01 for i in range(repeat)]} for rank in range(3)]

    def close(self, patience: float) -> None:
        self.said.append((self.name, "close"))


@pytest.mark.parametrize("repeat", [1, 2, 5, 12, 50])
def test_systems_take_turns_and_nobody_is_always_first(repeat: int) -> None:
    said: list[tuple[str, ...]] = []
    contestants = [Contestant(name, Stub(name, said)) for name in "abc"]
    rows = list(compete(contestants, [replace(BCAST, repeat=repeat, warmup=3)], far()))
    assert [(row.system, len(row.seconds), row.problem) for row in rows] == [(name, repeat, "") for name in "abc"]
    measured = [words for words in said if words[1] == "measure"]
    turns = [measured[i : i + 3] for i in range(0, len(measured), 3)]
    assert [[words[0] for words in turn] for turn in turns] == [
        list("abcab"[i % 3 : i % 3 + 3]) for i in range(len(turns))
    ]
    assert all(words[2] == "3" for words in turns[0])
    assert all(words[2] == str(int(int(words[3]) > 1)) for turn in turns[1:] for words in turn)
    assert [int(turn[0][3]) for turn in turns] == shares(repeat)
    assert sum(shares(repeat)) == repeat
    assert max(shares(repeat)) - min(shares(repeat)) <= 1


def test_the_slowest_rank_counts_in_every_repetition() -> None:
    rows = list(compete([Contestant("a", Stub("a", []))], [replace(BCAST, repeat=2)], far()))
    assert rows[0].seconds == (0.11, 0.11), "of every repetition another rank"


def test_what_goes_around_the_wire_is_noticed() -> None:
    def moving(step: int) -> Callable[[], list[tuple[int, int]]]:
        readings: Iterator[int] = iter(range(0, 10**9, step)) if step else iter([0] * 1000)
        return lambda: [(0, 0), (0, next(readings)), (0, 0)]

    case = replace(BCAST, warmup=0, repeat=5)  # a call a turn, each with at least 1000 bytes over some link
    for step, text in ((1000, ""), (999, "at least 1e+03 have to be"), (0, "carried 0 bytes")):
        rows = list(compete([Contestant("a", Stub("a", []))], [case], moving(step)))
        assert (text in rows[0].problem) if text else rows[0].problem == "", rows[0].problem
        assert rows[0].seconds, "the figures are there for who wants to look into it"


@pytest.mark.live
@pytest.mark.parametrize(
    ("fault", "first", "later"),
    [
        ("dies", "rank 2 ended during 'measure'; its last words: what a pity", "rank 2 ended"),
        ("hangs", "no answer to 'measure' within 4 s from rank 2", "no answer"),
        ("raises", "rank 2: RuntimeError: out of luck", "out of luck"),
        ("errs", "wrong result: rank 2: item 3 is 1 instead of 2", "wrong result"),
        ("cannot", "not supported", "not supported"),
        ("refuses", "rank 2: ValueError: there is no such algorithm", "no such algorithm"),
    ],
)
def test_one_that_fails_says_why_and_the_others_go_on(fault: str, first: str, later: str, nothing_left: None) -> None:
    cases = [replace(BCAST, check=fault == "errs", repeat=2), replace(BCAST, nbytes=8, repeat=2)]
    with BenchJob(3, fakes(3)) as good, BenchJob(3, fakes(3, fault), patience=2.0) as bad:
        contestants = [Contestant("good", good), Contestant("bad", bad), Contestant("absent", problem="not there")]
        rows = list(compete(contestants, cases, far()))
    assert [row.system for row in rows] == ["good", "bad", "absent"] * 2
    assert all(len(row.seconds) == 2 and row.problem == "" for row in rows if row.system == "good")
    assert all(row.problem == "not there" and row.seconds == () for row in rows if row.system == "absent")
    one, two = [row for row in rows if row.system == "bad"]
    assert first in one.problem
    assert fault == "errs" or later in two.problem
    assert (fault == "errs") == bool(two.seconds), "a wrong result does not end the job"


def test_a_peer_that_is_not_installed_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(name: str) -> Path:
        raise peers.PeerMissing(f"not installed: {name}")

    class NoBed:
        hosts = (BedHost("h0", ""), BedHost("h1", ""))
        rate_bits = None

        def carried(self, i: int) -> tuple[int, int]:
            return 0, 0

    monkeypatch.setattr(peers, "install", fail)
    for site in (OnBed(NoBed(), CONSTANTS), OneHost(2, tmp_path)):
        rows = list(SideBySide(site).measure(["gloo", "mpich"], [BCAST]))
        assert [(row.system, row.problem) for row in rows] == [
            ("gloo", "not installed: gloo"),
            ("mpich", "not installed: mpich"),
        ]


# -- on one host -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mpich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have an MPICH installed whose mpiexec starts fake ranks; returns its folder, where mpiexec writes its words."""
    venv = tmp_path / "cache/ringcast/peers/mpich"
    (venv / "bin").mkdir(parents=True)
    (venv / "complete").write_text(" ".join(peers.PEERS["mpich"].requirements))
    mpiexec = venv / "bin/mpiexec"
    mpiexec.write_text(f"""#!/bin/sh
printf "%s\\n" "$@" >"{venv}/words"
sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >"{venv}/forgotten"
{python(FAKE)} "$6" 0 2 "" & {python(FAKE)} "$6" 1 2 "" & wait %2 %3
""")
    mpiexec.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return venv


def test_an_mpirun_on_one_host_starts_all_ranks_and_nothing_is_left(
    mpich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr("ringcast.commands.bench.onehost.GRACE", 0.2)
    (row,) = SideBySide(OneHost(2, tmp_path)).measure(["mpich"], [replace(BCAST, size=2, repeat=3)])
    assert (row.problem, len(row.seconds), row.version) == ("", 3, "fake 1.0")
    assert row.command == "HWLOC_XMLFILE=/dev/shm/none mpiexec -n 2 python mpi.py"
    words = (mpich / "words").read_text().splitlines()
    assert words[:2] == ["-n", "2"]
    assert words[2:5] == [f"{mpich}/bin/python", str(SCRIPTS / "mpi.py"), "mpich"]
    forgotten = int((mpich / "forgotten").read_text())
    assert not members({forgotten}, ()), "a child that its mpirun forgot"


@pytest.mark.live
def test_ringcast_on_one_host_is_launched_as_by_default(tmp_path: Path, nothing_left: None) -> None:
    cases = [replace(case_of(name, 2, 1000), repeat=2) for name in ("allreduce", "barrier", "bandwidth")]
    place = SideBySide(OneHost(2, tmp_path))
    rows = list(place.measure(["ringcast"], cases))
    assert [(row.problem, len(row.seconds), row.command) for row in rows] == [("", 2, "ringcast-launch -n 2")] * 3
    assert [len(events) > 0 for events in next(place.trace(cases[:1]))] == [True, True]


@pytest.mark.live
@pytest.mark.parametrize("size", [2, 3])
def test_dask_does_a_broadcast_and_nothing_else(size: int, tmp_path: Path, nothing_left: None) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    place = Where(size, run_here, env, (), "127.0.0.1", free_port())
    launch = by_peer("dask", Path(sys.prefix), place)  # where `make test-live` has installed it
    with BenchJob(size, launch.start) as job:
        assert job.version.startswith("Dask distributed 2")
        for nbytes in (1, 1000, 1_000_000):
            case = case_of("bcast", size, 8 * nbytes)
            assert job.ask("prepare", case=case.to_json()) == [{"ok": True}] * size
            assert job.ask("check") == [{"ok": True}] * size
            (root, *_), *others = (answer["seconds"] for answer in job.ask("measure", warmup=1, repeat=2))
            assert all(root > max(seconds) for seconds in others), "its time is that of the client"
        assert job.ask("prepare", case=case_of("allreduce", size, 8).to_json()) == [{"unsupported": True}] * size


def run_here(_: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, **options)


def test_where_nothing_is_metered_nothing_goes_around_the_wire() -> None:
    (row,) = compete([Contestant("a", Stub("a", []))], [BCAST], None)
    assert (row.problem, len(row.seconds)) == ("", 4)


# -- other hosts -----------------------------------------------------------------------------------------------------


class Here:
    """A bed whose hosts are this machine."""

    hosts = (BedHost("h0", "127.0.0.1"), BedHost("h1", "127.0.0.1"))

    def argv(self, i: int, command: list[str]) -> list[str]:
        if i == 1:
            raise BedError("the host has ended")
        return command


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteStarter]:
    with RemoteStarter(Here(), tmp_path, {**os.environ, "COLOUR": "green"}) as starter:
        yield starter


def test_an_agent_stands_in_for_ssh(remote: RemoteStarter) -> None:
    script = "read word; echo $word $COLOUR; echo trouble >&2; exit 7"
    done = subprocess.run([remote.agent, "-x", "-q", "h0", script], input="hello\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello green\n", "trouble\n")


@pytest.mark.parametrize(("host", "text"), [("h7", "cannot start anything on h7"), ("h1", "the host has ended")])
def test_an_agent_says_why_it_cannot(remote: RemoteStarter, host: str, text: str) -> None:
    done = subprocess.run([remote.agent, host, "true"], capture_output=True, text=True)
    assert done.returncode == FAILED
    assert text in done.stderr


def test_a_command_ends_with_its_agent(remote: RemoteStarter) -> None:
    with subprocess.Popen([remote.agent, "h0", "echo up; exec sleep 1000"], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"up\n"
        agent.kill()
        assert agent.stdout.read() == b"", "at the end of file when the command is gone"


def test_commands_end_with_the_starter(tmp_path: Path, nothing_left: None) -> None:
    with RemoteStarter(Here(), tmp_path, os.environ) as starter:
        agent = subprocess.Popen([starter.agent, "h0", "echo up; exec sleep 1000"], stdout=subprocess.PIPE)
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"up\n"
    assert agent.stdout.read() == b""
    agent.stdout.close()
    assert agent.wait() != 0
    starter.close()


# -- all of it -------------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_ringcast_on_emulated_hosts(nothing_left: None) -> None:
    cases = [
        replace(case_of(collective, 3, nbytes), warmup=1, repeat=3)
        for collective, nbytes in product(("bcast", "allgatherv", "allreduce", "reduce_scatter"), (1000, 200_000))
    ]
    with make_bed("3x100mbit") as bed:
        place = SideBySide(OnBed(bed, CONSTANTS))
        rows = list(place.measure(["ringcast"], cases))
        traced = list(place.trace(cases[:1]))
    assert [row.case for row in rows] == cases
    for row in rows:
        assert (row.problem, len(row.seconds)) == ("", 3), row
        assert row.algorithm
        assert row.rounds
    assert len(traced[0]) == 3
    assert all(events for events in traced[0])
