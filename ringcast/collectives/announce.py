"""Small records that one rank tells all others: what it is about to send."""

from __future__ import annotations

from typing import Any

from ringcast.collectives.stage import Group, StagePlan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.objects import pack_record, unpack_record
from ringcast.engine.slots import ObjectSlots


def announce(group: Group, stage: StagePlan, record: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Broadcast a small record from the root of `stage`."""
    codec = pack_record, unpack_record
    slots = yield from run_stage(group, stage, lambda s: ObjectSlots([record], s, codec))
    announced: dict[str, Any] = slots.values[0]
    return announced
