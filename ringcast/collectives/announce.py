"""Announcement of a broadcast: a small record by which the root describes the data that follow."""

from __future__ import annotations

from functools import partial
from typing import Any

from ringcast.collectives.stage import Group, StagePlan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.objects import Codec, pack_record, unpack_record
from ringcast.engine.slots import ObjectSlots


def announce(group: Group, stage: StagePlan, record: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Broadcast a small record from the root of `stage`, and return it."""
    slots: ObjectSlots = yield from run_stage(group, stage, partial(ObjectSlots, [record], codec=_RECORD))
    told: dict[str, Any] = slots.value(0)
    return told


def _encode(record: dict[str, Any]) -> list[memoryview]:
    return [memoryview(pack_record(record))]


def _decode(frames: list[memoryview]) -> dict[str, Any]:
    return unpack_record(frames[0])


_RECORD: Codec = _encode, _decode
