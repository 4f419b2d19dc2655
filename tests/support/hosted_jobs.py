"""Ranks in threads, as engines host them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ringcast.bootstrap import hosted
from ringcast.bootstrap.hosted import RankResult, Results


def run(
    fn: Any, n: int, *, args: tuple[object, ...] = (), meanwhile: Callable[[int], None] = lambda nonce: None
) -> Results:
    """Do in threads what an engine does in its workers."""
    job, results = hosted.rank_specs(fn, n, args, 30), Results(n)
    lifeline, control = hosted.host(job[0], "127.0.0.1")
    rank_results: list[RankResult] = []

    def rank(spec: hosted.RankSpec) -> None:
        rank_results.append(hosted.work(spec, control, None if spec.rank else lifeline))

    threads = [threading.Thread(target=rank, args=(spec,)) for spec in job]
    for thread in threads:
        thread.start()
    meanwhile(job[0].nonce)
    for thread in threads:
        thread.join()
    for result in rank_results:
        results.ended(result, time.monotonic())
    return results
