"""Tracebacks as users want to read them: frames inside ringcast, which they did not write, are one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ringcast.errors import RingcastError

_LIBRARY = str(Path(__file__).parents[1]) + "/"


def text_of(error: BaseException, *, whole: bool = False) -> str:
    """Return an error with its traceback and its causes, as Python prints them, with ringcast's frames folded.

    All frames are there if `whole`; where an error of another kind arose inside ringcast, the innermost one is.
    """
    told = traceback.TracebackException.from_exception(error)
    if not whole:
        for each in _chain(told):
            _fold(each)
    return "".join(told.format())


def inside(file: str) -> bool:
    """Return whether a source file is one of ringcast's."""
    return file.startswith(_LIBRARY)


class _Folded(traceback.StackSummary):
    """Frames of which those inside ringcast are counted only, but for the innermost one where ringcast broke."""

    def __init__(self, frames: Iterable[traceback.FrameSummary], *, broken: bool) -> None:
        super().__init__(frames)
        self._kept = len(self) - 1 if broken else None

    def format(self, **options: Any) -> list[str]:
        lines: list[str] = []
        for folded, frames in groupby(enumerate(self), lambda one: one[0] != self._kept and inside(one[1].filename)):
            run = traceback.StackSummary(frame for _, frame in frames)
            lines += [_counted(len(run))] if folded else run.format(**options)
        return lines


def _counted(frames: int) -> str:
    which = "1 frame" if frames == 1 else f"{frames} frames"
    return f"  ... {which} inside ringcast (RINGCAST_DEBUG=info shows them)\n"


def _fold(told: traceback.TracebackException) -> None:
    told.stack = _Folded(told.stack, broken=not _ours(told))


def _ours(told: traceback.TracebackException) -> bool:
    return told.exc_type is not None and issubclass(told.exc_type, RingcastError)


def _chain(told: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    """Yield an error, its causes and contexts, and those that a group holds."""
    if told is not None:
        yield told
        for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
            yield from _chain(other)
