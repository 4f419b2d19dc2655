"""Cut the stacks of ranks down to their programs' own: pure, over the text that Python's faulthandler writes.

For each rank the main thread stays, and any other thread that the program has in a call of ringcast. Threads of
ringcast itself, and idle threads of the program, are left out. Frames inside ringcast become one line, and the
outermost frame comes first, as in a traceback. Ranks at the same place are shown together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from ringcast._util.rank_words import ranks_in_words
from ringcast.wire.error_text import inside

_HEAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*:")
_FRAME = re.compile(r'  File "(?P<file>.*)", line \d+ in (?P<name>.*)')
_STARTS = ("_bootstrap", "_bootstrap_inner", "run")  # functions of Python's module threading that start a thread


def of_program(text: str) -> str:
    """Return the stacks of a program's threads; the whole text where no thread is the program's."""
    threads: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.fullmatch(line):
            threads.append([])
        elif threads and line:
            threads[-1].insert(0, line)  # the faulthandler begins with the innermost frame
    main = [frames for frames in threads if frames and not _is_started(frames)]
    calling = [own for frames in threads if _calls(own := _without_start(frames))]
    shown = [_folded(frames) for frames in main] + [["another thread:", *_folded(frames)] for frames in calling]
    return "".join(f"{line}\n" for lines in shown for line in lines) or text


def told_once(texts: Mapping[int, str]) -> str:
    """Return the texts of all ranks, equal ones together."""
    ranks: dict[str, list[int]] = {}
    for rank in sorted(texts):
        ranks.setdefault(texts[rank], []).append(rank)
    return "".join(f"{ranks_in_words(who)}:\n{text}" for text, who in ranks.items())


def _is_started(frames: Sequence[str]) -> bool:
    """Return whether a thread was started by Python's module threading, as every thread but the main one."""
    found = _FRAME.fullmatch(frames[0])
    return found is not None and found["name"] == _STARTS[0]


def _without_start(frames: Sequence[str]) -> Sequence[str]:
    """Return a thread's frames without the frames of threading's start; nothing if threading did not start it."""
    if not frames or not _is_started(frames):
        return ()
    first = next((i for i, line in enumerate(frames) if (f := _FRAME.fullmatch(line)) and f["name"] not in _STARTS), 0)
    return frames[first:]


def _calls(frames: Sequence[str]) -> bool:
    """Return whether a thread of the program is in a call of ringcast."""
    return bool(frames) and not _is_inside(frames[0]) and any(map(_is_inside, frames))


def _is_inside(line: str) -> bool:
    found = _FRAME.fullmatch(line)
    return found is not None and inside(found["file"])


def _folded(frames: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for hidden, run in groupby(frames, _is_inside):
        of_ringcast = [*run]
        lines += [f"  ... in {_call(of_ringcast[0])} of ringcast"] if hidden else of_ringcast
    return lines


def _call(line: str) -> str:
    found = _FRAME.fullmatch(line)
    return found["name"] if found is not None else "a call"
