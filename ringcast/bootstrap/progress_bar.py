"""`ringcast.progress`: a progress bar of rank 0, on the terminal of the launcher, on our own, or in a notebook."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import TypeVar

from ringcast.bootstrap.world import whoami
from ringcast.config.worker import unattended

Item = TypeVar("Item")
EVERY = 0.1  # seconds from one drawing to the next
MARGIN = 6  # columns for the launcher's prefix of a line, and one at the end


def progress(iterable: Iterable[Item], total: float | None = None, description: str | None = None) -> Iterator[Item]:
    """Yield the items of `iterable` unchanged; meanwhile rank 0 shows on standard error how many have been yielded.

    The bar is drawn where a person may see it: on the terminal of the launcher, in a program started alone on its own
    terminal, and in a notebook (whose ranks, as threads, need rich's ipywidgets). Elsewhere, on other ranks, and
    where CI is set, nothing is. Not collective: ranks may have different numbers of items. One bar at a time is drawn.

    Args:
        iterable: any iterable.
        total: number of items; None takes len(iterable), where it has one.
        description: a few words before the bar.

    Returns:
        An iterator. The bar ends with it, also if a loop over it is left.

    Raises:
        ConfigError: as in `init`, at the first item, if `init` has not been called.

    >>> sum(ringcast.progress(range(4)))
    6
    """
    rank, config = whoami()
    if rank != 0 or sys.stderr is None or unattended():
        yield from iterable
    elif config.control:
        width = config.columns - MARGIN
        yield from _through_launcher(iterable, total, description, width) if width > 0 else iterable
    else:
        yield from _here(iterable, total, description)


def _here(iterable: Iterable[Item], total: float | None, description: str | None) -> Iterator[Item]:
    """Draw on our own standard error, as rich does it, if that is a terminal or a notebook."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield from iterable
        return
    with Progress(console=console) as bar:
        yield from bar.track(iterable, total=total, description=description or "")


def _through_launcher(
    iterable: Iterable[Item], total: float | None, description: str | None, width: int
) -> Iterator[Item]:
    """Write each state over the one before; the launcher shows the last one where nothing else is written."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=sys.stderr, width=width, color_system=None, force_terminal=False, force_jupyter=False)
    bar = Progress(console=console, auto_refresh=False)  # never started: it would draw by itself
    task = bar.add_task(description or "", total=total if total is not None else length_hint(iterable) or None)

    def draw() -> None:
        with console.capture() as drawn:
            console.print(bar.get_renderable(), end="")
        sys.stderr.write(f"\r{drawn.get().rstrip():{width}}")
        sys.stderr.flush()

    due = -math.inf
    try:
        for item in iterable:
            if time.monotonic() >= due:
                draw()
                due = time.monotonic() + EVERY
            yield item
            bar.advance(task)
    finally:
        draw()
        sys.stderr.write("\n")
