"""Describe all algorithms, one file per family, list them in a table, and choose among them by the cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast._util.on_demand import on_demand

__all__ = [
    "ALGORITHMS",
    "FAMILIES",
    "Algorithm",
    "CallFacts",
    "Params",
    "build",
    "choose",
    "find",
    "granted",
    "names",
    "table",
    "validate",
]

if TYPE_CHECKING:
    from ringcast.algorithms.algorithm import Algorithm
    from ringcast.algorithms.cost import choose, granted
    from ringcast.algorithms.params import CallFacts, Params
    from ringcast.algorithms.registry import ALGORITHMS, FAMILIES, build, find, names, table, validate
else:
    __getattr__ = on_demand(  # no job waits for the table until it chooses an algorithm
        __name__,
        {
            "ringcast.algorithms.algorithm": ("Algorithm",),
            "ringcast.algorithms.cost": ("choose", "granted"),
            "ringcast.algorithms.params": ("CallFacts", "Params"),
            "ringcast.algorithms.registry": ("ALGORITHMS", "FAMILIES", "build", "find", "names", "table", "validate"),
        },
    )
