"""Wrong calls: a typed error that says who, what and what was expected; nothing hangs, and what can go on goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import (
    BAND,
    SUM,
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    Communicator,
    Op,
    Revoked,
    RingcastError,
    UsageError,
)
from support.jobs import KINDS, Job, Jobs
from support.patience import patience

Call = Callable[[Communicator], Any]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def fixed(size: int) -> np.ndarray[Any, Any]:
    array = np.zeros(size)
    array.flags.writeable = False
    return array


x = np.arange(6.0)
FUTURE = 2**31

# Wrong arguments that a rank can see by itself: (what it is, argument that the error names, call).
ALONE: list[tuple[str, str, Call]] = [
    *(
        (f"root {root!r} of {name}", "root", lambda c, name=name, v=v, root=root: getattr(c, name)(v, root=root))
        for name, v in (
            ("bcast", x),
            ("reduce", x),
            ("gather", x),
            ("gatherv", x),
            ("scatter", [1] * 3),
            ("scatterv", x),
        )
        for root in (-1, 3, FUTURE, 1.0, "0", None, [0])
    ),
    *(
        (
            f"algorithm {algorithm!r} of {name}",
            "algorithm",
            lambda c, n=name, a=algorithm, v=v: getattr(c, n)(v, algorithm=a),
        )
        for name, v in (
            ("reduce", x),
            ("allreduce", x),
            ("gather", x),
            ("gatherv", x),
            ("scatter", [1] * 3),
            ("scatterv", x),
            ("allgather", x),
            ("allgatherv", x),
            ("allgatherv", [1]),
            ("reduce_scatter", x),
            ("reduce_scatter", [1] * 3),
        )
        for algorithm in ("nope", "", 7, ["ring"])
    ),
    *(
        (f"nblocks {n!r} of {name}", "nblocks", lambda c, name=name, n=n: getattr(c, name)(x, nblocks=n))
        for name in ("reduce", "allreduce", "allgather", "allgatherv", "reduce_scatter")
        for n in (0, -1, 2.5, "2")
    ),
    ("nblocks for an algorithm without", "nblocks", lambda c: c.allreduce(x, nblocks=2, algorithm="doubling")),
    ("nblocks for objects", "nblocks", lambda c: c.allreduce(1, nblocks=2)),
    *(
        (f"an array as {argument} of {name}", argument, lambda c, n=name, a=argument: getattr(c, n)(x, **{a: x}))
        for name in ("allreduce", "allgather", "allgatherv")
        for argument in ("algorithm", "nblocks")
    ),
    ("algorithm that needs pieces", "algorithm", lambda c: c.reduce(x, lambda a, b: a, algorithm="circulant")),
    *(
        (
            f"counts {counts!r} of {name}",
            "counts",
            lambda c, name=name, counts=counts: getattr(c, name)(x, counts=counts),
        )
        for name in ("gatherv", "allgatherv", "scatterv", "reduce_scatter")
        for counts in (
            (6, 0),
            (6, 0, 0, 0),
            (7, -1, 0),
            (2.5, 2, 1.5),
            ("a", "b", "c"),
            6,
            (6, None, 0),
            [[6], [0], [0]],
        )
    ),
    ("counts that are not mine", "counts", lambda c: c.gatherv(x, [5, 5, 5])),
    ("counts that are not mine", "counts", lambda c: c.allgatherv(x, [5, 5, 5])),
    ("counts that are not mine, list", "counts", lambda c: c.allgatherv([1], [5, 5, 5])),
    ("counts that do not add up", "counts", lambda c: c.reduce_scatter(x, SUM, [2, 2, 1])),
    ("counts that do not add up", "counts", lambda c: c.scatterv(x, [2, 2, 1], c.rank)),
    ("counts for objects", "counts", lambda c: c.reduce_scatter([1, 2, 3], SUM, [2, 1, 0])),
    ("scatter of too few", "values", lambda c: c.scatter([1, 2], c.rank)),
    ("scatter of none", "values", lambda c: c.scatter([], c.rank)),
    ("scatter of nothing", "values", lambda c: c.scatter(None, c.rank)),
    ("scatter of too many rows", "values", lambda c: c.scatter(np.zeros((4, 2)), c.rank)),
    ("scatter of a 0-d array", "values", lambda c: c.scatter(np.array(3), c.rank)),
    ("scatter of a set", "values", lambda c: c.scatter({1, 2, 3}, c.rank)),
    *(
        (f"{name} of {v!r}", "value", lambda c, name=name, v=v: getattr(c, name)(v))
        for name in ("gatherv", "allgatherv", "reduce_scatter")
        for v in (np.array(3), np.float64(3), 7, None, "abcd")
    ),
    ("scatterv of a dict", "value", lambda c: c.scatterv({1: 2}, root=c.rank)),
    ("reduce_scatter of a short list", "value", lambda c: c.reduce_scatter([1, 2])),
    *(
        (f"{name} into {what}", "out", lambda c, name=name, out=out: getattr(c, name)(x, out=out, **root(c, name)))
        for name, shape in (
            ("reduce", (6,)),
            ("allreduce", (6,)),
            ("gather", (3, 6)),
            ("allgather", (3, 6)),
            ("gatherv", (18,)),
            ("allgatherv", (18,)),
            ("reduce_scatter", (2,)),
        )
        for what, out in (
            ("a list", [0.0] * 6),
            ("another shape", np.zeros((*shape, 2))),
            ("another dtype", np.zeros(shape, "f4")),
            ("every second item", np.zeros((*shape[:-1], shape[-1] * 2))[..., ::2]),
            ("readonly memory", fixed(int(np.prod(shape))).reshape(shape)),
            ("a masked array", np.ma.zeros(shape)),
            ("a scalar", np.float64(0)),
        )
    ),
    *(
        (
            f"{name} of an object into an array",
            "out",
            lambda c, name=name, v=v: getattr(c, name)(v, out=x, **root(c, name)),
        )
        for name, v in (
            ("reduce", 1),
            ("allreduce", 1),
            ("gather", 1),
            ("allgather", 1),
            ("allgatherv", [1]),
            ("reduce_scatter", [1, 2, 3]),
        )
    ),
    *(
        (f"{name} by {op!r}", "op", lambda c, name=name, op=op, v=v: getattr(c, name)(v, op))
        for name, v in (
            ("reduce", x),
            ("allreduce", x),
            ("reduce_scatter", x),
            ("allreduce", 1),
            ("reduce_scatter", [1] * 3),
        )
        for op in ("sum", None, 3, Op("max"))
    ),
    ("an operator for integers on floats", "op", lambda c: c.allreduce(x, BAND)),
    ("an operator of one operand", "op", lambda c: c.allreduce(x, np.sqrt)),
    ("a comparison as operator on dates", "op", lambda c: c.allreduce(np.zeros(2, "M8[s]"), np.less)),
    *((f"dest {d!r}", "dest", lambda c, d=d: c.sendrecv(1, d, None)) for d in (-1, 3, 1.0, "0")),
    *((f"source {s!r}", "source", lambda c, s=s: c.sendrecv(1, None, s)) for s in (-1, 3, 1.0, "0")),
    *((f"tag {t!r}", "tag", lambda c, t=t: c.sendrecv(1, None, None, t)) for t in (-1, 1 << 32, 1.5, "a", None)),
]


def root(c: Communicator, name: str) -> dict[str, int]:
    """Let every rank be the root of its own call, so that all of them look at `out`."""
    return {"root": c.rank} if name in ("reduce", "gather", "gatherv") else {}


def test_what_a_rank_can_see_by_itself_is_an_argument_error_and_nothing_is_sent(jobs: Jobs) -> None:
    def work(c: Communicator) -> int:
        for what, argument, call in ALONE:
            try:
                result: Any = call(c)
            except BaseException as error:
                result = error
            assert isinstance(result, ArgumentError), f"{what}: {result!r}"
            assert result.rank == c.rank, what
            assert argument in result.argument, f"{what}: {result}"
            assert str(result).startswith(f"rank {c.rank}: {result.operation}: argument {result.argument}: "), what
        return int(c.allreduce(c.rank))

    assert jobs("threads", 3).ask(work, timeout=patience(20)) == [3, 3, 3]


def test_no_communication_is_tried_for_a_wrong_argument_of_one_rank(jobs: Jobs) -> None:
    """Others may be in the call already; when the rank corrects itself, all is well."""

    def work(c: Communicator) -> Any:
        if c.rank == 1:
            with pytest.raises(ArgumentError):
                c.allreduce(x, "sum")
        return c.allreduce(x).tolist()

    for kind in KINDS:
        assert jobs(kind, 3).ask(work) == [(3 * x).tolist()] * 3


def all_fail(job: Job, call: Call, timeout: float = 20.0) -> list[BaseException]:
    """Return the error of each rank; each has one at the latest in the call that follows, and none is a timeout."""

    def work(c: Communicator) -> None:
        call(c)
        c.barrier()
        c.barrier()

    errors = job.run(work, patience(timeout))
    assert not job.left_over()
    for rank, error in enumerate(errors):
        assert isinstance(error, Exception), f"rank {rank} has no error"
        assert not isinstance(error, CollectiveTimeout), error
        if isinstance(error, RingcastError):
            assert str(error).startswith(f"rank {rank}: ")
    return errors


# What differs between ranks: (what, the first word the errors may say, call).
DIFFERENT: list[tuple[str, Call]] = [
    ("root of bcast", lambda c: c.bcast(x, c.rank)),
    ("root of bcast, large", lambda c: c.bcast(np.zeros(100_000), c.rank % 2)),
    ("root of scatter", lambda c: c.scatter([0] * c.size, c.rank % 2)),
    ("root of scatterv", lambda c: c.scatterv(x, root=c.rank % 2)),
    ("dtype in reduce", lambda c: c.reduce(x.astype("f4" if c.rank else "f8"))),
    ("dtype in allreduce", lambda c: c.allreduce(x.astype("f4" if c.rank else "f8"))),
    ("dtype of one size", lambda c: c.allreduce(x.astype("i8" if c.rank else "f8"))),
    ("byte order", lambda c: c.allgather(x.astype(">f8" if c.rank else "<f8"))),
    ("dtype in allgather", lambda c: c.allgather(x.astype("f4" if c.rank else "f8"))),
    ("dtype in allgatherv", lambda c: c.allgatherv(x.astype("f4" if c.rank else "f8"))),
    ("dtype in allgatherv with counts", lambda c: c.allgatherv(x.astype("f4" if c.rank else "f8"), [6] * c.size)),
    ("dtype in gatherv", lambda c: c.gatherv(x.astype("f4" if c.rank else "f8"))),
    ("dtype in reduce_scatter", lambda c: c.reduce_scatter(x.astype("f4" if c.rank else "f8"))),
    ("length in reduce", lambda c: c.reduce(np.zeros(5 + c.rank))),
    ("length in allreduce", lambda c: c.allreduce(np.zeros(5 + c.rank))),
    ("length in allreduce, large", lambda c: c.allreduce(np.zeros(50_000 + c.rank))),
    ("shape of one size", lambda c: c.allreduce(np.zeros((2, 3) if c.rank else (3, 2)))),
    ("shape in allgather", lambda c: c.allgather(np.zeros(5 + c.rank))),
    ("shape in gather", lambda c: c.gather(np.zeros(5 + c.rank))),
    ("columns in allgatherv", lambda c: c.allgatherv(np.zeros((2, 3 + c.rank)))),
    ("dimensions in allgatherv", lambda c: c.allgatherv(np.zeros((2, 3) if c.rank else 6))),
    ("length in reduce_scatter", lambda c: c.reduce_scatter(np.zeros(5 + c.rank))),
    ("counts in allgatherv", lambda c: c.allgatherv(x, [6] * (c.size - 1) + [6 + (c.rank < c.size - 1)])),
    ("counts in reduce_scatter", lambda c: c.reduce_scatter(x, SUM, [6 * (r == c.rank) for r in range(c.size)])),
    ("counts told by some", lambda c: c.allgatherv(x, [6] * c.size if c.rank else None)),
    ("counts of scatterv", lambda c: c.scatterv(x, [6 if c.rank else 0, *[0] * (c.size - 2), 0 if c.rank else 6])),
    ("op in reduce", lambda c: c.reduce(x, ringcast.MAX if c.rank else SUM)),
    ("op in allreduce", lambda c: c.allreduce(x, ringcast.MAX if c.rank else SUM)),
    ("op on objects", lambda c: c.allreduce(1, ringcast.MAX if c.rank else SUM)),
    ("op in reduce_scatter", lambda c: c.reduce_scatter(x, ringcast.MAX if c.rank else SUM)),
    ("algorithm of allreduce", lambda c: c.allreduce(x, algorithm="doubling" if c.rank else "circulant")),
    ("algorithm of allgather", lambda c: c.allgather(x, algorithm="ring" if c.rank else "circulant")),
    ("algorithm of allgatherv", lambda c: c.allgatherv(x, algorithm="ring" if c.rank else "circulant")),
    ("nblocks of reduce", lambda c: c.reduce(x, nblocks=1 + c.rank)),
    ("nblocks of allgatherv", lambda c: c.allgatherv(x, nblocks=2 + c.rank, algorithm="pipelined_ring")),
    ("object or array", lambda c: c.allreduce(x if c.rank else 1)),
    ("object or array in allgather", lambda c: c.allgather(x if c.rank else [1])),
    ("list or array in allgatherv", lambda c: c.allgatherv(x if c.rank else [1])),
    ("collective", lambda c: c.allreduce(x) if c.rank else c.allgather(x)),
    ("collective, objects", lambda c: c.allreduce(1) if c.rank else c.bcast(1)),
    ("barrier or not", lambda c: c.barrier() if c.rank else c.gather(x, c.size - 1)),
    ("rooted collectives", lambda c: c.scatter([1] * c.size) if c.rank else c.bcast([1] * c.size)),
    ("large and different", lambda c: c.allreduce(np.zeros(99_999)) if c.rank else c.allgather(np.zeros(99_999))),
    ("reduce or allreduce, large", lambda c: c.reduce(np.zeros(99_999)) if c.rank else c.allreduce(np.zeros(99_999))),
    ("large or small", lambda c: c.allreduce(np.zeros(99_999 if c.rank else 3))),
    ("one call too many", lambda c: c.allreduce(x) if c.rank else None),
    ("one large call too many", lambda c: c.allgather(np.zeros(50_000)) if c.rank == c.size - 1 else None),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("what", "call"), DIFFERENT, ids=[what for what, _ in DIFFERENT])
def test_what_differs_between_ranks_is_an_error_of_all(jobs: Jobs, kind: str, what: str, call: Call) -> None:
    for p in (2, 3, 5) if kind == "threads" else (3,):
        errors = all_fail(jobs(kind, p), call)
        kinds = {type(error) for error in errors}
        assert kinds <= {CollectiveMismatch, Revoked, ArgumentError}, errors
        assert kinds & {CollectiveMismatch, ArgumentError}, errors
        for error in errors:
            if isinstance(error, CollectiveMismatch):
                assert 0 <= error.peer < p
                assert error.mine
                assert error.theirs


def test_a_mismatch_says_what_differs(jobs: Jobs) -> None:
    said = {
        "dtype": lambda c: c.allreduce(x.astype("f4" if c.rank else "f8")),
        "op": lambda c: c.allreduce(x, ringcast.MAX if c.rank else SUM),
        "algorithm": lambda c: c.allgather(x, algorithm="ring" if c.rank else "circulant"),
        "shape": lambda c: c.allreduce(np.zeros((2, 3) if c.rank else (3, 2))),
        "allgather": lambda c: c.allreduce(x) if c.rank else c.allgather(x),
    }
    for word, call in said.items():
        for error in all_fail(jobs("threads", 2), call):
            assert isinstance(error, CollectiveMismatch)
            assert word in error.theirs + error.mine, error


FIRST_SAID: list[tuple[str, Call]] = [
    (r"dtype differs: mine float(32|64), theirs float(64|32); mine", DIFFERENT[5][1]),
    (r"op differs: mine (SUM|MAX), theirs (SUM|MAX); mine", lambda c: c.allreduce(x, ringcast.MAX if c.rank else SUM)),
    (r"root differs: mine [01], theirs [01]; mine", lambda c: c.reduce(x, root=1 - c.rank)),
    (r"shape differs: mine \([23], [23]\), theirs", lambda c: c.allreduce(np.zeros((2, 3) if c.rank else (3, 2)))),
    (r"counts or shape differs: mine \([12], [12]\),", lambda c: c.allgatherv(x[: 1 + c.rank], [1 + c.rank] * 2)),
    (
        r"counts differ: mine (given|left out), theirs",
        lambda c: c.allgatherv(x, [6] * c.size if c.rank else None),
    ),
    (
        r"algorithm differs: mine (ring|circulant), theirs",
        lambda c: c.allgather(x, algorithm="ring" if c.rank else "circulant"),
    ),
    (r"dtype differs: .*\(a Python object on one side", lambda c: c.allreduce(1 if c.rank else np.int64(1))),
    (
        r"dtype differs: .*the same width on all ranks, as value.astype\('U5'\) or wider\)",
        lambda c: c.gather(np.array(["a" * (3 + 2 * c.rank)])),
    ),
    (
        r"dtype differs: .*the same unit on all ranks",
        lambda c: c.allgather(np.zeros(2, "M8[s]" if c.rank else "M8[ns]")),
    ),
    (r"the call differs: mine all(reduce|gather), theirs", lambda c: c.allreduce(x) if c.rank else c.allgather(x)),
]


@pytest.mark.parametrize(("words", "call"), FIRST_SAID, ids=[words for words, _ in FIRST_SAID])
def test_what_differs_is_said_first(jobs: Jobs, words: str, call: Call) -> None:
    found = [error for error in all_fail(jobs("threads", 2), call) if isinstance(error, CollectiveMismatch)]
    assert found
    for error in found:
        assert re.match(rf"rank \d: mismatch with rank \d in \w+ #1(, round \d)?: {words}", str(error)), error
        assert "(counts of)" not in str(error)


def test_a_revoked_communicator_stays_revoked_and_names_the_cause(jobs: Jobs) -> None:
    def work(c: Communicator) -> list[BaseException]:
        errors: list[BaseException] = []
        calls: Sequence[Call] = (
            lambda c: c.allreduce(x, ringcast.MAX if c.rank else SUM),
            lambda c: c.barrier(),
            lambda c: c.allreduce(1),
            lambda c: c.bcast(1),
            lambda c: c.sendrecv(1, (c.rank + 1) % c.size, (c.rank - 1) % c.size),
        )
        for call in calls:
            with pytest.raises(RingcastError) as info:
                call(c)
            errors.append(info.value)
        return errors

    for errors in jobs("threads", 3).ask(work):
        assert isinstance(errors[0], CollectiveMismatch | Revoked)
        for error in errors[1:]:
            assert isinstance(error, Revoked)
            assert "mismatch with rank" in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["reduce", "gather", "gatherv"])
def test_roots_that_wait_for_each_other_ask_and_find_out(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, kind: str, size: int, name: str
) -> None:
    """Each believes to be the root: nobody sends anything, until they wonder why."""
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.02)
    errors = jobs(kind, size).run(lambda c: getattr(c, name)(x, root=c.rank, **counts(name, c.size)))
    assert {type(error) for error in errors} <= {CollectiveMismatch, Revoked}
    texts = [str(error) for error in errors if isinstance(error, CollectiveMismatch)]
    assert all("root differs: " in text or "another root" in text for text in texts), texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_broadcast_without_a_root_finds_out(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("ringcast.engine.drive.QUIET", 0.02)
    errors = jobs(kind, 3).run(lambda c: c.bcast(x, root=(c.rank + 1) % c.size))
    assert {type(error) for error in errors} <= {CollectiveMismatch, Revoked}


def counts(name: str, size: int) -> dict[str, Any]:
    return {"counts": [6] * size} if name == "gatherv" else {}


# A buffer for bcast.

SENT = np.arange(6.0).reshape(2, 3)
UNFIT: list[tuple[str, Any]] = [
    ("another shape", np.zeros((3, 2))),
    ("another length", np.zeros(6)),
    ("another dtype", np.zeros((2, 3), "f4")),
    ("another byte order", np.zeros((2, 3), ">f8")),
    ("no item", np.zeros((0, 3))),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 20_000])
@pytest.mark.parametrize("what", [what for what, _ in UNFIT])
def test_a_buffer_that_does_not_fit(jobs: Jobs, kind: str, size: int, what: str) -> None:
    buffer = np.concatenate([dict(UNFIT)[what]] * size).astype(dict(UNFIT)[what].dtype)
    sent = np.concatenate([SENT] * size)
    errors = all_fail(jobs(kind, 3), lambda c: c.bcast(sent if c.rank == 1 else buffer if c.rank == 2 else None, 1))
    assert isinstance(errors[2], ArgumentError)
    assert (errors[2].operation, errors[2].argument) == ("bcast", "value")
    assert str(sent.shape) in str(errors[2])
    assert str(buffer.shape) in str(errors[2])
    assert all(isinstance(error, Revoked) for error in errors[:2])


def test_a_buffer_when_an_object_comes(jobs: Jobs) -> None:
    errors = all_fail(jobs("threads", 3), lambda c: c.bcast("word" if c.rank == 1 else np.zeros(4), 1))
    assert isinstance(errors[0], ArgumentError)
    assert "object" in str(errors[0])


def test_a_buffer_that_cannot_be_filled_is_found_before_anything_is_sent(jobs: Jobs) -> None:
    def work(c: Communicator) -> Any:
        for buffer in fixed(6), np.zeros(12)[::2]:
            if c.rank:
                with pytest.raises(ArgumentError, match=f"^rank {c.rank}: bcast: argument value: "):
                    c.bcast(buffer)
        return c.bcast(x if c.rank == 0 else None).tolist()

    assert jobs("threads", 3).ask(work) == [x.tolist()] * 3


# Operators that fail.


def raising(c: Communicator) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        if c.rank == 0:
            raise ZeroDivisionError("of all things")
        return a

    return function


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [1, x, np.zeros(50_000)], ids=["object", "small", "large"])
@pytest.mark.parametrize("pieces", [False, True])
def test_an_operator_that_raises_on_one_rank(jobs: Jobs, kind: str, value: Any, pieces: bool) -> None:
    def op(c: Communicator) -> Op:
        return Op(raising(c), commutative=pieces, elementwise=pieces)

    values = value if isinstance(value, np.ndarray) else [value] * 3
    for call in (
        lambda c: c.allreduce(value, op(c)),
        lambda c: c.reduce(value, op(c)),
        lambda c: c.reduce_scatter(values, op(c)),
    ):
        errors = all_fail(jobs(kind, 3), call)
        assert isinstance(errors[0], ZeroDivisionError)
        for error in errors[1:]:
            assert isinstance(error, Revoked)
            assert "of all things" in error.cause


@pytest.mark.parametrize("pieces", [False, True])
def test_an_operator_that_returns_something_else(jobs: Jobs, pieces: bool) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda a, b: a[:-1], ValueError, "returned shape"),
        (lambda a, b: 1.0, ValueError, "returned shape"),
        (lambda a, b: None, ValueError, "returned shape"),
        (lambda a, b: a[None], ValueError, "returned shape"),
        (lambda a, b: (a + b) / 2, TypeError, "returned dtype float64"),
        (lambda a, b: a.astype(complex), TypeError, "returned dtype complex128"),
        (lambda a, b: a.astype(str), TypeError, "returned dtype <U"),
    ]
    for function, kind, text in wrong:
        op = Op(function, commutative=pieces, elementwise=pieces, name="wrong")
        for call in (
            lambda c: c.allreduce(np.arange(9), op),  # noqa: B023
            lambda c: c.reduce(np.arange(9), op),  # noqa: B023
            lambda c: c.reduce_scatter(np.arange(9), op),  # noqa: B023
        ):
            errors = all_fail(jobs("threads", 3), call)
            causes = [error for error in errors if not isinstance(error, Revoked)]
            assert causes, errors
            for error in causes:
                assert isinstance(error, kind)
                assert text in str(error)
                assert "wrong" in str(error)
            for error in errors:
                assert not isinstance(error, Revoked) or "wrong" in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_value_that_cannot_be_pickled(jobs: Jobs, kind: str, rank: int) -> None:
    def value(c: Communicator) -> Any:
        return threading.Lock() if c.rank == rank else 1

    calls: list[Call] = [
        lambda c: c.bcast(value(c), rank),
        lambda c: c.allgather(value(c)),
        lambda c: c.allreduce(value(c), lambda a, b: a),
        lambda c: c.reduce(value(c), lambda a, b: a, (rank + 1) % 3),
        lambda c: c.gather(value(c), (rank + 1) % 3),
        lambda c: c.scatter([value(c)] * 3 if c.rank == rank else None, rank),
        lambda c: c.allgatherv([value(c)]),
        lambda c: c.sendrecv(value(c), (c.rank + 1) % 3, (c.rank - 1) % 3),
    ]
    for number, call in enumerate(calls):
        if number in (0, 7):  # found before anything is sent: the others wait for the call that the rank makes next
            errors = jobs(kind, 3).run(lambda c, call=call: attempt(c, call))
            assert isinstance(errors[rank], TypeError)
            continue
        errors = all_fail(jobs(kind, 3), call)
        assert isinstance(errors[rank], TypeError), (number, errors)
        assert "pickle" in str(errors[rank])
        assert all(isinstance(error, Revoked) for r, error in enumerate(errors) if r != rank), (number, errors)


def attempt(c: Communicator, call: Call) -> Any:
    """Make a call, and then its replacement: a rank that could not begin takes part with something else."""
    try:
        return call(c)
    except TypeError as error:
        if call.__code__.co_names[0] == "bcast":
            c.bcast(None, c.rank)
        else:
            c.sendrecv(None, (c.rank + 1) % 3, (c.rank - 1) % 3)
        return error


# Wrong use.


def test_a_call_from_another_thread(jobs: Jobs) -> None:
    def work(c: Communicator) -> Any:
        caught: list[BaseException] = []

        def other() -> None:
            with pytest.raises(UsageError, match=f"^rank {c.rank}: the communicator belongs to another thread") as info:
                c.barrier()
            caught.append(info.value)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(caught) == 1
        return c.allreduce(1)

    assert jobs("threads", 3).ask(work) == [3, 3, 3]


CALLS: list[Call] = [
    lambda c: c.bcast(x),
    lambda c: c.reduce(x),
    lambda c: c.allreduce(x),
    lambda c: c.gather(x),
    lambda c: c.gatherv(x),
    lambda c: c.scatter([x] * c.size),
    lambda c: c.scatterv(x),
    lambda c: c.allgather(x),
    lambda c: c.allgatherv(x),
    lambda c: c.reduce_scatter(x),
    lambda c: c.barrier(),
    lambda c: c.sendrecv(x, c.rank, c.rank),
]


@pytest.mark.parametrize("p", [1, 3])
def test_a_call_after_finalize(p: int) -> None:
    def work(c: Communicator) -> None:
        c.barrier()
        c.finalize()
        c.finalize()
        assert c.closed
        for call in CALLS:
            with pytest.raises(UsageError, match=f"^rank {c.rank}: the communicator was finalized"):
                call(c)

    job = Job("threads", p)
    job.ask(work)
    job.close()


FORK = """
import os, sys
import numpy as np
import ringcast

comm = ringcast.init()
child = os.fork()
if child == 0:
    try:
        comm.allreduce(np.ones(3))
    except ringcast.UsageError as error:
        sys.stdout.write(str(error))
        sys.stdout.flush()
        comm.finalize()  # does nothing here
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert comm.allreduce(np.ones(3)).tolist() == [1, 1, 1]
assert not comm.closed
"""


def test_use_in_a_forked_child() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=patience(60), env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rank 0: this process was forked from process ")
    assert "spawn" in done.stdout


def test_a_timeout_names_who_is_missing_and_revokes_for_all(jobs: Jobs) -> None:
    come = threading.Event()

    def work(c: Communicator) -> Any:
        if c.rank == 1:
            come.wait(patience(30))
            c.allreduce(x)
            return None
        if c.rank == 0:
            c.timeout = 0.05
        try:
            c.allreduce(x)
        finally:
            if c.rank == 0:
                come.set()

    errors = jobs("threads", 3).run(work)
    assert isinstance(errors[0], CollectiveTimeout)
    assert errors[0].waiting_for == (1,)
    for rank in 1, 2:
        assert isinstance(errors[rank], Revoked)
        assert "did not finish within 0.05 s" in str(errors[rank])


# A group of one.


def test_a_group_of_one(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        a = np.arange(6).reshape(3, 2)
        assert c.bcast(a) is a
        assert c.bcast("word") == "word"
        for value in c.reduce(a), c.allreduce(a), c.gatherv(a), c.allgatherv(a), c.scatterv(a), c.reduce_scatter(a):
            assert value is not a
            assert not np.shares_memory(value, a)
            assert value.tolist() == a.tolist()
        for value in c.gather(a), c.allgather(a):
            assert value.tolist() == [a.tolist()]
        assert c.scatter(a[:1]).tolist() == a[0].tolist()
        assert c.scatter(["word"]) == "word"
        assert c.gather("word") == c.allgather("word") == c.allgatherv(["word"]) == ["word"]
        assert c.reduce(7) == c.allreduce(7) == c.reduce_scatter([7]) == 7
        assert c.sendrecv(7, 0, 0) == 7
        c.barrier()
        for call in CALLS:
            call(c)
        out = np.zeros_like(a)
        assert c.allreduce(a, out=out) is out
        assert c.allgatherv(a, [3], out=out) is out
        with pytest.raises(ArgumentError):
            c.allgatherv(a, [2])

    for kind in KINDS:
        jobs(kind, 1).ask(work)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_at_all(jobs: Jobs, kind: str) -> None:
    def work(c: Communicator) -> None:
        for shape in (0,), (0, 3), (3, 0), (6, 0, 2):
            a = np.zeros(shape)
            assert c.bcast(a if c.rank == 0 else None).shape == shape
            assert c.bcast(a if c.rank == 0 else None, nblocks=4).shape == shape
            assert c.allreduce(a).shape == shape
            assert (c.reduce(a, root=1) is None) == (c.rank != 1)
            assert c.allgather(a).shape == (c.size, *shape)
            assert c.allgatherv(a).shape == (c.size * shape[0], *shape[1:])
            assert c.reduce_scatter(a, nblocks=3).shape == (shape[0] // c.size, *shape[1:])
            assert c.scatterv(a).shape == (shape[0] // c.size, *shape[1:])
            assert c.sendrecv(a, (c.rank + 1) % c.size, (c.rank - 1) % c.size).shape == shape
        assert c.allgatherv([]) == []

    jobs(kind, 3).ask(work)
