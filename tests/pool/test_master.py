"""The master of a pool over a communicator that fails as the test likes."""

from __future__ import annotations

import queue
import types
from collections.abc import Iterator
from typing import Any

import pytest

from ringcast.errors import PeerFailed
from ringcast.pool import master
from ringcast.pool.master import Master, Said
from ringcast.pool.messages import Broken, Failed, Give, Lost, Submit, TaskFacts
from support.patience import patience

CONTENT = b"x" * 32


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
