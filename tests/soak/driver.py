"""Plays one seed after the other for a given time, and keeps count."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

Play = Callable[[int, Path], str]  # a seed, and an empty directory; says in a word what it was


def soak(kind: str, play: Play, seed: int, seconds: float) -> list[int]:
    """Play the seeds from `seed` on for so long, at least one; return those that failed, of which all is printed."""
    start, failed, count = time.monotonic(), [], 0
    while not count or time.monotonic() - start < seconds:
        with tempfile.TemporaryDirectory(prefix="rc-soak-") as folder:
            try:
                what = play(seed + count, Path(folder))
            except Exception:
                failed.append(seed + count)
                what = "failed"
                _clear()
                print(traceback.format_exc(), file=sys.stderr)
                print(f"again: python -m tests.soak {kind} --seed {seed + count} --seconds 0", file=sys.stderr)
        count += 1
        _progress(f"{kind}: {count}, {len(failed)} failed, {time.monotonic() - start:.0f} s; last {what}")
    _clear()
    failures = f"{len(failed)} failed: seeds {', '.join(map(str, failed))}" if failed else "none failed"
    print(f"{kind}: {count} in {time.monotonic() - start:.0f} s from seed {seed}, {failures}")
    return failed


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    _progress("")
