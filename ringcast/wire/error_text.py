"""Tracebacks as users want to read them: frames inside ringcast, which they did not write, are one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ringcast.errors import RingcastError

_LIBRARY = str(Path(__file__).parents[1]) + "/"


def text_of(error: BaseException, *, whole: bool = False) -> str:
    """Return an error with its traceback and its causes, as Python prints them, with ringcast's frames folded.

    All frames are there if `whole`, and where ringcast itself broke: if an error of another kind arose inside of it.
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
    """Frames of which those inside ringcast are counted only."""

    def format(self, **options: Any) -> list[str]:
        lines: list[str] = []
        for ours, frames in groupby(self, lambda frame: inside(frame.filename)):
            run = traceback.StackSummary(frames)
            lines += [_counted(len(run))] if ours else run.format(**options)
        return lines


def _counted(frames: int) -> str:
    which = "1 frame" if frames == 1 else f"{frames} frames"
    return f"  ... {which} inside ringcast (RINGCAST_DEBUG=info shows them)\n"


def _fold(told: traceback.TracebackException) -> None:
    broken = bool(told.stack) and inside(told.stack[-1].filename) and not _ours(told)
    if not broken:
        told.stack = _Folded(told.stack)


def _ours(told: traceback.TracebackException) -> bool:
    return told.exc_type is not None and issubclass(told.exc_type, RingcastError)


def _chain(told: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    """Yield an error, its causes and contexts, and those that a group holds."""
    if told is not None:
        yield told
        for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
            yield from _chain(other)
