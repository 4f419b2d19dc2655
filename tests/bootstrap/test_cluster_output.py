"""Lines of several ranks on one terminal, notebook or file, as they come; a model of a terminal judges."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

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
    """Some ranks, and what is shown of their output."""

    def __init__(self, size: int, sink: io.StringIO) -> None:
        self.sink, screen = sink, Screen("stdout")
        self._streams = [Stream(rank, screen) for rank in range(size)]

    def prints(self, rank: int, text: str) -> list[str]:
        """Return what the terminal shows after a rank has printed a text."""
        with redirect_stdout(self.sink):
            self._streams[rank].feed(text.encode())
        return terminal(self.sink.getvalue())

    def end(self) -> list[str]:
        with redirect_stdout(self.sink):
            for stream in self._streams:
                stream.end_line()
        return terminal(self.sink.getvalue())


@pytest.fixture
def ranks() -> Ranks:
    return Ranks(3, Notebook())


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


@settings(max_examples=200)
@given(pieces=st.lists(st.tuples(st.integers(0, 2), st.text("ab\r\n ", max_size=6)), max_size=20))
def test_each_line_of_each_rank_is_shown_once_and_in_its_order(pieces: list[tuple[int, str]]) -> None:
    ranks = Ranks(3, Notebook())
    for rank, text in pieces:
        ranks.prints(rank, text)
    shown = ranks.end()
    assert shown[-1] == ""
    for rank in range(3):
        printed = terminal("".join(text for who, text in pieces if who == rank))
        got = [line.removeprefix(f"[{rank}]").strip() for line in shown if line.startswith(f"[{rank}]")]
        expected = [line.strip() for line in printed]
        assert got in (
            [expected] if expected[-1] else [expected[:-1], expected]
        )  # of a blank rest nothing need be shown
