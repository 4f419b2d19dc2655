"""The memory that is left is the least of what the machine has and what the limits of all control groups leave."""

from __future__ import annotations

import pytest

from ringcast.procs import free_memory as module
from ringcast.procs.free_memory import free_memory

MACHINE = b"MemTotal: 900 kB\nMemAvailable:  500 kB\nSwapFree: 100 kB\n"
V2, V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"


def group(folder: str, limit: bytes, usage: int, cached: int, version: int = 2) -> dict[str, bytes]:
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    total = b"" if version == 2 else b"total_"
    stat = b"anon 5\n%bactive_file %d\n%binactive_file %d\n" % (total, cached // 2, total, cached - cached // 2)
    return {f"{folder}/{names[0]}": limit, f"{folder}/{names[1]}": b"%d\n" % usage, f"{folder}/memory.stat": stat}


CASES: dict[str, tuple[dict[str, bytes], int | None]] = {
    "nothing is known": ({}, None),
    "no groups": ({"/proc/meminfo": MACHINE}, 600 << 10),
    "no limit": (
        {"/proc/meminfo": MACHINE, "/proc/self/cgroup": b"0::/a\n", **group(f"{V2}/a", b"max\n", 1, 1)},
        600 << 10,
    ),
    "a limit": (
        {"/proc/meminfo": MACHINE, "/proc/self/cgroup": b"0::/a\n", **group(f"{V2}/a", b"1000\n", 700, 30)},
        330,
    ),
    "of a parent": ({"/proc/self/cgroup": b"0::/a/b\n", **group(f"{V2}/a", b"1000\n", 700, 0)}, 300),
    "of the root of a container": ({"/proc/self/cgroup": b"0::/\n", **group(V2, b"1000\n", 100, 0)}, 900),
    "more is used": ({"/proc/self/cgroup": b"0::/a\n", **group(f"{V2}/a", b"1000\n", 1500, 0)}, 0),
    "version 1": (
        {"/proc/self/cgroup": b"5:cpu,memory:/x\n1:cpu:/y\n0::/\n", **group(f"{V1}/x", b"4000", 1000, 7, version=1)},
        3007,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_least_of_all_limits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, expected = CASES[case]

    def content(path: str) -> bytes:
        if path in files:
            return files[path]
        raise FileNotFoundError(path)

    monkeypatch.setattr(module, "content", content)
    assert free_memory() == expected


def test_this_machine_has_some() -> None:
    free = free_memory()
    assert free is None or free > 0
