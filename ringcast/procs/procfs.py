"""Measure the activity of a rank's processes by /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping

from ringcast.procs.liveness import Activity, Judgement, LivenessMonitor

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_ENDING = 0x4  # PF_EXITING, among the flags of a process


class ProcessProbe:
    """Reads the activity of silent ranks' processes for a `LivenessMonitor`.

    `family` returns the processes of a rank; `speaker` the process that has joined, whose number may be one of another
    PID namespace.
    """

    def __init__(self, family: Callable[[int], Collection[int]], speaker: Callable[[int], int]) -> None:
        self._family, self._speaker, self._liveness = family, speaker, LivenessMonitor()

    @property
    def due(self) -> float | None:
        """The time of the next look at silent ranks; None if no rank is silent."""
        return self._liveness.due

    def look(self, heard: Mapping[int, float], now: float) -> list[Judgement]:
        """Return the judgements on silent ranks; `heard` has the time of the last message of each expected sender.

        A rank that has no process here, because it is on another host, is not judged.
        """
        found: list[Judgement] = []
        for rank in self._liveness.suspects(heard, now):
            pids = self._family(rank)
            judgement: Judgement | None = None
            if pids:
                seen = look_at(pids, self._speaker(rank))
                judgement = self._liveness.judge(rank, now - heard[rank], seen, now)
            if judgement is not None:
                found.append(judgement)
        return found


def look_at(pids: Collection[int], speaker: int) -> Activity:
    """Return the activity of a rank's processes; if the process that joined is stopped, only this one's activity."""
    seen = activity([speaker]) if speaker in pids else None
    return seen if seen is not None and set(seen.states) == {"T"} else activity(pids)


def activity(pids: Iterable[int]) -> Activity:
    """Return the total activity of these processes; processes that have ended do not count."""
    states, ticks, traffic, traced = "", 0, 0, False
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, _stat(f"/proc/{pid}/stat")[11:13]))
            states += _states(pid)
            traced = traced or _tracer(pid) != 0
            traffic += _traffic(pid)
    return Activity(states, ticks * _TICK, traffic, traced or "t" in states)


def started(pid: int) -> int:
    """Return a process's start time, by which it differs from a later one with its number; 0 if there is none.

    >>> started(os.getpid()) > 0
    True
    """
    try:
        return int(_stat(f"/proc/{pid}/stat")[19])
    except OSError:
        return 0


def lives(pid: int, since: int) -> bool:
    """Return whether the process with this number `started` at `since`, and is not about to end.

    The files of a process that ends belong to root in /proc, also before its parent learns of the end.

    >>> lives(os.getpid(), started(os.getpid()))
    True
    """
    try:
        fields = _stat(f"/proc/{pid}/stat")
    except OSError:
        return False
    return int(fields[19]) == since and fields[0] not in "ZX" and not int(fields[6]) & _ENDING


def _stat(path: str) -> list[str]:
    """Return the fields after the process's name; the name may contain any characters."""
    with open(path, "rb") as file:
        return file.read().decode(errors="replace").rpartition(")")[2].split()


def _states(pid: int) -> str:
    found = ""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += _stat(f"/proc/{pid}/task/{thread}/stat")[0]
    return found


def _tracer(pid: int) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"TracerPid:")), 0)


def _traffic(pid: int) -> int:
    """Return the bytes read and written, from files or from memory."""
    with open(f"/proc/{pid}/io", "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith((b"rchar:", b"wchar:")))
