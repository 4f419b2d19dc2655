"""Wrong use of requests, messages and communicators of parts: errors that name rank, call and place; nothing hangs.

What one rank does wrong by itself is an error before anything is sent, and the next call works. What differs between
ranks is named on both sides, with the place of either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ANY_TAG, ArgumentError, CollectiveMismatch, CollectiveTimeout, Communicator, Revoked, UsageError
from support.any_order import AnyOrder
from support.cases import each

Call = Callable[[Communicator], Any]
HERE = r"test_bad_input\.py:\d+"
ORDERS = range(3)
x = np.arange(4)


def run(size: int, work: Call, order: int = 1) -> list[Any]:
    return AnyOrder(size, order).run(work)


# By one rank.


WRONG: list[tuple[Call, type[Exception], str]] = [
    (lambda c: c.isend(x, 2), ArgumentError, "send: argument dest: expected a rank in 0..1 or None, got 2"),
    (lambda c: c.irecv(-1), ArgumentError, "recv: argument source"),
    (lambda c: c.irecv(0, 1.0), ArgumentError, "recv: argument tag"),
    (lambda c: c.irecv(out=[0]), ArgumentError, "recv: argument out"),
    (lambda c: c.irecv(status="x"), ArgumentError, "recv: argument status: expected a Status or None, got 'x'"),
    (lambda c: c.recv(status=0), ArgumentError, "recv: argument status"),
    (lambda c: c.sendrecv(x, 0, 0, ANY_TAG), ArgumentError, "sendrecv: argument tag"),
    (lambda c: c.sendrecv(x, 0, 0, status=3), ArgumentError, "sendrecv: argument status"),
    (lambda c: c.sendrecv(x, 0, "1"), ArgumentError, "sendrecv: argument source"),
    (lambda c: c.ibcast(x, root=2), ArgumentError, "bcast: argument root"),
    (lambda c: c.ireduce(x, algorithm="fast"), ArgumentError, "reduce: argument algorithm or nblocks"),
    (lambda c: c.iallreduce(x, out=np.zeros(3)), ArgumentError, "allreduce: argument out"),
    (lambda c: c.igatherv(x, [3, 3]), ArgumentError, "gatherv: argument counts"),
    (lambda c: c.iscatter([1], root=c.rank), ArgumentError, "scatter: argument values"),
    (lambda c: c.iscatterv(x, [1, 1], root=c.rank), ArgumentError, "scatterv: argument counts"),
    (lambda c: c.iallgatherv(x, [-4, 8]), ArgumentError, "allgatherv: argument counts"),
    (lambda c: c.ireduce_scatter(x, counts=[4, 1]), ArgumentError, "reduce_scatter: argument counts"),
    (lambda c: c.ialltoallv(x, [1, 1]), ArgumentError, "alltoallv: argument counts"),
    (lambda c: c.ialltoall([1]), ArgumentError, "alltoall: argument value"),
    (lambda c: c.ishift(x, 1.5), ArgumentError, "shift: argument distance"),
    (lambda c: c.create(3), ArgumentError, "create: argument ranks: expected different ranks in 0..1.*got 3"),
    (lambda c: c.create(None), ArgumentError, "create: argument ranks"),
    (lambda c: c.create([0, 2]), ArgumentError, "create: argument ranks"),
    (lambda c: c.split(float("nan")), ArgumentError, "split: argument color"),
    (lambda c: c.split(0, 1 << 63), ArgumentError, "split: argument key"),
    (lambda c: c.cart([3]), ArgumentError, "cart: argument dims"),
    (lambda c: c.dup(timeout=0), ArgumentError, "dup: argument timeout"),
    (lambda c: ringcast.wait_all([1]), UsageError, r"wait_all takes a list of requests, got \[1\]"),
    (lambda c: ringcast.wait_any(None), UsageError, "wait_any takes a list of requests, got None"),
    (lambda c: ringcast.wait_some([None]), UsageError, r"wait_some takes a list of requests, got \[None\]"),
]


@each("call, kind, text", WRONG)
def test_what_one_rank_does_wrong_is_found_before_anything_is_sent(
    call: Call, kind: type[Exception], text: str
) -> None:
    def work(comm: Communicator) -> int:
        rank = f"rank {comm.rank}: " if kind is ArgumentError else ""
        with pytest.raises(kind, match=f"^{rank}{text}"):
            call(comm)
        return comm.allreduce(1)

    assert run(2, work) == [2, 2]


@each("seconds", [0, -1, "x", float("nan")])
def test_a_time_to_wait_that_is_none_leaves_the_request_as_it_is(seconds: Any) -> None:
    def work(comm: Communicator) -> None:
        request = comm.iallreduce(1)
        ways = {
            "wait": lambda: request.wait(seconds),
            "wait_all": lambda: ringcast.wait_all([request], seconds),
            "wait_any": lambda: ringcast.wait_any([request], seconds),
            "wait_some": lambda: ringcast.wait_some([request], seconds),
        }
        for name, way in ways.items():
            with pytest.raises(ArgumentError, match=f"^rank {comm.rank}: {name}: argument timeout"):
                way()
        assert request.wait() == 2

    assert run(2, work) == [None] * 2


def test_a_request_that_is_wrong_leaves_the_others_under_way() -> None:
    def work(comm: Communicator) -> None:
        old, new = comm.iallreduce(1), comm.iallreduce(2)
        assert old.wait() == 2
        for wait in ringcast.wait_all, ringcast.wait_any, ringcast.wait_some:
            with pytest.raises(
                UsageError, match=rf"^rank {comm.rank}: {wait.__name__} of a .*before: iallreduce at {HERE}"
            ):
                wait([new, old])
            with pytest.raises(UsageError, match=f"^rank {comm.rank}: {wait.__name__} got a request twice"):
                wait([new, new])
        assert new.wait() == 4

    assert run(2, work) == [None] * 2


def test_requests_of_several_communicators_may_be_waited_for_together() -> None:
    def work(comm: Communicator) -> list[Any]:
        part, copy = comm.split(comm.rank % 2), comm.dup()
        assert part is not None
        requests = [copy.iallreduce(1), comm.irecv(comm.rank), part.iallreduce(1), comm.isend("x", comm.rank)]
        return ringcast.wait_all(requests)

    assert run(4, work) == [[4, "x", 2, None]] * 4


def test_a_communicator_that_was_freed_names_the_call() -> None:
    def work(comm: Communicator) -> int:
        copy, given_up = comm.dup(), comm.dup()
        request, receive = given_up.iallreduce(1), given_up.irecv(0, 5)
        comm.barrier()
        given_up.revoke()
        given_up.finalize()  # with open requests, as it was given up
        again = copy.allreduce_init(1)
        copy.free()
        calls: dict[str, Callable[[], Any]] = {
            "barrier": copy.barrier,
            "ibarrier": copy.ibarrier,
            "send": lambda: copy.send(x, 0),
            "irecv": copy.irecv,
            "iprobe": copy.iprobe,
            "split": lambda: copy.split(0),
            "dup": copy.dup,
            "agree": copy.agree,
            "shrink": copy.shrink,
            "start": again.start,
            "wait": request.wait,
            "test": request.test,
            "cancel": receive.cancel,
            "wait_any": lambda: ringcast.wait_any([comm.ibarrier(), receive]),
        }
        for name, call in calls.items():
            wanted = f"^rank {comm.rank}: the communicator was finalized or freed; call {name} before that"
            with pytest.raises(UsageError, match=wanted):
                call()
        comm._group.endpoint.dropped.clear()  # of the last one
        copy.free()
        return comm.allreduce(1)

    for order in ORDERS:
        assert run(3, work, order) == [3] * 3


def test_a_request_belongs_to_one_rank() -> None:
    """Ranks of a job on threads could hand requests to each other."""
    given: list[Any] = []

    def work(comm: Communicator) -> None:
        request = comm.ibarrier()
        given.append(request)
        comm.barrier()
        others = [other for other in given if other is not request]
        for wait in ringcast.wait_all, ringcast.wait_any, ringcast.wait_some:
            with pytest.raises(UsageError, match="the communicator belongs to another thread"):
                wait([request, *others])
        comm.barrier()
        request.wait()

    assert run(2, work) == [None] * 2


# Not the same on all ranks.


def on_a_copy(call: Call) -> Call:
    return lambda comm: call(comm.dup())


PAIRS: list[tuple[Call, str, Call, str]] = [
    (lambda c: c.split(0), "split", lambda c: c.dup(), "dup"),
    (lambda c: c.split(0), "split", lambda c: c.create([0, 1]), "create"),
    (lambda c: c.split(0), "split", lambda c: c.split_by_host(), "split_by_host"),
    (lambda c: c.split(0), "split", lambda c: c.allgather(np.zeros(3, int)), "allgather"),
    (lambda c: c.split(0), "split", lambda c: c.iallreduce(1).wait(), "allreduce"),
    (lambda c: c.create([0]), r"create\(ranks \(0,\)", lambda c: c.create([1]), r"create\(ranks \(1,\)"),
    (lambda c: c.create([0, 1]), r"create\(ranks \(0, 1\)", lambda c: c.create([1, 0]), r"create\(ranks \(1, 0\)"),
    (lambda c: c.cart([2, 1]), r"cart\(dims \(2, 1\)", lambda c: c.cart([1, 2]), r"cart\(dims \(1, 2\)"),
    (lambda c: c.cart(2), "cart", lambda c: c.create([0, 1]), "create"),
    (lambda c: c.cart([2], True), r"cart.*periods \(True,", lambda c: c.cart([2]), r"cart.*periods \(False,"),
    (lambda c: c.dup(), "dup", lambda c: c.ibarrier().wait(), "barrier"),
    (on_a_copy(lambda c: c.free()), "free", on_a_copy(lambda c: c.barrier()), "barrier"),
    (on_a_copy(lambda c: c.free()), "free", on_a_copy(lambda c: c.dup()), "dup"),
    (lambda c: c.ireduce(x, root=0).wait(), "reduce.*root 0", lambda c: c.ireduce(x, root=1).wait(), "reduce.*root 1"),
]


@each("first, mine, second, theirs", PAIRS)
def test_calls_that_differ_are_named_with_both_places(first: Call, mine: str, second: Call, theirs: str) -> None:
    for order in ORDERS:
        errors = run(2, lambda c: (second if c.rank else first)(c), order)
        assert all(isinstance(error, CollectiveMismatch | Revoked) for error in errors), errors
        found = [error for error in errors if isinstance(error, CollectiveMismatch)]
        assert found
        for error in found:
            one, other = (mine, theirs) if error.rank == 0 else (theirs, mine)
            text = rf"^rank {error.rank}: mismatch with rank {1 - error.rank} in .*mine is {one}.* at {HERE}"
            assert re.search(rf"{text}, theirs is {other}.* at {HERE}", str(error)), error


@each(
    "first, second",
    [
        (lambda c: c.split(0), lambda c: c.recv(0)),
        (lambda c: c.create([0]), lambda c: ringcast.wait_any([c.irecv(0), c.irecv(0, 3)])),
        (lambda c: c.shrink(), lambda c: c.split(0)),
        (on_a_copy(lambda c: c.free()), on_a_copy(lambda c: c.recv(0))),
    ],
)
def test_calls_that_never_meet_are_a_cycle(first: Call, second: Call) -> None:
    for order in ORDERS:
        errors = run(2, lambda c: (second if c.rank else first)(c), order)
        assert all(isinstance(error, CollectiveTimeout | Revoked) for error in errors), errors
        found = [error for error in errors if isinstance(error, CollectiveTimeout)]
        assert found
        for error in found:
            assert error.cycle == (0, 1)
            assert all(re.search(f" at {HERE}$", call) for call in error.calls)
