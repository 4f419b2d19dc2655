"""The caller's side of a pool, with a master that says as the test likes."""

from __future__ import annotations

import dataclasses
import gc
import queue
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import ringcast
from ringcast.errors import RunFailed
from ringcast.pool.client import Client, packed_function
from ringcast.pool.messages import Cancel, Ended, Frames, Outcome, Started, Stop, Submit
from ringcast.pool.packing import pack_outcome
from support.patience import patience

ABS = packed_function(abs)


class Crew:
    """Says the messages that are put into `queue`."""

    def __init__(self) -> None:
        self.hosts = {1: "h0"}
        self.queue: queue.SimpleQueue[tuple[Any, Frames] | None] = queue.SimpleQueue()
        self.ends: list[bool] = []

    def tell(self, message: Any, frames: Frames = ()) -> None:
        if isinstance(message, Stop):
            self.queue.put(None)

    def said(self) -> Iterator[tuple[Any, Frames]]:
        while (one := self.queue.get()) is not None:
            yield one

    def verdict(self) -> RunFailed:
        raise AssertionError

    def end(self, *, at_once: bool = True) -> None:
        self.ends.append(at_once)


def outcome(number: int, result: Any, error: BaseException | None = None) -> tuple[Any, Frames]:
    """Return the message that a task has ended."""
    frames = pack_outcome([result], error)
    return Ended(number, (Outcome(number, 1, 0.0, len(frames), error is None, traceback="there"),)), frames


def submit(client: Client) -> Any:
    return client.submit(ABS, ((1,), {}), 0)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Refuses a cause."""


def test_an_exception_that_refuses_a_cause_comes_without() -> None:
    crew = Crew()
    client = Client(crew)
    future = submit(client)
    crew.queue.put(outcome(0, None, Frozen()))
    assert type(future.exception(patience(20))) is Frozen
    client.stop()
    assert client.ended.wait(patience(20))


def test_a_callback_that_ends_the_listener_breaks_the_pool() -> None:
    crew = Crew()
    client = Client(crew)
    first, *others = (submit(client) for _ in range(3))
    for future in first, others[0]:
        future.add_done_callback(lambda _: sys.exit(3))
    crew.queue.put(outcome(0, 1))
    assert first.result(patience(20)) == 1
    for future in others:
        with pytest.raises(ringcast.PoolBroken, match="SystemExit: 3"):
            future.result(patience(20))
    assert client.ended.wait(patience(20))
    assert crew.ends[0] is True


class Late(Crew):
    """Has begun and ended a task before it hears that the task was cancelled."""

    def tell(self, message: Any, frames: Frames = ()) -> None:
        super().tell(message, frames)
        if isinstance(message, Cancel):
            self.queue.put((Started((message.number,)), ()))
            self.queue.put(outcome(message.number, 1))


def test_a_task_that_is_cancelled_as_it_begins_is_cancelled() -> None:
    client = Client(Late())
    futures = [submit(client) for _ in range(50)]
    assert all(future.cancel() for future in futures)
    client.stop()
    assert client.ended.wait(patience(20))
    assert all(future.cancelled() for future in futures)
    assert client.broken is None


class Terminated(Crew):
    """Ends a task while the program terminates the pool."""

    def end(self, *, at_once: bool = True) -> None:
        super().end(at_once=at_once)
        self.queue.put(None)


def test_a_result_that_comes_as_the_pool_is_terminated_has_one_end() -> None:
    for _ in range(20):
        crew = Terminated()
        client = Client(crew)
        futures = [submit(client) for _ in range(20)]
        for number in range(20):
            crew.queue.put((Started((number,)), ()))
            crew.queue.put(outcome(number, number))
        client.break_off(ringcast.PoolBroken("it was terminated"))
        assert client.ended.wait(patience(20))
        assert client.broken is not None
        assert client.broken.cause == "it was terminated"
        for number, future in enumerate(futures):
            error = future.exception(patience(20))
            assert isinstance(error, ringcast.PoolBroken) or future.result() == number


class Collecting(Crew):
    """Collects garbage at the third task, while the client holds its lock."""

    def tell(self, message: Any, frames: Frames = ()) -> None:
        super().tell(message, frames)
        if isinstance(message, Submit) and message.task.number == 3:
            gc.collect()


class Abandoned:
    """The results of a map, in a cycle of references."""

    def __init__(self, client: Client) -> None:
        self.itself, self.futures = self, [submit(client) for _ in range(3)]
        weakref.finalize(self, lambda futures: [each.cancel() for each in futures], self.futures)
        weakref.finalize(self, client.let_go)


def test_tasks_that_are_cancelled_by_the_garbage_collector_wait_for_no_lock() -> None:
    client = Client(Collecting())
    futures: list[Any] = []
    program = threading.Thread(target=lambda: futures.append(submit(client)), daemon=True)
    gc.disable()  # nothing is collected before the third task
    try:
        Abandoned(client)
        program.start()
        program.join(patience(20))
    finally:
        gc.enable()
    assert len(futures) == 1
    futures[0].cancel()
    assert client.ended.wait(patience(20))
    assert client.broken is None
