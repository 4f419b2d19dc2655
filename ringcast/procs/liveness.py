"""Decide whether a silent rank is hung or computing. Pure decisions, without /proc and clocks.

A rank's control thread sends a message every second. It is silent when the process was stopped, when the interpreter is
deadlocked, and also when native code computes for long with the interpreter's lock. So silence alone is no failure: the
activity of a silent rank's processes is measured, and only if none of them is active for a while, the rank is hung.

Times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Resource use of a rank's processes so far, and the states of their threads."""

    states: str  # a letter for each thread, as the kernel has them
    seconds: float  # of processor time
    bytes: int  # read and written
    traced: bool = False  # by a debugger


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of silence and of inactivity."""

    silence: float = 3.0  # seconds without a word
    idle: float = 5.0  # seconds in a row without activity after which it is hung
    look: float = 0.5  # seconds between two looks
    remind: float = 60.0  # seconds between two lines on a rank that is silent but active
    # Threads that wait for the interpreter's lock wake up 200 times a second, and sockets are read without it.
    processor: float = 0.1  # share of one processor
    traffic: float = 1000.0  # bytes per second


def limits_of(seconds: float) -> Limits:
    """Return the limits by which a silent rank without activity is hung after `seconds`.

    >>> limits_of(8.0) == Limits()
    True
    """
    usual = Limits()
    return replace(usual, idle=seconds - usual.silence)


@dataclass(frozen=True, slots=True)
class Hung:
    """A rank is silent and inactive; `cause` describes it."""

    rank: int
    cause: str


@dataclass(frozen=True, slots=True)
class Computing:
    """A rank has been silent for `seconds`, but is active, which is no failure; `doing` describes it."""

    rank: int
    seconds: float
    doing: str


Judgement: TypeAlias = Hung | Computing


@dataclass(slots=True)
class _Observations:
    """Observations of one rank since it was last active."""

    first: Activity
    looked: float
    seconds: float = 0.0  # since the first look; only time in which we could have looked counts
    looks: int = 0
    ready: int = 0  # looks that found a thread that runs, or waits for a disk


class LivenessMonitor:
    """Judges the silent ranks of a job by their observed activity."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._observations: dict[int, _Observations] = {}
        self._reminded: dict[int, float] = {}
        self.due: float | None = None  # the time of the next look, while there is a silent rank

    def suspects(self, heard: Mapping[int, float], now: float) -> list[int]:
        """Return the ranks to look at now; `heard` has the last message's time of each rank that must send some."""
        silent = [rank for rank, time in heard.items() if now - time > self._limits.silence]
        self._forget_all_but(silent)
        if not silent:
            self.due = None
            return []
        if self.due is not None and now < self.due:
            return []
        self.due = now + self._limits.look
        return silent

    def judge(self, rank: int, silent: float, seen: Activity, now: float) -> Judgement | None:
        """Return the judgement on a rank that was silent for `silent` seconds and has been observed just now."""
        if not seen.states:  # the processes have ended, or the system shows nothing about them
            return None
        limits, past = self._limits, self._observations.get(rank)
        if past is None or seen.traced or self._active(past.first, seen):
            self._observations[rank] = _Observations(seen, now)
            return self._remind(rank, silent, seen)
        past.seconds += min(now - past.looked, 2 * limits.look)
        past.looked = now
        past.looks += 1
        past.ready += any(state in "RD" for state in seen.states)
        if past.seconds < limits.idle:
            return self._remind(rank, silent, seen)
        del self._observations[rank]
        if 2 * past.ready > past.looks:  # the rank would run if the machine, or the disk, were not busy
            return self._remind(rank, silent, seen)
        return Hung(rank, _cause(seen, silent))

    def _active(self, before: Activity, seen: Activity) -> bool:
        limits = self._limits
        return (
            seen.seconds - before.seconds > limits.processor * limits.idle
            or seen.bytes - before.bytes > limits.traffic * limits.idle
        )

    def _remind(self, rank: int, silent: float, seen: Activity) -> Computing | None:
        if silent < self._reminded.get(rank, 0.0) + self._limits.remind:
            return None
        self._reminded[rank] = silent
        return Computing(rank, silent, "is held by a debugger" if seen.traced else "computes")

    def _forget_all_but(self, silent: Iterable[int]) -> None:
        for rank in {*self._observations, *self._reminded}.difference(silent):
            self._observations.pop(rank, None)
            self._reminded.pop(rank, None)


def _cause(seen: Activity, silent: float) -> str:
    if set(seen.states) == {"T"}:
        return f"it was stopped (state T), and not heard of for {silent:.0f} s"
    return (
        f"it was not heard of for {silent:.0f} s: its interpreter does not move and uses no processor "
        f"(state {''.join(sorted(set(seen.states)))}): perhaps a deadlock in native code"
    )
