"""The master of a pool over a communicator that fails as the test likes."""

from __future__ import annotations

import queue
import types
from collections.abc import Iterator
from typing import Any

import pytest

from ringcast.errors import JobAborted, PeerFailed
from ringcast.pool import master
from ringcast.pool.master import Master, Said
from ringcast.pool.messages import Broken, Failed, Give, Lost, Stop, Submit, TaskFacts
from support.patience import patience

CONTENT = b"x" * 32
KILLED = "JobAborted: rank 0: the job was aborted: killed"


class Comm:
    """The communicator of a master with three workers, of which those in `dead` take no messages."""

    rank, size, members = 0, 4, (0, 1, 2, 3)

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.sent: list[tuple[int, str]] = []
        self.errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()  # of the receive call

    def send(self, value: Any, dest: int) -> None:
        if dest in self.dead:
            raise PeerFailed(0, dest, "killed")
        self.sent.append((dest, type(value[0]).__name__))

    def recv(self, *_: Any, **__: Any) -> Any:
        raise self.errors.get()

    def get_failed(self) -> tuple[int, ...]:
        return tuple(self.dead)

    def ack_failed(self) -> None:
        pass


@pytest.fixture
def comm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Comm]:
    protocol = types.SimpleNamespace(failed={})
    group = types.SimpleNamespace(endpoint=types.SimpleNamespace(protocol=protocol))
    monkeypatch.setattr(master, "group_of", lambda _: group)
    made = Comm()
    yield made
    made.errors.put(EOFError())


def begun(comm: Any, retries: int) -> tuple[Master, Said]:
    said: Said = queue.SimpleQueue()
    return Master(comm, {1: "h0", 2: "h1", 3: "h1"}, retries, said), said


def tasks(count: int, ranks: int = 0) -> list[tuple[Any, Any]]:
    return [(Submit(TaskFacts(number, CONTENT, (), ranks, False)), [b"args"]) for number in range(count)]


def heard(said: Said) -> list[Any]:
    got = []
    while not said.empty():
        one = said.get(timeout=patience(20))
        got.append(None if one is None else one[0])
    return got


def test_workers_that_die_together_lose_their_tasks_only(comm: Comm) -> None:
    made, said = begun(comm, 0)
    comm.dead = {1, 2}
    made.take([(Give(CONTENT), [b"abs"]), *tasks(2)])
    told = heard(said)
    assert [each.number for each in told if isinstance(each, Failed)] == [0, 1]
    assert [each for each in told if isinstance(each, Lost)] == [Lost((1, 2), 1)]


def test_tasks_of_workers_that_die_together_run_on_the_others(comm: Comm) -> None:
    made, said = begun(comm, 1)
    comm.dead = {1, 2}
    made.take([(Give(CONTENT), [b"abs"]), *tasks(2)])
    assert comm.sent == [(3, "Tasks")]  # one after the other, from now on
    assert not [each for each in heard(said) if isinstance(each, Failed)]


def test_the_death_of_all_workers_breaks_the_pool_after_its_tasks_have_failed(comm: Comm) -> None:
    made, said = begun(comm, 0)
    comm.dead = {1, 2, 3}
    made.take([(Give(CONTENT), [b"abs"]), *tasks(1, ranks=2)])
    *_, failed, broken = heard(said)
    assert isinstance(failed, Failed)
    assert isinstance(broken, Broken)
    assert "no worker is left: rank 3 (h1)" in broken.cause


@pytest.mark.parametrize("before", [[], [(Stop(), ())]], ids=["as it runs", "as it ends"])
def test_the_end_of_the_job_ends_the_waits_of_all_threads(comm: Comm, before: list[tuple[Any, Any]]) -> None:
    made, said = begun(comm, 1)
    made.take(before)
    comm.errors.put(JobAborted(0, "killed"))
    made.join()
    told = heard(said)
    assert told[-1] is None
    assert [each.cause for each in told if each is not None and not before] == [KILLED] * (not before)


def test_an_error_in_a_broadcast_ends_the_pool(comm: Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    def broadcast(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(master, "broadcast", broadcast)
    made, said = begun(comm, 1)
    made.take([(Give(CONTENT), [b"x" * (1 << 20)]), *tasks(1)])
    while (one := said.get(timeout=patience(20))) is not None and not isinstance(one[0], Broken):
        pass
    assert one == (Broken("MemoryError: no room", ""), ())
    assert said.get(timeout=patience(20)) is None
    assert made.stopped
    assert comm.sent[-3:] == [(1, "Stop"), (2, "Stop"), (3, "Stop")]
