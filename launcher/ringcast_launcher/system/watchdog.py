"""Kill the ranks and remove the job's directory from a watchdog process, if the launcher or an agent dies or hangs.

The launcher sends the watchdog lines of a word and a value through a pipe; the last line is `done`. If the pipe ends
without `done`, the launcher died before it could clean up.

An agent on another host can also hang, or be stopped. The launcher then counts the agent's host as lost after a while,
and the ranks there must not act any more. So an agent is `watched`: without signs of life through the pipe the watchdog
kills the agent's ranks, and the agent as well unless it is just ending by itself. Only time in which the watchdog
itself ran counts.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum

from ringcast.procs import process_tree
from ringcast.procs.timing import TIMING

PATIENCE = 2.0  # seconds that the watchdog may take to end after `done`
SILENCE = TIMING.watchdog_silence
BEAT = TIMING.beat  # seconds of one wait; a wait counts as at most twice as long, in case we were stopped
GRACE = 5.0  # seconds in which the watched process can end by itself after its ranks were killed
STEP = 0.1  # seconds between two looks at it then
CHUNK = 1 << 16  # bytes read at once

_CHILD = "import sys; sys.path += sys.argv[1:]; from ringcast_launcher.system.watchdog import main; main()"
_ROOTS = [os.path.abspath(os.path.join(file, *[os.pardir] * 3)) for file in (__file__, process_tree.__file__)]


class Watchdog:
    """The launcher's end of the pipe; a context manager, at whose end the watchdog process has ended."""

    def __init__(self, environment: Mapping[str, str], *, speaks: bool = False) -> None:
        """Start the process in a session of its own, so that it outlives the launcher's session.

        With `speaks` the watchdog prints a message on our standard error if it has killed us.

        Raises:
            OSError: the watchdog cannot be started.
        """
        import subprocess  # the watchdog itself does not need it

        # The watchdog is no member of an outer job, which may be ended before this one.
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
        os.set_blocking(self._child.stdin.fileno(), False)  # else a stopped watchdog with a full pipe would stop us

    def tell(self, word: str, value: str) -> None:
        """Register a value under a word. Values by word:

        * worker: the process number of a worker
        * starter: the process number of a command that reaches an agent
        * tag: an entry of the environment that identifies processes of the job
        * imprints: the first imprint of the workers, and the first one after them
        * directory: the job's directory, to be removed
        * file: a text and a path: the file is removed if it still holds the text
        """
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # the watchdog was killed: the launcher cleans up itself
            self._child.stdin.write(os.fsencode(f"{word} {value}\n"))

    def watch(self) -> None:
        """Have the watchdog kill our workers, and us, after `SILENCE` seconds without a sign of life."""
        self.tell("watched", str(os.getpid()))

    def sign(self) -> None:
        """Give a sign of life."""
        self.tell("alive", "")

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        from subprocess import TimeoutExpired

        self.tell("done", "")
        self._child.stdin.close()
        try:
            self._child.wait(PATIENCE)
        except TimeoutExpired:  # the watchdog was stopped
            self._child.kill()
            self._child.wait()


class _End(Enum):
    """The events that end the watchdog's wait."""

    DONE = "all is done"
    GONE = "the pipe has ended without that"
    SILENT = "there was no sign of life"


class _Pipe:
    """The watchdog's end of the pipe; `told` holds the values received so far, by word."""

    def __init__(self) -> None:
        words = b"worker", b"starter", b"tag", b"imprints", b"directory", b"file", b"watched"
        self.told: dict[bytes, list[bytes]] = {word: [] for word in words}
        self._rest = b""
        self._poller = select.poll()
        self._poller.register(0, select.POLLIN)

    def hear(self, seconds: float | None) -> _End | bool:
        """Read the pipe once; return the end if it has come, else whether anything arrived in time."""
        if not self._poller.poll(None if seconds is None else 1000 * seconds):
            return False
        if not (came := os.read(0, CHUNK)):
            return _End.GONE
        *lines, self._rest = (self._rest + came).split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"done":
                return _End.DONE
            if word != b"alive":
                self.told[word].append(value)
        return True


def main() -> None:
    """Run the watchdog; the pipe is standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    process_tree.take_imprint(None)  # the watchdog is no member of an outer job either
    pipe = _Pipe()
    end = _first_end(pipe)
    if end is _End.DONE:
        return
    leaders = [int(pid) for pid in pipe.told[b"worker"]]
    process_tree.kill(lambda: process_tree.members(leaders, pipe.told[b"tag"], _imprints(pipe)))
    if end is _End.SILENT:
        end = _second_end(pipe)
    if end is _End.DONE:
        return
    hung = end is _End.SILENT and _kill(int(pipe.told[b"watched"][0]))
    process_tree.kill(lambda: _late_ones(pipe))  # the watched process may have started a rank before it was killed
    _end_starters({int(pid) for pid in pipe.told[b"starter"]})
    import shutil  # imported late: few watchdogs ever get here

    for directory in pipe.told[b"directory"]:
        shutil.rmtree(directory, ignore_errors=True)
    if hung:
        words = f"ringcast: process {pipe.told[b'watched'][0].decode()} stood still for {SILENCE:g} s"
        with suppress(OSError):  # the reader may have gone
            os.write(2, f"{words} (stopped, or hung); it was ended with its ranks\n".encode())
    for text, _, file in (one.partition(b" ") for one in pipe.told[b"file"]):
        _remove(file, text)  # last, as it may be on a file system that hangs


def _first_end(pipe: _Pipe) -> _End:
    """Read the pipe until its end, or until the watched process has been silent for `SILENCE` seconds."""
    silent, turned = 0.0, time.monotonic()
    while not (watched := pipe.told[b"watched"]) or silent < SILENCE:
        heard = pipe.hear(min(BEAT, SILENCE - silent) if watched else None)
        if isinstance(heard, _End):
            return heard
        passed, turned = min(time.monotonic() - turned, 2 * BEAT), time.monotonic()
        silent = 0.0 if heard else silent + passed
    return _End.SILENT


def _second_end(pipe: _Pipe) -> _End:
    """Wait a while for the watched process to end by itself: it may have given up because it heard nothing.

    A stopped process cannot end; and a process that gives signs of life again has woken up too late.
    """
    for _ in range(round(GRACE / STEP)):  # not by a clock, which goes on while we are stopped
        if _is_stopped(int(pipe.told[b"watched"][0])):
            break
        heard = pipe.hear(STEP)
        if isinstance(heard, _End):
            return heard
        if heard:
            break
        process_tree.send(_late_ones(pipe), signal.SIGKILL)
    return _End.SILENT


def _end_starters(found: set[int]) -> None:
    """Let the commands that reach agents end by themselves, as their pipes have; then kill them and their children.

    An agent that runs below its command, as with sudo or docker, would leave its files if it were killed at once.
    """
    for _ in range(round(GRACE / STEP)):
        if not (found := process_tree.members(found, ())):
            return
        time.sleep(STEP)
    process_tree.send(found, signal.SIGKILL)


def _late_ones(pipe: _Pipe) -> set[int]:
    """Return ranks started after the others were killed, by their tags: the process numbers may be reused by now."""
    return process_tree.members((), pipe.told[b"tag"], _imprints(pipe))


def _imprints(pipe: _Pipe) -> range:
    return next((range(*map(int, one.split())) for one in pipe.told[b"imprints"]), range(0))


def _is_stopped(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in b"Tt"
    return False


def _kill(watched: int) -> bool:
    """Kill the watched process if it is still our parent: else it has ended, and its number may be reused."""
    if os.getppid() != watched:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(watched, signal.SIGKILL)
        return True
    return False


def _remove(path: bytes, text: bytes) -> None:
    """Remove a file if it holds the text; another one of its name may be there by now."""
    with suppress(OSError), open(path, "rb") as file:
        if text in file.read(CHUNK):
            os.unlink(path)
