"""Conversations: messages of all kinds between the ranks of a job, one item after the other, all from a seed.

Every rank knows all items, so it also knows what it must get. No item waits for a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from ringcast import ANY_SOURCE, ANY_TAG, Communicator, Status
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.wire.header import EAGER_LIMIT

TAGS = (0, 1, 7, (1 << 32) - 1)


def talk(comm: Communicator, seed: int, items: int) -> None:
    """Play so many items, on a communicator and on a copy of it."""
    other = comm.dup()
    for number in range(items):
        rng = Random(f"{seed} {number}")
        rng.choice(ITEMS)(rng.choice((comm, other)), rng)
    other.free()


# Values.


def _limit() -> int:
    """Return how many bytes in an array go at once, at most."""
    record = SelfDescribing.frames(np.zeros(EAGER_LIMIT - 1, np.uint8), lambda: None)[0]
    return EAGER_LIMIT - len(record)


LIMIT = _limit()


def small(rng: Random) -> Any:
    """Return a value that goes at once."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    shape = rng.choice(((), (0,), (1,), (3,), (2, 3), (0, 4)))
    dtype = rng.choice(("u1", "i4", "f8", ">i2", "c16", "U3", "M8[s]", [("a", "i2"), ("b", "f8")]))
    array = numbers.integers(0, 100, shape).astype(dtype) if isinstance(dtype, str) else np.ones(shape, dtype)
    every = (
        array,
        np.full(rng.choice((1, LIMIT - 1, LIMIT)), rng.randrange(256), np.uint8),
        np.asfortranarray(numbers.random((3, 4))),
        numbers.random((6, 4))[::2],
        np.float32(numbers.random()),
        {"text": "ä" * rng.randrange(5), "numbers": numbers.random(3).tolist()},
        None,
        b"x" * rng.randrange(100),
    )
    return rng.choice(every)


def any_size(rng: Random) -> Any:
    large = (
        np.full(LIMIT + rng.choice((1, 2, 50_000)), rng.randrange(256), np.uint8),
        np.full(1 << 20, rng.random()),
        [b"y" * EAGER_LIMIT, np.full(9000, rng.random())],
    )
    return small(rng) if rng.random() < 0.7 else rng.choice(large)


def assert_same(got: Any, want: Any) -> None:
    """Assert that two values are the same to the bit, in C order or in Fortran's."""
    assert type(got) is type(want)
    if isinstance(want, list):
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    elif isinstance(want, np.ndarray | np.generic):
        assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
        assert isinstance(want, np.generic) or (got.flags.writeable and got.flags.aligned)
    else:
        assert got == want


# Items.


def pair(comm: Communicator, rng: Random) -> tuple[int, int]:
    """Return two ranks, which are the same only if there is one."""
    source = rng.randrange(comm.size)
    return source, (source + rng.randrange(1, max(comm.size, 2))) % comm.size


def one(comm: Communicator, rng: Random) -> None:
    """A message, received in some way."""
    (source, dest), tag, value = pair(comm, rng), rng.choice(TAGS), any_size(rng)
    way = rng.choice((receive, receive, receive_into, after_probe))
    if comm.rank == source:
        comm.send(value, dest, tag)
    if comm.rank == dest:
        way(comm, rng, source, tag, value)


def receive(comm: Communicator, rng: Random, source: int, tag: int, value: Any) -> None:
    status = rng.choice((None, Status()))
    anyone = ANY_SOURCE if comm.size <= 2 else source  # a message of a later item may come from another rank
    got = comm.recv(rng.choice((source, source, anyone)), rng.choice((tag, ANY_TAG)), status=status)
    assert_same(got, value)
    if status is not None:
        size = sum(map(len, SelfDescribing.frames(value, lambda: None)[1:]))
        assert (status.source, status.tag, status.count) == (source, tag, size)


def receive_into(comm: Communicator, rng: Random, source: int, tag: int, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        receive(comm, rng, source, tag, value)
        return
    more = rng.choice((0, 0, 5))
    out = np.zeros(value.size + more, value.dtype) if more else np.zeros(value.shape, value.dtype)
    got = comm.recv(source, tag, out=out)
    assert_same(got, value)
    assert np.may_share_memory(got, out) or not value.size


def after_probe(comm: Communicator, rng: Random, source: int, tag: int, value: Any) -> None:
    found = comm.probe(source, tag)
    assert (found.source, found.tag) == (source, tag)
    receive(comm, rng, source, tag, value)


def burst(comm: Communicator, rng: Random) -> None:
    """Some messages, which are received by their tags: those of a tag in order."""
    source, dest = pair(comm, rng)
    sent = [(rng.choice(TAGS), small(rng)) for _ in range(rng.randrange(2, 8))]
    order = rng.sample(sent, len(sent))
    by_tag = {tag: [value for other, value in sent if other == tag] for tag, _ in sent}
    if comm.rank == source:
        for tag, value in sent:
            comm.send(value, dest, tag)
    if comm.rank == dest:
        for tag, _ in order:
            assert_same(comm.recv(source, tag), by_tag[tag].pop(0))


def both_ways(comm: Communicator, rng: Random) -> None:
    """Two ranks that send first, and then receive."""
    ranks, values = pair(comm, rng), (small(rng), small(rng))
    for mine, theirs in ((0, 1), (1, 0)) if ranks[0] != ranks[1] else ((0, 0),):
        if comm.rank == ranks[mine]:
            comm.send(values[mine], ranks[theirs], 3)
            assert_same(comm.recv(ranks[theirs], 3), values[theirs])


def posted(comm: Communicator, rng: Random) -> None:
    """A receive by a request, and a second one that its message comes before."""
    (source, dest), values = pair(comm, rng), [small(rng) for _ in range(3)]
    if comm.rank == dest:
        first = comm.irecv(source, rng.choice((1, ANY_TAG)))
        second = comm.irecv(source, 2)
    if comm.rank == source:
        for tag, value in zip((1, 2, 2), values, strict=True):
            comm.send(value, dest, tag)
    if comm.rank == dest:
        assert_same(comm.recv(source, 2), values[2])
        assert_same(first.wait(), values[0])
        assert_same(second.wait(), values[1])


def begun(comm: Communicator, rng: Random) -> None:
    """A send by a request, large or not, and another one behind it."""
    (source, dest), values = pair(comm, rng), (any_size(rng), small(rng))
    if comm.rank == source:
        first = comm.isend(values[0], dest, 5)
        comm.send(values[1], dest, 5)
    if comm.rank == dest:
        for value in values:
            assert_same(comm.recv(source, 5), value)
    if comm.rank == source:
        first.wait()


def around(comm: Communicator, rng: Random) -> None:
    """All ranks send around a ring."""
    shift, values = rng.randrange(comm.size), [any_size(rng) for _ in range(comm.size)]
    dest, source = (comm.rank + shift) % comm.size, (comm.rank - shift) % comm.size
    status = Status()
    assert_same(comm.sendrecv(values[comm.rank], dest, source, 9, status=status), values[source])
    assert (status.source, status.tag) == (source, 9)


def halves(comm: Communicator, rng: Random) -> None:
    """A message by a call that only sends, and one that only receives."""
    (source, dest), value = pair(comm, rng), any_size(rng)
    if comm.rank == source:
        assert comm.sendrecv(value, dest, None, 6) is None
    if comm.rank == dest:
        assert_same(comm.sendrecv(None, None, source, 6), value)


def in_place(comm: Communicator, rng: Random) -> None:
    """All ranks send around a ring, from and into the same memory."""
    base, source = np.full(rng.choice((1, 500)), rng.random()), (comm.rank - 1) % comm.size
    mine = base + comm.rank
    got = comm.sendrecv(mine, (comm.rank + 1) % comm.size, source, 9, out=mine)
    assert got is mine
    assert_same(mine, base + source)


def collective(comm: Communicator, rng: Random) -> None:
    total = comm.size * (comm.size + 1) // 2
    kind = rng.randrange(3)
    if kind == 0:
        assert comm.allreduce(np.full(2, comm.rank + 1)).tolist() == [total, total]
    elif kind == 1:
        comm.barrier()
    else:
        assert comm.bcast("said" if comm.rank == comm.size - 1 else None, comm.size - 1) == "said"


ITEMS: tuple[Callable[[Communicator, Random], None], ...] = (
    one, one, one, one, burst, both_ways, posted, begun, around, halves, in_place, collective,
)  # fmt: skip
