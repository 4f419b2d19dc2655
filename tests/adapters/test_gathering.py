"""Ranks find a fresh part of a store, whatever earlier groups of the same name have left in it."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from ringcast.adapters.gathering import Part, gathered
from ringcast.errors import RendezvousError
from support.patience import patience


class Dictionary:
    """A board in this process."""

    def __init__(self) -> None:
        self.items: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def put(self, key: str, value: bytes) -> None:
        with self.lock:
            self.items[key] = value

    def look(self, key: str) -> bytes | None:
        with self.lock:
            return self.items.get(key)

    def remove(self, prefix: str) -> None:
        with self.lock:
            for key in [key for key in self.items if key.startswith(prefix)]:
                del self.items[key]


def gather(board: Dictionary, size: int, ranks: list[int], timeout: float = 30.0) -> list[Any]:
    """Return what each of these processes, that are threads, has got: the sum of all, or its error."""
    found: list[Any] = [None] * len(ranks)

    def process(place: int, rank: int) -> None:
        try:
            with gathered(board, "group", rank, size, timeout) as (store, left):
                assert 0 < left <= timeout
                store.set(f"value/{rank}", b"%d" % rank)
                found[place] = sum(int(store.get(f"value/{each}", 30)) for each in range(size))
                store.set(f"done/{rank}", b"")
                for each in range(size):
                    store.get(f"done/{each}", 30)
                store.set(f"left/{rank}", b"")
                if rank == 0:
                    for each in range(size):
                        store.get(f"left/{each}", 30)
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=process, args=each) for each in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("size", [1, 2, 5])
def test_groups_of_one_name_follow_each_other_and_leave_nothing(size: int) -> None:
    board = Dictionary()
    for _ in range(3):
        assert gather(board, size, list(range(size))) == [size * (size - 1) / 2] * size
        assert not board.items


def test_what_a_dead_group_has_left_is_not_taken() -> None:
    board = Dictionary()
    board.put("group/call", b"dead")
    board.put("group/dead/answer/1", b"an answer")
    board.put("group/dead/confirmed", json.dumps(["", "an answer", "another"]).encode())
    board.put("group/dead/value/0", b"100")
    board.put("group/refused", json.dumps(["dead before", "ranks were missing"]).encode())
    assert gather(board, 3, [2, 1, 0]) == [3, 3, 3]


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_rank_that_does_not_come_is_named_in_time(missing: int) -> None:
    limit = patience(0.3)
    before, there = time.monotonic(), [rank for rank in range(4) if rank != missing]
    errors = gather(Dictionary(), 4, there, timeout=limit)
    assert time.monotonic() - before < patience(3)
    for error in errors:
        assert isinstance(error, RendezvousError)
        assert f"rank {missing} of 4 did not come within {limit:g} s" in str(error)


def test_the_error_of_a_group_with_a_missing_rank_is_not_that_of_the_next() -> None:
    board = Dictionary()
    gather(board, 3, [0, 1], timeout=0.1)
    assert gather(board, 3, [0, 1, 2]) == [3, 3, 3]


def test_a_second_rank_0_ends_the_first_ones_group() -> None:
    board = Dictionary()
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.extend(gather(board, 3, [0])))
    thread.start()
    while board.look("group/call") is None:
        pass
    assert gather(board, 2, [0, 1]) == [1, 1]
    thread.join()
    assert "another process has begun a group of the same name as its rank 0" in str(first[0])


def test_of_two_processes_with_one_rank_one_is_refused() -> None:
    found = gather(Dictionary(), 2, [0, 1, 1], timeout=patience(0.5))
    assert [each for each in found if each == 1] == [1, 1]
    assert [type(each) for each in found].count(RendezvousError) == 1


def test_what_is_not_written_in_time_is_missed() -> None:
    with pytest.raises(TimeoutError):
        Part(Dictionary(), "group", "a call", 1).get("key", 0.0)


@pytest.mark.parametrize(("error", "text"), [
    (RendezvousError("rank 0: there is no port"), "there is no port"),
    (OSError("no memory"), "OSError: no memory"),
])  # fmt: skip
def test_an_error_of_rank_0_among_them_ends_the_wait_of_the_others(error: Exception, text: str) -> None:
    board, found = Dictionary(), []

    def lead() -> None:
        with suppress(type(error)), gathered(board, "group", 0, 3, 30):
            raise error

    def follow(rank: int) -> None:
        try:
            with gathered(board, "group", rank, 3, 30) as (store, left):
                store.get("plan", left)
        except RendezvousError as its:
            found.append(str(its))

    threads = [threading.Thread(target=lead), *(threading.Thread(target=follow, args=(rank,)) for rank in (1, 2))]
    before = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - before < patience(5)
    assert sorted(found) == [f"rank {rank}: rank 0 has given the group up: {text}" for rank in (1, 2)]
    assert list(board.items) == ["group/refused"]
    assert gather(board, 3, [0, 1, 2]) == [3, 3, 3]
