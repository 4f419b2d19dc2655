"""Tracebacks as users want to read them: frames inside ringcast, which they did not write, are one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Any

from ringcast._util.safe_text import bounded, class_name, escaped, is_a, safe_text
from ringcast.errors import RingcastError

MAX_MESSAGE = 10_000  # characters that are kept of the text of an error …
MAX_TRACEBACK = 90_000  # … and of its traceback
_STANDARD = os.path.dirname(os.__file__) + "/"
_INSTALLED = ("site-packages/", "dist-packages/")  # folders in it that are not the standard library's
_LIBRARY = os.path.dirname(os.path.dirname(__file__)) + "/"


def trace_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error, whatever its class makes of attributes."""
    trace: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return trace


class Translation:
    """Base of errors whose class programs for another library expect; a cause, if any, has the same text."""


def origin(error: BaseException) -> BaseException:
    """Return the error of ringcast that a translated error stands for; any other error itself."""
    cause = vars(BaseException)["__cause__"].__get__(error) if is_a(error, Translation) else None
    return cause if is_a(cause, RingcastError) else error


def text_of(error: BaseException, *, whole: bool = False) -> str:
    """Return an error with its traceback and its causes, as Python prints them, with ringcast's frames folded.

    All frames are there if `whole`; where an error of another kind arose inside ringcast, the innermost one is. Unless
    `whole`, a translated error is there without the one that it stands for, which says the same. The traceback module
    reads attributes of the error, which may be properties that raise: then frames, kind and text are there alone.
    """
    try:
        told = traceback.TracebackException.from_exception(error)
        if not whole:
            for each, its_error in list(_chain(told, error)):
                _fold(each, its_error)
        text = "".join(told.format())
    except BaseException:  # the program's own code may raise anything
        text = _without_attributes(error, whole)
    return escaped(bounded(text, MAX_TRACEBACK))


def _without_attributes(error: BaseException, whole: bool) -> str:
    """Return the traceback of an error without its causes, notes and hints, as its attributes cannot be read."""
    frames = traceback.extract_tb(trace_of(error))
    stack = frames if whole else _Folded(frames, broken=_broke(error, frames))
    heading = ["Traceback (most recent call last):\n"] if frames else []
    return "".join([*heading, *stack.format(), f"{in_a_line(error)}\n"])


def in_a_line(error: BaseException) -> str:
    """Return an error's kind and text.

    >>> in_a_line(ValueError("bad")), in_a_line(AssertionError())
    ('ValueError: bad', 'AssertionError')
    """
    text, kind = message(error), class_name(type(error))
    if is_a(error, Translation):  # it may have the name of a builtin
        kind = f"{safe_text(type(error), _module).rpartition('.')[2]}.{kind}"
    return f"{kind}: {text}" if text else kind


def message(error: BaseException) -> str:
    """Return an error's text.

    >>> message(ValueError("bad"))
    'bad'
    """
    return safe_text(error, str, noun="exception", longest=MAX_MESSAGE)


def _module(kind: type) -> str:
    return kind.__module__


def inside(file: str) -> bool:
    """Return whether a source file is one of ringcast's."""
    return file.startswith(_LIBRARY)


def of_the_program(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return the frames of the program: all but ringcast's own, and the standard library's below these."""
    kept: list[traceback.FrameSummary] = []
    within = False
    for frame in frames:
        within = inside(frame.filename) or (within and _standard(frame.filename))
        if not within:
            kept.append(frame)
    return kept


def _standard(file: str) -> bool:
    return file.startswith(_STANDARD) and not file.removeprefix(_STANDARD).startswith(_INSTALLED)


class _Folded(traceback.StackSummary):
    """Frames of a traceback: those inside ringcast are only counted, but for the innermost one where ringcast broke."""

    def __init__(self, frames: Iterable[traceback.FrameSummary], *, broken: bool) -> None:
        super().__init__(frames)
        self._kept = len(self) - 1 if broken else None

    def format(self, **options: Any) -> list[str]:
        lines: list[str] = []
        for folded, frames in groupby(enumerate(self), lambda one: one[0] != self._kept and inside(one[1].filename)):
            run = traceback.StackSummary(frame for _, frame in frames)
            lines += [_counted(len(run))] if folded else run.format(**options)
        return lines


def _broke(error: BaseException, frames: Sequence[traceback.FrameSummary]) -> bool:
    """Return whether an error is none that ringcast raises for its caller, as also for a name that does not exist."""
    if is_a(error, (RingcastError, Translation)):
        return False
    return not (is_a(error, AttributeError) and frames and frames[-1].name == "__getattr__")


def _counted(frames: int) -> str:
    which = "1 frame" if frames == 1 else f"{frames} frames"
    return f"  ... {which} inside ringcast (RINGCAST_DEBUG=info shows them)\n"


def _fold(told: traceback.TracebackException, error: BaseException) -> None:
    told.stack = _Folded(told.stack, broken=_broke(error, told.stack))
    if told.__cause__ is not None and origin(error) is not error:
        told.__cause__ = told.__cause__.__cause__


def _chain(
    told: traceback.TracebackException | None, error: BaseException | None
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    """Yield an error, its causes and contexts, and the errors of a group, each as text and as it is."""
    if told is not None and error is not None:
        yield told, error
        yield from _chain(told.__cause__, error.__cause__)
        yield from _chain(told.__context__, error.__context__)
        if told.exceptions and is_a(error, BaseExceptionGroup):
            for pair in zip(told.exceptions, error.exceptions, strict=True):
                yield from _chain(*pair)
