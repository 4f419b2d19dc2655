"""Begin to profile a rank."""

from __future__ import annotations

from collections.abc import Callable

from ringcast.collectives.stage import Group
from ringcast.engine.profiler import Profiler
from ringcast.profiling.part import Part, part_of


def attach(group: Group, transport: str, save: Callable[[Part], None] | None = None) -> Profiler:
    """Let a rank be profiled from now on; `save` gets its part, again and again, and when the rank leaves."""
    endpoint = group.endpoint
    keep = None if save is None else lambda profiler: save(part_of(endpoint, profiler, group.network, transport))
    endpoint.recorder = endpoint.profiler = Profiler(endpoint.recorder, endpoint.size, endpoint.transport.clock, keep)
    return endpoint.profiler  # type: ignore[no-any-return]


def detach(group: Group) -> Profiler:
    """End the profile of a rank, whose calls are only recorded from now on; return it."""
    endpoint = group.endpoint
    profiler: Profiler = endpoint.profiler
    endpoint.recorder, endpoint.profiler = profiler.plain(), None
    return profiler
