"""`verify` accepts what is right, and names what is wrong: small schedules written by hand, then sabotaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ringcast.analysis.postconditions import POSTCONDITIONS, postcondition
from ringcast.analysis.verify import verify
from ringcast.errors import ScheduleError
from ringcast.schedules import circulant
from ringcast.schedules.schedule import (
    COMBINE_LEFT,
    COMBINE_RIGHT,
    IDLE,
    STORE,
    Combine,
    Copy,
    Nothing,
    Schedule,
    Slots,
    Step,
    concat,
    relabel,
    reverse,
)
from ringcast.wire.collective import COLLECTIVES


@dataclass(frozen=True)
class Listed(Schedule):
    """Steps written down one by one."""

    steps: tuple[Step, ...]
    cut: tuple[int, ...] = (1,)
    spare: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[int, ...]:
        return self.cut

    @property
    def scratch(self) -> tuple[int, ...]:
        return self.spare

    def __len__(self) -> int:
        return len(self.steps)

    def _step(self, i: int) -> Step:
        return self.steps[i]


def listed(*steps: Sequence[Step], cut: tuple[int, ...] = (1,), spare: tuple[int, ...] = ()) -> list[Schedule]:
    """One sequence of steps per rank."""
    return [Listed(len(steps), r, tuple(mine), cut, spare) for r, mine in enumerate(steps)]


def edited(schedules: Sequence[Schedule], rank: int, i: int, *steps: Step) -> list[Schedule]:
    """`schedules` with step i of `rank` replaced by `steps`."""
    s = schedules[rank]
    changed = Listed(s.size, rank, (*s[:i], *steps, *s[i + 1 :]), s.parts, s.scratch)
    return [changed if r == rank else other for r, other in enumerate(schedules)]


def ring_bcast(p: int, n: int, root: int = 0) -> list[Schedule]:
    """Block b leaves the r-th rank after the root in step b + r."""

    def step(rank: int, i: int) -> Step:
        r = (rank - root) % p
        out, into = i - r, i - r + 1
        sends, receives = r < p - 1 and 0 <= out < n, r > 0 and 0 <= into < n
        to, source = (rank + 1) % p if sends else None, (rank - 1) % p if receives else None
        return Step(to, (out,) if sends else (), source, (into,) if receives else ())

    return listed(*([step(r, i) for i in range(n + p - 2)] if p > 1 else [] for r in range(p)), cut=(n,))


def ring_allgather(p: int, n: int = 1) -> list[Schedule]:
    """In step i every rank passes on the part that it got in step i - 1."""

    def part(j: int) -> range:
        return range(j % p * n, j % p * n + n)

    return listed(
        *([Step((r + 1) % p, part(r - i), (r - 1) % p, part(r - i - 1)) for i in range(p - 1)] for r in range(p)),
        cut=(n,) * p,
    )


def line_reduce(p: int) -> list[Schedule]:
    """The last rank sends to the one before, which puts its own value on the left, and so on to rank 0."""
    gets = [[Step(recv_from=r + 1, recv=(0,), accept=COMBINE_RIGHT)] if r < p - 1 else [] for r in range(p)]
    return listed(*(gets[r] + ([Step(r - 1, (0,))] if r else []) for r in range(p)))


def line_gather(p: int) -> list[Schedule]:
    """Rank r sends its own part, and the parts of all ranks behind it, to the rank before."""
    gets = [[Step(recv_from=r + 1, recv=range(r + 1, p))] if r < p - 1 else [] for r in range(p)]
    return listed(*(gets[r] + ([Step(r - 1, range(r, p))] if r else []) for r in range(p)), cut=(1,) * p)


def swap() -> list[Schedule]:
    """Two ranks exchange their values and combine them in rank order."""
    copy = (Copy(1, 0),)
    right, left = Step(1, (1,), 1, (0,), COMBINE_RIGHT, copy), Step(0, (1,), 0, (0,), COMBINE_LEFT, copy)
    return listed([right], [left], spare=(0,))


def check(schedules: Sequence[Schedule], collective: str, *, root: int = 0, ordered: bool = False) -> None:
    verify(schedules, postcondition(collective, len(schedules), schedules[0].parts, root=root), ordered=ordered)


SIZES = (1, 2, 3, 5, 8, 33, 65)


@pytest.mark.parametrize("p", SIZES)
def test_right_schedules_pass(p: int) -> None:
    for root in {0, p // 2, p - 1}:
        check(ring_bcast(p, 3, root), "bcast", root=root)
        check([reverse(s) for s in ring_bcast(p, 3, root)], "reduce", root=root)
    check(ring_allgather(p, 2), "allgatherv")
    check([reverse(s) for s in ring_allgather(p, 2)], "reduce_scatter")
    check([concat(reverse(s), s) for s in ring_allgather(p)], "allreduce")
    check(line_reduce(p), "reduce", ordered=True)
    check(line_gather(p), "gather")
    backwards = [Listed(p, s.rank, tuple(_back(step) for step in s)[::-1], s.parts) for s in line_gather(p)]
    check(backwards, "scatter")


def _back(step: Step) -> Step:
    return Step(step.recv_from, step.recv, step.send_to, step.send)


def test_exchange_of_one_slot_is_an_ordered_allreduce_and_a_barrier() -> None:
    check(swap(), "allreduce", ordered=True)
    check(swap(), "barrier")


def test_one_rank_needs_nothing() -> None:
    for collective in POSTCONDITIONS:
        check([Nothing(1, 0, (3,) * (COLLECTIVES[collective].parts_of(1) or 1))], collective)


def test_a_relabelled_group_keeps_its_promise() -> None:
    members, p = [4, 1, 2], 5
    inner = ring_bcast(3, 2)
    whole = [Listed(p, r, (), (2,)) for r in range(p)]
    group = [relabel(inner[members.index(r)], members, p) if r in members else whole[r] for r in range(p)]
    told = postcondition("bcast", p, (2,), root=4)
    verify(group, replace(told, end=tuple(told.end[r] if r in members else {} for r in range(p))))


def test_local_steps_come_before_the_round_and_slots_may_be_arrays() -> None:
    tail = (Combine(0, 0, 1),)
    steps = [[Step(1 - r, np.array([1]), 1 - r, np.array([2]), local=(Copy(1, 0),))] for r in range(2)]
    steps[0].append(replace(IDLE, local=(Combine(0, 1, 2),)))
    steps[1].append(replace(IDLE, local=(Combine(0, 2, 1),)))
    check(listed(*steps, spare=(0, 0)), "allreduce", ordered=True)
    with pytest.raises(ScheduleError, match=r"rank 0, step 1: combines .* counted twice"):
        check(edited(listed(*steps, spare=(0, 0)), 0, 1, replace(IDLE, local=tail)), "allreduce")


@dataclass(frozen=True)
class Overlapping(Listed):
    """Steps that may be under way at the same time."""

    @property
    def concurrent(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda to: [Step(to, (0,)), Step(None, (), to, (0,))], "step 1, peer 1: receives into slot 0, which another"),
        (lambda to: [Step(None, (), to, (1,)), Step(to, (1,))], "step 0, peer 1: receives into slot 1, which another"),
        (lambda to: [Step(None, (), to, range(2)), Step(None, (), to, (1,))], "step 1, .* slot 1, as step 0 does"),
        (lambda to: [Step(to, (0,), to, (1,), local=(Copy(2, 0),))], "step 0: has a local step"),
    ],
)
def test_rounds_that_overlap_depend_on_no_other(steps: Callable[[int], list[Step]], message: str) -> None:
    schedules = [Overlapping(2, r, tuple(steps(1 - r)), (1,), (0, 0)) for r in range(2)]
    with pytest.raises(ScheduleError, match=f"rank 0, {message}"):
        check(schedules, "bcast")


@pytest.mark.parametrize("slots", [(0,), range(1), np.array([0])])
def test_what_arrives_must_not_change_what_is_being_sent(slots: Slots) -> None:
    half = Step(1, slots, 1, slots, COMBINE_RIGHT)
    with pytest.raises(ScheduleError, match=r"rank [01], step 0, peer [01]: receives into slot 0, which it sends"):
        check(listed([half], [replace(half, send_to=0, recv_from=0)]), "allreduce")


def test_messages_are_matched_by_ordinal_not_by_step() -> None:
    late = ring_bcast(3, 2)
    for i in (0, 1, 2):
        late = edited(late, 2, i, *late[2][i : i + 1], IDLE)
    check(late, "bcast")
    # The root sends its two blocks as its first two messages; rank 1 expects them in the other order.
    first, second = ring_bcast(2, 2)[1]
    wrong = edited(edited(ring_bcast(2, 2), 1, 0, second), 1, 1, first)
    with pytest.raises(ScheduleError, match="rank 1, step 0, peer 0: receives piece 0 of rank 0 in slot 1"):
        check(wrong, "bcast")


def test_parts_without_data_need_not_travel() -> None:
    def emptied(step: Step) -> Step:
        send, recv = (tuple(s for s in slots if s != 1) for slots in (step.send, step.recv))
        return Step(step.send_to if send else None, send, step.recv_from if recv else None, recv)

    full = ring_allgather(3)
    sparse = listed(*(map(emptied, s) for s in full), cut=(1,) * 3)
    lazy = postcondition("allgatherv", 3, (1,) * 3, empty=frozenset({1}))
    verify(sparse, lazy)
    verify(full, lazy)
    with pytest.raises(ScheduleError, match="rank 0, at the end: slot 1 has nothing, not piece 1 of rank 1"):
        check(sparse, "allgatherv")


BCAST, GATHER, LINE = ring_bcast(4, 3), ring_allgather(4), line_reduce(3)
SABOTAGE = {
    "message dropped by the sender": (
        edited(BCAST, 0, 2, IDLE),
        "bcast",
        r"rank 1, step 2, peer 0: receives from a rank that has done all its steps",
    ),
    "message dropped by the receiver": (
        edited(BCAST, 3, 4, IDLE),
        "bcast",
        r"rank 2, step 4, peer 3: sends to a rank that has done all its steps",
    ),
    "two blocks swapped at one end": (
        edited(edited(BCAST, 0, 0, BCAST[0][1]), 0, 1, BCAST[0][0]),
        "bcast",
        r"rank 1, step 0, peer 0: receives piece 1 of rank 0 in slot 0, which is for piece 0",
    ),
    "a block that is not held": (
        edited(BCAST, 1, 1, replace(BCAST[1][1], send=(2,))),
        "bcast",
        r"rank 1, step 1, peer 2: sends slot 2, which it does not hold",
    ),
    "a block received twice": (
        edited(edited(BCAST, 0, 1, BCAST[0][0]), 1, 1, Step(recv_from=0, recv=(0,)), Step(2, (0,))),
        "bcast",
        r"rank 1, step 1, peer 0: receives piece 0 of rank 0 in slot 0, where it already has piece 0 of rank 0",
    ),
    "a contribution counted twice": (
        edited(edited(LINE, 1, 1, *LINE[1][1:], *LINE[1][1:]), 0, 0, LINE[0][0], LINE[0][0]),
        "reduce",
        r"rank 0, step 1, peer 1: combines piece 0 of ranks 0-2 with piece 0 of ranks 1-2 in slot 0: .* twice",
    ),
    "operands in the wrong order": (
        edited(LINE, 1, 0, replace(LINE[1][0], accept=COMBINE_LEFT)),
        "reduce",
        r"rank 1, step 0, peer 2: combines piece 0 of rank 2 with piece 0 of rank 1 in slot 0: not in rank order",
    ),
    "combined with nothing": (
        edited(BCAST, 1, 0, replace(BCAST[1][0], accept=COMBINE_LEFT)),
        "bcast",
        r"rank 1, step 0, peer 0: combines piece 0 of rank 0 with slot 0, which it does not hold",
    ),
    "overwritten instead of combined": (
        edited(LINE, 1, 0, replace(LINE[1][0], accept=STORE)),
        "reduce",
        r"rank 1, step 0, peer 2: receives piece 0 of rank 2 in slot 0, where it already has piece 0 of rank 1",
    ),
    "a peer out of range": (
        edited(GATHER, 2, 1, replace(GATHER[2][1], send_to=4)),
        "allgather",
        r"rank 2, step 1, peer 4: sends with a peer that is not another of the 4 ranks",
    ),
    "a negative peer": (
        edited(GATHER, 2, 1, replace(GATHER[2][1], recv_from=-1)),
        "allgather",
        r"rank 2, step 1, peer -1: receives with a peer that is not another",
    ),
    "itself as a peer": (
        edited(GATHER, 2, 1, replace(GATHER[2][1], recv_from=2)),
        "allgather",
        r"rank 2, step 1, peer 2: receives with a peer that is not another",
    ),
    "the wrong peer": (
        edited(BCAST, 1, 1, replace(BCAST[1][1], send_to=3)),
        "bcast",
        r"rank 1, step 1, peer 3: deadlock: rank 1 in step 1 waits for rank 3; rank 3 in step 2 waits for rank 2; ",
    ),
    "deadlock of two ranks that send first": (
        listed(*([Step(1 - r, (r,)), Step(None, (), 1 - r, (1 - r,))] for r in range(2)), cut=(1, 1)),
        "allgather",
        r"rank 0, step 0, peer 1: deadlock: rank 0 in step 0 waits for rank 1; rank 1 in step 0 waits for rank 0$",
    ),
    "slots without a peer": (
        edited(GATHER, 3, 0, replace(GATHER[3][0], send_to=None)),
        "allgather",
        r"rank 3, step 0: sends slots \[3\] without a peer",
    ),
    "more slots than the peer expects": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], send=(0, 0))),
        "allgather",
        r"rank 0, step 0, peer 1: sends 2 slots, but step 0 of the peer receives 1",
    ),
    "a slot out of range": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], recv=(4,))),
        "allgather",
        r"rank 0, step 0, peer 3: receives slots \[4\], but there are 4 slots",
    ),
    "a negative slot": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], recv=(-1,))),
        "allgather",
        r"rank 0, step 0, peer 3: receives slots \[-1\], but there are 4 slots",
    ),
    "too few instructions what to accept": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], accept=())),
        "allgather",
        r"rank 0, step 0, peer 3: accepts 0 slots, but receives 1",
    ),
    "a local step out of range": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], local=(Copy(0, 7),))),
        "allgather",
        r"rank 0, step 0: Copy\(dst=0, src=7\) names a slot that is not one of 4",
    ),
    "a local step on nothing": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], local=(Copy(0, 1),))),
        "allgather",
        r"rank 0, step 0: Copy\(dst=0, src=1\) needs a slot that the rank does not hold",
    ),
    "a piece in a slot of another size": (
        edited(GATHER, 0, 0, replace(GATHER[0][0], local=(Copy(1, 0),))),
        "allgather",
        r"rank 0, step 0: Copy\(dst=1, src=0\) puts piece 0 of rank 0 into a slot for piece 1",
    ),
    "different pieces combined": (
        edited(GATHER, 0, 1, replace(GATHER[0][1], local=(Combine(0, 0, 3),))),
        "allgather",
        r"rank 0, step 1: combines piece 0 of rank 0 with piece 3 of rank 3 in slot 0: different pieces",
    ),
    "too early an end": (
        [Listed(4, r, GATHER[r][:-1], (1,) * 4) for r in range(4)],
        "allgather",
        r"rank 0, at the end: slot 1 has nothing, not piece 1 of rank 1",
    ),
    "a contribution left out": (
        edited(edited(LINE, 2, 0, IDLE), 1, 0, IDLE),
        "reduce",
        r"rank 0, at the end: slot 0 has piece 0 of ranks 0-1, not piece 0 of ranks 0-2",
    ),
    "ranks that number their slots differently": (
        [*GATHER[:3], replace(GATHER[3], spare=(0,))],
        "allgather",
        r"rank 3: numbers parts \(1, 1, 1, 1\) and scratch \(0,\), but rank 0 ",
    ),
    "scratch of no known size": (
        [replace(s, spare=(4,)) for s in GATHER],
        "allgather",
        r"scratch \(4,\) names a slot that is not one of 4",
    ),
    "the schedule of another rank": (
        [*GATHER[:3], GATHER[2]],
        "allgather",
        r"rank 3 of 4: has the schedule of rank 2 of 4",
    ),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage_is_named(name: str) -> None:
    schedules, collective, message = SABOTAGE[name]
    with pytest.raises(ScheduleError, match=message):
        check(schedules, collective, ordered=collective == "reduce")


def test_order_matters_only_where_it_is_asked_for() -> None:
    wrong = edited(LINE, 1, 0, replace(LINE[1][0], accept=COMBINE_LEFT))
    check(wrong, "reduce", ordered=False)


def mutants(step: Step, p: int, nslots: int) -> Iterator[Step]:
    """Every way to take one half away, to give it to another peer, or to name another slot first."""
    if step.send_to is not None:
        yield replace(step, send_to=None, send=())
        yield from (replace(step, send_to=peer) for peer in range(-1, p + 1) if peer != step.send_to)
        others = (s for s in range(nslots) if s not in step.send)
        yield from (replace(step, send=(s, *step.send[1:])) for s in others)
    if step.recv_from is not None:
        yield replace(step, recv_from=None, recv=(), accept=STORE)
        yield from (replace(step, recv_from=peer) for peer in range(-1, p + 1) if peer != step.recv_from)
        others = (s for s in range(nslots) if s not in step.recv)
        yield from (replace(step, recv=(s, *step.recv[1:])) for s in others)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_no_sabotaged_step_of_a_real_algorithm_passes(p: int) -> None:
    n = 3
    for collective, build in (("bcast", circulant.bcast), ("reduce", circulant.reduce)):
        schedules = [build(p, r, nblocks=n, root=1) for r in range(p)]
        for rank, schedule in enumerate(schedules):
            for i, step in enumerate(schedule):
                for mutant in mutants(step, p, n):
                    with pytest.raises(ScheduleError):
                        check(edited(schedules, rank, i, mutant), collective, root=1)
