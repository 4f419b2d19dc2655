"""The last line of a terminal for programs that write it themselves (the launcher: launcher/test_status_line.py)."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ringcast._util.last_line import ProgressLine
from support.terminals import on_terminal

ERASE = b"\r\x1b[K"


END = b"end"


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def written(ours: int, theirs: int) -> bytes:
    """Return all that was written; a terminal hands it over in several parts."""
    os.write(theirs, END)
    data = b""
    while not data.endswith(END):
        data += os.read(ours, 1000)
    return data.removesuffix(END)


@pytest.mark.parametrize("columns", [2, 10, 80])
def test_texts_are_written_at_once_one_over_the_other_cut_to_the_width_and_erased(columns: int) -> None:
    with terminal(columns) as (ours, theirs):
        line = ProgressLine(theirs)
        line.show("0123456789")
        line.show("abc")
        line.clear()
        line.clear()
        expected = ERASE + b"0123456789"[: columns - 1] + ERASE + b"abc"[: columns - 1] + ERASE
        assert written(ours, theirs) == expected


def test_without_a_terminal_nothing_is_written() -> None:
    line = ProgressLine(None)
    line.show("a")
    line.clear()


def test_a_line_that_was_never_shown_erases_nothing() -> None:
    with terminal(80) as (ours, theirs):
        ProgressLine(theirs).clear()
        assert written(ours, theirs) == b""


@pytest.mark.parametrize(("term", "drawn"), [("xterm", True), ("dumb", False)])
def test_a_command_draws_where_the_terminal_can_and_leaves_nothing(term: str, drawn: bool) -> None:
    simulate = [sys.executable, "-m", "ringcast", "simulate", "bcast", "-n", "4"]
    with on_terminal(command=simulate, TERM=term) as job:
        assert job.end() == 0
    assert (b"simulating circulant" in job.data) == drawn
    assert job.lines[0].startswith("bcast on 4 ranks")
