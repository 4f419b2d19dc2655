"""Ranks in threads, as engines host them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ringcast.bootstrap import hosted
from ringcast.bootstrap.hosted import Outcome, Results


def run(
    fn: Any, n: int, *, args: tuple[object, ...] = (), meanwhile: Callable[[int], None] = lambda nonce: None
) -> Results:
    """Do in threads what an engine does in its workers."""
    job, results = hosted.seats(fn, n, args, 30), Results(n)
    lifeline, control = hosted.host(job[0], "127.0.0.1")
    outcomes: list[Outcome] = []

    def rank(seat: hosted.Seat) -> None:
        outcomes.append(hosted.work(seat, control, None if seat.rank else lifeline))

    threads = [threading.Thread(target=rank, args=(seat,)) for seat in job]
    for thread in threads:
        thread.start()
    meanwhile(job[0].nonce)
    for thread in threads:
        thread.join()
    for outcome in outcomes:
        results.ended(outcome, time.monotonic())
    return results
