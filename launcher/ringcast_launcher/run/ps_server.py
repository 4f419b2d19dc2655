"""Serve `ringcast ps` over a socket in the job's directory: the states of the ranks on all hosts."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

from ringcast.monitoring.jobs import INQUIRIES
from ringcast.procs.portable import nameless_file


class PsServer:
    """The socket; only users who may enter the directory can find it. A connection is a request; no method blocks.

    Raises:
        OSError: there can be no socket in that directory.
    """

    def __init__(self, directory: str) -> None:
        self._asking: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.setblocking(False)
            self._listener.bind(os.path.join(directory, INQUIRIES))
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise

    @property
    def files(self) -> list[int]:
        """The files that become readable with a request."""
        return [] if self._listener.fileno() < 0 else [self._listener.fileno()]

    def come(self) -> bool:
        """Accept requests; return True if any waits for an answer."""
        while self.files:
            try:
                self._asking.append(self._listener.accept()[0])
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError:  # no descriptor is left: better no answers than a loop that never sleeps
                self._listener.close()
        return bool(self._asking)

    def answer(self, told: bytes) -> None:
        """Send a file with the answer to each process that waits; a file, unlike a socket, never fills up."""
        asking, self._asking = self._asking, []
        with ExitStack() as stack:
            for asker in asking:
                stack.enter_context(asker)
            # Without a free descriptor, or room for a file, they get no answer, and show only the ranks on this host.
            with suppress(OSError), open(nameless_file(INQUIRIES), "wb") as file:
                file.write(told)
                file.flush()
                for asker in asking:
                    asker.setblocking(False)
                    with suppress(OSError):  # the process has gone
                        socket.send_fds(asker, [b"."], [file.fileno()])

    def close(self) -> None:
        for each in [self._listener, *self._asking]:
            each.close()
