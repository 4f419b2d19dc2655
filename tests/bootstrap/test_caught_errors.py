"""Errors of communication that a program catches: without shrink or agree afterwards, no job with one succeeds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcast import Communicator, RunFailed, run
from ringcast.control.events import AllJoined, Joined
from ringcast.engine.unanswered import LONGEST, UnansweredErrors
from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    JobAborted,
    LinkLost,
    PeerFailed,
    Revoked,
    UsageError,
    Where,
)
from ringcast.wire.codec import decode, encode
from ringcast.wire.control_messages import Finished
from ringcast.wire.unanswered import Unanswered
from ringcast_launcher.decide.supervisor import Event, Exited, Supervisor
from ringcast_launcher.decide.verdict import Verdict
from support.jobs import Job
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
CONTINUE = ("--on-failure", "continue")
LIMIT = 60  # seconds; nothing here takes nearly as long

HEAD = """
import os, sys
import ringcast
comm = ringcast.init()
def caught(call):
    try:
        call()
    except ringcast.RingcastError as error:
        print(type(error).__name__, flush=True)
def fail():
    try:
        with comm:
            raise ValueError("no data")
    except ValueError:
        print("mine", flush=True)
comm.agree()  # unlike a barrier, nobody is still in it when another rank gives up the communicator
"""
# Each fails some rank's call, which that catches; all ranks go on to the end, with code 0.
FAULTS = {
    "an error of its own": "fail() if comm.rank == 1 else caught(comm.barrier)",
    "an early end": "sys.exit(0) if comm.rank == 1 else caught(comm.barrier)",
    "a mismatch": "caught(lambda: comm.allreduce(1, ringcast.MAX if comm.rank == 1 else ringcast.SUM))",
    "a timeout": "comm.rank == 1 or caught(lambda: comm.sendrecv(None, None, 1, timeout=0.2)); caught(comm.barrier)",
    "a revocation": "comm.revoke() if comm.rank == 1 else caught(comm.barrier)",
}
LEFT = r"rank 1 \(.*\) exited with code 0 while rank \d+ still communicated with it \(PeerFailed"
FAILED = r"rank \d+ \(.*\) failed:"
ANSWERS = "(neither shrink nor agree|none of ack_failed, agree and shrink) followed"
UNANSWERED = rf"raised in CALL at program.py:\d+ and caught; {ANSWERS}\)"
TOLD = {
    "an error of its own": rf"{LEFT} {UNANSWERED}",
    "an early end": rf"{LEFT} {UNANSWERED}",
    "a mismatch": rf"{FAILED} CollectiveMismatch: its #1 allreduce differs from that of .*: op .* \({UNANSWERED}",
    "a timeout": rf"rank 1 \(.*\) (was in|made no call).* waited 0.2 s for it in .* \({UNANSWERED}",
    "a revocation": rf"{FAILED} Revoked: .* revoked: rank 1 called revoke\(\) \({UNANSWERED}",
}
CALLS = {"a mismatch": "allreduce", "a timeout": "sendrecv"}  # else barrier


def launch(folder: Path, p: int, program: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, the last line on standard error, and the report."""
    (folder / "program.py").write_text(HEAD + program)
    report = folder / "report"
    command = [*LAUNCH, "-n", str(p), "--json-report", str(report), *options, str(folder / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(LIMIT))
    return done.returncode, (done.stderr.splitlines() or [""])[-1], json.loads(report.read_text())


@pytest.mark.live
@pytest.mark.parametrize("p", [2, 3, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("options", [(), pytest.param(CONTINUE, marks=pytest.mark.long)])
def test_a_job_whose_errors_are_caught_has_failed(tmp_path: Path, fault: str, p: int, options: tuple[str, ...]) -> None:
    code, last, report = launch(tmp_path, p, FAULTS[fault], *options)
    assert code == 1
    told = TOLD[fault].replace("CALL", CALLS.get(fault, "barrier"))
    assert re.fullmatch(f"ringcast-launch: {told}", last), last
    assert report["exit_code"] == 1
    assert report["cause"]
    assert report["cause"] in last
    assert [(rank["status"], rank["finished"]) for rank in report["ranks"]] == [(0, True)] * p
    failed = [rank["failure"] for rank in report["ranks"] if rank["failure"]]
    assert failed
    assert all(re.search(ANSWERS, failure) for failure in failed)


@pytest.mark.live
@pytest.mark.parametrize("options", [(), CONTINUE])
@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        ("a mismatch", "comm.shrink().barrier()"),
        ("a mismatch", "comm.agree()"),
        ("a timeout", "comm.shrink().barrier()"),
        ("a revocation", "comm.agree()"),
        ("an early end", "comm.shrink().barrier()"),
        ("an early end", "comm.ack_failed()"),
    ],
)
def test_errors_that_are_answered_are_none(tmp_path: Path, fault: str, answer: str, options: tuple[str, ...]) -> None:
    code, last, report = launch(tmp_path, 3, f"{FAULTS[fault]}\n{answer}", *options)
    assert (code, report["cause"]) == (0, ""), last


@pytest.mark.live
def test_an_error_after_the_answer_counts(tmp_path: Path) -> None:
    program = f"{FAULTS['a mismatch']}\ncomm = comm.shrink()\n{FAULTS['a revocation']}"
    code, last, _ = launch(tmp_path, 3, program)
    assert code == 1
    assert "called revoke()" in last


@pytest.mark.live
def test_those_that_go_on_without_a_rank_that_was_killed_still_have_to_answer(tmp_path: Path) -> None:
    killed = "import signal\nif comm.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ncaught(comm.barrier)\n"
    code, last, _ = launch(tmp_path, 3, killed, *CONTINUE)
    assert code == 137
    why = r"; rank \d went on without an answer to it: PeerFailed raised in barrier at program.py:\d+ and caught; "
    assert re.search(rf"failed: killed by SIGKILL{why}{ANSWERS}$", last), last
    code, _, report = launch(tmp_path, 3, f"{killed}comm.ack_failed()", *CONTINUE)
    assert (code, report["cause"]) == (0, "")
    code, _, report = launch(tmp_path, 3, f"{killed}comm = comm.shrink()\ncomm.barrier()", *CONTINUE)
    assert (code, report["cause"]) == (0, "")
    program = f"{killed}comm = comm.shrink()\ncaught(lambda: comm.gather(1, root=0) if comm.rank else comm.barrier())"
    code, last, _ = launch(tmp_path, 3, program, *CONTINUE)
    assert (code, "CollectiveMismatch" in last) == (1, True), last


@pytest.mark.live
def test_restarts_happen_for_errors_that_are_caught(tmp_path: Path) -> None:
    program = f"if os.environ['RINGCAST_RESTART'] == '0':\n    {FAULTS['a mismatch']}"
    code, _, report = launch(tmp_path, 2, program, "--on-failure", "restart")
    assert (code, report["cause"]) == (0, "")


@pytest.mark.live
@pytest.mark.parametrize(
    "call",
    ["comm.allreduce(1, timeout=-1)", "comm.bcast(1, root=7)", "comm.gather(1, algorithm='none')", "comm.agree('x')"],
)
def test_the_programs_own_mistakes_are_its_own(tmp_path: Path, call: str) -> None:
    code, last, report = launch(tmp_path, 2, f"caught(lambda: {call})\ncomm.barrier()")
    assert (code, report["cause"]) == (0, ""), last


# Without the launcher.

LOOSE = """
import atexit, sys
atexit.register(lambda: print("others are called too"))
import ringcast
comm = ringcast.init()
atexit.register(lambda: print("so are later ones"))
comm.agree()
try:
    comm.allreduce(1, ringcast.MAX if comm.rank else ringcast.SUM)
except (ringcast.CollectiveMismatch, ringcast.Revoked):
    print("caught")
ANSWER
print("the end", end="")
"""


def loose(folder: Path, program: str) -> list[tuple[int, str, str]]:
    """Run two ranks as some engine would; return how they end."""
    settings = {"SIZE": "2", "DIR": str(folder), "NONCE": "7", "CONTROL": f"ipc://{folder}/control"}
    environment = {**os.environ, **{f"RINGCAST_{name}": value for name, value in settings.items()}}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program], env={**environment, "RINGCAST_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=patience(LIMIT)) for rank in ranks]
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, said, strict=True)]


@pytest.mark.live
def test_without_a_launcher_each_rank_ends_with_1_and_says_why(tmp_path: Path) -> None:
    for rank, (code, out, errors) in enumerate(loose(tmp_path, LOOSE.replace("ANSWER", ""))):
        assert code == 1
        assert out == "caught\nthe endso are later ones\nothers are called too\n"
        (line,) = errors.splitlines()
        assert line.startswith(f"ringcast: rank {rank} failed: ")
        assert line.endswith("neither shrink nor agree followed)")


@pytest.mark.live
@pytest.mark.parametrize("answer", ["comm.agree()", "comm.shrink().barrier()"])
def test_without_a_launcher_an_answer_counts_too(tmp_path: Path, answer: str) -> None:
    for code, _, errors in loose(tmp_path, LOOSE.replace("ANSWER", answer)):
        assert (code, errors) == (0, "")


@pytest.mark.live
def test_without_a_launcher_an_error_that_ends_a_rank_is_told_once(tmp_path: Path) -> None:
    program = "import ringcast\ncomm = ringcast.init()\ncomm.allreduce(1, ringcast.MAX if comm.rank else ringcast.SUM)"
    for code, _, errors in loose(tmp_path, program):
        assert code == 1
        assert "caught" not in errors


def mismatch(comm: Communicator) -> str:
    try:
        comm.allreduce(np.zeros(3 + comm.rank))
    except (CollectiveMismatch, Revoked) as error:
        return type(error).__name__
    return ""


@pytest.mark.live
@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("p", [2, 3])
def test_run_raises_for_errors_that_were_caught(backend: str, p: int) -> None:
    with pytest.raises(RunFailed, match=r"CollectiveMismatch.*neither shrink nor agree followed"):
        run(mismatch, p, backend=backend)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_run_returns_where_they_were_answered(backend: str) -> None:
    def work(comm: Communicator) -> int:
        mismatch(comm)
        return comm.shrink().allreduce(1)

    assert run(work, 2, backend=backend) == [2, 2]


def test_an_error_of_iprobe_counts() -> None:
    def work(comm: Communicator) -> None:
        comm.revoke()
        with pytest.raises(Revoked):
            comm.iprobe()

    place = r"iprobe at test_caught_errors.py:\d+"
    with pytest.raises(RunFailed, match=rf"Revoked: .* \(raised in {place} and caught; neither shrink"):
        run(work, 2, backend="threads")


def test_a_guest_of_another_engine_has_failed_too() -> None:
    from support.hosted_jobs import run as run_guests

    with pytest.raises(RunFailed, match=r"CollectiveMismatch.*neither shrink nor agree followed"):
        run_guests(mismatch, 2).all()


# The parts.

WHERE = Where("barrier", 2)
SITE = "/home/me/prog.py", 12
NAMED = [
    PeerFailed(0, 1, "killed", WHERE, remote_traceback="Traceback\nof rank 1"),
    CollectiveMismatch(0, 1, "barrier()", "bcast()", WHERE),
    CollectiveTimeout(0, (1,), 3.0, WHERE),
    LinkLost(1, "no route"),
    Revoked(0, "rank 1 called revoke()", 1),
]
OTHERS = [
    ArgumentError(0, "bcast", "root", "expected 0"),
    UsageError("after finalize"),
    JobAborted(0, "timeout"),
    TypeError("no number"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", NAMED, ids=lambda error: type(error).__name__)
def test_the_named_errors_count_with_their_place(error: Exception) -> None:
    errors = UnansweredErrors()
    errors.raised(1, error, "barrier", SITE)
    assert errors.first is not None
    text = str(error).partition("\n")[0]
    answers = "none of ack_failed, agree and shrink" if isinstance(error, PeerFailed) else "neither shrink nor agree"
    how = f"raised in barrier at prog.py:12 and caught; {answers} followed"
    assert str(errors.first) == f"{type(error).__name__}: {text} ({how})"
    assert errors.first.blames == ((1,) if isinstance(error, PeerFailed | Revoked) else ())
    assert decode(encode(errors.first), (Unanswered,)) == errors.first


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
def test_all_others_do_not(error: BaseException) -> None:
    errors = UnansweredErrors()
    errors.raised(1, error, "barrier", SITE)
    assert errors.first is None


def test_an_answer_counts_for_a_communicator_and_those_made_from_it() -> None:
    family = {2: 1, 3: 2, 5: 1}  # 3 is from 2, which is from 1; 4 is a stranger

    def left(answered: int) -> set[int]:
        errors = UnansweredErrors()
        for context, parent in family.items():
            errors.made(context, parent)
        for context in range(1, 6):
            errors.raised(context, Revoked(0, f"in {context}"), "barrier", SITE)
        errors.answered(answered)
        return {int(one.text.split()[-1]) for one in errors._first.values()}

    assert left(1) == {4}
    assert left(2) == {1, 4, 5}
    assert left(3) == {1, 2, 4, 5}
    assert left(9) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("error", NAMED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("context", "ranks"), [(1, {1}), (1, {1, 2}), (1, {2}), (1, set()), (2, {1}), (3, {1})])
def test_to_acknowledge_a_rank_answers_that_it_failed_and_nothing_else(
    error: Exception, context: int, ranks: set[int]
) -> None:
    errors = UnansweredErrors()
    errors.made(2, 1)
    errors.raised(2, error, "barrier", SITE)
    errors.acknowledged(context, frozenset(ranks))
    answered = isinstance(error, PeerFailed) and 1 in ranks and context != 3
    assert (errors.first is None) == answered


def test_the_first_error_of_a_communicator_stands_and_its_text_is_bounded() -> None:
    errors = UnansweredErrors()
    errors.raised(1, Revoked(0, "x" * 10**6), "barrier", ("f" * 10**6, 1))
    errors.raised(1, Revoked(0, "later"), "barrier", SITE)
    assert errors.first is not None
    assert len(str(errors.first)) < 3 * LONGEST


def barriers(comm: Communicator) -> None:
    while True:
        comm.barrier()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_rank_keeps_what_its_program_was_told(kind: str, p: int) -> None:
    job = Job(kind, p)
    try:

        def work(comm: Communicator) -> list[str]:
            found = []
            errors = comm._group.endpoint.unanswered
            with pytest.raises(ArgumentError):
                comm.bcast(1, root=p)
            found.append(errors.first)
            comm.agree()
            if comm.rank == 0:
                comm.revoke()
            with pytest.raises(Revoked):
                barriers(comm)
            assert errors.first is not None
            found.append(errors.first.kind)
            small = comm.shrink()
            found.append(errors.first)
            small.barrier()
            small.agree()
            small.revoke()
            with pytest.raises(Revoked):
                small.barrier()
            assert errors.first is not None
            found.append(errors.first.kind)
            comm.agree()
            found.append(errors.first)
            return found

        assert job.ask(work) == [[None, "Revoked", None, "Revoked", None]] * p
    finally:
        job.close()


def verdict(continue_on_failure: bool, *history: Event) -> Verdict:
    supervisor = Supervisor(3, start=0.0, continue_on_failure=continue_on_failure)
    joined = [*(Joined(rank, 100 + rank, "host") for rank in range(3)), AllJoined()]
    actions = [action for event in (*joined, *history) for action in supervisor.handle(event, 1.0)]
    assert [action for action in actions if not isinstance(action, Verdict)] == []  # nobody is ended for it
    (found,) = (action for action in actions if isinstance(action, Verdict))
    return found


def caught(kind: str, *blames: int) -> Unanswered:
    return Unanswered(kind, "what", "barrier at prog.py:1", blames)


def left(rank: int, error: Unanswered | None = None) -> tuple[Event, Event]:
    return Finished(rank, {}, unanswered=error), Exited(rank, 0)


HOW = "raised in barrier at prog.py:1 and caught; none of ack_failed, agree and shrink followed"


@pytest.mark.parametrize("continue_on_failure", [False, True])
def test_the_verdict_names_the_cause(continue_on_failure: bool) -> None:
    mine, follows = caught("CollectiveMismatch"), caught("Revoked", 2)
    assert verdict(continue_on_failure, *left(0), *left(1), *left(2)) == Verdict(0)
    assert verdict(continue_on_failure, *left(0, mine), *left(1), *left(2)) == Verdict(1, 0, f"failed: {mine}")
    assert verdict(continue_on_failure, *left(0, follows), *left(1), *left(2, mine)) == Verdict(1, 2, f"failed: {mine}")
    assert verdict(continue_on_failure, *left(0, follows), *left(1), *left(2)) == Verdict(1, 0, f"failed: {follows}")
    gone = f"exited with code 0 while rank 0 still communicated with it (PeerFailed {HOW})"
    assert verdict(continue_on_failure, *left(0, caught("PeerFailed", 2)), *left(1), *left(2)) == Verdict(1, 2, gone)
    assert verdict(continue_on_failure, *left(0, caught("PeerFailed", 9)), *left(1), *left(2)).rank == 0


def test_a_communicator_that_is_freed_is_forgotten_and_its_children_are_of_its_parent() -> None:
    errors = UnansweredErrors()
    for context, parent in (2, 1), (3, 2), (4, 3):
        errors.made(context, parent)
    errors.freed(3)
    errors.raised(4, Revoked(0, "why"), "barrier", SITE)
    for context in 4, 3, 1:  # one with an error, one that is gone, and one that nobody made
        errors.freed(context)
    errors.answered(3)
    assert errors.first is not None
    errors.answered(2)
    assert errors.first is None
