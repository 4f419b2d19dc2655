"""Who stays when the launcher is killed: a small process that then ends the job and removes its directory.

It hears from the launcher through a pipe: lines of a word and a value, the last of which is `done`. If the pipe ends
without it, the launcher has ended without being able to clean up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from ringcast import family

PATIENCE = 2.0  # seconds that it may take to end when all is done

_CHILD = "import sys; sys.path += sys.argv[1:]; from ringcast_launcher.guardian import main; main()"
_ROOTS = [os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in (__file__, family.__file__)]


class Guardian:
    """The launcher's end of the pipe; a context manager, at whose end the guardian has ended too."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start it, in a session of its own: what ends the launcher's session does not end it.

        Raises:
            OSError: it cannot be started.
        """
        # Of an outer job, which may be ended before this one, it is no member.
        own = {name: value for name, value in environment.items() if not name.startswith("RINGCAST_")}
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD, *_ROOTS],
            env=own,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )

    def tell(self, word: str, value: str) -> None:
        """Let it know of a `worker` (its process number), the `directory`, or a `mark` of the job's processes."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed it: the launcher does what there is to do itself
            self._child.stdin.write(os.fsencode(f"{word} {value}\n"))

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
    told: dict[bytes, list[bytes]] = {b"worker": [], b"mark": [], b"directory": []}
    with open(0, "rb", closefd=False) as pipe:
        for line in pipe:
            word, _, value = line.removesuffix(b"\n").partition(b" ")
            if word == b"done":
                return
            told[word].append(value)
    leaders = [int(pid) for pid in told[b"worker"]]
    family.kill(lambda: family.members(leaders, told[b"mark"]))
    import shutil  # not before it is needed: few guardians ever come here

    for directory in told[b"directory"]:
        shutil.rmtree(directory, ignore_errors=True)
