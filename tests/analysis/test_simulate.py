"""The virtual clock against hand-made schedules and closed formulas; the vectorised broadcast against the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from ringcast.analysis.simulate import simulate, simulate_bcast
from ringcast.errors import ScheduleError
from ringcast.events import Event, RoundEnd, RoundStart
from ringcast.schedules import circulant
from ringcast.schedules.schedule import IDLE, Schedule, Step
from support.cases import each

KILLERS = (33, 65, 66, 67, 73, 81, 129, 130, 131, 257)


@dataclass(frozen=True)
class Listed(Schedule):
    """Steps written down one by one, on two slots."""

    steps: tuple[Step, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return (1, 1)

    def __len__(self) -> int:
        return len(self.steps)

    def _step(self, i: int) -> Step:
        return self.steps[i]


def listed(*steps: Sequence[Step]) -> list[Schedule]:
    return [Listed(len(steps), r, tuple(mine)) for r, mine in enumerate(steps)]


def send(to: int, *slots: int) -> Step:
    return Step(send_to=to, send=slots)


def recv(source: int, *slots: int) -> Step:
    return Step(recv_from=source, recv=slots)


def test_a_chain_takes_the_sum_of_its_messages() -> None:
    chain = listed([send(1, 0)], [recv(0, 0), send(2, 0, 1)], [recv(1, 0, 1)])
    report = simulate(chain, [100, 7], alpha=0.5, beta=0.01)
    assert report.time == pytest.approx(0.5 + 1.0 + 0.5 + 1.07)
    assert (report.rounds, report.messages) == (2, 2)
    assert (report.sent, report.received, report.volume) == ((100, 107, 0), (0, 100, 107), 107)


def test_both_halves_of_a_step_run_at_the_same_time_and_the_longer_ends_it() -> None:
    # Rank 1 receives 10 bytes while it sends 30; rank 0 is free again after the shorter one.
    both = listed([send(1, 0), send(2, 0)], [Step(2, (1,), 0, (0,))], [recv(1, 1), recv(0, 0)])
    report = simulate(both, [10, 30], alpha=1.0, beta=1.0)
    assert report.time == pytest.approx(31 + 11)
    assert report.rounds == 2


def test_a_message_starts_when_the_later_of_its_ranks_is_ready() -> None:
    late = listed(
        [send(1, 0), send(2, 0)], [recv(0, 0), send(3, 0)], [recv(0, 0), send(3, 1)], [recv(1, 0), recv(2, 1)]
    )
    assert simulate(late).rounds == 3  # 0-1, then 0-2 beside 1-3, then 2-3
    assert simulate(late, alpha=2.0).time == 6.0


def test_steps_without_messages_cost_nothing() -> None:
    assert simulate(listed([IDLE, send(1, 0), IDLE], [recv(0, 0)])).rounds == 1
    report = simulate(listed([IDLE], []))
    assert (report.rounds, report.time, report.messages, report.volume) == (0, 0.0, 0, 0)


def test_without_sizes_volume_counts_slots_and_scratch_has_the_size_of_its_slot() -> None:
    census = [circulant.census(3, r) for r in range(3)]
    assert simulate(census).sent == (2, 2, 2)
    assert simulate(census, [40]).sent == (80, 80, 80)


def test_slots_of_different_sizes_do_not_meet() -> None:
    crossed = listed([send(1, 0)], [recv(0, 1)])
    assert simulate(crossed).rounds == 1
    with pytest.raises(ScheduleError, match=r"rank 0, step 0, peer 1: sends slots of \[3\] bytes, .* as \[4\]"):
        simulate(crossed, [3, 4])


def test_the_rules_of_the_model_hold_here_too() -> None:
    with pytest.raises(ScheduleError, match="deadlock"):
        simulate(listed([send(1, 0), recv(1, 1)], [send(0, 1), recv(0, 0)]))
    with pytest.raises(ScheduleError, match="one end only"):
        simulate(listed([send(1, 0)], []))
    with pytest.raises(ValueError, match="sizes must have one entry for each of the 2 slots"):
        simulate(listed([], []), [1])


@pytest.mark.parametrize("p", [1, 2, 3, 5, 20, 33])
def test_events_tell_the_whole_run_in_order_of_time(p: int) -> None:
    events: list[Event] = []
    sizes = [7, 0, 5]
    schedules = [circulant.bcast(p, r, nblocks=3, root=p - 1) for r in range(p)]
    report = simulate(schedules, sizes, alpha=0.25, beta=0.5, observer=events.append, operation="bcast")
    times = [event.time for event in events]
    assert times == sorted(times)
    assert max(times, default=0.0) == report.time
    for r in range(p):
        mine = [event for event in events if event.rank == r]
        starts, ends = mine[::2], mine[1::2]
        steps = [(i, step) for i, step in enumerate(schedules[r]) if step != IDLE]
        assert len(starts) == len(ends) == len(steps)
        for (i, step), start, end in zip(steps, starts, ends, strict=True):
            assert isinstance(start, RoundStart)
            assert isinstance(end, RoundEnd)
            assert (start.operation, start.round, end.round) == ("bcast", i, i)
            assert (start.send_to, start.recv_from) == (step.send_to, step.recv_from)
            assert end.wait == end.time - start.time
        assert sum(e.sent for e in starts if isinstance(e, RoundStart)) == report.sent[r]
        assert sum(e.received for e in ends if isinstance(e, RoundEnd)) == report.received[r]


@each("p", [*range(1, 41), 65])
def test_circulant_broadcast_takes_the_fewest_rounds_possible(p: int) -> None:
    for n, root in product((1, 2, 5, 9), {0, p // 2}):
        report = simulate([circulant.bcast(p, r, nblocks=n, root=root) for r in range(p)])
        assert report.rounds == (n - 1 + (p - 1).bit_length() if p > 1 else 0), f"{p=} {n=} {root=}"
        assert report.messages == (p - 1) * n


@pytest.mark.parametrize("p", [2, 3, 5, 7, 33, 65])
def test_allgatherv_receives_what_the_others_have_and_no_more(p: int) -> None:
    n, counts = 3, tuple((5 * j) % 4 for j in range(p))
    schedules = [circulant.allgatherv(p, r, nblocks=n, counts=counts) for r in range(p)]
    sizes = [c * (b + 1) // n - c * b // n for c in counts for b in range(n)]
    report = simulate(schedules, sizes)
    assert report.received == tuple(sum(counts) - c for c in counts)
    assert sum(report.sent) == sum(report.received)
    assert report.rounds <= n - 1 + (p - 1).bit_length()


@each("p", [*range(1, 71), *KILLERS])
def test_vectorised_broadcast_is_the_plain_one(p: int) -> None:
    for n, nbytes in ((1, 10), (2, 5), (7, 100), (12, 5)):
        sizes = [nbytes * (b + 1) // n - nbytes * b // n for b in range(n)]
        plain = simulate([circulant.bcast(p, r, nblocks=n) for r in range(p)], sizes, alpha=2.0, beta=0.5)
        assert simulate_bcast(p, n, nbytes, alpha=2.0, beta=0.5) == plain, f"{p=} {n=}"


@pytest.mark.parametrize("p", [2, 3, 5, 9, 17, 33])
def test_every_sabotaged_entry_of_the_tables_is_caught(p: int) -> None:
    recv, send = circulant.schedule_tables(p)
    q, n = len(recv), 2 * len(recv) + 1
    simulate_bcast(p, n, 0)
    for k, r in product(range(q), range(1, p, max(1, p // 16))):
        source = (r - circulant.skips(p)[k]) % p
        for value in set(range(-q, q)) - {int(recv[k, r])}:
            bad = np.array(recv), np.array(send)
            bad[0][k, r] = value
            with pytest.raises(ScheduleError, match=f"rank {r}, step .*, peer {source}: expects another block"):
                simulate_bcast(p, n, 0, tables=bad)
            bad[1][k, source] = value  # now both ends agree on it
            with pytest.raises(ScheduleError, match=r"second time|does not hold|has not received"):
                simulate_bcast(p, n, 0, tables=bad)


def test_a_hundred_thousand_ranks() -> None:
    p, n, nbytes = 100_000, 100, 10**8
    report = simulate_bcast(p, n, nbytes, alpha=1e-5, beta=1e-9)
    assert report.rounds == n - 1 + 17
    assert report.time == pytest.approx(report.rounds * (1e-5 + nbytes / n * 1e-9))
    assert report.received == (0,) + (nbytes,) * (p - 1)
    assert report.messages == (p - 1) * n


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_nonsense_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        simulate_bcast(*arguments)
