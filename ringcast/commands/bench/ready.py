"""Wait for the first of several files, sockets or processes."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Any


def ready(sources: Iterable[Any], timeout: float | None = None) -> list[Any]:
    """Wait, at most `timeout` seconds, until a source can be read; return all sources that can.

    Sources are file descriptors (of a process: `os.pidfd_open`) or have a method `fileno`. A source at its end counts
    as readable. Unlike select.select this has no limit on the numbers of descriptors.
    """
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout)]
