"""How the calls of a host library go on: from any thread, and while the program does something else."""

from __future__ import annotations

import gc
import signal
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from ringcast.adapters.background import Awaited, Background, background_of
from ringcast.adapters.meeting import meet
from ringcast.adapters.subgroups import subgroup
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from support import gatherings
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")


class Nothing:
    """A store for one rank, which needs none."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, timeout: float) -> bytes:
        raise TimeoutError(key)


class Call(Awaited):
    """A call that never ends; it counts how often its age is looked at."""

    def __init__(self, comm: Communicator) -> None:
        self.comm, self.looks, self._begun = comm, 0, monotonic()

    @property
    def begun(self) -> float:  # type: ignore[override]
        self.looks += 1
        return self._begun

    def wait(self, timeout: timedelta) -> bool:
        return True

    def poll(self) -> bool:
        return False


@pytest.fixture
def alone() -> Iterator[tuple[Communicator, Background]]:
    """The only rank of a group, whose program sets a handler of a signal after its first call."""
    comm = meet(Nothing(), 0, 1)
    background = background_of(comm)
    with background.call():
        comm.barrier()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    yield comm, background
    background.leave(comm)
    assert all(thread.name != "ringcast-watch" for thread in threading.enumerate())
    signal.signal(signal.SIGUSR1, before)


def in_another_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def until(condition: Callable[[], bool]) -> None:
    look, end = threading.Event(), monotonic() + patience(10)
    while not condition():
        assert monotonic() < end
        look.wait(0.01)


def is_shared(comm: Communicator) -> bool:
    return group_of(comm).endpoint.shared


def test_no_thread_for_futures_outlives_the_group() -> None:
    """Python would end it within the host library, which ends the process."""
    comm = meet(Nothing(), 0, 1)
    background, call, endpoint = background_of(comm), Call(comm), group_of(comm).endpoint

    def hand_over() -> bool:
        """Take a while to hand over the result, when the group has been left."""
        return endpoint.closed and not threading.Event().wait(0.1)

    call.poll = hand_over  # type: ignore[method-assign]
    background.when_ended(call)
    assert any(thread.name == "ringcast-futures" for thread in threading.enumerate())
    background.leave(comm)
    assert all(thread.name != "ringcast-futures" for thread in threading.enumerate())


def test_another_thread_makes_the_first_call_of_several(alone: tuple[Communicator, Background]) -> None:
    comm, background = alone

    def call() -> int:
        with background.call():
            return int(comm.allreduce(1))

    assert in_another_thread(call) == 1
    assert is_shared(comm)


def test_another_thread_makes_a_group_of_members(alone: tuple[Communicator, Background]) -> None:
    comm, _ = alone
    part = in_another_thread(lambda: subgroup(comm, [0], "part"))
    assert part.allreduce(1) == 1
    part.finalize()


def test_a_call_that_is_left_alone_goes_on(alone: tuple[Communicator, Background]) -> None:
    comm, background = alone
    call = Call(comm)
    background.watch(call)
    until(lambda: is_shared(comm))
    background.ended(call)


def test_a_wait_needs_no_thread_however_long_it_takes(alone: tuple[Communicator, Background]) -> None:
    comm, background = alone
    call = Call(comm)
    with background.call():
        background.watch(call)
        until(lambda: call.looks > 5)
        background.ended(call)
    assert not is_shared(comm)


def test_calls_are_looked_after_again_where_no_thread_could_be_started(
    alone: tuple[Communicator, Background], monkeypatch: pytest.MonkeyPatch
) -> None:
    comm, background = alone
    failed = threading.Event()

    def share(_: object) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(threading, "excepthook", lambda _: failed.set())
    with monkeypatch.context() as patch:
        patch.setattr("ringcast.adapters.background.share", share)
        background.watch(Call(comm))
        assert failed.wait(patience(10))
    background.watch(Call(comm))
    until(lambda: is_shared(comm))


class Ended(Call):
    """A call that has ended, for which the program does not wait; it is over when it is polled."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm)
        self.over = False

    def poll(self) -> bool:
        self.over = True
        background_of(self.comm).ended(self)
        return True


def test_calls_for_which_the_program_does_not_wait_do_not_pile_up(alone: tuple[Communicator, Background]) -> None:
    comm, background = alone
    pending = [Call(comm) for _ in range(3)]
    with background.call():
        for call in pending:
            background.watch(call)
        for _ in range(100):
            background.watch(Ended(comm))
        assert not is_shared(comm)
        assert len(background._left_alone) < 10
        for call in pending:
            background.ended(call)


def test_the_last_call_hands_over_its_result(alone: tuple[Communicator, Background]) -> None:
    comm, background = alone
    background.go_on()
    call = Ended(comm)
    background.watch(call)
    until(lambda: call.over)


def test_nothing_is_kept_of_a_group_that_was_left() -> None:
    comm = meet(Nothing(), 0, 1)
    background_of(comm)
    kept = weakref.ref(group_of(comm).endpoint)
    comm.finalize()
    del comm
    meet(Nothing(), 0, 1).finalize()  # the last ones are kept for the end of the program
    gc.collect()
    assert kept() is None


RANK = """
import threading
from time import monotonic
from ringcast.adapters import background as module
from ringcast.communicator.lifetime import group_of
comm = meet(Folder(folder), rank, size)
background = module.background_of(comm)
with background.call():
    comm.barrier()

class Call:
    def __init__(self):
        self.comm, self.begun, self.request = comm, monotonic(), comm.ibarrier()

    def wait(self, timeout):
        try:
            with background.call():
                self.request.wait()
        finally:
            background.ended(self)

def call():
    try:
        with background.call():
            comm.barrier()
    except ringcast.RingcastError as error:
        print(type(error).__name__, error, flush=True)

"""
LATE = """
sys.stdin.readline()
call()
call()  # all messages of the first one may have come
"""


def leaves(program: str, folder: Path) -> list[str]:
    """Return what two ranks print; `program` is that of rank 0, and rank 1 makes its call when that has ended."""
    ranks = [gatherings.process(RANK + text, folder, rank, 2) for rank, text in enumerate([program, LATE])]
    printed = [rank.communicate("\n", timeout=patience(60)) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], printed
    return [out for out, _ in printed]


@pytest.mark.live
def test_another_thread_that_leaves_ends_the_call_under_way(tmp_path: Path) -> None:
    program = """
    def leave():
        while not group_of(comm).endpoint.waiting:
            pass
        background.leave(comm)

    other = threading.Thread(target=leave)
    other.start()
    call()
    other.join()
    """
    for printed in leaves(textwrap.dedent(program), tmp_path):
        assert printed.startswith("Revoked")
        assert "rank 0 left the group while barrier #2, round 0 was under way" in printed


@pytest.mark.live
def test_a_call_that_cannot_end_before_its_group_is_left_names_that(tmp_path: Path) -> None:
    program = """
    module.GRACE = 0.05
    background.watch(Call())
    background.leave(comm)
    """
    own, others = leaves(textwrap.dedent(program), tmp_path)
    assert own == ""
    assert others.startswith("Revoked")
    assert "rank 0 left the group while barrier #2, round 0 was under way" in others
