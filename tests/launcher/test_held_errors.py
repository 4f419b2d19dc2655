"""An error is held back, nothing is lost, and nothing is overtaken: however the stream comes in pieces."""

from __future__ import annotations

import random
import sys
from math import inf

import pytest

from ringcast_launcher.output.held_errors import MOST, PATIENCE, HeldErrors

ERROR = b'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: 1\n'
CHAINED = ERROR + b"\nDuring handling of the above exception, another one\n" + ERROR
REFUSAL = f"{sys.executable}: No module named nonsuch\n".encode()


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.data, self.ended = b"", False

    def feed(self, data: bytes) -> None:
        assert not self.ended
        self.data += data

    def end(self) -> None:
        assert not self.ended
        self.ended = True


@pytest.mark.parametrize("error", [CHAINED, REFUSAL], ids=["chained", "refusal"])
@pytest.mark.parametrize("seed", range(50))
def test_pieces_make_no_difference(seed: int, error: bytes) -> None:
    before = b"12 %\rwarning\n Traceback (most recent call last): in a line\n"
    data = before + error
    cuts = sorted(random.Random(seed).choices(range(len(data) + 1), k=12))
    sink = Kept()
    held = HeldErrors(sink)
    for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True):
        held.feed(data[a:b])
    assert sink.data == before
    assert held.text.encode() == data[len(before) :]
    held.end()
    assert not sink.ended
    held.release()
    assert (sink.data, sink.ended, held.text) == (data, True, "")


@pytest.mark.parametrize("text", [b"Tra", b"half a line", b"  ", b"done\n", b"  File", b""])
def test_what_is_no_error_is_not_held_at_the_end(text: bytes) -> None:
    sink = Kept()
    held = HeldErrors(sink)
    held.feed(text)
    held.end()
    assert (sink.data, sink.ended, held.due) == (text, True, inf)


def test_an_error_in_the_middle_of_a_line_is_none() -> None:
    sink = Kept()
    held = HeldErrors(sink)
    held.feed(b"he said: ")
    held.feed(ERROR.partition(b"\n")[0])
    assert sink.data == b"he said: Traceback (most recent call last):"


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_traceback_behind_a_bar_begins_a_line(pieces: int) -> None:
    bar = b"\r 50%|##  |\r 60%|### "
    sink = Kept()
    held = HeldErrors(sink)
    for data in [bar + ERROR] if pieces == 1 else [bar, ERROR]:
        held.feed(data)
    assert sink.data == bar + b"\n"
    assert held.text.encode() == ERROR
    held.release()
    assert sink.data == bar + b"\n" + ERROR


def test_what_is_held_is_due_some_time_later_and_again_after_that() -> None:
    held = HeldErrors(Kept())
    assert held.due == inf
    held.feed(ERROR)
    assert 0 < held.due < inf
    held.release()
    assert held.due == inf
    held.feed(ERROR)
    assert held.due < inf
    assert PATIENCE > 0


def test_what_is_shown_elsewhere_is_forgotten() -> None:
    sink = Kept()
    held = HeldErrors(sink)
    held.feed(b"one\n" + ERROR)
    held.end()
    held.drop()
    held.release()
    assert (sink.data, sink.ended, held.text) == (b"one\n", True, "")


def test_what_was_written_before_the_last_error_is_shown_as_it_was() -> None:
    sink = Kept()
    held = HeldErrors(sink)
    before = b"ERROR:root:retrying\n" + ERROR + b"state\n" * 12
    held.feed(before + b"stopped at a.py:3: PeerFailed: rank 1: ?\n")
    held.end()
    assert held.text == "stopped at a.py:3: PeerFailed: rank 1: ?\n"
    held.drop()
    assert sink.data == before


@pytest.mark.parametrize("link", [b"During handling of the above exception,", b"The above exception was the direct"])
def test_chained_tracebacks_are_one_error(link: bytes) -> None:
    sink = Kept()
    held = HeldErrors(sink)
    chained = ERROR + b"\n" + link + b" another:\n\n" + ERROR
    held.feed(ERROR + b"going on\n" + chained)
    assert held.text.encode() == chained
    held.drop()
    assert sink.data == ERROR + b"going on\n"


@pytest.mark.parametrize("error", [b'  File "a.py", line 1\n    x y\n     ^\nSyntaxError: no\n', ERROR])
def test_an_error_begins_at_its_first_frame(error: bytes) -> None:
    held = HeldErrors(Kept())
    held.feed(ERROR + b"x\n" + error)
    assert held.text.encode() == error


def test_a_rank_that_writes_without_end_is_not_held() -> None:
    sink = Kept()
    held = HeldErrors(sink)
    held.feed(ERROR + b"x" * MOST)
    assert (len(sink.data), held.due) == (len(ERROR) + MOST, inf)
