"""Programs on a terminal of their own, a real one: what comes to it, what stands on it at the end, and keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.patience import patience

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 120  # seconds; nothing takes nearly as long
# With these the launcher has nothing to say.
SHARED = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_USUAL = {**SHARED, "TERM": "xterm", "CI": "", "NO_COLOR": "1"}


class OnTerminal:
    """A program of which the terminal is standard error, and standard input and output unless others are given."""

    def __init__(
        self, command: Sequence[str], stdin: int | None, stdout: int | None, variables: dict[str, str]
    ) -> None:
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
        self._came, self.data = threading.Condition(), b""
        self.modes = termios.tcgetattr(terminal)
        self._terminal = terminal  # kept open, so that its modes can be asked for at the end

        def own_terminal() -> None:
            fcntl.ioctl(2, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=terminal if stdin is None else stdin,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            env={**os.environ, **_USUAL, **variables},
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:  # nobody has the terminal any more
                return
            with self._came:
                self.data += data
                self._came.notify()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        with self._came:
            found = self._came.wait_for(lambda: len(re.findall(pattern.encode(), self.data)) >= times, patience(LIMIT))
            assert found, self.data

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Wait for the program, kill it if it does not end, and return its exit code."""
        try:
            return self.process.wait(patience(LIMIT))
        finally:
            self.process.kill()
            self.process.wait()
            if self._terminal >= 0:
                self.modes_at_the_end = termios.tcgetattr(self._terminal)
                os.close(self._terminal)
                self._terminal = -1
                self._thread.join()
                os.close(self._master)

    @property
    def lines(self) -> list[str]:
        """The lines that stand on the terminal; what was erased is not among them."""
        text = re.sub(r"\x1b\[\?[0-9]+[hl]", "", self.data.decode()).replace("\r\n", "\n")
        return [re.split(r"\r\x1b\[K", line)[-1] for line in text.split("\n")]


@contextmanager
def on_terminal(
    *arguments: str,
    stdin: int | None = None,
    stdout: int | None = None,
    command: Sequence[str] = LAUNCH,
    **variables: str,
) -> Iterator[OnTerminal]:
    """A launcher on a terminal; it is ended with the block."""
    job = OnTerminal([*command, *arguments], stdin, stdout, variables)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGTERM)
        job.end()
