"""`read_file` by ranks that are threads, on hosts that are only named so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ringcast
from ringcast import Communicator, RingcastError
from ringcast.transfer import read_once


def read(
    hosts: str, source: str | Callable[[int], str], timeout: float | None = None, **options: Any
) -> list[bytes | RingcastError]:
    """Read on a rank for each letter, which names its host; return the bytes or the error of each rank."""
    options = {"shared": False} | options

    def work(comm: Communicator) -> bytes | RingcastError:
        comm.timeout = timeout
        with on_host(hosts[comm.rank]):
            try:
                mine = source if isinstance(source, str) else source(comm.rank)
                return bytes(comm.read_file(mine, **options))
            except RingcastError as error:
                return error

    with named_hosts():
        return ringcast.run(work, len(hosts), backend="threads")


_HERE = threading.local()


@contextmanager
def named_hosts() -> Any:
    """Have each thread be on the host that it has named."""
    with patch.object(read_once, "host", lambda: _HERE.name), patch.object(read_once, "_hostname", lambda: _HERE.name):
        yield


@contextmanager
def on_host(name: str) -> Any:
    """Name the host of this thread."""
    _HERE.name = name
    yield


def alike(results: Sequence[bytes | RingcastError]) -> RingcastError:
    """Return the error that all ranks have raised alike."""
    first = results[0]
    assert isinstance(first, RingcastError), first[:10]
    assert {(type(each), str(each)) for each in results} == {(type(first), str(first))}
    return first
