"""PyTorch's own tests of its process groups, played on ringcast: `python -m support.torch_suite` in tests/.

The tests are those of the installed torch (torch.testing._internal.distributed.distributed_test), each in processes of
its own. Prints a line for each test, and the sums; `--json FILE` writes the outcomes, other arguments are names
of tests.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

os.environ.setdefault("BACKEND", "ringcast")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="torch-suite-"))
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")

import torch  # after the variables, which its tests read
from torch.testing._internal.common_distributed import DistTestCases

DistTestCases.backend_feature["ddp"].add("ringcast")  # read when the tests are defined
DistTestCases.backend_feature["subgroup"].add("ringcast")

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

import ringcast.torch  # noqa: E402, F401 (registers the backend)


class OnRingcast(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc]
    """The tests, which forked processes play."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)  # which imports torch once


class Outcomes(unittest.TextTestResult):
    """Keeps the outcome of each test: passed, or skipped or failed with the reason."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.by_test: dict[str, tuple[str, str]] = {}
        self._begun = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        self._begun = time.monotonic()
        super().startTest(test)

    def _note(self, test: unittest.TestCase, outcome: str, reason: str = "") -> None:
        name = test.id().rpartition(".")[2]
        self.by_test[name] = outcome, reason
        print(f"{outcome} {name} {time.monotonic() - self._begun:.1f} s {reason[-600:]}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


def names() -> list[str]:
    """Return the tests that torch does not skip for every backend like this one."""
    found = [name for name in dir(OnRingcast) if name.startswith("test_")]
    return [name for name in found if not getattr(getattr(OnRingcast, name), "__unittest_skip__", False)]


def play(wanted: list[str]) -> dict[str, tuple[str, str]]:
    """Play tests, and return their outcomes."""
    suite = unittest.TestSuite(OnRingcast(name) for name in wanted)
    runner = unittest.TextTestRunner(stream=open(os.devnull, "w"), resultclass=Outcomes)  # noqa: SIM115 (until the end)
    return runner.run(suite).by_test  # type: ignore[attr-defined, no-any-return]


if __name__ == "__main__":
    arguments, path = sys.argv[1:], None
    if "--json" in arguments:
        place = arguments.index("--json")
        path = arguments[place + 1]
        del arguments[place : place + 2]
    outcomes = play(arguments or names())
    kinds = [outcome for outcome, _ in outcomes.values()]
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))})
    if path:
        Path(path).write_text(json.dumps(outcomes, indent=1))
    sys.exit("failed" in kinds)
