"""A pool whose workers are replaced while it runs: each task runs once, on workers of before or of now."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, UsageError
from ringcast.pool.client import Client, packed_function
from ringcast.pool.messages import Broken, Cancel, Drop, Ended, Frames, Give, Outcome, Recall, Recalled, Stop, Submit
from ringcast.pool.packing import pack_outcome
from support.patience import patience

ABS = packed_function(abs)


class Crew:
    """A master with one worker, which runs one task at a time when the test lets it; it keeps all its messages."""

    def __init__(self) -> None:
        self.hosts = {1: "h0"}
        self.told: list[Any] = []
        self.waiting: list[tuple[Any, Frames]] = []
        self.content: dict[bytes, Any] = {}
        self.ended = threading.Event()
        self.news: list[tuple[Any, Frames] | None] = []
        self.come = threading.Condition()

    def tell(self, message: Any, frames: Frames = ()) -> None:
        self.told.append(message)
        match message:
            case Give(digest):
                self.content[digest] = frames[0]
            case Submit(task):
                self.waiting.append((task, frames))
            case Drop(digest):
                del self.content[digest]
            case Recall():
                self.give_back()
            case Stop():
                self.say(None)

    def give_back(self) -> None:
        given, self.waiting = self.waiting, []
        needs = tuple(dict.fromkeys(task.function for task, _ in given))
        frames = [*(self.content[each] for each in needs), *(frame for _, own in given for frame in own)]
        self.say((Recalled(needs, tuple(task for task, _ in given), tuple(len(own) for _, own in given)), frames))

    def say(self, one: tuple[Any, Frames] | None) -> None:
        with self.come:
            self.news.append(one)
            self.come.notify()

    def run(self, result: Any) -> None:
        task, _ = self.waiting.pop(0)
        self.end_of(task.number, result)

    def end_of(self, number: int, result: Any) -> None:
        frames = pack_outcome([result], None)
        self.say((Ended(number, (Outcome(number, 1, 0.0, len(frames), True),)), frames))

    def said(self) -> Iterator[tuple[Any, Frames]]:
        while True:
            with self.come:
                self.come.wait_for(lambda: self.news)
                one = self.news.pop(0)
            if one is None:
                return
            yield one

    def verdict(self) -> RunFailed:
        return RunFailed(0, "it is gone")

    def end(self, *, at_once: bool = True) -> None:
        self.ended.set()
        if at_once:
            self.say(None)


def submit(client: Client, number: int) -> Any:
    return client.submit(ABS, ((number,), {}), 0)


def until(condition: Any) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + patience(20)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_tasks_that_wait_go_to_the_new_workers_and_the_others_end_where_they_are() -> None:
    before, after = Crew(), Crew()
    client = Client(before)
    futures = [submit(client, n) for n in range(4)]
    running, _ = before.waiting.pop(0)
    cancelled = futures[3].cancel()
    until(lambda: Cancel(3) in before.told)
    client.replace(after)
    until(lambda: len(after.waiting) == 2)
    assert [task.number for task, _ in after.waiting] == [1, 2]
    assert cancelled
    assert not before.ended.is_set()
    before.end_of(running.number, "before")
    assert futures[0].result(patience(20)) == "before"
    assert before.ended.wait(patience(20))
    futures.append(submit(client, 4))
    for result in "bcd":
        after.run(result)
    assert [futures[n].result(patience(20)) for n in (1, 2, 4)] == ["b", "c", "d"]
    client.stop()
    assert client.ended.wait(patience(20))
    assert after.ended.is_set()


def test_if_the_workers_of_before_break_their_own_tasks_fail_and_the_pool_goes_on() -> None:
    before, after = Crew(), Crew()
    client = Client(before)
    lost = submit(client, 0)
    before.waiting.pop(0)
    client.replace(after)
    before.say((Broken("all is lost", ""), ()))
    assert isinstance(lost.exception(patience(20)), ringcast.PoolBroken)
    kept = submit(client, 1)
    after.run("kept")
    assert kept.result(patience(20)) == "kept"
    client.stop()
    assert client.ended.wait(patience(20))


def test_a_pool_that_ends_or_breaks_ends_all_workers() -> None:
    for end in "stop", "break":
        crews = [Crew() for _ in range(3)]
        client = Client(crews[0])
        futures = []
        for number, crew in enumerate(crews):
            futures.append(submit(client, number))
            until(lambda crew=crew: crew.waiting)
            crew.waiting.pop(0)
            if number < 2:
                client.replace(crews[number + 1])
        if end == "stop":
            client.stop()
            for number, crew in enumerate(crews):
                crew.end_of(number, number)
            assert [future.result(patience(20)) for future in futures] == [0, 1, 2]
        else:
            client.break_off(ringcast.PoolBroken("enough"))
            assert all(isinstance(future.exception(patience(20)), ringcast.PoolBroken) for future in futures)
        assert client.ended.wait(patience(20))
        assert all(crew.ended.is_set() for crew in crews)


def test_a_closed_pool_takes_no_workers() -> None:
    client = Client(Crew())
    client.stop()
    with pytest.raises(UsageError, match="shut down"):
        client.replace(Crew())


def test_the_ranks_of_a_communicator_cannot_be_replaced() -> None:
    def work(comm: Communicator) -> str | None:
        comm.progress_thread()
        with ringcast.Pool(comm) as pool:
            if comm.rank == 0:
                with pytest.raises(UsageError, match="has no others") as found:
                    pool.resize(3)
                return str(found.value)
        return None

    assert ringcast.run(work, 2, backend="threads")[0]


def pid_when(there: str) -> int:
    until(lambda: os.path.exists(there))
    return os.getpid()


def once(mark: str) -> int:
    """Kill the worker the first time that this is called."""
    if not os.path.exists(mark):
        Path(mark).touch()
        until(lambda: os.path.exists(f"{mark}-go"))
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@pytest.mark.live
def test_workers_come_and_go(tmp_path: Path) -> None:
    def greet() -> None:
        os.environ["GREETED"] = "yes"

    array, mark = np.arange(100_000), tmp_path / "mark"
    with ringcast.Pool(1, initializer=greet) as pool:
        old = pool.submit(os.getpid).result()
        running = pool.submit(pid_when, str(mark))
        futures = [pool.submit(lambda n: (os.getpid(), int(array[n])), n) for n in range(100)]
        pool.resize(3)
        assert (pool.size, repr(pool)) == (3, "<Pool: 3 workers, 3 alive>")
        pids, items = zip(*(future.result(patience(60)) for future in futures), strict=True)
        assert items == tuple(range(100))
        assert old not in pids
        mark.touch()
        assert running.result(patience(60)) == old
        until(lambda: not Path(f"/proc/{old}").exists())
        pids = pool.submit_ranks(3, lambda comm: (os.getpid(), int(comm.allreduce(array)[7]))).result()
        assert len({*pids}) == 3
        assert {item for _, item in pids} == {21}
        assert pool.submit(os.getenv, "GREETED").result() == "yes"
        pool.resize(1)
        assert pool.size == 1
        with pytest.raises(RunFailed):
            pool.resize(hosts="no-such-host.invalid:1")
        assert pool.submit(abs, -1).result() == 1
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid, _ in pids))


@pytest.mark.live
def test_a_task_whose_old_worker_dies_runs_again_on_a_new_one(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with ringcast.Pool(1) as pool:
        old = pool.submit(os.getpid).result()
        future = pool.submit(once, str(mark))
        until(mark.exists)
        pool.resize(2)
        Path(f"{mark}-go").touch()
        assert future.result(patience(60)) != old
        assert pool.size == 2
