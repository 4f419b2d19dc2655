"""Check that calls under way share no memory that one of them writes."""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate

from ringcast.collectives.memory import Use, conflict, uses_of
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.open_call import OpenCall
from ringcast.errors import UsageError
from ringcast.requests.memory_in_use import MemoryInUse
from ringcast.wire.call import in_words


def check_buffers(endpoint: Endpoint, call: OpenCall, *, stays: bool = False) -> None:
    """Check that a new call writes no memory of a call under way, and reads none that such a call writes.

    Args:
        endpoint: the endpoint of both calls.
        call: the new call, which has not begun.
        stays: whether the call stays under way, and is filed for the checks of later calls.

    Raises:
        UsageError: the call conflicts with another one.
    """
    uses = _uses(call)
    if not uses:
        return
    with endpoint.gate:  # else another thread could end a call after we looked at its state, before its arguments
        in_use = _in_use(endpoint)
        for mine in uses:
            for other, theirs in in_use.near(mine):
                if _under_way(other) and conflict(mine, theirs):
                    raise _refused(endpoint, call, mine, other, theirs)
        if stays:
            in_use.add(call, uses)


def _in_use(endpoint: Endpoint) -> MemoryInUse:
    """Return the memory in use by all requests; adds the first one, which was filed nowhere while it was alone."""
    in_use: MemoryInUse | None = endpoint.memory_in_use
    if in_use is None or in_use.crowded:
        calls = [*endpoint.requests.values()]  # a copy: the garbage collector may drop requests
        endpoint.memory_in_use = in_use = MemoryInUse((call, _uses(call)) for call in calls if _under_way(call))
    first = next(iter(endpoint.requests.values()), None)
    if first is not None and not first.filed and _under_way(first):
        in_use.add(first, _uses(first))
    return in_use


def _under_way(call: OpenCall) -> bool:
    """Return whether a call has not ended, whether the program has waited for it or not."""
    return getgeneratorstate(call.steps) != GEN_CLOSED


def _refused(endpoint: Endpoint, call: OpenCall, mine: Use, other: OpenCall, theirs: Use) -> UsageError:
    named, busy = in_words(call.operation, call.site), in_words(other.operation, other.site)
    return UsageError(
        f"rank {endpoint.rank}: {named} {_verb(mine)} memory that {busy}, which is under way, "
        f"{_verb(theirs)}; wait for that one before, or use other memory"
    )


def _uses(call: OpenCall) -> tuple[Use, ...]:
    if call.uses is None:
        call.uses = uses_of(call.steps)
    uses: tuple[Use, ...] = call.uses
    return uses


def _verb(use: Use) -> str:
    return "writes" if use.writes else "reads"
