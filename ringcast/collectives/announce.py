"""Announcement of a broadcast: a small record by which the root describes the data that follow."""

from __future__ import annotations

from functools import partial
from typing import Any

from ringcast.collectives.stage import Group, StagePlan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.objects import pack_record, unpack_record
from ringcast.engine.slots import ObjectSlots


def announce(group: Group, stage: StagePlan, record: dict[str, Any]) -> Steps[ObjectSlots]:
    """Broadcast a small record from the root of `stage`; return the slots, with the record as the only value."""
    return run_stage(group, stage, partial(ObjectSlots, [record], codec=(pack_record, unpack_record)))
