"""Begin and end the profile of a rank, or of a block in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ringcast.collectives.stage import Group
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.profiler import Profiler
from ringcast.errors import UsageError
from ringcast.profiling.block import since
from ringcast.profiling.part import Part, part_of


def attach(group: Group, save: Callable[[Part], None] | None = None) -> None:
    """Let a rank be profiled from now on; `save` gets its part, again and again, and when the rank leaves.

    Raises:
        UsageError: it is profiled already.
    """
    endpoint = group.endpoint
    keep = None if save is None else lambda profiler: save(part_of(endpoint, profiler, group.network))
    with _gate(endpoint):
        if endpoint.profiler is not None:
            raise UsageError(f"rank {endpoint.rank}: a profile is under way already: end that one before")
        endpoint.profiler = Profiler(endpoint.recorder, endpoint.size, endpoint.transport.clock, keep)
        endpoint.recorder = endpoint.profiler


def detach(group: Group) -> Part:
    """End the profile of a rank, and return its part."""
    endpoint = group.endpoint
    with _gate(endpoint):
        profiler: Profiler = endpoint.profiler
        endpoint.recorder, endpoint.profiler = profiler.plain(), None
        return part_of(endpoint, profiler, group.network)


def begin_block(group: Group) -> Callable[[], Part]:
    """Begin the profile of a block; return a function that ends it and returns its part.

    The profile of a whole job goes on beside it.

    Raises:
        UsageError: a block is under way already.
    """
    endpoint = group.endpoint
    if endpoint.profiler is not None and endpoint.profiler.has_block:
        raise UsageError(f"rank {endpoint.rank}: a profile of another block is under way already: end that one before")
    of_job = endpoint.profiler is not None
    if not of_job:
        attach(group)
    profiler: Profiler = endpoint.profiler
    profiler.has_block = True
    before = _so_far(group, profiler) if of_job else None

    def end() -> Part:
        profiler.has_block = False
        if before is None:
            return detach(group)
        with _gate(endpoint):
            return since(before, part_of(endpoint, profiler, group.network))

    return end


def _so_far(group: Group, profiler: Profiler) -> Part:
    """Return the part of a rank, which ends when it is made."""
    endpoint = group.endpoint
    with _gate(endpoint):
        part, now = part_of(endpoint, profiler, group.network), endpoint.transport.clock()
        return part | {"end": now, "outside": profiler.outside_until(now)}


def _gate(endpoint: Endpoint) -> AbstractContextManager[object]:
    """Keep out other threads, as the one that makes progress: none is left when the rank has left."""
    return nullcontext() if endpoint.closed else endpoint.gate
