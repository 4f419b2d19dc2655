"""The ranks of another host: `-m ringcast.bootstrap.cluster.relay NAME SIZE` there, and its caller's end of the link.

ssh carries the link, so it is encrypted and authenticated, nothing listens at a port, and each end learns at once that
the other is gone. A call goes over it once for all ranks of the host; the relay puts large buffers into memory there.
"""

from __future__ import annotations

import mmap
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ringcast._util.safe_text import escaped
from ringcast.bootstrap.cluster.host import SETTINGS, Event, HereRanks, Kind
from ringcast.monitoring import jobs
from ringcast.net.ssh import ssh_argv
from ringcast.procs.portable import nameless_file

_HEAD = struct.Struct("<BIQ")  # kind, rank or another number, bytes of the body
_CALL, _MEMORY, _INTERRUPT, _SETTINGS = range(100, 104)  # frames of the caller beside the events of `Kind`
_CHUNK = 1 << 18
BEHIND = 64  # unsent pieces from which on the ranks of a host wait until their caller takes output
TOLD = 2000  # characters of ssh's output that are kept
END = 5.0  # seconds that ssh may take to end


class _Pipe:
    """Frames over two descriptors, which do not block."""

    def __init__(self, reading: int, writing: int) -> None:
        for file in reading, writing:
            os.set_blocking(file, False)
        self.reading, self.writing = reading, writing
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()

    @property
    def unsent(self) -> int:
        """Number of pieces that `flush` has to send."""
        return len(self._unsent)

    def put(self, kind: int, number: int, body: bytes | memoryview = b"") -> None:
        """Keep a frame for `flush`."""
        head = _HEAD.pack(kind, number, len(body))
        self._unsent += (memoryview(part) for part in (head, body) if len(part))

    def flush(self) -> None:
        """Send as much as the system takes.

        Raises:
            OSError: the other end is gone.
        """
        with suppress(BlockingIOError):
            while self._unsent:
                sent = os.write(self.writing, self._unsent[0][:_CHUNK])
                rest = self._unsent.popleft()[sent:]
                if rest:
                    self._unsent.appendleft(rest)

    def take(self) -> Iterator[tuple[int, int, bytes]]:
        """Return the frames that have come whole.

        Raises:
            EOFError: the other end is gone.
        """
        try:
            data = os.read(self.reading, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise EOFError
        self._received += data
        while len(self._received) >= _HEAD.size:
            kind, number, size = _HEAD.unpack_from(self._received)
            end = _HEAD.size + size
            if len(self._received) < end:
                return
            body = bytes(memoryview(self._received)[_HEAD.size : end])
            del self._received[:end]
            yield kind, number, body


class ThereRanks:
    """The ranks of another host, which a relay has; fulfils `HostRanks`."""

    def __init__(self, host: str, name: str, ranks: Sequence[int], settings: bytes) -> None:
        self._host, self._ranks = host, ranks
        command = [sys.executable, "-P", "-m", __name__, f"{name}-{ranks[0]}", str(len(ranks))]
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        # In a process group of its own Ctrl-C does not reach it.
        self._ssh = subprocess.Popen(
            ssh_argv(host, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            process_group=0,
        )
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        self._pipe = _Pipe(self._ssh.stdout.fileno(), self._ssh.stdin.fileno())
        self._pipe.put(_SETTINGS, 0, settings)
        self._gone = self._closed = False

    @property
    def words(self) -> str:
        """The last words of ssh or of the relay."""
        self._words.seek(0)
        return escaped(self._words.read().decode(errors="replace")[-TOLD:].strip())

    def register(self, poller: select.poll) -> list[int]:
        if self._gone:
            return []
        with suppress(OSError):  # its end is seen by reading
            self._pipe.flush()
        poller.register(self._pipe.reading, select.POLLIN)
        if self._pipe.unsent:
            poller.register(self._pipe.writing, select.POLLOUT)
        return [self._pipe.reading, self._pipe.writing]

    def call(self, body: bytes, memory: int | None) -> None:
        if memory is not None:
            self._pipe.put(_MEMORY, 0, memoryview(mmap.mmap(memory, 0, mmap.MAP_SHARED, mmap.PROT_READ)))
        self._pipe.put(_CALL, 0, body)

    def interrupt(self, rank: int, run: int) -> None:
        self._pipe.put(_INTERRUPT, rank, struct.pack("<Q", run))

    def take(self, file: int) -> Iterator[Event]:
        if file != self._pipe.reading:
            return
        try:
            for kind, rank, body in self._pipe.take():
                yield Event(Kind(kind), rank, body)
        except EOFError:
            self._gone = True
            yield from (Event(Kind.DIED, rank) for rank in self._ranks)

    def drain(self) -> Iterator[Event]:
        return iter(())  # the relay sends output before the outcome that follows it

    def leave(self) -> None:
        assert self._ssh.stdin is not None
        with suppress(OSError):
            self._ssh.stdin.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.leave()
        for urge in self._ssh.terminate, self._ssh.kill:
            try:
                self._ssh.wait(END)
                break
            except subprocess.TimeoutExpired:
                urge()
        self._ssh.wait()
        assert self._ssh.stdout is not None
        self._ssh.stdout.close()
        self._words.close()


class _Relay:
    """The other end: it serves a caller until that is gone."""

    def __init__(self, pipe: _Pipe, folder: Path, size: int) -> None:
        self._pipe, self._folder = pipe, folder
        self._here = HereRanks(folder, size)
        self._memory: int | None = None
        self._alive: set[int] = set()

    def serve(self) -> None:
        while True:
            poller = select.poll()
            files = self._here.register(poller) if self._pipe.unsent < BEHIND else []
            poller.register(self._pipe.reading, select.POLLIN)
            if self._pipe.unsent:
                poller.register(self._pipe.writing, select.POLLOUT)
            for file, _ in poller.poll():
                if file == self._pipe.reading:
                    for frame in self._pipe.take():
                        self._obey(*frame)
                elif file in files:
                    for event in self._here.take(file):
                        if event.kind == Kind.JOINED:
                            self._alive.add(event.rank)
                        elif event.kind == Kind.DIED:
                            self._alive.discard(event.rank)
                        self._pipe.put(*event)
            self._pipe.flush()

    def _obey(self, kind: int, number: int, body: bytes) -> None:
        if kind == _SETTINGS:
            (self._folder / SETTINGS).write_bytes(body)
            self._pipe.put(Kind.READY, 0)
        elif kind == _MEMORY:
            self._memory = nameless_file("ringcast-call")
            with open(os.dup(self._memory), "wb") as file:
                file.write(body)
        elif kind == _CALL:
            self._here.call(body, self._memory)
            self._forget()
        elif kind == _INTERRUPT:
            self._here.interrupt(number, *struct.unpack("<Q", body))

    def _forget(self) -> None:
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def close(self) -> None:
        """Let the ranks leave, take their last output, and give everything back."""
        self._forget()
        self._here.leave()
        until = time.monotonic() + END
        while self._alive and time.monotonic() < until:
            poller = select.poll()
            files = self._here.register(poller)
            for file, _ in poller.poll(1000 * END):
                if file in files:
                    self._alive -= {event.rank for event in self._here.take(file) if event.kind == Kind.DIED}
        self._here.close()


def found(callers: Path, firsts: Sequence[int], rank: int) -> Path:
    """Return the folder with the socket of a rank: its host's relay has made it, or on the caller's host the caller.

    Args:
        callers: the caller's folder on the caller's host. The name of a relay's folder is the same, followed by the
            first rank of the relay's host.
        firsts: the first rank of each host.
        rank: the rank.

    Raises:
        FileNotFoundError: this user has no such folder here.
    """
    first = max(first for first in firsts if first <= rank)
    relays = [Path(place, f"{callers.name}-{first}") for place in jobs.places()]  # with any TMPDIR
    for folder in [*relays, callers]:
        with suppress(FileNotFoundError):
            facts = folder.lstat()
            if facts.st_uid == os.geteuid() and facts.st_mode & 0o177777 == 0o40700:
                return folder
    raise FileNotFoundError(f"there is no folder {callers.name} of this user")


def main(name: str, size: int) -> None:
    """Serve the caller at the other end of standard input and output."""
    with ExitStack() as stack:
        folder = Path(jobs.bases()[0], name)
        folder.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        relay = _Relay(_Pipe(0, 1), folder, size)
        stack.callback(relay.close)
        with suppress(EOFError, BrokenPipeError):
            relay.serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
