"""Lines of several ranks on one terminal, notebook or file, as they come; a model of a terminal judges."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.bootstrap.cluster.output import Screen, Stream


class Notebook(io.StringIO):
    """A stream as a notebook's kernel has it."""


Notebook.__module__ = "ipykernel.iostream"


def terminal(text: str) -> list[str]:
    """Return the lines that a terminal shows, without spaces at their ends."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for state in line.split("\r"):
            shown = state + shown[len(state) :]
        lines.append(shown.rstrip())
    return lines


class Ranks:
    """Writing ends of some ranks' pipes, and what is shown of them."""

    def __init__(self, size: int, sink: io.StringIO) -> None:
        self.sink, self._screen = sink, Screen("stdout")
        pipes = [os.pipe() for _ in range(size)]
        self._ends = [writing for _, writing in pipes]
        self._streams = [Stream(rank, reading, self._screen) for rank, (reading, _) in enumerate(pipes)]

    def prints(self, rank: int, text: str) -> list[str]:
        """Return what the terminal shows after a rank has printed a text."""
        before, sys.stdout = sys.stdout, self.sink
        try:
            os.write(self._ends[rank], text.encode())
            self._streams[rank].take()
        finally:
            sys.stdout = before
        return terminal(self.sink.getvalue())

    def end(self) -> list[str]:
        before, sys.stdout = sys.stdout, self.sink
        try:
            for stream in self._streams:
                stream.drain()
        finally:
            sys.stdout = before
        return terminal(self.sink.getvalue())

    def close(self) -> None:
        for file in (*self._ends, *(stream.file for stream in self._streams)):
            os.close(file)


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks(3, Notebook())
    yield made
    made.close()


def test_an_unfinished_line_is_shown_and_continued(ranks: Ranks) -> None:
    assert ranks.prints(0, "one ") == ["[0] one"]
    assert ranks.prints(0, "two ") == ["[0] one two"]
    assert ranks.prints(0, "three\nfour") == ["[0] one two three", "[0] four"]
    assert ranks.end() == ["[0] one two three", "[0] four", ""]
    assert "\r" not in ranks.sink.getvalue()


def test_a_bar_moves_in_its_place(ranks: Ranks) -> None:
    for i in range(1, 4):
        assert ranks.prints(0, f"\r{i}0% {'#' * i}") == [f"[0] {i}0% {'#' * i}"]
    assert ranks.prints(0, "\rdone      \n") == ["[0] done", ""]


def test_whole_lines_of_others_go_before_a_bar_and_their_bars_wait(ranks: Ranks) -> None:
    ranks.prints(1, "10%")
    assert ranks.prints(0, "a line\nanother\n20%") == ["[0] a line", "[0] another", "[1] 10%"]
    assert ranks.prints(0, "\r30%") == ["[0] a line", "[0] another", "[1] 10%"]
    assert ranks.prints(1, "\r99%\n") == ["[0] a line", "[0] another", "[1] 99%", ""]
    assert ranks.prints(0, "\r40%") == ["[0] a line", "[0] another", "[1] 99%", "[0] 40%"]
    assert ranks.end() == ["[0] a line", "[0] another", "[1] 99%", "[0] 40%", ""]


def test_a_file_gets_whole_lines_only() -> None:
    ranks = Ranks(2, io.StringIO())
    assert ranks.prints(0, "\r10%\r20%") == [""]
    assert ranks.prints(1, "text\n") == ["[1] text", ""]
    assert ranks.prints(0, "\r30%\n") == ["[1] text", "[0] 30%", ""]
    assert "\r" not in ranks.sink.getvalue()
    ranks.close()


@settings(max_examples=200)
@given(pieces=st.lists(st.tuples(st.integers(0, 2), st.text("ab\r\n ", max_size=6)), max_size=20))
def test_each_line_of_each_rank_is_shown_once_and_in_its_order(pieces: list[tuple[int, str]]) -> None:
    ranks = Ranks(3, Notebook())
    for rank, text in pieces:
        ranks.prints(rank, text)
    shown = ranks.end()
    ranks.close()
    assert shown[-1] == ""
    for rank in range(3):
        printed = "".join(text for who, text in pieces if who == rank)
        expected = terminal(printed) if terminal(printed)[-1] else terminal(printed)[:-1]
        got = [line.removeprefix(f"[{rank}]").strip() for line in shown if line.startswith(f"[{rank}]")]
        assert got == [line.strip() for line in expected]
