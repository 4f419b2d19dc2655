"""A process is recognised by its number and its mark, on its own host only, and only as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ringcast.procs import process_mark
from ringcast.procs.process_mark import lives_here, mark


def test_a_process_lives_until_it_has_been_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    its_mark = mark(child.pid)
    assert lives_here(child.pid, its_mark)
    child.communicate()
    assert lives_here(child.pid, its_mark) is False


def test_a_later_process_of_that_number_is_another_one() -> None:
    system, _, since = mark(1).rpartition(" ")
    assert lives_here(1, f"{system} {int(since) + 1}") is False


@pytest.mark.parametrize("text", ["", "1", "a b 3", "\0", "a" * 300])
def test_of_a_process_elsewhere_nothing_is_known(text: str) -> None:
    assert lives_here(1, text) is None


def test_where_no_kernel_is_known_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_mark, "kernel", lambda: "")
    assert mark(1) == ""
    assert lives_here(1, mark(1)) is None
