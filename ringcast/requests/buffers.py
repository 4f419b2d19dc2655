"""Memory that a call under way reads or writes: no other call may write it, nor read what that one writes."""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate

from ringcast.collectives.memory import Use, conflict, uses_of
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.open_call import OpenCall
from ringcast.errors import UsageError
from ringcast.wire.call import in_words


def check_buffers(endpoint: Endpoint, call: OpenCall) -> None:
    """Check that a call, which has not begun, leaves the memory of those under way alone.

    Raises:
        UsageError: it does not.
    """
    uses = _uses(call)
    if not uses:
        return
    with endpoint.gate:  # another thread would end a call between the look at its state and that at its arguments
        for other in [*endpoint.requests.values()]:  # a copy: the garbage collector may drop requests
            if getgeneratorstate(other.steps) != GEN_CLOSED:  # else it has ended, whether somebody has waited or not
                _check_other(endpoint, call, uses, other)


def _check_other(endpoint: Endpoint, call: OpenCall, uses: tuple[Use, ...], other: OpenCall) -> None:
    for theirs in _uses(other):
        for mine in uses:
            if conflict(mine, theirs):
                named, busy = in_words(call.operation, call.site), in_words(other.operation, other.site)
                raise UsageError(
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
