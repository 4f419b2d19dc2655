"""Who stays when the launcher is killed: a small process that then ends the job and removes its directory.

It hears from the launcher through a pipe: lines of a word and a value, the last of which is `done`. If the pipe ends
without it, the launcher has ended without being able to clean up.

An agent on another host can also stand still: stopped, or hung. Elsewhere it then counts as lost after a while, and its
ranks with it, which must not act any more. So it is `watched`: if it gives no sign of life through the pipe, its ranks
are ended, and it as well. As with all clocks of this kind only the time counts in which the guardian itself ran.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from ringcast import family

PATIENCE = 2.0  # seconds that it may take to end when all is done
SILENCE = 8.0  # seconds without a sign of life after which who is watched stands still
BEAT = 1.0  # seconds between two signs of life
CHUNK = 1 << 16  # bytes read at once

_CHILD = "import sys; sys.path += sys.argv[1:]; from ringcast_launcher.guardian import main; main()"
_ROOTS = [os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in (__file__, family.__file__)]


class Guardian:
    """The launcher's end of the pipe; a context manager, at whose end the guardian has ended too."""

    def __init__(self, environment: Mapping[str, str], *, speaks: bool = False) -> None:
        """Start it, in a session of its own: what ends the launcher's session does not end it.

        With `speaks` it says on our standard error when it has ended us.

        Raises:
            OSError: it cannot be started.
        """
        self._next_sign = 0.0
        # Of an outer job, which may be ended before this one, it is no member.
        own = {name: value for name, value in environment.items() if not name.startswith("RINGCAST_")}
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD, *_ROOTS],
            env=own,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None if speaks else subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)  # were it stopped, and the pipe full, we would be as well

    def tell(self, word: str, value: str) -> None:
        """Let it know of a `worker` (its process number), the `directory`, or a `mark` of the job's processes.

        Or of a `file` that is to go if it still holds the text before the blank; what is written there later stays.
        """
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed it: the launcher does what there is to do itself
            self._child.stdin.write(os.fsencode(f"{word} {value}\n"))

    def watch(self) -> None:
        """Have it end our workers, and us, once we have given no sign of life for `SILENCE`."""
        self.tell("watched", str(os.getpid()))

    def sign(self, now: float) -> None:
        """Give a sign of life, if one is due."""
        if now >= self._next_sign:
            self._next_sign = now + BEAT
            self.tell("alive", "")

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self.tell("done", "")
        self._child.stdin.close()
        try:
            self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # somebody stopped it
            self._child.kill()
            self._child.wait()


def main() -> None:
    """Be the guardian; the pipe is standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    told: dict[bytes, list[bytes]] = {word: [] for word in (b"worker", b"mark", b"directory", b"file", b"watched")}
    if _all_done(told):
        return
    for text, _, file in (one.partition(b" ") for one in told[b"file"]):
        _remove(file, text)
    leaders = [int(pid) for pid in told[b"worker"]]
    family.kill(lambda: family.members(leaders, told[b"mark"]))
    stood_still = os.getppid() in map(int, told[b"watched"])
    if stood_still:  # it may wake up at any time, and have started another rank before it is killed
        os.kill(os.getppid(), signal.SIGKILL)
        family.kill(lambda: family.members(leaders, told[b"mark"]))
    import shutil  # not before it is needed: few guardians ever come here

    for directory in told[b"directory"]:
        shutil.rmtree(directory, ignore_errors=True)
    if stood_still:
        words = f"ringcast: process {told[b'watched'][0].decode()} stood still for {SILENCE:g} s (stopped, or hung)"
        with suppress(OSError):  # nobody may listen any more
            os.write(2, f"{words}; it was ended with its ranks\n".encode())


def _remove(path: bytes, text: bytes) -> None:
    """Remove a file if it holds the text; another one of its name may be there by now."""
    with suppress(OSError), open(path, "rb") as file:
        if text in file.read(CHUNK):
            os.unlink(path)


def _all_done(told: dict[bytes, list[bytes]]) -> bool:
    """Take down what is told until all is done; False if that is not said before the end, or before a silence."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    data, silent, turned = b"", 0.0, time.monotonic()
    while not told[b"watched"] or silent < SILENCE:
        ready = poller.poll(1000 * min(BEAT, SILENCE - silent) if told[b"watched"] else None)
        passed, turned = min(time.monotonic() - turned, 2 * BEAT), time.monotonic()
        silent += passed
        if not ready:
            continue
        if not (came := os.read(0, CHUNK)):
            return False
        silent = 0.0
        *lines, data = (data + came).split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"done":
                return True
            if word != b"alive":
                told[word].append(value)
    return False
