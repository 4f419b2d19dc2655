"""Files that are watched together: how often they are looked at before a wait."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from math import inf

import pytest

from ringcast.transports.sockets import watcher
from ringcast.transports.sockets.watcher import IN, Watcher


class Pipe:
    """A pipe that is watched; `told` counts what comes out of it."""

    def __init__(self, watch: Watcher) -> None:
        self._out, self._in = os.pipe()
        self.told = 0
        watch.add(self._out, IN, self._read)

    def write(self) -> None:
        os.write(self._in, b"x")

    def _read(self) -> None:
        self.told += len(os.read(self._out, 1))

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


@pytest.fixture
def watch() -> Iterator[Watcher]:
    made = Watcher()
    yield made
    made.close()


@pytest.fixture
def pipe(watch: Watcher) -> Iterator[Pipe]:
    made = Pipe(watch)
    yield made
    made.close()


def test_others_run_before_a_wait(watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_yield", pipe.write)
    watch.wait(inf)
    assert pipe.told == 1


def test_who_does_not_wait_looks_once(watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_yield", pytest.fail)
    watch.wait(-inf)
    pipe.write()
    watch.wait(-inf)
    assert pipe.told == 1


def test_there_are_more_looks_after_short_waits_and_fewer_after_long_ones(
    watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()
    monkeypatch.setattr(watcher, "_SHORT", 100.0)
    monkeypatch.setattr(watcher, "_TAKEN", 100.0)

    def write_after_the_looks() -> None:
        looks.append(0)
        if len(looks) == watch._looks:
            monkeypatch.setattr(watch, "_epoll", Late(watch._epoll, pipe.write))

    class Late:
        """An epoll in which something happens at the last moment before the wait."""

        def __init__(self, epoll: select.epoll, does: Callable[[], None]) -> None:
            self._epoll, self._does = epoll, does

        def poll(self, seconds: float, most: int) -> list[tuple[int, int]]:
            if seconds == 0:
                return self._epoll.poll(0, most)
            monkeypatch.setattr(watch, "_epoll", self._epoll)
            self._does()
            return self._epoll.poll(seconds, most)

    monkeypatch.setattr(os, "sched_yield", write_after_the_looks)
    for _ in range(10):
        looks.clear()
        watch.wait(inf)
    assert len(looks) == watcher._MOST
    monkeypatch.setattr(os, "sched_yield", lambda: looks.append(0))
    monkeypatch.setattr(watcher.time, "monotonic", lambda: 0.0)  # else the time may be over before the first look
    for _ in range(10):
        looks.clear()
        watch.wait(1e-6)
    assert len(looks) == watcher._FEWEST


def test_who_has_looked_for_long_waits_for_the_rest_of_its_time(
    watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = [0.0], list[float]()

    class Clocked:
        def poll(self, seconds: float, _: int) -> list[tuple[int, int]]:
            waits.append(seconds)
            return []

        def close(self) -> None:
            """There is nothing to close."""

    def others_run() -> None:
        now[0] += 0.75

    monkeypatch.setattr(watch, "_epoll", Clocked())
    monkeypatch.setattr(os, "sched_yield", others_run)
    monkeypatch.setattr(watcher.time, "monotonic", lambda: now[0])
    watch.wait(1.0)
    assert waits == [0, 0, 0.25]


def test_where_others_had_work_for_the_processor_there_are_no_looks_for_a_while(
    watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, taken = list[int](), [True]
    now = [0.0]

    def others_run() -> None:
        looks.append(0)
        now[0] += watcher._TAKEN if taken[0] else watcher._TAKEN / 100

    monkeypatch.setattr(os, "sched_yield", others_run)
    monkeypatch.setattr(watcher.time, "monotonic", lambda: now[0])
    for _ in range(2):
        looks.clear()
        for _ in range(1 + watcher._CROWDED):
            watch.wait(watcher.time.monotonic() + 1e-6)
        assert len(looks) == 1
    taken[0] = False
    watch.wait(watcher.time.monotonic() + 1e-6)
    assert len(looks) == 1 + watcher._FEWEST
    pipe.write()
    watch.wait(inf)
    assert pipe.told == 1
