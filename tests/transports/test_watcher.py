"""Files that are watched together: how often they are looked at before a wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ringcast.transports import watcher
from ringcast.transports.watcher import IN, Watcher


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
    watch.wait(None)
    assert pipe.told == 1


def test_who_does_not_wait_looks_once(watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_yield", pytest.fail)
    watch.wait(0)
    pipe.write()
    watch.wait(0)
    assert pipe.told == 1


def test_looks_in_vain_become_fewer_and_those_with_success_more(
    watch: Watcher, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()
    monkeypatch.setattr(os, "sched_yield", lambda: looks.append(0))
    for _ in range(10):
        pipe.write()
        watch.wait(None)
    assert not looks
    for _ in range(20):
        looks.clear()
        watch.wait(1e-6)
        assert watcher._FEWEST <= len(looks) <= watcher._MOST
    assert len(looks) == watcher._FEWEST
