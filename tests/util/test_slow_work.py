"""Slow work says so while it is under way; quick work, and a terminal that is gone, change nothing."""

from __future__ import annotations

import os
import threading

import pytest

from ringcast._util.last_line import ProgressLine
from ringcast._util.slow_work import told_if_slow


def test_a_text_is_shown_while_slow_work_is_under_way() -> None:
    shown, there = list[str](), threading.Event()

    def show(text: str) -> None:
        shown.append(text)
        there.set()

    with told_if_slow(show, "making it", silence=0):
        there.wait()
        assert shown == ["making it"]
    assert shown == ["making it", ""]


def test_the_terminal_has_the_text_and_then_an_empty_line() -> None:
    ours, theirs = os.openpty()
    try:
        with told_if_slow(ProgressLine(theirs).show, "making it", silence=0):
            assert b"making it" in os.read(ours, 100)
        assert os.read(ours, 100) == b"\r\x1b[K"
    finally:
        os.close(ours)
        os.close(theirs)


def test_quick_work_shows_nothing() -> None:
    shown = list[str]()
    with told_if_slow(shown.append, "making it", silence=1e6):
        pass
    assert shown == []
    assert [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)] == []


def test_an_error_of_the_work_is_passed_on_and_one_of_the_terminal_is_not() -> None:
    there = threading.Event()

    def gone(text: str) -> None:
        there.set()
        raise OSError

    def fail() -> None:
        with told_if_slow(gone, "making it", silence=0):
            there.wait()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with told_if_slow(None, "making it", silence=0):
        pass
