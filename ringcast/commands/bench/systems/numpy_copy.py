"""Run a copy by numpy within one rank's memory as a system under test: the least cost of a message on one host.

numpy_copy.py NAME SOCKET, with RANK and WORLD_SIZE. Its only case is `bandwidth`, where rank 1 copies each message
once; no data passes between the ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ringcast.commands.bench.systems.harness import serve
    from ringcast.commands.bench.systems.workload import Workload, pattern
else:  # a script in an environment without ringcast: its own folder is on the path
    from harness import serve
    from workload import Workload, pattern


class CopySystem:
    """One process that does not wait for others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = f"numpy {np.__version__}, copyto within one process"
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def barrier(self) -> None:
        """Return at once: no rank waits for another."""

    def prepare(self, case: Mapping[str, Any]) -> Callable[[], object] | None:
        if case["collective"] != "bandwidth":
            return None
        self._work = Workload(case, self.rank)
        self._source = pattern(0, self._work.nbytes, np.uint8)
        return self._copy

    def check(self) -> str:
        self._work.clear()
        self._copy()
        return self._work.verdict()

    def chosen(self) -> dict[str, Any]:
        return {}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        raise NotImplementedError("a copy has no events")

    def _copy(self) -> None:
        if self.rank == 1:
            for _ in range(self._work.messages):
                np.copyto(self._work.out, self._source)


if __name__ == "__main__":
    serve(CopySystem(sys.argv[1]), sys.argv[2])
