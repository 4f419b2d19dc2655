"""Collectives that a rank has made before: all is known but the values.

A program repeats its calls: same method, dtype, shape and operator. What was made twice is kept. From then on there is
nothing to check or to plan, and where the messages come as predicted, nothing to begin or to wait for. Small values are
copied into the program's memory, the program runs, and the result is copied out. A larger value is copied to where the
result will be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from ringcast.collectives.stage import PLANS_KEPT, Choice, Group, StagePlan
from ringcast.engine import direct
from ringcast.engine.execute import Result, Steps, execute
from ringcast.engine.predicted import Predicted, ended, failed
from ringcast.engine.program import OWN, Program
from ringcast.engine.recorder import Recorder
from ringcast.engine.slots import ArraySlots, Memory
from ringcast.engine.task import Task
from ringcast.ops import Array, Op
from ringcast.protocol.operations import Operation
from ringcast.schedules.schedule import Step
from ringcast.wire.call import Site

KEPT = 64  # calls of a communicator
NONE = np.empty(0)
UNMADE: Final = object()  # in place of the result of a call that was not made


class Rest(NamedTuple):
    """The steps of a call that are left to the engine; they have its result."""

    steps: Steps[Any]


class Again:
    """A call that was made before; here the parts of it that are the same for all values."""

    def __init__(self, group: Group, stage: StagePlan, steps: Sequence[Step], align: int = 1) -> None:
        self._group, self._stage, self._steps, self._align = group, stage, steps, align

    def make(self, site: Site, value: Any, out: Any) -> Any:
        """Make the call; return its result, or the `Rest`, or UNMADE if it needs the general way."""
        raise NotImplementedError

    def started(
        self,
        site: Site,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        out: Any,  # noqa: ARG002
        steps: Steps[Any],  # noqa: ARG002
        *,
        silent: bool = False,  # noqa: ARG002
    ) -> Task[Any] | None:
        """Begin the call in place of its steps; return None, and nothing is begun, if it needs these.

        A `silent` call has no result beside `out`.
        """
        return None

    def _begin(self, site: Site, after: Operation | None = None) -> Operation | None:
        """Return the operation of the call, which nothing knows of yet; None if the call needs the general way.

        It is the first stage of a call, or the one `after` another.
        """
        group, stage = self._group, self._stage
        endpoint = group.endpoint
        if group.observe or group.on_stage or endpoint.predicted or (lanes := direct.free_lanes(endpoint)) is None:
            return None
        profiler, tally = endpoint.profiler, None
        if profiler is not None and (tally := profiler.begins_again(site, stage, group.context)) is None:
            return None
        op = endpoint.protocol.next_call(
            lanes, group.context, stage.call, site, granted=stage.granted, align=self._align, after=after
        )
        if op is None:
            return None
        Recorder.begin(endpoint.recorder, op, stage.record)  # `Profiler.begin` would look up the tally again
        op.tally = tally
        return op

    def _over(self, op: Operation) -> None:
        """End the operation, all of whose messages are over."""
        endpoint = self._group.endpoint
        endpoint.protocol.over(op)
        endpoint.recorder.done(op)

    def _rest(self, op: Operation, memory: Memory, end: direct.End) -> Steps[None]:
        """Run the rest of the steps in the engine."""
        self._group.endpoint.adopt(op)
        yield from execute(self._steps, memory, op, **end._asdict())
        self._group.endpoint.end(op)

    def _then(self, op: Operation, steps: Steps[Result]) -> Steps[Result]:
        """Go on with other steps of the call, all of whose messages are over by now."""
        self._group.endpoint.adopt(op)
        self._group.endpoint.end(op)
        return (yield from steps)


class Places(NamedTuple):
    """Parts of the memory of a program's data."""

    source: Array | None = None  # where the value goes before the program runs …
    result: Array | None = None  # … and where the result is afterwards; None: the result is `out` as it is, or None
    room: Array | None = None  # of the shape and dtype of `out`; None: `out` is ignored


class OnProgram(Again):
    """A call that is a program; here the parts that do not depend on where its data are."""

    def __init__(
        self, group: Group, stage: StagePlan, steps: Sequence[Step], program: Program, op: Op | None, room: Array | None
    ) -> None:
        super().__init__(group, stage, steps, 1 if op is None else program.itemsize)
        self._program, self._kept = program, op  # whose identity is in the key
        self._room = None if room is None else (room.shape, room.dtype)  # of `out`; None: it is ignored
        self.run: Callable[[Operation, Any, Array | None], Any]  # returns the result of the operation, or the `Rest`

    def make(self, site: Site, value: Any, out: Any) -> Any:
        if out is not None and not self._takes(out):
            return UNMADE
        op = self._begin(site)
        return UNMADE if op is None else self.run(op, value, out)

    def started(self, site: Site, value: Any, out: Any, steps: Steps[Any], *, silent: bool = False) -> Task[Any] | None:
        if self._program.offers or (out is not None and not self._takes(out)) or (op := self._begin(site)) is None:
            return None
        op.blocks = False
        places, slots, data, out = self._laid(out)
        if places.source is not None:
            places.source[...] = value
        begun = _Begun(self, op, places, slots, data, out, steps, silent)
        endpoint, found = self._group.endpoint, begun.play(0.0)
        if found is None:
            return Predicted(endpoint, begun.rest(), site, begun.play, op)
        if isinstance(found, tuple):
            return ended(endpoint, steps, site, found[0])
        return failed(endpoint, found, site)

    def _laid(self, out: Array | None) -> tuple[Places, Memory, Array | None, Array | None]:
        """Return where the data of a call are: places, slots, memory that the program has not, and the result."""
        raise NotImplementedError

    def _played(
        self, op: Operation, value: Any, out: Array | None, places: Places, slots: Memory, data: Array | None = None
    ) -> Any:
        endpoint = self._group.endpoint
        if places.source is not None:
            places.source[...] = value
        try:
            end = direct.run_flat(endpoint, endpoint.programs.lane, self._program, op, data)
        except BaseException as error:
            return Rest(self._failed(op, error))
        if end is not None:
            return Rest(self._finished(op, slots, end, places, out))
        endpoint.protocol.over(op)  # as `_over`
        endpoint.recorder.done(op)
        return self._result(places, out)

    def _takes(self, out: Any) -> bool:
        """Return whether a result can be put into `out`; else the general way says why not."""
        if self._room is None:
            return True
        alike = type(out) is np.ndarray and (out.shape, out.dtype) == self._room
        return alike and out.flags.c_contiguous and out.flags.writeable

    def _result(self, places: Places, out: Array | None) -> Array | None:
        _, result, room = places
        if room is None:
            return None
        if result is None:
            return out
        if out is None:
            return result.copy()
        out[...] = result
        return out

    def _failed(self, op: Operation, error: BaseException) -> Steps[NoReturn]:
        """Fail as a call does whose operator has raised."""
        self._group.endpoint.adopt(op)
        raise error
        yield

    def _finished(
        self, op: Operation, slots: Memory, end: direct.End, places: Places, out: Array | None
    ) -> Steps[Array | None]:
        """Return the result, when the engine has run the rest of the steps."""
        yield from self._rest(op, slots, end)
        return self._result(places, out)


class OnArray(OnProgram):
    """A call on the program's own memory of an array, or on nothing."""

    def __init__(
        self,
        group: Group,
        stage: StagePlan,
        steps: Sequence[Step],
        program: Program,
        slots: Memory,
        places: Callable[[Array], Places],
        op: Op | None,
    ) -> None:
        assert program.data is not None, "it has memory of its own"
        inside = places(program.data)
        super().__init__(group, stage, steps, program, op, inside.room)
        slots = slots.on(program.data, *program.scratch) if isinstance(slots, ArraySlots) else slots
        self.run = partial(self._played, places=inside, slots=slots)
        self._inside, self._slots = inside, slots

    def _laid(self, out: Array | None) -> tuple[Places, Memory, Array | None, Array | None]:
        return self._inside, self._slots, None, out


class InPlace(OnProgram):
    """A call whose result is all of the data, which are too large to be copied twice: it works on them there."""

    def __init__(
        self,
        group: Group,
        stage: StagePlan,
        steps: Sequence[Step],
        program: Program,
        slots: ArraySlots,
        places: Callable[[Array], Places],
        op: Op | None,
    ) -> None:
        super().__init__(group, stage, steps, program, op, places(slots.data).room)
        self._slots, self._places = slots.on(NONE, *program.scratch), places
        self.run = self._run

    def _run(self, op: Operation, value: Any, out: Array | None) -> Any:
        places, slots, data, whole = self._laid(out)
        return self._played(op, value, whole, places, slots, data)

    def _laid(self, out: Array | None) -> tuple[Places, Memory, Array | None, Array | None]:
        assert self._room is not None, "there is a result"
        whole = np.empty(*self._room) if out is None else out
        data = whole.reshape(-1)
        slots = self._slots.on(data, *self._program.scratch)
        return self._places(data)._replace(result=None), slots, data, whole


class OnItems(OnProgram):
    """A stage that moves items where they are: `run` gets them as the value, and returns nothing."""

    def __init__(
        self, group: Group, stage: StagePlan, steps: Sequence[Step], program: Program, slots: ArraySlots
    ) -> None:
        super().__init__(group, stage, steps, program, None, None)
        self._slots = slots.on(NONE)
        self.run = self._run

    def begin(self, site: Site, after: Operation) -> Operation | None:
        """Return the operation of the stage, as `_begin`."""
        return self._begin(site, after)

    def _run(self, op: Operation, value: Any, out: Array | None) -> Any:
        return self._played(op, None, out, Places(), self._slots.on(value, *self._program.scratch), value)


class _Begun:
    """A call on a program that offers nothing, and goes on when the program waits for it."""

    def __init__(
        self,
        again: OnProgram,
        op: Operation,
        places: Places,
        slots: Memory,
        data: Array | None,
        out: Array | None,
        steps: Steps[Any],
        silent: bool,
    ) -> None:
        self._again, self._op, self._places, self._slots, self._data, self._out = again, op, places, slots, data, out
        self._replaced, self._silent = steps, silent
        self._code = -1  # the place in the program

    def play(self, patience: float) -> tuple[Any] | Steps[Any] | None:
        """Go on, as `engine.predicted.Predicted`."""
        again, op, program = self._again, self._op, self._again._program
        endpoint = again._group.endpoint
        lane = endpoint.programs.lane
        try:
            self._code = direct.run_on(endpoint, lane, program, op, self._data, patience, self._code)
        except BaseException as error:
            self._replaced.close()
            return again._failed(op, error)
        if self._code < 2 * len(program.moves):
            return None
        again._over(op)
        self._replaced.close()
        result = again._result(self._places, self._out)
        return (None if self._silent else result,)

    def rest(self) -> Steps[Any]:
        """Run the rest of the call in the engine."""
        again, op = self._again, self._op
        try:
            end = direct.end_at(again._program, op, self._code, {})
            result = yield from again._finished(op, self._slots, end, self._places, self._out)
            return None if self._silent else result
        finally:
            self._replaced.close()


class Counted(OnArray):
    """A call in which the ranks first exchange their numbers of rows: its program does that, another one the rest."""

    def __init__(self, *program: Any, key: tuple[object, ...], general: Callable[[Any, Any], Steps[Any]]) -> None:
        super().__init__(*program)
        self._key = key  # with the rows of all ranks at its end, it is the key of the second stage
        self._general = general  # returns the steps of that for a value and these rows

    def started(self, *_: Any, **__: Any) -> None:
        """Return None: after its first stage there is another one."""

    def make(self, site: Site, value: Any, out: Any) -> Any:
        if out is not None or (op := self._begin(site)) is None:
            return UNMADE
        counts = self.run(op, len(value), None)
        if type(counts) is Rest:
            return Rest(self._whole(counts.steps, value))
        rows = tuple(counts.tolist())
        again = self._group.again.get((*self._key, rows))
        if again is None or (second := again._begin(site, op)) is None:
            return Rest(self._then(op, self._general(value, rows)))
        return again.run(second, value, None)

    def _whole(self, counted: Steps[Any], value: Any) -> Steps[Any]:
        counts = yield from counted
        return (yield from self._general(value, tuple(counts.tolist())))


def key_of(operation: str, choice: Choice, value: Any, array: Array, *facts: object) -> tuple[object, ...] | None:
    """Return the key of a call with a value, which travels as `array`; None if it is never made again.

    `facts` are all other arguments on which the plan depends: the identity of the operator, then root, then counts.
    """
    again = choice.automatic and array is value and type(value) is np.ndarray
    return (operation, array.dtype, array.shape, *facts) if again else None


def learn(
    group: Group,
    key: tuple[object, ...] | None,
    stage: StagePlan,
    slots: Any,
    places: Callable[[Array], Places],
    op: Op | None = None,
    *,
    steps: Sequence[Step] | None = None,
    kind: Callable[..., OnProgram] = OnArray,
) -> None:
    """Keep a call that has just been made twice, under `key` if that is not None, if it can be made again.

    `places` are those in the program's memory of the data, which has one dimension. `steps` are others than the
    schedule's, and do the same.
    """
    programs = group.endpoint.programs
    if programs is None or key is None or key in group.again or is_first(group, key):
        return
    schedule, todo = stage.prepared(group)
    todo = steps or todo
    own = not isinstance(slots, ArraySlots) or slots.data.nbytes <= OWN or not _is_whole(places, slots.data)
    program = None if schedule.concurrent else programs.find(todo, slots, granted=stage.granted, own=own)
    if program is None:
        keep(group, key, None)
        return
    keep(group, key, (kind if own else InPlace)(group, stage, todo, program, slots, places, op))
    programs.used(group.again, key)


def _is_whole(places: Callable[[Array], Places], data: Array) -> bool:
    """Return whether the result of a call is all of its data."""
    result = places(data).result
    return result is not None and result.size == data.size


def is_first(group: Group, key: object) -> bool:
    """Return whether this is the first call of a key: most of those whose shapes change are made once."""
    if key in group.once:
        return False
    if len(group.once) >= PLANS_KEPT:
        group.once.clear()
    group.once.add(key)
    return True


def keep(group: Group, key: object, again: Again | None) -> None:
    """Keep a call under a key; None: it cannot be made again."""
    if len(group.again) >= KEPT:
        group.again.clear()
    group.again[key] = again
