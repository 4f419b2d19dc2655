"""A communicator as collectives see it, and one stage of a collective: choice, schedule, operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringcast import algorithms
from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import safe_text
from ringcast.algorithms.network import FIXED, Network
from ringcast.algorithms.params import CallFacts, Params
from ringcast.engine import direct
from ringcast.engine.datatypes import dtype_name
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Steps, execute
from ringcast.engine.objects import MOST_APART, Codec, decode, encode
from ringcast.engine.recorder import encoded
from ringcast.engine.slots import Memory
from ringcast.errors import ArgumentError, ObjectsRefused
from ringcast.ops import Array, Op
from ringcast.schedules.placement import Hosts
from ringcast.schedules.schedule import Schedule, Step, relabel
from ringcast.wire.call import OBJECT, Call
from ringcast.wire.collective import COLLECTIVES
from ringcast.wire.votes import Decision, Vote

if TYPE_CHECKING:
    from ringcast.events import Observer
    from ringcast.protocol.operations import Operation


class Choice(NamedTuple):
    """The user's choice of the algorithm; None leaves it to the cost model."""

    algorithm: str | None = None
    nblocks: int | None = None

    @property
    def automatic(self) -> bool:
        """Whether the user has chosen nothing."""
        return self.algorithm is None and self.nblocks is None


AUTOMATIC = Choice()
PLANS_KEPT = 512  # calls of a communicator
STEPS_KEPT = 128  # steps of a schedule that are not computed again for every call


@dataclass(slots=True)
class Group:
    """The ranks of a communicator, seen from one of them."""

    endpoint: Endpoint
    context: int
    network: Network
    observe: Observer | None = None
    on_stage: Callable[[StagePlan, float], None] | None = None  # called after each stage, with the seconds it took
    hosts: Hosts = ()  # of each rank; ranks with equal ones share a host
    members: tuple[int, ...] = ()  # ranks of the job, by rank of this communicator; (): all of them
    plans: dict[object, StagePlan] = field(default_factory=dict)  # of calls that were made, as programs repeat them
    again: dict[Any, Any] = field(default_factory=dict)  # of these, the ones that `collectives.again` makes …
    once: set[object] = field(default_factory=set)  # … and the ones that were made once
    correspondents: dict[int, Any] = field(default_factory=dict)  # of messages by prediction, by rank
    acknowledged: frozenset[int] = frozenset()  # ranks of the job whose failure the program knows of
    votes: int = 0  # agreements in which this rank has taken part
    vote: Vote | None = None  # the last one, until the program has its result
    decision: Decision | None = None  # on that vote
    pickle: bool = True  # whether Python objects are sent and taken
    deterministic: bool = False  # whether the order of reductions depends on neither `network` nor `hosts`
    derived: bool = False  # whether it was made from another one, and is not the world of the job

    rank: int = field(init=False)
    size: int = field(init=False)
    codec: Codec = field(init=False)  # of Python objects

    def __post_init__(self) -> None:
        self.rank = self.here(self.endpoint.rank)
        self.size = len(self.members) or self.endpoint.size
        # A message has at most one value of each rank, so its frames are not too many.
        self.codec = partial(encode, most=MOST_APART // self.size), decode

    def in_job(self, rank: int) -> int:
        """Return the rank in the job of a rank of this group."""
        return self.members[rank] if self.members else rank

    def here(self, rank: int) -> int:
        """Return the rank in this group of a rank of the job, which has to be a member."""
        return self.members.index(rank) if self.members else rank


def part(group: Group, context: int, members: tuple[int, ...], hosts: Hosts) -> Group:
    """Return a group of some members of another one, or all, with a context of its own and no calls made yet."""
    fresh: dict[str, Any] = {
        "plans": {},
        "again": {},
        "once": set(),
        "correspondents": {},
        "acknowledged": frozenset(),
        "votes": 0,
        "vote": None,
        "decision": None,
    }
    if group.endpoint.profiler is not None:
        group.endpoint.profiler.made(context, members)
    return replace(group, context=context, members=members, hosts=hosts, derived=True, **fresh)


def pickled(group: Group, operation: str) -> Codec:
    """Return how Python objects travel.

    Raises:
        ObjectsRefused: the job takes none.
    """
    if not group.pickle:
        raise ObjectsRefused(group.endpoint.rank, operation)
    return group.codec


def note_object(group: Group, op: Operation | None = None) -> None:
    """Take note, for a profiler, that this operation has brought a Python object; None: the last one."""
    if (profiler := group.endpoint.profiler) is not None:
        profiler.took_object(op)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of a collective, as all ranks must plan it."""

    collective: str
    algorithm: str
    params: Params
    call: Call
    nbytes: int  # of the whole buffer; 0 for Python objects
    granted: bool
    record: bytes = field(repr=False)  # the call as the flight recorder keeps it
    # The schedule of this rank, and its steps among the ranks of the job; empty until it runs for the first time.
    _prepared: list[tuple[Schedule, Sequence[Step]]] = field(default_factory=list, repr=False, compare=False)

    @property
    def whole(self) -> bool:
        """Whether every rank gets the whole vector; the caller then takes its part."""
        return algorithms.find(self.collective, self.algorithm).whole

    def prepared(self, group: Group) -> tuple[Schedule, Sequence[Step]]:
        """Return this rank's schedule, and its steps among the ranks of the job; `group` is the plan's own group."""
        if not self._prepared:
            facts = self.collective, self.algorithm, self.params, group.rank, group.members, group.endpoint.size
            self._prepared.append(_schedule(*facts))
        return self._prepared[0]


class Data(NamedTuple):
    """The data of a stage, as all ranks know them."""

    dtype: str  # name of the items' type; "object" for Python objects
    shape: tuple[int, ...] = ()  # of the array that each rank gives, or the counts
    nbytes: int = 0  # size of the whole buffer, all parts
    itemsize: int = 1  # bytes of an item
    counts: tuple[int, ...] = ()  # items of each part, for v-forms

    @classmethod
    def of(cls, array: Array, shape: tuple[int, ...] | None = None, *, times: int = 1) -> Data:
        """Return the data where the buffer is so many `times` an array."""
        given = array.shape if shape is None else shape
        return cls(dtype_name(array.dtype), given, times * array.nbytes, array.itemsize)


NO_DATA = Data("")
OBJECTS = Data(OBJECT)


def plan(
    group: Group,
    collective: str,
    choice: Choice,
    data: Data,
    *,
    root: int | None = None,
    distance: int | None = None,
    op: Op | None = None,
    exact: bool = False,
    name: str = "",
) -> StagePlan:
    """Choose the algorithm for a stage; the same on all ranks, as it depends only on arguments that they must agree on.

    Args:
        group: the communicator.
        collective: its table of algorithms is used; errors name the stage `name`, if that is given.
        choice: the user's choice of the algorithm.
        data: the data that the stage moves.
        root: where there is one.
        distance: of a shift, 0 <= distance < size.
        op: the operator, where there is one.
        exact: it gives the same bits in every order.
        name: see `collective`.

    Raises:
        ArgumentError: root, algorithm or nblocks are wrong.
    """
    operation = name or collective
    if root is not None or COLLECTIVES[collective].rooted:
        check_root(group, operation, root)
    if op is not None and not callable(op.fn):
        raise ArgumentError(
            group.endpoint.rank,
            operation,
            "op",
            f"expected an Op, as ringcast.SUM, or a function of two values, got {safe_text(op.fn)}",
        )
    if choice.algorithm is not None or choice.nblocks is not None:
        _check_types(group, operation, choice)
    text = "" if op is None else str(op)
    properties = (True, True, True) if op is None else (op.commutative, op.elementwise and data.dtype != OBJECT, exact)
    key = collective, operation, choice, data, root, distance, text, properties
    known = group.plans.get(key)
    if known is not None:
        return known
    _, _, nbytes, itemsize, counts = data
    fixed = group.deterministic and op is not None and not exact
    network, hosts = (FIXED, ()) if fixed else (group.network, group.hosts)
    facts = CallFacts(group.size, nbytes, itemsize, root or 0, counts, distance or 0, hosts, *properties)
    try:
        made = _decide(network, collective, operation, choice, facts, data, root, distance, text)
    except ValueError as error:
        raise ArgumentError(group.endpoint.rank, operation, "algorithm or nblocks", str(error)) from None
    keep_plan(group, key, made)
    return made


def keep_plan(group: Group, key: object, made: StagePlan) -> None:
    """Keep a plan in `group.plans`, for the next call of this key."""
    if len(group.plans) >= PLANS_KEPT:
        group.plans.clear()
    group.plans[key] = made


def check_root(group: Group, operation: str, root: Any) -> None:
    """Raise ArgumentError unless this is a rank of the group."""
    if not (isinstance(root, int | np.integer) and 0 <= root < group.size):
        raise ArgumentError(
            group.endpoint.rank,
            operation,
            "root",
            f"expected a rank in 0..{group.size - 1}, got {safe_text(root)}{advice_if_alone(group)}",
        )


def advice_if_alone(group: Group) -> str:
    """Return the end of an error about a rank that does not exist: how to start more, in a job of one rank."""
    return "; this is a job of one rank: start more by ringcast-launch -n N" if group.endpoint.size == 1 else ""


def _check_types(group: Group, operation: str, choice: Choice) -> None:
    """Refuse an algorithm that is no name, and numbers that are none."""
    if not isinstance(choice.algorithm, str | None):
        raise ArgumentError(
            group.endpoint.rank, operation, "algorithm", f"expected a name, got {safe_text(choice.algorithm)}"
        )
    if not isinstance(choice.nblocks, int | np.integer | None):
        raise ArgumentError(
            group.endpoint.rank, operation, "nblocks", f"expected a whole number, got {safe_text(choice.nblocks)}"
        )


def _decide(
    network: Network,
    collective: str,
    operation: str,
    choice: Choice,
    facts: CallFacts,
    data: Data,
    root: int | None,
    distance: int | None,
    op: str,
) -> StagePlan:
    """Return the plan for arguments that have been checked."""
    wanted = None if choice.nblocks is None else int(choice.nblocks)
    algorithm, nblocks = algorithms.choose(collective, facts, network, algorithm=choice.algorithm, nblocks=wanted)
    params = facts.params(nblocks)
    call = Call(operation, data.dtype, data.shape, op, root, algorithm, nblocks, distance)
    grants = data.dtype != OBJECT and algorithms.granted(collective, algorithm, params, data.nbytes)
    return StagePlan(collective, algorithm, params, call, data.nbytes, grants, encoded(call))


@lru_cache(maxsize=256)  # schedules are pure
def _schedule(
    collective: str, algorithm: str, params: Params, rank: int, members: tuple[int, ...], job: int
) -> tuple[Schedule, Sequence[Step]]:
    """Return a schedule, and its steps among the ranks of a job of size `job`; `members` are the ranks of the group.

    The steps are computed if they are few, as programs repeat their calls.
    """
    schedule = algorithms.build(collective, algorithm, params, rank)
    steps = relabel(schedule, members, job) if members else schedule
    return schedule, tuple(steps) if len(schedule) <= STEPS_KEPT else steps


def run_stage(group: Group, stage: StagePlan, memory: Callable[[Schedule], Memory], align: int = 1) -> Steps[Any]:
    """Run one stage on the slots that `memory` makes for its schedule; see `run_schedule`."""
    return run_schedule(group, stage, *stage.prepared(group), memory, align)


def run_schedule(
    group: Group,
    stage: StagePlan,
    schedule: Schedule,
    todo: Sequence[Step],
    memory: Callable[[Schedule], Memory],
    align: int = 1,
) -> Steps[Any]:
    """Run a schedule on the slots that `memory` makes; returns them. `todo`: its steps, among the ranks of the job.

    `align` is the size of the items where they are combined as they come: messages are cut between items,
    unless one is longer than a segment.
    """
    endpoint, report = group.endpoint, group.on_stage
    clock = endpoint.transport.clock
    start = clock() if report is not None else 0.0
    op = endpoint.begin(group.context, stage.call, stage.record, granted=stage.granted, align=align)
    slots = memory(schedule)
    observe = group.observe
    if (profiler := endpoint.profiler) is not None:
        profiler.plans(op, stage, group.members, todo)
        observe = observe or (profiler.observer(op) if stage.granted else None)
    end: direct.End | None = direct.START
    if observe is None and not schedule.concurrent and (programs := direct.predictable(endpoint, op)):
        assert endpoint.running is not None, "the stage is one of a call"
        patience = None if endpoint.running.blocks else 0.0
        end = direct.run(endpoint, programs, todo, slots, op, patience)
    if end is not None:
        steps = execute(todo, slots, op, concurrent=schedule.concurrent, **end._asdict())
        if observe is not None:
            from ringcast.engine.observe import observed  # few programs are observed

            steps = observed(steps, endpoint.rank, clock, observe)
        yield from steps
    endpoint.end(op)
    if report is not None:
        report(stage, clock() - start)
    return slots
