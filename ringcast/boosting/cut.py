"""Connections of another library in this process, which are cut when a rank of a communicator fails.

A call of XGBoost that waits for another rank hears nothing of ringcast, and may wait for minutes for a rank that is
gone. Linux lists the sockets of this process: XGBoost's are new after XGBoost has connected its ranks. A socket that
is shut down ends the wait for it at once, by an error.

Reading is shut down first, so that a call that sends and then receives ends where it waits. XGBoost 3.2 has a race: a
thread of its own sends and receives, and if one of the two fails before the call has asked for the other one, the call
waits for ever (`Loop::Block` in src/collective/loop.cc), whatever happens to its sockets.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.control.client import ControlClient
from ringcast.wire.control_messages import Abort, Bye, Failed, Notice, Revoke

WHILE = 0.1  # seconds, in which the other library acts on what it has, or takes its leave


class Cut:
    """As a context, cuts the sockets that this process gets from its begin on, when the communicator has failed.

    Attributes:
        heard: set when a rank of the communicator has failed or left, or the communicator was given up.
    """

    def __init__(self, comm: Communicator, control: ControlClient) -> None:
        self.heard = threading.Event()
        self._context, self._members = group_of(comm).context, frozenset(comm.members)
        self._control = control
        self._lock = threading.Lock()
        self._later = threading.Timer(WHILE, self._cut, [socket.SHUT_RDWR])
        self._later.daemon = True
        self._before = sockets()
        self._mine: set[tuple[int, str]] | None = None  # None: while the other library connects

    def connected(self) -> None:
        """Note that the other library has all its connections: later sockets are not cut."""
        with self._lock:
            self._mine = {each for each in sockets() - self._before if _peer(each[0])}

    @contextmanager
    def soon(self) -> Iterator[None]:
        """Cut all sockets since the begin if this context lasts longer than a while, and again until it ends."""
        over = threading.Event()
        thread = threading.Thread(target=self._again, args=(over,), name="ringcast-cut", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _again(self, over: threading.Event) -> None:
        while not over.wait(WHILE):
            cut(sockets() - self._before)

    def __enter__(self) -> Self:
        self._control.listeners.append(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._control.listeners.remove(self._hear)
        self._later.cancel()

    def _hear(self, notice: Notice) -> None:
        """Act on a notice of the control plane, in its thread."""
        match notice:
            case Failed() | Bye():
                concerned = notice.rank in self._members
            case Revoke():
                concerned = notice.context == self._context
            case _:
                concerned = isinstance(notice, Abort)
        if concerned and not self.heard.is_set():
            self.heard.set()
            self._cut(socket.SHUT_RD)
            self._later.start()

    def _cut(self, how: int) -> None:
        with self._lock:
            cut((sockets() - self._before) if self._mine is None else self._mine & sockets(), how)


def sockets() -> set[tuple[int, str]]:
    """Return the descriptors of this process that are sockets, each with the name that Linux has for the socket."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which these are listed, and others that end meanwhile
            if (link := os.readlink(f"/proc/self/fd/{name}")).startswith("socket:"):
                found.add((int(name), link))
    return found


def cut(found: set[tuple[int, str]], how: int = socket.SHUT_RDWR) -> None:
    """Shut these sockets down; their descriptors stay open."""
    for descriptor, _ in found:
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
            same.shutdown(how)


def _peer(descriptor: int) -> bool:
    """Return whether a socket has a connection."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            same.getpeername()
    except OSError:
        return False
    return True
