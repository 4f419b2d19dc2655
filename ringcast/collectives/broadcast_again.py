"""Broadcasts that are made again: the announcement, and the data of large arrays, go by prediction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ringcast.collectives.again import UNMADE, Again, OnItems, Rest, is_first
from ringcast.collectives.announced import (
    Arriving,
    announced,
    announcement,
    buffer_of,
    chosen,
    description_of,
    fits,
    held,
    move,
    received,
    stored,
)
from ringcast.collectives.stage import AUTOMATIC, Data, Group, StagePlan, plan
from ringcast.engine import direct
from ringcast.engine.datatypes import Described, described
from ringcast.engine.execute import Steps
from ringcast.engine.objects import pack_record, unpack_record
from ringcast.engine.pieces import FrameSlots
from ringcast.engine.slots import ArraySlots
from ringcast.ops import Array
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Site


class BroadcastAgain(Again):
    """A broadcast by the root of an earlier one: of any value, as its announcement describes that."""

    def __init__(self, group: Group, describe: StagePlan, root: int) -> None:
        super().__init__(group, describe, describe.prepared(group)[1])
        self._root = root
        self._descriptions: dict[int, tuple[bytes, Described]] = {}  # of arrays that came, by the announcement's length
        self._large: dict[object, _Large] = {}  # arrays that are not in it: by description, elsewhere by announcement

    def make(self, site: Site, value: Any, out: Any) -> Any:  # noqa: ARG002 (the buffer is the value)
        group, outgoing, buffer = self._group, None, None
        try:
            if group.rank == self._root:
                outgoing = announcement(group, self._stage, value, self._root, AUTOMATIC)
            elif value is not None:
                buffer = buffer_of(group, value)
        except Exception:  # the general way raises it
            return UNMADE
        if outgoing is not None and not isinstance(outgoing, bytes):
            return self._sent_in_two(site, value, outgoing)
        if (op := self._begin(site)) is None:
            return UNMADE
        slots = FrameSlots(outgoing)
        end = direct.run(group.endpoint, group.endpoint.programs, self._steps, slots, op)
        if end is not None:
            return Rest(self._finished(op, slots, end, value, buffer))
        self._over(op)
        return value if outgoing is not None else self._opened(site, op, slots.frame, buffer)

    def _finished(
        self, op: Operation, slots: FrameSlots, end: direct.End, value: Any, buffer: Array | None
    ) -> Steps[Any]:
        """Return the value, when the engine has run the rest of the steps."""
        yield from self._rest(op, slots, end)
        if self._group.rank == self._root:
            return value
        return (yield from received(self._group, unpack_record(slots.frame), buffer, self._root))

    def _sent_in_two(self, site: Site, value: Any, general: Steps[None]) -> Any:
        """Announce a value, and send it in a second stage; `general` does both too."""
        group, known = self._group, described(value)
        large = None if known is None else self._large.get(known[0]) or self._made_large(*known)
        if known is None or large is None or large.program is None:
            return Rest(_returning(value, general))
        if (op := self._begin(site)) is None:
            return UNMADE
        slots = FrameSlots(large.head)
        end = direct.run(group.endpoint, group.endpoint.programs, self._steps, slots, op)
        if end is not None:
            return Rest(self._sent_by_engine(op, slots, end, value, known[1], large))
        self._over(op)
        return self._moved(site, op, large, known[1], lambda: value)

    def _made_large(self, description: Described, data: Array) -> _Large | None:
        """Return how an array of this description is sent; None the first time."""
        if is_first(self._group, ("bcast", self._root, description)):
            return None
        stage = plan(self._group, "bcast", AUTOMATIC, Data.of(data), root=self._root)
        head = pack_record(description.record | chosen(stage))
        return self._keep_large(description, _Large(head, description, stage, _second(self._group, stage, data)))

    def _keep_large(self, key: object, large: _Large) -> _Large:
        if len(self._large) >= KEPT:
            self._large.clear()
        self._large[key] = large
        self._group.endpoint.programs.used(self._large, key)
        return large

    def _sent_by_engine(
        self, op: Operation, slots: FrameSlots, end: direct.End, value: Any, data: Array, large: _Large
    ) -> Steps[Any]:
        """Return the value, when the engine has sent the rest of the announcement, and the data."""
        yield from self._rest(op, slots, end)
        yield from move(self._group, data, large.stage)
        return value

    def _moved(self, site: Site, op: Operation, large: _Large, data: Array, result: Callable[[], Any]) -> Any:
        """Run the second stage of a call on the items; return the result that it has then, or the `Rest`."""
        assert large.program is not None, "there is one"
        second = large.program.begin(site, op)
        if second is None:
            return Rest(_resulting(self._then(op, move(self._group, data, large.stage)), result))
        rest = large.program.run(second, data, None)
        return Rest(_resulting(rest.steps, result)) if type(rest) is Rest else result()

    def _opened(self, site: Site, op: Operation, frame: memoryview, buffer: Array | None) -> Any:
        """Return the value that was announced, or the `Rest`, if that is an error or the data are to come."""
        known = self._descriptions.get(len(frame))
        if known is not None and known[0] == frame[: len(known[0])] and fits(buffer, known[1]):
            return stored(known[1], frame[len(known[0]) :], buffer)
        large = self._large.get(bytes(frame)) if self._large else None
        if large is not None and large.program is not None and fits(buffer, large.description):
            arriving = Arriving(large.description, buffer)
            data = arriving.memory()
            return self._moved(site, op, large, data, lambda: arriving.value(data))
        try:
            record = unpack_record(frame)
            if "data" in record:
                value = held(self._group, record, buffer)
                self._keep(record, frame)
                return value
        except BaseException as error:
            return Rest(self._then(op, _raising(error)))
        if record["kind"] not in ("object", "refused"):
            with suppress(Exception):  # the general way raises it
                self._expect(record, bytes(frame))
        return Rest(self._then(op, received(self._group, record, buffer, self._root)))

    def _expect(self, record: dict[str, Any], frame: bytes) -> None:
        """Keep how an array arrives whose announcement has come twice, for the next time."""
        if is_first(self._group, ("bcast", self._root, frame)):
            return
        description = description_of(record)
        data = np.empty(prod(description.shape), description.dtype)
        stage = plan(self._group, "bcast", announced(record), Data.of(data), root=self._root)
        self._keep_large(frame, _Large(frame, description, stage, _second(self._group, stage, data)))

    def _keep(self, record: dict[str, Any], frame: memoryview) -> None:
        """Keep the description of an array that was announced, with the bytes before its items."""
        if record["kind"] != "object":
            if len(self._descriptions) >= KEPT:
                self._descriptions.clear()
            head = bytes(frame[: len(frame) - len(record["data"])])
            self._descriptions[len(frame)] = head, description_of(record)


KEPT = 64  # descriptions of arrays that came from a root lately


class _Large(NamedTuple):
    """An array that is not in its announcement: that is `head`."""

    head: bytes
    description: Described
    stage: StagePlan  # which moves it
    program: OnItems | None  # that does so; None: the engine does


def _second(group: Group, stage: StagePlan, data: Array) -> OnItems | None:
    """Return the program of a stage that moves these items, if there is one that does so where they are."""
    programs, (schedule, todo) = group.endpoint.programs, stage.prepared(group)
    if schedule.concurrent or not programs.offers:
        return None
    slots = ArraySlots(data, schedule, (data.size,))
    program = programs.find(todo, slots, granted=stage.granted, own=False)
    return None if program is None else OnItems(group, stage, todo, program, slots)


def _resulting(steps: Steps[Any], result: Callable[[], Any]) -> Steps[Any]:
    yield from steps
    return result()


def _returning(value: Any, steps: Steps[Any]) -> Steps[Any]:
    yield from steps
    return value


def _raising(error: BaseException) -> Steps[Any]:
    raise error
    yield
