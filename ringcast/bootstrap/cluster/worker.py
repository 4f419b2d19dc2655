"""One rank of a cluster as a process: `-m ringcast.bootstrap.cluster.worker FOLDER` makes the calls that come there."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import shutil
import signal
import socket
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import cloudpickle

from ringcast.bootstrap.cluster.call import unpacked
from ringcast.bootstrap.cluster.channel import CALL, CHUNK, HEAD, INTERRUPT, OUTCOME, messages
from ringcast.bootstrap.cluster.host import NUMBER, RANK, SETTINGS, SOCKET
from ringcast.bootstrap.cluster.member import Member
from ringcast.bootstrap.cluster.relay import found
from ringcast.bootstrap.progress_bar import MARGIN
from ringcast.bootstrap.world import init, whoami
from ringcast.communicator import Communicator
from ringcast.config.worker import let_bars_be_drawn


class _Worker:
    """The calls of this process. A thread reads them, so an interrupt, or the end of the caller, is noticed at once."""

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self._folder = folder
        self._connection = connection
        self._calls: queue.SimpleQueue[tuple[bytes, int | None] | None] = queue.SimpleQueue()
        self._made = 0  # calls
        self._running = 0  # number of the one that may be interrupted now
        self._interrupted = 0  # number of the last one that is to be
        self._busy = False

    def serve(self, member: Member) -> None:
        """Make calls until the caller is gone."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=self._read, args=(member,), name="ringcast-calls", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._made += 1
            outcome = member.run(partial(self._call, *call))
            for stream in sys.stdout, sys.stderr:
                with contextlib.suppress(OSError, ValueError, AttributeError):  # the function may have closed them
                    stream.flush()
            body = pickle.dumps(replace(outcome, error=None))
            self._busy = False
            try:
                self._connection.sendall(HEAD.pack(OUTCOME, len(body)) + body)
            except OSError:
                return  # no caller waits for it
            del call, outcome, body
        member.leave()

    def _call(self, body: bytes, memory: int | None, comm: Communicator) -> bytes:
        """Return the pickle of the function's result."""
        self._running = self._made
        try:
            if self._interrupted == self._running:  # it came before the call was begun
                raise KeyboardInterrupt
            fn, args = unpacked(body, memory)
            return cloudpickle.dumps(fn(comm, *args))  # type: ignore[no-any-return]
        finally:
            self._running = 0

    def _on_interrupt(self, _: int, __: FrameType | None) -> None:
        if self._running and self._interrupted == self._running:
            self._running = 0
            raise KeyboardInterrupt

    def _read(self, member: Member) -> None:
        """Take the messages of the caller, in a thread."""
        received, files = bytearray(), []
        with contextlib.suppress(OSError):
            while (come := socket.recv_fds(self._connection, CHUNK, 1))[0]:
                received += come[0]
                files += come[1]
                for kind, body in messages(received):
                    if kind == CALL:
                        self._busy = True
                        self._calls.put((body, files.pop() if files else None))
                    elif kind == INTERRUPT:
                        (self._interrupted,) = NUMBER.unpack(body)
                        member.break_off(self._interrupted)
                        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)  # a caller that was killed could not
        if self._busy:
            os._exit(1)  # no caller waits for the function, and it may run for ever
        self._calls.put(None)


def _streams() -> list[int]:
    """Put a pipe in the place of each of this process's output streams; return their reading ends.

    Output from before an outcome lies in these pipes when the outcome arrives, or was read before.
    """
    ends = []
    for stream in 1, 2:
        reading, writing = os.pipe()
        os.dup2(writing, stream)
        os.close(writing)
        ends.append(reading)
    for text in sys.stdout, sys.stderr:
        text.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return ends


def main(folder: Path) -> None:
    """Join the job, and make the calls of its caller."""
    columns: int
    # Functions may need modules beside the caller's script.
    sys.path[:], columns = pickle.loads((folder / SETTINGS).read_bytes())
    if columns:
        let_bars_be_drawn(columns, MARGIN)
    member = Member.of(init())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / SOCKET))
        ends = _streams()
        socket.send_fds(connection, [RANK.pack(member.rank)], ends)
        for end in ends:
            os.close(end)
        _Worker(connection, folder).serve(member)


if __name__ == "__main__":
    main(found(Path(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")], whoami()[0]))
