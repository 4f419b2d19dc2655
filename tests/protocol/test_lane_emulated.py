"""The tests of the compiled lane on aarch64, which qemu-user emulates.

Of the builds these are the compiled one and, as its peer, the one in Python. qemu lacks `process_vm_readv`, by which
offers are fetched: `support/aarch64/process_vm_readv.c` stands in for it, for memory of the same process.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import emulated, needs
from support.lane_trees import build, run, run_tests

pytestmark = pytest.mark.long

PROBE = """
import os, platform
from ringcast.procs.libc import ForeignMemory, address_of
from ringcast.protocol.compiled import build

there, here = memoryview(bytearray(b"read")), memoryview(bytearray(4))
ForeignMemory(os.getpid()).read(address_of(there), here)
print(platform.machine(), build(), bytes(here).decode())
"""


def test_the_compiled_lane_passes_its_tests_on_aarch64(tmp_path: Path) -> None:
    needs.compiler()
    python = [str(needs.aarch64())]
    build(tmp_path, **emulated.compiling())
    there = {"PYTHONPATH": f"{emulated.SITE}:{tmp_path}", "CI": "1"}  # where something is missing tests fail
    assert run(tmp_path, python, "-c", PROBE, **there) == "aarch64 compiled read\n"
    output = run_tests(tmp_path, python, "-k", "compiled or not python", **there)
    assert re.search(r"\b[1-9]\d+ passed, \d+ deselected in ", output), output
