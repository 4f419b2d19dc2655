"""The status line: what it says, when it is drawn, and that it is never mixed with the output, on real terminals."""

from __future__ import annotations

import doctest
import fcntl
import os
import pty
import random
import struct
import termios
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ringcast._util.last_line import PAUSE, Line
from ringcast.config.worker import can_redraw
from ringcast.monitoring.progress import ProgressSnapshot
from ringcast_launcher.output import status_line
from ringcast_launcher.output.output import Writer, coloured
from ringcast_launcher.output.status_line import Status, running, starting

ERASE = b"\r\x1b[K"


class Screen:
    """A terminal; a thread keeps all output to it."""

    def __init__(self, columns: int = 80) -> None:
        self._master, self.file = pty.openpty()
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        self._came = threading.Condition()
        self.data = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:  # the other end is closed
                data = b""
            with self._came:
                self.data += data
                self._came.notify()
            if not data:
                return

    def wait_for(self, text: bytes) -> None:
        with self._came:
            assert self._came.wait_for(lambda: text in self.data, 60), self.data

    def close(self) -> list[str]:
        """Return the lines that stand on the terminal at the end; of the last one nothing may be left."""
        os.close(self.file)
        self._thread.join()
        os.close(self._master)
        lines, row, column = [], "", 0
        text = self.data.decode()
        while text:
            if text.startswith("\x1b[K"):
                row, text = row[:column], text[3:]
                continue
            sign, text = text[0], text[1:]
            if sign == "\n":
                lines.append(row)
                row, column = "", 0
            elif sign == "\r":
                column = 0
            else:
                row, column = row[:column] + sign + row[column + 1 :], column + 1
        return [*lines, row]


@contextmanager
def screen(columns: int = 80) -> Iterator[Screen]:
    made = Screen(columns)
    try:
        yield made
    finally:
        if made._thread.is_alive():
            made.close()


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(status_line)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_line_is_on_the_terminal_off_before_output_and_gone_at_the_end() -> None:
    with screen() as terminal:
        writer = Writer(Line(terminal.file))
        writer.show("3 ranks")
        terminal.wait_for(ERASE + b"3 ranks")
        writer.put(terminal.file, b"[0] out\n")
        terminal.wait_for(b"3 ranks" + ERASE + b"[0] out\r\n" + ERASE + b"3 ranks")
        writer.show("2 ranks")
        terminal.wait_for(b"3 ranks" + ERASE + b"2 ranks")
        writer.close()
        assert terminal.close() == ["[0] out", ""]
        assert terminal.data.endswith(b"2 ranks" + ERASE)


@pytest.mark.parametrize("seed", range(5))
def test_the_line_is_never_mixed_with_the_output(seed: int) -> None:
    chance = random.Random(seed)
    fed = []
    with screen() as terminal:
        # A clock that is always ahead lets the line be drawn whenever nothing waits to be written.
        now = iter(range(1_000_000))
        writer = Writer(Line(terminal.file, clock=lambda: next(now)))
        for i in range(300):
            if chance.random() < 0.5:
                writer.show(f"status {i}" * chance.randrange(3))
            else:
                fed.append(f"[{i}] " + "x" * chance.randrange(100))
                writer.put(terminal.file, fed[-1].encode() + b"\n")
            if chance.random() < 0.05:
                terminal.wait_for(fed[-1].encode() if fed else b"")
        writer.close()
        assert terminal.close() == [*fed, ""]


def test_output_into_a_pipe_leaves_the_line_where_it_is() -> None:
    reading, writing = os.pipe()
    with screen() as terminal:
        writer = Writer(Line(terminal.file))
        writer.show("3 ranks")
        terminal.wait_for(b"3 ranks")
        writer.put(writing, b"[0] out\n")
        writer.close()
        os.close(writing)
        with open(reading, "rb") as file:
            assert file.read() == b"[0] out\n"
        terminal.close()
        assert terminal.data == ERASE + b"3 ranks" + ERASE


@pytest.mark.parametrize("columns", [1, 2, 10, 80])
def test_the_line_is_cut_to_the_width_of_the_terminal(columns: int) -> None:
    with screen(columns) as terminal:
        writer = Writer(Line(terminal.file))
        writer.show("0123456789")
        terminal.wait_for(ERASE + b"0123456789"[: columns - 1])
        writer.close()
        terminal.close()
        assert terminal.data == ERASE + b"0123456789"[: columns - 1] + ERASE


def test_the_line_is_drawn_when_it_differs_and_not_too_often() -> None:
    now = 10.0
    line = Line(0, width=lambda _: 80, clock=lambda: now)
    assert line.due is None
    line.show("a")
    assert line.due == 0
    assert line.draw() == ERASE + b"a"
    assert line.due is None
    line.show("b")
    assert line.due == PAUSE
    now += 1
    assert line.due == 0
    assert line.draw() == ERASE + b"b"
    assert line.erase() == ERASE
    assert line.erase() == b""
    assert line.due == PAUSE
    line.show("")
    assert line.due is None


def test_in_the_background_nothing_is_drawn_until_we_are_in_front_again() -> None:
    now, width = 10.0, 0
    line = Line(0, width=lambda _: width, clock=lambda: now)
    line.show("a")
    assert (line.draw(), line.due, line.erase()) == (b"", PAUSE, b"")
    now, width = 11.0, 80
    assert (line.due, line.draw()) == (0, ERASE + b"a")


def test_status_begins_late_and_tells_the_rate_of_the_last_seconds() -> None:
    told: list[str] = []
    status = Status(told.append, 2, 100.0, delay=5.0, every=1.0)
    assert status.due == 105.0
    for second in range(5, 15):
        status.tell(
            100.0 + second,
            2,
            ProgressSnapshot(2, Counter({"#1 bcast": 2}), 0 if second < 8 else (second - 7) * 3_000_000),
        )
        assert status.due == 101.0 + second
    assert told[0] == "2 ranks up (of 2) · #1 bcast on 2 · 00:00:05"
    assert told[1] == "2 ranks up (of 2) · #1 bcast on 2 · 0 B/s · 00:00:06"
    assert told[-1] == "2 ranks up (of 2) · #1 bcast on 2 · 3.0 MB/s · 00:00:14"
    status.tell(116.0, 2, ProgressSnapshot(2, drawing=True))
    assert told[-1] == ""
    status.tell(117.0, 1, ProgressSnapshot())
    assert told[-1] == "1 rank up (of 2) · 00:00:17"
    status.end()
    assert (told[-1], status.due) == ("", float("inf"))


def test_status_of_a_short_job_writes_nothing() -> None:
    told: list[str] = []
    Status(told.append, 2, 100.0).end()
    assert told == []


def test_status_that_nobody_wants_is_never_due() -> None:
    status = Status(None, 2, 100.0)
    assert status.due == float("inf")
    status.tell(200.0, 2, ProgressSnapshot())
    status.end()


@pytest.mark.parametrize(
    ("operations", "ranks", "text"),
    [
        ({}, 0, ""),
        ({}, 4, "4 outside"),
        ({"#1 bcast": 4}, 4, "#1 bcast on 4"),
        ({"#1 bcast": 1, "#2 barrier": 3}, 5, "#2 barrier on 3, #1 bcast on 1, 1 outside"),
        ({"a": 1, "b": 1, "c": 2, "d": 1}, 5, "c on 2, a on 1, 2 in others"),
    ],
)
def test_what_the_ranks_do(operations: dict[str, int], ranks: int, text: str) -> None:
    facts = running(ranks, 5, ProgressSnapshot(ranks, Counter(operations)), None, 0).split(" · ")
    assert facts[1:-1] == ([text] if text else [])


def test_hosts_that_are_waited_for_are_named() -> None:
    hosts = [f"h{i}" for i in range(64)]
    assert starting(hosts, set(hosts) - {"h3", "h17", "h40"}) == "61 of 64 hosts are up; waiting for h3, h17, h40"
    assert starting(hosts, []) == "0 of 64 hosts are up; waiting for h0, h1, h2 and 61 more"
    assert starting(hosts, hosts) == ""


def test_line_and_colours_are_for_terminals_of_persons() -> None:
    reading, writing = os.pipe()
    with screen() as terminal:
        assert can_redraw(terminal.file, {"TERM": "xterm"})
        assert not can_redraw(terminal.file, {"TERM": "dumb"})
        assert not can_redraw(terminal.file, {})
        assert not can_redraw(terminal.file, {"TERM": "xterm", "CI": "true"})
        assert not can_redraw(writing, {"TERM": "xterm"})
        assert coloured(terminal.file, {"TERM": "xterm", "NO_COLOR": ""})
        assert not coloured(terminal.file, {"TERM": "xterm", "NO_COLOR": "1"})
        assert not coloured(terminal.file, {"TERM": "dumb"})
        assert not coloured(writing, {"TERM": "xterm"})
    os.close(reading)
    os.close(writing)
