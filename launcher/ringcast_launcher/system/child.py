"""Start and end a worker's process, in a session of its own, with two pipes for its output; it dies with the launcher.

A worker that has ended stays a zombie until `reap`, so that the number of the process and of its group is not reused
while the group may still be signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from ringcast.procs.libc import prctl
from ringcast.procs.portable import exit_code
from ringcast.procs.process_tree import take_imprint

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class Process:
    """A running worker. `stdout` and `stderr` are non-blocking file descriptors, closed by `reap`.

    `stdin` is a descriptor that the caller owns, if a pipe was asked for.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        imprint: int,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start the worker; from the main thread, because the kernel ends it together with the thread that forked.

        Its standard input is the file `stdin`, or subprocess.DEVNULL or PIPE.
        The `imprint` identifies its descendants, see `ringcast.procs.process_tree`.

        Raises:
            OSError: the program cannot be started.
        """
        launcher = os.getpid()

        def before_exec() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:  # the launcher ended before the line above
                os._exit(1)
            take_imprint(imprint)

        self._child = subprocess.Popen(
            argv,
            env=environment,
            cwd=directory,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=before_exec,
        )
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self.pid = self._child.pid
        self.stdin = -1
        if self._child.stdin is not None:
            self.stdin = os.dup(self._child.stdin.fileno())
            self._child.stdin.close()
        self.stdout, self.stderr = self._child.stdout.fileno(), self._child.stderr.fileno()
        os.set_blocking(self.stdout, False)
        os.set_blocking(self.stderr, False)

    def status(self) -> int | None:
        """Return the exit code, or minus the signal that killed the worker; None while it runs."""
        return exit_code(self._child)

    def signal_group(self, number: int) -> None:
        """Send a signal to the worker and the processes of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> None:
        """Wait for the end of the worker and close the pipes. Idempotent."""
        self._child.wait()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Be the subreaper: descendants whose parents have ended become our children, so that none is lost."""
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)
