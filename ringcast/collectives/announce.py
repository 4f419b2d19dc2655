"""Announcement of a broadcast: a small record by which the root describes the data that follow."""

from __future__ import annotations

from typing import Any

from ringcast.collectives.stage import Group, StagePlan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.objects import pack_record, unpack_record
from ringcast.engine.pieces import FrameSlots
from ringcast.transports.base import Frame


def announce(group: Group, stage: StagePlan, record: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Broadcast a small record from the root of `stage`, and return it."""
    if group.rank == stage.call.root:
        yield from announce_packed(group, stage, pack_record(record))
        return record
    return unpack_record((yield from announce_packed(group, stage, None)))


def announce_packed(group: Group, stage: StagePlan, record: Frame | None) -> Steps[memoryview]:
    """Broadcast a record as bytes, and return it; other ranks than the root have none."""
    slots: FrameSlots = yield from run_stage(group, stage, lambda _: FrameSlots(record))
    return slots.frame
