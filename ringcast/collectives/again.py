"""Collectives on small arrays that a rank has made before: all is known but the values.

A program repeats its calls: same method, dtype, shape and operator. The second time there is nothing to check or to
plan, and where the messages come as predicted, nothing to begin or to wait for: the values are copied into the
program's memory, the program runs, and the result is copied out.
"""

from __future__ import annotations

from typing import Any

from ringcast.collectives.stage import Group, StagePlan
from ringcast.engine import direct
from ringcast.engine.execute import Steps, execute
from ringcast.engine.program import Program
from ringcast.engine.slots import ArraySlots, Memory
from ringcast.ops import Array, Op
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Site

KEPT = 64  # calls of a communicator


class Again:
    """A call that was made before."""

    def __init__(self, group: Group, stage: StagePlan, program: Program, slots: Memory, op: Op | None) -> None:
        self._group, self._stage, self._program, self._slots = group, stage, program, slots
        self._kept = op  # whose identity is in the key
        self._align = 1 if op is None else program.views[0].itemsize
        self.source: Array | None = None  # where the value goes before the program runs …
        self.result: Array | None = None  # … and where the result is afterwards

    @property
    def data(self) -> Array:
        """The program's memory of the data, in one dimension."""
        return self._program.views[0]

    def begin(self, site: Site) -> Operation | None:
        """Return the operation of the call, which nothing knows of yet; None if the call needs the general way."""
        group, stage = self._group, self._stage
        endpoint = group.endpoint
        if endpoint.closed or endpoint.torn or endpoint.dropped or group.observe or group.on_stage:
            return None
        if (
            op := endpoint.protocol.next_call(group.context, stage.call, site, granted=stage.granted, align=self._align)
        ) is None:
            return None
        if direct.predictable(endpoint, op) is None:
            return None
        endpoint.recorder.begin(op, stage.record)
        return op

    def run(self, op: Operation) -> Steps[None] | None:
        """Run the program; return the steps that the engine has to run, if there are any left."""
        endpoint = self._group.endpoint
        try:
            end = direct.run_flat(endpoint, endpoint.programs.lane, self._program, op)
        except BaseException as error:
            return self._failed(op, error)
        if end.before(len(self._program.moves)):
            return self._rest(op, end)
        endpoint.protocol.over(op)
        endpoint.recorder.done(op)
        return None

    def _failed(self, op: Operation, error: BaseException) -> Steps[None]:
        """Fail as a call does whose operator has raised."""
        self._group.endpoint.adopt(op)
        raise error
        yield

    def _rest(self, op: Operation, end: direct.End) -> Steps[None]:
        """Run the rest of the steps on the program's memory."""
        self._group.endpoint.adopt(op)
        _, todo = self._stage.prepared(self._group)
        yield from execute(todo, self._slots, op, **end._asdict())
        self._group.endpoint.end(op)


def learn(group: Group, key: object, stage: StagePlan, slots: Any, op: Op | None = None) -> Again | None:
    """Keep a call that has just been made, under `key`, if it can be made again; return it then."""
    programs = group.endpoint.programs
    if programs is None:
        return None
    if len(group.again) >= KEPT:
        group.again.clear()
    schedule, todo = stage.prepared(group)
    group.again[key] = None
    if schedule.concurrent or (program := programs.find(todo, slots, granted=stage.granted)) is None:
        return None
    memory = slots if not isinstance(slots, ArraySlots) else slots.on(*program.views[:-1])
    group.again[key] = again = Again(group, stage, program, memory, op)
    return again
