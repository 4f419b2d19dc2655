"""Measure how many bytes this process can still get: by the machine's memory, and by the limits of its control groups.

A process that takes more is killed: an allocation of shared memory beyond these limits is no error of the call.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringcast.procs.portable import content

_MACHINE, _GROUPS = "/proc/meminfo", "/proc/self/cgroup"
_ROOTS = {"0::": "/sys/fs/cgroup", "memory": "/sys/fs/cgroup/memory"}  # of version 2, and of version 1
_FILES = {"0::": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
_CACHED = {"0::": ("active_file", "inactive_file"), "memory": ("total_active_file", "total_inactive_file")}


def free_memory() -> int | None:
    """Return the number of bytes that can still be had, caches and swap among them; None where that is not known."""
    return min(_limits(), default=None)


def _limits() -> Iterator[int]:
    machine = _numbers(_MACHINE)
    if b"MemAvailable" in machine:
        yield (machine[b"MemAvailable"] + machine.get(b"SwapFree", 0)) << 10
    for kind, path in _groups():
        parts = [part for part in path.split("/") if part]
        for length in range(len(parts) + 1):
            yield from _left("/".join((_ROOTS[kind], *parts[:length])), kind)


def _groups() -> Iterator[tuple[str, str]]:
    """Yield kind and path of the control groups that limit the memory of this process."""
    for line in _text(_GROUPS).decode(errors="replace").splitlines():
        if line.startswith("0::"):
            yield "0::", line[3:]
        elif "memory" in line.split(":")[1].split(","):
            yield "memory", line.split(":", 2)[2]


def _left(folder: str, kind: str) -> Iterator[int]:
    """Yield the bytes that are left to a control group, if it has a limit; pages of files are given back if needed."""
    limit, usage = (_text(f"{folder}/{name}").strip() for name in _FILES[kind])
    if limit.isdigit() and usage.isdigit():
        seen = _numbers(f"{folder}/memory.stat")
        yield max(0, int(limit) - int(usage) + sum(seen.get(name.encode(), 0) for name in _CACHED[kind]))


def _numbers(path: str) -> dict[bytes, int]:
    """Return the numbers in a file by the words before them; none if it cannot be read."""
    rows = (line.replace(b":", b"").split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _text(path: str) -> bytes:
    try:
        return content(path)
    except OSError:
        return b""
