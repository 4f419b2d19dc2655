"""Of the stacks of all threads of all ranks the program's own are shown, once for each place."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
from collections.abc import Callable

import pytest

from ringcast.wire import error_text
from ringcast_launcher.decide.program_stacks import of_program, told_once

PYTHON = "/usr/lib/python3/threading.py"
OURS = error_text.__file__
START = [f'  File "{PYTHON}", line {line} in {name}' for line, name in ((7, "_bootstrap_inner"), (5, "_bootstrap"))]
RUN = f'  File "{PYTHON}", line 9 in run'


def frame(line: int, name: str, file: str = "/home/me/prog.py") -> str:
    return f'  File "{file}", line {line} in {name}'


def thread(*innermost_first: str, head: str = "Thread 0x00007f98 (most recent call first):") -> str:
    return "\n".join([head, *innermost_first]) + "\n\n"


MAIN = thread(
    frame(1, "wait", OURS), frame(2, "allreduce", OURS), frame(3, "step"), frame(4, "<module>"),
    head="Current thread 0x00007f99 (most recent call first):",
)  # fmt: skip
SHOWN = f"{frame(4, '<module>')}\n{frame(3, 'step')}\n  ... in allreduce of ringcast\n"


def test_threads_of_ringcast_and_those_of_a_pool_are_left_out() -> None:
    ours = thread(frame(1, "poll", "/usr/lib/zmq.py"), frame(2, "_talk", OURS), RUN, *START)
    pool = thread(frame(1, "_worker", "/usr/lib/python3/concurrent/futures/thread.py"), RUN, *START)
    for text in (ours + pool + MAIN, MAIN + pool + ours, MAIN):
        assert of_program(text) == SHOWN


def test_a_thread_of_the_program_in_a_call_is_shown_beside_the_main_one() -> None:
    other = thread(
        frame(1, "recv", OURS), frame(7, "listen"), RUN, *START, head="Thread 0x1 [name] (most recent call first):"
    )
    assert of_program(other + MAIN) == f"{SHOWN}another thread:\n{frame(7, 'listen')}\n  ... in recv of ringcast\n"


def test_what_a_call_runs_of_the_program_is_shown_below_it() -> None:
    text = thread(frame(9, "operator"), frame(1, "combine", OURS), frame(2, "reduce", OURS), frame(4, "<module>"))
    assert of_program(text).splitlines() == [frame(4, "<module>"), "  ... in reduce of ringcast", frame(9, "operator")]


@pytest.mark.parametrize(
    "text", ["", "no stacks: it has not called ringcast.init\n", "Thread 0x1 (most recent call first):\n"]
)
def test_what_has_no_frames_stays_as_it_is(text: str) -> None:
    assert of_program(text) == text


def test_equal_places_are_shown_once() -> None:
    assert told_once({2: "a\n", 0: "a\n", 1: "b\n"}) == "ranks 0, 2:\na\nrank 1:\nb\n"
    assert told_once({}) == ""


def test_it_is_what_pythons_faulthandler_writes() -> None:
    """The oracle is Python itself: the main thread of this test, and another one that is not shown."""
    ended = threading.Event()
    waiting = threading.Thread(target=ended.wait)
    waiting.start()
    try:
        with tempfile.TemporaryFile("w+") as file:
            here: Callable[[], None] = lambda: faulthandler.dump_traceback(file, all_threads=True)  # noqa: E731
            here()
            file.seek(0)
            text = file.read()
    finally:
        ended.set()
        waiting.join()
    shown = of_program(text).splitlines()
    assert text.count("hread 0x") >= 2
    assert shown[-1].endswith("in <lambda>")
    assert shown[-2].endswith("in test_it_is_what_pythons_faulthandler_writes")
    assert "another thread:" not in shown
