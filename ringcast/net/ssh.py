"""Build command lines that run a command on another host, by ssh or a program with the same arguments (--rsh-agent).

The launcher starts its agents this way, `ringcast doctor` its probes; benchmarks replace ssh on emulated hosts.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

SSH = ("ssh", "-oBatchMode=yes")  # BatchMode: ssh never asks for a password
FAILED = 255  # the exit status if ssh itself failed, not the command
_NO_PROGRAM = ("No module named", "ModuleNotFoundError", "No such file", "not found")  # words of Python and of shells


def ssh_argv(host: str, command: Sequence[str], starter: Sequence[str] = SSH) -> list[str]:
    """Return the command line that runs `command` on a host; the shell there gets the command as one quoted word.

    >>> ssh_argv("[::1]", ["echo", "a b"])
    ['ssh', '-oBatchMode=yes', '::1', "echo 'a b'"]
    """
    return [*starter, host.strip("[]"), shlex.join(command)]


def is_not_installed(words: str) -> bool:
    """Return whether the output of a remote command means that Python or ringcast is not installed there.

    >>> is_not_installed("sh: 1: exec: /opt/bin/python: not found")
    True
    """
    return any(sign in words for sign in _NO_PROGRAM)
