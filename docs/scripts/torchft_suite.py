"""Run torchft's tests of process groups on ringcast: the table of torch.md.

pip install torchft parameterized
python docs/scripts/torchft_suite.py

The tests are those of the installed torchft (torchft/process_group_test.py): three ranks, which are threads. They make
process groups by a backend's name, here always ringcast's, and know the words of Gloo's and NCCL's errors, to which
ringcast's are added.
"""

from __future__ import annotations

import sys
import unittest
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed as dist
from torchft import process_group_test as theirs  # type: ignore[import-untyped]
from torchft.process_group import ProcessGroupWrapper  # type: ignore[import-untyped]

import ringcast.torch

WORDS = "rank 2 finished"


class ProcessGroupRingcast(ProcessGroupWrapper):  # type: ignore[misc]  # torchft's types are skipped
    """A group of torchft that is made again and again; each time its ranks meet through a store."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        return ringcast.torch.process_group(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:
        return "torchft-ringcast"

    def shutdown(self) -> None:
        if self._pg is not None:
            self._pg.shutdown()
        super().shutdown()


class OnRingcast(theirs.MultiPgBaseTest):  # type: ignore[misc]
    """All collectives of torchft's table, and all with a rank that ends before the others."""

    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, _: str) -> ProcessGroupRingcast:
        return ProcessGroupRingcast(timeout=timedelta(seconds=30))

    def assertRaisesRegex(self, error: Any, regex: Any, *args: Any) -> AbstractContextManager[Any]:
        return super().assertRaisesRegex(error, f"{regex}|{WORDS}", *args)  # noqa: PT027

    def test_apis(self) -> None:
        """Make each call in a group of one rank, and train by DDP, as `test_gloo_apis` does."""
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        group = ProcessGroupRingcast()
        group.configure(f"localhost:{store.port}/alone", "0", 0, 1)
        assert group.size() == 1
        theirs._test_pg(group, torch.tensor([2]))
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 4), process_group=group)
        model(torch.rand(2, 3))
        group.shutdown()


def add(collective: str) -> None:
    """Add the two tests of a collective, in torchft's order: in the latter ones the last rank leaves the group."""
    name = collective.replace("/", "_")
    setattr(OnRingcast, f"test_collective_{name}", lambda self: self._run_parallel(collective))
    setattr(OnRingcast, f"test_collective_with_resiliency_{name}", lambda self: self._run_with_resiliency(collective))


for collective in theirs._ALL_COLLECTIVES:
    add(collective)

if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(OnRingcast)
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    failed = len(result.failures) + len(result.errors)
    versions = f"torchft {version('torchft')}, torch {torch.__version__}"
    print(f"{versions}: {result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    sys.exit(bool(failed))
