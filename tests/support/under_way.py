"""The tables of a protocol for messages under way: they must be empty when nothing is."""

from __future__ import annotations

from operator import attrgetter

from ringcast.protocol.machine import Protocol

TRANSFERS = (
    "_sending.transfers",
    "_sending.promised",
    "_receiving.transfers",
    "_receiving.moving",
    "_receiving.withheld",
    "_budget.rounds",
    "_budget.messages",
)


def holding(protocol: Protocol, *more: str) -> list[str]:
    """Return the names of those of these tables, and of `more`, that are not empty."""
    return [name for name in (*TRANSFERS, *more) if attrgetter(name)(protocol)]
