"""Replace ssh where an mpirun starts daemons on other hosts: agent.py SOCKET [OPTION …] HOST COMMAND …

A process on one emulated host cannot start a process on another. So the agent passes host, command and its own standard
files to the benchmark (`ringcast.commands.bench.remote`), which starts the command. The agent waits, and ends with the
status of the command. Standard library only.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence


def parse(words: Sequence[str]) -> tuple[str, str]:
    """Return host and shell command of a call of ssh whose options have no values of their own.

    >>> parse(["-q", "-x", "h1", "prted", "--uri", "x"])
    ('h1', 'prted --uri x')
    """
    first = next(i for i, word in enumerate(words) if not word.startswith("-"))
    return words[first], " ".join(words[first + 1 :])


def main(path: str, words: Sequence[str]) -> int:
    """Have the command run, and return its exit status; 255, as ssh, if the benchmark is gone."""
    host, command = parse(words)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps({"host": host, "command": command}).encode()], [0, 1, 2])
        status = connection.recv(16)  # empty when the benchmark is gone
    return int(status or b"255")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
