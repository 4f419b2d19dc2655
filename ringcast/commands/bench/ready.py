"""Waiting for the first of several files, sockets or processes."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Any


def ready(sources: Iterable[Any], timeout: float | None = None) -> list[Any]:
    """Wait, at most `timeout` seconds, until something can be read from one of `sources`; return those.

    Sources are file descriptors (of a process: `os.pidfd_open`) or have a method `fileno`. At its end, a source is
    ready. Unlike select.select this knows no largest descriptor.
    """
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout)]
