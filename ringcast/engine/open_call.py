"""A call that was begun, and for which the program has not waited."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ringcast.wire.call import Site


class OpenCall:
    """The facts of a call from its begin until the program has its result.

    Attributes:
        operation: its name.
        site: file and line of the program that made it.
        steps: its generator; a persistent call has one for each start.
        context: its communicator's number.
        uses: how it uses the program's arrays, when that has been looked at.
        filed: whether these were put to the memory in use.
    """

    __slots__ = ("__weakref__", "context", "filed", "operation", "site", "steps", "uses")

    def __init__(self, operation: str, site: Site, steps: Generator[Any, None, Any], context: int) -> None:
        self.operation, self.site, self.steps, self.context = operation, site, steps, context
        self.uses: Any = None
        self.filed = False
