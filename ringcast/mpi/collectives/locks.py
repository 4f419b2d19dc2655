"""Locks of communicators, for programs and parts of mpi4py whose calls consist of several of ours."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

from ringcast.mpi.base.contexts import Shared

_tables: WeakKeyDictionary[Shared, dict[Hashable, threading.Lock]] = WeakKeyDictionary()


def _comm_lock_table(comm: Any) -> dict[Hashable, threading.Lock]:
    """Return the locks of a communicator by key."""
    return _tables.setdefault(comm._shared, defaultdict(threading.Lock))


def _comm_lock(comm: Any, key: Hashable | None = None) -> threading.Lock:
    """Return the lock of a communicator for a key."""
    return _comm_lock_table(comm)[key]


def note_lock(comm: Any, key: Hashable) -> None:
    """Have a lock in the table of a communicator, if the program has asked for that; our own calls need none."""
    if comm._shared in _tables:
        _comm_lock(comm, key)
