"""Tracebacks as users want to read them: frames inside ringcast, which they did not write, are one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ringcast.errors import RingcastError

_LIBRARY = str(Path(__file__).parents[1]) + "/"


class Translation:
    """A base of errors of kinds that programs for another library expect: they say what their cause says, if any."""


def origin(error: BaseException) -> BaseException:
    """Return the error of ringcast that a translated error stands for; any other error itself."""
    cause = error.__cause__
    return cause if isinstance(error, Translation) and isinstance(cause, RingcastError) else error


def text_of(error: BaseException, *, whole: bool = False) -> str:
    """Return an error with its traceback and its causes, as Python prints them, with ringcast's frames folded.

    All frames are there if `whole`; where an error of another kind arose inside ringcast, the innermost one is. Unless
    `whole`, a translated error is there without the one that it stands for, which says the same.
    """
    told = traceback.TracebackException.from_exception(error)
    if not whole:
        for each, its_error in list(_chain(told, error)):
            _fold(each, its_error)
    return "".join(told.format())


def in_a_line(error: BaseException) -> str:
    """Return an error's kind and text.

    >>> in_a_line(ValueError("bad")), in_a_line(AssertionError())
    ('ValueError: bad', 'AssertionError')
    """
    text, kind = str(error), type(error).__name__
    if isinstance(error, Translation):  # its name may be that of a builtin
        kind = f"{type(error).__module__.rpartition('.')[2]}.{kind}"
    return f"{kind}: {text}" if text else kind


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


def _fold(told: traceback.TracebackException, error: BaseException) -> None:
    told.stack = _Folded(told.stack, broken=not isinstance(error, RingcastError | Translation))
    if told.__cause__ is not None and origin(error) is not error:
        told.__cause__ = told.__cause__.__cause__


def _chain(
    told: traceback.TracebackException | None, error: BaseException | None
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    """Yield an error, its causes and contexts, and those that a group holds, each as text and as it is."""
    if told is not None and error is not None:
        yield told, error
        yield from _chain(told.__cause__, error.__cause__)
        yield from _chain(told.__context__, error.__context__)
        if told.exceptions and isinstance(error, BaseExceptionGroup):
            for pair in zip(told.exceptions, error.exceptions, strict=True):
                yield from _chain(*pair)
