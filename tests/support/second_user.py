"""A second user of the machine, who does what an attacker would: a process that gives root's rights up for good."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.patience import patience

UID = 65534  # has no files of its own
_BECOME = f"import os, sys; os.setgroups([]); os.setgid({UID}); os.setuid({UID}); os.umask(0)\n"


def act(code: str, *paths: str | os.PathLike[str], given: bytes = b"") -> bytes:
    """Run Python code as the second user; return its output.

    `sys.argv[1:]` are the paths, `sys.stdin` has what is given; `os` is imported.

    Raises:
        CalledProcessError: it failed, maybe because the system has refused what it tried.
    """
    command = [sys.executable, "-I", "-S", "-c", _BECOME + code, *map(os.fspath, paths)]
    done = subprocess.run(command, check=True, capture_output=True, input=given, timeout=patience(60), cwd="/")
    return done.stdout


@contextmanager
def acting(code: str, *paths: str | os.PathLike[str]) -> Iterator[None]:
    """Let the second user do something again and again, as fast as he can, until the block ends."""
    loop = f"while True:\n    try:\n        {code}\n    except OSError:\n        pass\n"
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _BECOME + loop, *map(os.fspath, paths)], cwd="/")
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def plant(path: Path, content: bytes = b"planted", mode: int = 0o666) -> None:
    """Let the second user write a file."""
    act(f"open(sys.argv[1], 'wb').write(sys.stdin.buffer.read()); os.chmod(sys.argv[1], {mode})", path, given=content)


def exchange(path: Path, target: Path) -> None:
    """Let the second user put a link to `target` in the place of a file or directory, which gets another name."""
    act("os.rename(sys.argv[1], sys.argv[1] + '.away'); os.symlink(sys.argv[2], sys.argv[1])", path, target)


def reads(path: Path) -> bool:
    """Return whether the second user can read a file."""
    try:
        act("open(sys.argv[1], 'rb').read()", path)
    except subprocess.CalledProcessError:
        return False
    return True
