"""Compare algorithms of a collective by the simulator, or by their formulas where a simulation would take too long.

Times follow the one-ported linear model: a message takes alpha + beta * bytes, and combining takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ringcast._util.dataclass import dataclass
from ringcast.algorithms import CallFacts, Params, build, find, validate
from ringcast.algorithms.cost import choose, legal, predict
from ringcast.algorithms.load import Call
from ringcast.algorithms.network import Network
from ringcast.analysis.rounds import messages
from ringcast.analysis.simulate import Report, simulate, simulate_bcast
from ringcast.analysis.topologies import FULL, Traffic, route_on, traffic
from ringcast.engine.slot_sizes import slot_sizes

MOST = 200_000  # steps of all ranks, beyond which formulas take over: a few seconds for each algorithm
SLOTS = 8  # slots that are moved in the time of a step
# These are simulated for all ranks at once: up to so many ranks times rounds, which is half a minute and a gigabyte.
AT_ONCE = (("bcast", "circulant"), ("reduce", "circulant"))
MOST_AT_ONCE = 1_000_000_000


@dataclass(frozen=True)
class ComparedCase:
    """A call to compare algorithms for, and its network; `nbytes` is the whole buffer, all parts."""

    collective: str
    params: Params
    nbytes: int
    nblocks: int | None = None  # None: each algorithm's best by the model
    alpha: float = 1.0
    beta: float = 0.0
    network: str = FULL

    @property
    def model(self) -> Network:
        return Network(self.alpha, self.beta, gamma=0.0, frame=0.0)


@dataclass(frozen=True)
class Row:
    """Cost of one algorithm; numbers that formulas do not give are None.

    Attributes:
        algorithm: its name.
        nblocks: the number of blocks.
        nbytes: of the whole buffer.
        rounds: exact, also by formula.
        seconds: if every two ranks had a link of their own; by formula exact for equal blocks, else approximate.
        messages: of all ranks.
        volume: the most bytes that a rank sends or receives.
        traffic: on the network; None if every two ranks have a link of their own.
    """

    algorithm: str
    nblocks: int
    nbytes: int
    rounds: int
    seconds: float
    messages: int | None = None
    volume: int | None = None
    traffic: Traffic | None = None

    @property
    def by_formula(self) -> bool:
        return self.messages is None

    @property
    def order(self) -> tuple[bool, float]:
        """The key by which rows are sorted: the time on the network; rows without a known time come last."""
        return self.traffic is None, self.seconds if self.traffic is None else self.traffic.time


def compare(case: ComparedCase, names: Sequence[str] = (), tell: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Return a row for each algorithm in `names`, or for all that can do the call; the fastest first.

    Args:
        case: the call.
        names: of algorithms; none: all.
        tell: gets the name of each algorithm before the algorithm is simulated.

    Raises:
        ValueError: a named algorithm cannot do the call, no algorithm can, there is no such network for that many
            ranks, or no algorithm is small enough to be sent over the network message by message.
    """
    if reason := validate(case.params):
        raise ValueError(f"{case.collective}: {reason}")
    route_on(case.network, case.params.size)
    rows = []
    for name, n in _legal(case, names) or [_choose(case, None)]:  # if none is legal, `_choose` raises the reason
        tell(name)
        rows.append(_row(case, name, case.params._replace(nblocks=n)))
    if case.network != FULL and all(row.by_formula for row in rows):
        work = min(_work(case, row.algorithm, case.params._replace(nblocks=row.nblocks)) for row in rows)
        raise ValueError(
            f"{case.network}: to follow every message would be the work of {work:,} steps or more, and the limit is "
            f"{MOST:,}; take fewer ranks or blocks, or --network full"
        )
    return sorted(rows, key=lambda row: row.order)


def _legal(case: ComparedCase, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the algorithms to compare, each with its number of blocks."""
    if names:
        return [_choose(case, name) for name in names]
    plans, _ = legal(case.collective, lambda name: _choose(case, name))
    return list(plans.values())


def _choose(case: ComparedCase, name: str | None) -> tuple[str, int]:
    p = case.params
    facts = CallFacts(size=p.size, nbytes=case.nbytes, root=p.root, counts=p.counts, distance=p.distance)
    return choose(case.collective, facts, case.model, algorithm=name, nblocks=case.nblocks)


def _row(case: ComparedCase, name: str, params: Params) -> Row:
    rounds = find(case.collective, name).rounds(params)
    row = Row(name, params.nblocks, case.nbytes, rounds, 0.0)
    at_once = case.network == FULL and (case.collective, name) in AT_ONCE
    if at_once and params.size * rounds <= MOST_AT_ONCE:
        report = simulate_bcast(params.size, params.nblocks, case.nbytes, alpha=case.alpha, beta=case.beta)
        return _with(row, report)  # a reduction is the broadcast backwards, and the root does not matter
    if _work(case, name, params) > MOST:
        return replace(row, seconds=predict(case.collective, name, params, case.nbytes, case.model))
    schedules = [build(case.collective, name, params, rank) for rank in range(params.size)]
    sizes = slot_sizes(schedules[0], params.counts, case.nbytes)
    row = _with(row, simulate(schedules, sizes, alpha=case.alpha, beta=case.beta))
    if case.network == FULL:
        return row
    sizes += [sizes[slot] for slot in schedules[0].scratch]
    route = route_on(case.network, params.size)
    return replace(row, traffic=traffic(messages(schedules), route, sizes, alpha=case.alpha, beta=case.beta))


def _with(row: Row, report: Report) -> Row:
    return replace(row, rounds=report.rounds, seconds=report.time, messages=report.messages, volume=report.volume)


def _work(case: ComparedCase, name: str, params: Params) -> int:
    """Return the approximate number of steps of all ranks; moved slots count as steps, too."""
    entry = find(case.collective, name)
    rounds = entry.rounds(params)
    nslots = sum(build(case.collective, name, params, 0).parts)
    moved = entry.load(Call(params, nslots, rounds)).volume  # as if each slot were a byte
    return params.size * (rounds + moved // SLOTS)
