"""Rounds go on while others read what this rank has lent; what they may be reading is not written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from ringcast import SUM
from ringcast.bootstrap.in_process import endpoints
from ringcast.communicator import Communicator
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import MOST_LENT, Steps, execute
from ringcast.engine.slots import ArraySlots
from ringcast.engine.task import Task, begin
from ringcast.errors import PeerFailed
from ringcast.ops import Array
from ringcast.protocol.operations import Operation, Send
from ringcast.schedules.schedule import Combine, Copy, Local, Merge, Schedule, Slots, Step, untouched
from ringcast.wire.call import Call
from support.any_order import AnyOrder
from support.jobs import shared

ITEMS = 1 << 15  # of 8 bytes in each slot: too many to go eagerly


class Given(Schedule):
    """Steps that a test has written, on four slots."""

    def __init__(self, rank: int, steps: list[Step]) -> None:
        super().__init__(2, rank)
        object.__setattr__(self, "given", steps)

    given: list[Step]

    @property
    def parts(self) -> tuple[int, ...]:
        return (4,)

    def __len__(self) -> int:
        return len(self.given)

    def _step(self, i: int) -> Step:
        return self.given[i]


@pytest.fixture
def pair() -> Iterator[list[Endpoint]]:
    made = endpoints(shared(2))
    yield made
    for endpoint in made:
        endpoint.transport.close(0.1)


def run(endpoint: Endpoint, steps: list[Step], data: Array, *, granted: bool) -> Task[None]:
    """Begin to run these steps on four slots, and return the task."""
    schedule = Given(endpoint.rank, steps)

    def work() -> Steps[None]:
        op = endpoint.begin(1, Call("bcast"), b"", granted=granted)
        yield from execute(schedule, ArraySlots(data, schedule, (len(data),), SUM), op)
        endpoint.end(op)

    return begin(endpoint, work())


def go_on(*some: Endpoint) -> None:
    """Make progress until nothing arrives any more."""
    while sum(endpoint.progress(0.0) for endpoint in some):
        pass


@pytest.mark.parametrize("granted", [False, True])
def test_a_rank_sends_on_while_nobody_reads(pair: list[Endpoint], granted: bool) -> None:
    first, second = pair
    data, got = np.arange(4 * ITEMS), np.zeros(4 * ITEMS, int)
    task = run(first, [Step(1, (slot,)) for slot in range(4)], data, granted=granted)
    assert task.operation is not None
    assert task.operation.round == 3
    assert not task.done  # it ends when all is read
    assert task.operation.waiting_for == (1,)
    receiver = run(second, [Step(None, (), 0, (slot,)) for slot in range(4)], got, granted=granted)
    go_on(second, first)
    assert task.done
    assert receiver.done
    assert (got == data).all()


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize(
    "writing", [Step(None, (), 1, (0,)), Step(None, (), 1, (1,), local=(Copy(0, 1),))], ids=["receives", "copies"]
)
def test_a_round_that_writes_where_others_may_read_waits_for_them(
    pair: list[Endpoint], granted: bool, writing: Step
) -> None:
    first, second = pair
    data, theirs = np.arange(4 * ITEMS), np.full(4 * ITEMS, 7)
    before = data[:ITEMS].copy()
    task = run(first, [Step(1, (0,)), writing], data, granted=granted)
    assert task.operation is not None
    assert task.operation.round == 1
    assert task.operation.waiting_for == (1,)
    assert (data[:ITEMS] == before).all()
    reader = run(second, [Step(None, (), 0, (1,)), Step(0, (2,))], theirs, granted=granted)
    go_on(second, first)
    assert task.done
    assert reader.done
    assert (theirs[ITEMS : 2 * ITEMS] == before).all()
    assert (data[:ITEMS] != before).any()


def test_ranks_that_wait_for_readers_do_not_wait_for_each_others_next_round(pair: list[Endpoint]) -> None:
    """Where each had posted the receive of a round ahead, the other would begin it only when its memory was read."""
    tasks = []
    for endpoint in pair:
        other = 1 - endpoint.rank
        rounds = [Step(other, (0,), other, (1 + i % 3,)) for i in range(3 * MOST_LENT)]
        tasks.append(run(endpoint, rounds, np.zeros(4 * ITEMS), granted=True))
    go_on(*pair)
    assert all(task.done for task in tasks)


def test_so_many_messages_are_lent_at_most(pair: list[Endpoint]) -> None:
    first, second = pair
    data, rounds = np.zeros(4 * ITEMS), 3 * MOST_LENT
    task = run(first, [Step(1, (0,))] * rounds, data, granted=False)
    assert task.operation is not None
    assert task.operation.round == MOST_LENT
    receiver = run(second, [Step(None, (), 0, (0,))] * rounds, data.copy(), granted=False)
    go_on(second, first)
    assert task.done
    assert receiver.done


def test_a_reader_that_leaves_ends_the_call(pair: list[Endpoint]) -> None:
    first, second = pair
    task = run(first, [Step(1, (0,))], np.zeros(4 * ITEMS), granted=True)
    second.leave()
    while not task.done:
        first.progress(None)
    assert isinstance(task.error, PeerFailed)
    assert task.error.peer == 1


def test_what_is_lent_is_taken_back_when_the_call_fails(pair: list[Endpoint]) -> None:
    first, second = pair
    task = run(first, [Step(1, (0,)), Step(None, (), 1, (1,))], np.zeros(4 * ITEMS), granted=True)
    taken: list[object] = []
    first.transport.take_back = taken.append  # type: ignore[method-assign]
    task.fail(ValueError("no more"))
    assert len(taken) == 1
    assert not first.protocol._sending.transfers
    go_on(second)


SLOTS: list[Slots] = [(), (0,), (0, 2), range(2), range(2, 4), np.array([3, 0]), np.array([1])]
LOCALS: list[tuple[Local, ...]] = [(), (Copy(0, 1),), (Combine(1, 2, 3),), (Merge((2, 3)), Copy(1, 0))]


def test_a_step_touches_what_it_receives_and_what_its_local_steps_write() -> None:
    for kept, received, local in itertools.product(SLOTS, SLOTS, LOCALS):
        written = {int(slot) for slot in received}
        for each in local:
            written |= set(each.slots) if isinstance(each, Merge) else {each.dst}
        step = Step(None, (), 1, received, local=local)
        assert untouched([kept, ()], step) == written.isdisjoint(int(slot) for slot in kept)


@pytest.mark.parametrize("p", [2, 4, 5, 6])
def test_rounds_go_on_where_some_ranks_lend_and_others_grant(p: int) -> None:
    """A rank withholds the grant for one message while it reads another one; when that is read, it has to grant."""
    counts = [30_000] + [0] * (p - 1)

    def work(c: Communicator) -> None:
        value = np.arange(40_000.0)
        got = c.bcast(value if c.rank == 0 else np.zeros_like(value), algorithm="circulant", nblocks=3)
        assert (got == value).all()
        mine = np.arange(float(counts[c.rank]))
        assert len(c.allgatherv(mine, counts, algorithm="circulant_blocks", nblocks=2)) == counts[0]

    for seed in range(3, 83, 4):
        assert AnyOrder(p, seed).run(work) == [None] * p


def test_the_rest_of_a_round_waits_for_no_reader_of_its_own_message() -> None:
    """That reader may be in the same round, and wait for this rank: only the next rounds wait."""
    op, schedule = Operation(1, 16, Call("bcast"), False, 1), Given(0, [])
    data, frame = np.zeros(4), memoryview(bytes(8))
    steps = [Step(1, (0,), 1, (1,), local=(Copy(0, 2),)), Step(None, (), 1, (0,))]
    lent = {Send(op, 1, 0, [frame], 8): (0,)}
    op.lending.update(lent)
    exchanges = execute(steps, ArraySlots(data, schedule, (4,), SUM), op, sent=True, lent=lent)
    assert [next(exchanges).settle, next(exchanges).settle] == [False, True]
