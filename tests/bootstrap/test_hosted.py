"""Ranks in other engines' workers, without an engine: their places, their ends, and the reports of these."""

from __future__ import annotations

import pkgutil
import threading
from collections import Counter
from itertools import product

import cloudpickle
import numpy as np
import pytest

import ringcast
from ringcast.bootstrap import hosted
from ringcast.bootstrap.hosted import GRACE, RankResult, Results, spread
from ringcast.communicator import Communicator
from ringcast.errors import PeerFailed, RunFailed
from ringcast.wire.failure import Failure
from support.causes import names
from support.hosted_jobs import run


def test_no_module_hides_a_public_name() -> None:
    # An import sets the module as an attribute of the package: what has the same name would be gone.
    assert {module.name for module in pkgutil.iter_modules(ringcast.__path__)} & set(ringcast.__all__) == set()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ranks_of_one_process_communicate_and_leave_nothing(n: int, nothing_left: None) -> None:
    def work(comm: Communicator, shift: int) -> tuple[int, float]:
        assert ringcast.init() is comm
        return comm.rank, float(comm.allreduce(np.array(comm.rank + shift)))

    assert run(work, n, args=(1,)).all() == [(rank, n * (n + 1) / 2) for rank in range(n)]


SEEN: list[str] = []


def raise_or_wait(comm: Communicator) -> None:
    if comm.rank == 1:
        raise ValueError("no data")
    try:
        comm.barrier()
    except PeerFailed as error:
        SEEN.append(error.cause)
        raise


def test_the_error_names_the_rank_that_raised_with_its_traceback(nothing_left: None) -> None:
    SEEN.clear()
    with pytest.raises(RunFailed, match=r"rank 1: ValueError: no data\n(?s:.*)in raise_or_wait") as caught:
        run(raise_or_wait, 3).all()
    assert caught.value.rank == 1
    assert SEEN
    assert all(names(cause, "ValueError: no data") for cause in SEEN)  # the others know it as well


WAITING = threading.Event()


def wait_for_each_other(comm: Communicator) -> None:
    WAITING.set()
    comm.sendrecv(None, None, 1 - comm.rank)


def test_an_abort_ends_ranks_that_wait(nothing_left: None) -> None:
    def interrupt(nonce: int) -> None:
        WAITING.wait()
        hosted.abort(nonce, "the client was interrupted")

    results = run(wait_for_each_other, 2, meanwhile=interrupt)
    with pytest.raises(RunFailed, match=r"the job was aborted: the client was interrupted"):
        results.all()


def test_neither_key_nor_arguments_are_in_the_text_of_a_seat() -> None:
    spec = hosted.rank_specs(print, 1, ("a secret",), None)[0]
    assert "secret" not in repr(spec)
    assert spec.key not in repr(spec)
    assert "secret" not in repr(RankResult(0, b"a secret"))


def test_ranks_are_spread_evenly_and_in_rows() -> None:
    for slots in product(range(4), repeat=3):
        names = dict(zip("abc", slots, strict=True))
        for n in range(sum(slots) + 1):
            placed = spread(names, n)
            counts = Counter(placed)
            assert placed == sorted(placed)
            assert len(placed) == n
            assert all(counts[name] <= names[name] for name in names)
            free = [counts[name] for name in names if counts[name] < names[name]]
            assert not free or max(counts.values(), default=0) <= min(free) + 1
        with pytest.raises(ValueError, match="slots"):
            spread(names, sum(slots) + 1)


def test_the_owner_waits_for_all_or_for_a_while_after_a_failure() -> None:
    results = Results(3)
    assert not results.over(1e9)
    results.ended(RankResult(2, cloudpickle.dumps("two")), 1.0)
    assert results.missing == [0, 1]
    assert not results.failed
    results.lost(1, "its worker is gone", 5.0)
    assert results.failed
    assert not results.over(5.0 + GRACE)
    assert results.over(5.1 + GRACE)
    results.ended(RankResult(0, b"", Failure("PeerFailed: ...", blames=(1,)), True), 6.0)
    assert results.over(6.0)
    with pytest.raises(RunFailed, match="rank 1: its worker is gone"):
        results.all()


def test_who_failed_by_itself_is_named_before_those_that_followed() -> None:
    results = Results(3)
    results.ended(RankResult(0, b"", Failure("PeerFailed: 2", blames=(2,)), True), 1.0)
    results.ended(RankResult(2, b"", Failure("ValueError: no", "where"), False), 2.0)
    with pytest.raises(RunFailed, match="rank 2: ValueError: no\nwhere"):
        results.all()
