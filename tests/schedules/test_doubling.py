"""Reductions that keep rank order: rounds, order, and the same bits on all ranks."""

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import doubling
from ringcast.schedules.schedule import STORE, Accept, Combine, Copy, Schedule
from support.cases import each

SIZES = [*range(1, 41), 63, 64, 65, 66, 129]


def combine(schedules: list[Schedule]) -> list[str]:
    """Run lock-step schedules with an operator that writes down how it was applied."""
    held = [{0: str(s.rank)} for s in schedules]
    for steps in zip(*schedules, strict=True):
        for slots, step in zip(held, steps, strict=True):
            for local in step.local:
                slots[local.dst] = slots[local.src] if isinstance(local, Copy) else _told(slots, local)
        before = [dict(slots) for slots in held]
        for slots, step in zip(held, steps, strict=True):
            if step.recv_from is not None:
                sent = before[step.recv_from][steps[step.recv_from].send[0]]
                here = slots.get(step.recv[0], "")
                both = {STORE: sent, Accept.COMBINE_LEFT: f"({sent} {here})", Accept.COMBINE_RIGHT: f"({here} {sent})"}
                slots[step.recv[0]] = both[step.accepts()[0]]
    return [slots[0] for slots in held]


def _told(slots: dict[int, str], local: Combine) -> str:
    return f"({slots[local.left]} {slots[local.right]})"


def in_order(p: int) -> str:
    return " ".join(map(str, range(p)))


def flat(told: str) -> str:
    return told.replace("(", "").replace(")", "")


@each("p", SIZES)
def test_allreduce_keeps_rank_order(p: int) -> None:
    schedules = [doubling.doubling(p, r) for r in range(p)]
    verify(schedules, postconditions.postcondition("allreduce", p, schedules[0].parts), ordered=True)
    d = p.bit_length() - 1
    report = simulate(schedules)
    assert report.rounds == len(schedules[0]) == (d if p == 2**d else d + 2) == doubling.doubling_rounds(p)
    assert report.volume == report.rounds - (2 if p != 2**d else 0) + (p != 2**d)


@each("p", SIZES)
def test_allreduce_associates_alike_on_all_ranks(p: int) -> None:
    told = combine([doubling.doubling(p, r) for r in range(p)])
    assert len(set(told)) == 1
    assert flat(told[0]) == in_order(p)


@each("p", SIZES)
def test_reduce_keeps_rank_order_for_every_root(p: int) -> None:
    for root in range(p) if p < 34 else (0, 1, p // 2, p - 1):
        schedules = [doubling.ordered_reduce(p, r, root=root) for r in range(p)]
        verify(schedules, postconditions.postcondition("reduce", p, (1,), root=root), ordered=True)
        report = simulate(schedules)
        assert report.rounds == len(schedules[0]) == (p - 1).bit_length()
        assert report.sent == tuple(int(r != root) for r in range(p))
        assert flat(combine(schedules)[root]) == in_order(p)


def test_reduce_associates_alike_for_every_root() -> None:
    for p in SIZES[:20]:
        told = {combine([doubling.ordered_reduce(p, r, root=root) for r in range(p)])[root] for root in range(p)}
        assert len(told) == 1
