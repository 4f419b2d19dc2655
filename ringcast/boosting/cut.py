"""Connections of another library in this process, which are cut when a rank of a communicator fails.

A call of XGBoost that waits for another rank hears nothing of ringcast, and may wait for minutes for a rank that is
gone. Linux lists the sockets of this process: a socket is XGBoost's if it is new after XGBoost has connected its ranks,
or if one end of it has the address of the tracker. Others, of the program or of ringcast, are not cut, except one that
another thread opens while XGBoost connects, if a rank fails in that time. A socket that is shut down ends the wait for
it at once, by an error.

Reading is shut down first, so that a call that sends and then receives ends where it waits. XGBoost 3.2 has a race: a
thread of its own sends and receives, and if one of the two fails before the call has asked for the other one, the call
waits for ever (`Loop::Block` in src/collective/loop.cc), whatever happens to its sockets.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.control.client import ControlClient
from ringcast.wire.control_messages import Abort, Bye, Failed, Notice, Revoke

Socket = tuple[int, str]  # a descriptor, and the name that Linux has for the socket
WHILE = 0.1  # seconds in which the other library acts on what it has
LEAVE = 1.0  # seconds in which it leaves its network, where no rank has failed


class Cut:
    """As a context, cuts the sockets of another library when the communicator has failed.

    Attributes:
        heard: set when a rank of the communicator has failed or left, or the communicator was given up.
        tracker: address and port of the tracker; its sockets are cut, and all sockets that are connected to it.
    """

    def __init__(self, comm: Communicator, control: ControlClient) -> None:
        self.heard = threading.Event()
        self._context, self._members = group_of(comm).context, frozenset(comm.members)
        self._control = control
        self._lock = threading.Lock()
        self._later = threading.Timer(WHILE, self._cut, [socket.SHUT_RDWR])
        self._later.daemon = True
        self.tracker: tuple[str, int] | None = None
        self._before: set[Socket] | None = None  # set while the other library connects
        self._mine: set[Socket] = set()

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Note the sockets with a peer that are new after this context: they belong to the other library."""
        before = sockets()
        with self._lock:
            self._before = before
        try:
            yield
        finally:
            with self._lock:
                self._mine = {each for each in sockets() - before if _ends(each)[1:]}
                self._before = None

    @contextmanager
    def soon(self) -> Iterator[None]:
        """Cut the other library's sockets if this context lasts longer than a leave, and again until it ends."""
        over = threading.Event()
        thread = threading.Thread(target=self._again, args=(over,), name="ringcast-cut", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _again(self, over: threading.Event) -> None:
        while not over.wait(WHILE if self.heard.is_set() else LEAVE):
            self._cut(socket.SHUT_RDWR)

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
            now = sockets()
            found = self._mine & now if self._before is None else now - self._before
            cut(found | {each for each in now - found if self.tracker in _ends(each)}, how)


def sockets() -> set[Socket]:
    """Return the descriptors of this process that are sockets, each with the name that Linux has for the socket."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which these are listed, and others that end meanwhile
            if (link := os.readlink(f"/proc/self/fd/{name}")).startswith("socket:"):
                found.add((int(name), link))
    return found


def cut(found: set[Socket], how: int = socket.SHUT_RDWR) -> None:
    """Shut these sockets down; their descriptors stay open."""
    for each in found:
        with suppress(OSError), _same(each) as same:
            same.shutdown(how)


def _ends(which: Socket) -> list[Any]:
    """Return the address of a socket, and that of its peer, as far as it has them, without what IPv6 adds."""
    ends: list[Any] = []
    with suppress(OSError), _same(which) as same:
        ends.append(same.getsockname()[:2])
        ends.append(same.getpeername()[:2])
    return ends


def _same(which: Socket) -> socket.socket:
    """Return a socket by another descriptor.

    Raises:
        OSError: it is closed; its descriptor may be another socket's by now.
    """
    descriptor, name = which
    copy = os.dup(descriptor)
    try:
        if os.readlink(f"/proc/self/fd/{copy}") != name:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return socket.socket(fileno=copy)
    except BaseException:
        os.close(copy)
        raise
