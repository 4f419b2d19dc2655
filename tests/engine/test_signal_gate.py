"""Signals whose handlers raise, at thousands of lines of the engine and at random moments: no rank is lost by them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine import drive, signal_gate
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.signal_gate import NUMBERS, Deferred, SignalGate, called_from_c
from ringcast.errors import PeerFailed, Revoked, UsageError
from ringcast.transports import zeromq
from support.every_line import check
from support.jobs import transports
from support.patience import patience
from support.places import SUPPORT

pytestmark = pytest.mark.usefixtures("nothing_left")

ALARMS = SUPPORT / "programs" / "alarms.py"
KINDS = ("threads", "shm", "sockets", "tcp")
CONTEXT = 3
CASES = [(1, 0), (2, 0), (2, 1), (3, 1), (5, 0), (5, 3)]  # ranks, and the one that gets the signal


# At a line, on the simulated wire.


@pytest.mark.parametrize("verb", ["shrink", "agree"])
@pytest.mark.parametrize(("size", "victim"), CASES)
def test_a_signal_at_some_lines(verb: str, size: int, victim: int) -> None:
    lines = range(0, 40_000, 599 * size)
    assert len([*takewhile(lambda line: check(verb, size, victim, line), lines)]) > 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", ["shrink", "agree"])
@pytest.mark.parametrize(("size", "victim"), CASES)
def test_a_signal_at_thousands_of_lines(verb: str, size: int, victim: int) -> None:
    # A line of the source is run in most of the cases, and many times in each: a part of the times is enough.
    lines = count(victim, step={1: 3, 2: 5, 3: 17, 5: 53}[size])
    assert next(line for line in lines if not check(verb, size, victim, line)) > 1000


# At random moments, in real processes.


def launch(size: int, *words: object) -> str:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), str(ALARMS), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(600))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_some_recoveries() -> None:
    assert launch(3, "raise", 30, 1) == "[0] 30 alarms, 3 ranks\n"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_hundreds_of_recoveries(size: int) -> None:
    assert launch(size, "raise", 400, size) == f"[0] 400 alarms, {size} ranks\n"


@pytest.mark.parametrize("times", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_a_signal_every_tenth_of_a_millisecond(times: int) -> None:
    assert launch(2, "count", times) == f"[0] {times} messages, 2 ranks\n"


# Real signals: rank 0 is the main thread.


class Alarm(Exception):
    """Raised by a handler."""


def alarm(*_: object) -> None:
    raise Alarm


@pytest.fixture
def handler() -> Iterator[Callable[[Any], None]]:
    """Set the handler of SIGUSR1, for one test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda wanted: signal.signal(signal.SIGUSR1, wanted)
    signal.signal(signal.SIGUSR1, before)


def pair(kind: str, folder: Path, here: Callable[[Communicator], Any], there: Callable[[Communicator], Any]) -> Any:
    """Run a program as rank 0 in this thread, and another one as rank 1; return the results of both."""
    made = endpoints(transports(kind, 2, folder))
    told: list[Any] = []

    def work() -> None:
        comm = communicator(made[1], kind)
        try:
            told.append(there(comm))
        except BaseException as error:
            told.append(error)
        comm.finalize()

    thread = threading.Thread(target=work)
    thread.start()
    comm = communicator(made[0], kind)
    try:
        return here(comm), (thread.join(), told[0])[1]
    finally:
        comm.finalize()
        thread.join()


def communicator(endpoint: Endpoint, kind: str) -> Communicator:
    return Communicator(Group(endpoint, CONTEXT, NETWORKS[kind]), timeout=60)


def go_on(comm: Communicator) -> list[int]:
    comm.revoke()
    return comm.shrink().allgather(comm.rank)


def revoked(comm: Communicator) -> list[int]:
    with pytest.raises(Revoked, match="Alarm"):
        comm.barrier()
    return go_on(comm)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_ends_the_wait_at_once(
    kind: str, tmp_path: Path, handler: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "SLICE", 10**8)  # so that only the signal can end it
    monkeypatch.setattr(drive, "QUIET", 1e5)
    handler(alarm)

    def here(comm: Communicator) -> list[int]:
        with pytest.raises(Alarm):
            comm.sendrecv(None, None, 1)
        return go_on(comm)

    def there(comm: Communicator) -> list[int]:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        return revoked(comm)

    assert pair(kind, tmp_path, here, there) == ([0, 1], [0, 1])


def test_ctrl_c_in_a_call(tmp_path: Path) -> None:
    """As a person in a notebook does, who then goes on."""

    def here(comm: Communicator) -> list[int]:
        with pytest.raises(KeyboardInterrupt):
            comm.allreduce(1)
        return go_on(comm)

    def there(comm: Communicator) -> list[int]:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Revoked, match="KeyboardInterrupt"):
            comm.sendrecv(None, None, 0)
        return go_on(comm)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert pair("ipc", tmp_path, here, there) == ([0, 1], [0, 1])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("also", [True, False])
def test_shrink_after_a_broken_agree(also: bool, tmp_path: Path, handler: Callable[[Any], None]) -> None:
    """The other rank may have come to that agree, or be in a call before it."""
    handler(alarm)
    gone_on = threading.Event()

    def here(comm: Communicator) -> list[int]:
        with pytest.raises(Alarm):
            comm.agree(6)
        if also:
            gone_on.set()
        return go_on(comm)

    def there(comm: Communicator) -> list[int]:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        if also:
            gone_on.wait()
            assert comm.agree(7) == 6
        with pytest.raises(Revoked, match="rank 0 called revoke"):
            comm.sendrecv(None, None, 0)
        return go_on(comm)

    assert pair("ipc", tmp_path, here, there) == ([0, 1], [0, 1])


@pytest.mark.parametrize("caught", [True, False])
def test_a_handler_must_not_agree_within_an_agree(caught: bool, tmp_path: Path, handler: Callable[[Any], None]) -> None:
    """If the handler raises the error, the next call takes up the vote."""
    refused = threading.Event()

    def here(comm: Communicator) -> list[int]:
        def handle(*_: object) -> None:
            try:
                if caught:
                    with pytest.raises(UsageError, match=r"while agree at test_signal_gate\.py:"):
                        comm.agree(5)
                else:
                    comm.agree(5)
            finally:
                refused.set()

        handler(handle)
        if caught:
            return [comm.agree(6), comm.agree(12)]
        with pytest.raises(UsageError, match=r"rank 0: agree at .* interrupted by the handler of a signal"):
            comm.agree(6)
        return [comm.agree(8), comm.agree(12)]

    def there(comm: Communicator) -> list[int]:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        assert refused.wait(patience(60))
        return [comm.agree(7), comm.agree(5)]

    assert pair("ipc", tmp_path, here, there) == ([6, 4], [6, 4])


def waits() -> bool:
    """Return whether the main thread is in a wait of the engine."""
    return signal_gate._MAIN.waiter is not None


def test_a_handler_that_does_not_raise_disturbs_nothing(tmp_path: Path, handler: Callable[[Any], None]) -> None:
    seen: list[FrameType | None] = []
    handler(lambda _, frame: seen.append(frame))

    def here(comm: Communicator) -> int:
        return sum(int(comm.allreduce(1)) for _ in range(100))

    def there(comm: Communicator) -> int:
        total = 0
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            total += int(comm.allreduce(1))
        return total

    assert pair("ipc", tmp_path, here, there) == (200, 200)
    assert seen


def test_a_handler_may_revoke(tmp_path: Path, handler: Callable[[Any], None]) -> None:
    def here(comm: Communicator) -> list[int]:
        handler(lambda *_: comm.revoke())
        with pytest.raises(Revoked, match="rank 0 called revoke"):
            comm.sendrecv(None, None, 1)
        return comm.shrink().allgather(comm.rank)

    def there(comm: Communicator) -> list[int]:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(Revoked, match="rank 0 called revoke"):
            comm.barrier()
        return comm.shrink().allgather(comm.rank)

    assert pair("ipc", tmp_path, here, there) == ([0, 1], [0, 1])


def test_a_handler_may_leave_the_job(tmp_path: Path, handler: Callable[[Any], None]) -> None:
    def here(comm: Communicator) -> bool:
        handler(lambda *_: comm.finalize())
        with pytest.raises(UsageError, match=r"the handler of a signal has called finalize\(\)"):
            comm.sendrecv(None, None, 1)
        return comm.closed

    def there(comm: Communicator) -> None:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(PeerFailed, match="rank 0 finished"):
            comm.barrier()

    assert pair("threads", tmp_path, here, there) == (True, None)


@pytest.mark.parametrize("items", [1, 100_000])
def test_a_second_signal_ends_an_operator_that_hangs(
    tmp_path: Path, handler: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, items: int
) -> None:
    """The first one waits for the operator to end; and no rank is lost."""
    handler(alarm)
    put_off: list[bool] = []

    def hangs(left: Any, right: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
            put_off.append(True)
            monkeypatch.setattr(signal_gate, "PATIENCE", 0.0)
            signal.raise_signal(signal.SIGUSR1)
            pytest.fail("the second signal was put off")
        return left + right

    def here(comm: Communicator) -> list[int]:
        with pytest.raises(Alarm):
            comm.allreduce(np.ones(items), hangs)
        return go_on(comm)

    def there(comm: Communicator) -> list[int]:
        with contextlib.suppress(Revoked):  # this rank may have its result already
            comm.allreduce(np.ones(items), hangs)
        return revoked(comm)

    assert pair("ipc", tmp_path, here, there) == ([0, 1], [0, 1])
    assert put_off == [True]


@pytest.mark.parametrize("items", [1, 100_000])
def test_an_operator_that_raises_loses_no_rank(tmp_path: Path, items: int) -> None:
    def raises(left: Any, right: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            raise Alarm
        return left + right

    def here(comm: Communicator) -> list[int]:
        with pytest.raises(Alarm):
            comm.allreduce(np.ones(items), raises)
        return go_on(comm)

    def there(comm: Communicator) -> list[int]:
        with contextlib.suppress(Revoked):
            comm.allreduce(np.ones(items), raises)
        return revoked(comm)

    assert pair("ipc", tmp_path, here, there) == ([0, 1], [0, 1])


def test_handlers_are_the_programs_own_again_when_the_job_is_left(
    tmp_path: Path, handler: Callable[[Any], None]
) -> None:
    handler(alarm)
    before = [signal.getsignal(number) for number in NUMBERS]

    def here(comm: Communicator) -> None:
        comm.barrier()
        for number, own in zip(NUMBERS, before, strict=True):
            wrapped = signal.getsignal(number)
            assert wrapped.__wrapped__ is own if isinstance(wrapped, Deferred) else wrapped == own
            assert isinstance(wrapped, Deferred) == callable(own)
        with pytest.raises(Alarm):  # outside of calls it runs where it comes
            signal.raise_signal(signal.SIGUSR1)
        handler(signal.SIG_IGN)  # one that is set later counts as well
        comm.barrier()
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        handler(alarm)
        comm.barrier()
        assert isinstance(signal.getsignal(signal.SIGUSR1), Deferred)

    pair("threads", tmp_path, here, lambda comm: [comm.barrier() for _ in range(3)])
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_a_file_for_signals_hears_of_them_at_once(tmp_path: Path, handler: Callable[[Any], None]) -> None:
    """As asyncio needs it."""
    handler(lambda *_: None)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(writer)

    def here(comm: Communicator) -> bytes:
        return comm.sendrecv(None, None, 1)

    def there(comm: Communicator) -> None:
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        while True:
            try:
                comm.sendrecv(os.read(reader, 1), 0, None)
                return
            except BlockingIOError:
                pass

    try:
        assert pair("ipc", tmp_path, here, there)[0] == bytes([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


# In functions that C calls.


def test_a_handler_waits_in_a_function_that_c_calls_for_its_next_call_of_ringcast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, handled = SignalGate(), []

    def plain() -> FrameType:
        return sys._getframe()

    @called_from_c
    def called() -> FrameType:
        return sys._getframe()

    for frame, expected in (None, [1]), (plain(), [1, 1]), (called(), [1, 1]):
        gate.note(signal.SIGUSR1, frame, lambda *_: handled.append(1))
        assert handled == expected
    monkeypatch.setattr(signal_gate, "PATIENCE", 0.0)
    gate.note(signal.SIGUSR1, called(), lambda *_: handled.append(1))
    with gate:
        assert handled == [1, 1]
    assert handled == [1, 1, 1]
