"""Start commands on emulated hosts for programs on other emulated hosts: the other end of `systems.agent`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ringcast.commands.bench import systems
from ringcast.commands.bench.bed import Bed, BedError
from ringcast.commands.bench.job import listen
from ringcast.commands.bench.ready import ready
from ringcast.net.ssh import FAILED


class RemoteStarter:
    """Runs commands on the hosts of a bed for agents; a context manager, which kills all of them at its end.

    Attributes:
        agent: a program to be called in place of ssh: [OPTION …] HOST COMMAND …

    Args:
        bed: the hosts.
        folder: an existing directory, private to this user, for the socket and the program; the caller removes it,
            at the earliest when all commands have been started.
        env: the environment of the commands.

    Raises:
        JobLost: no socket can be made in `folder`.
    """

    def __init__(self, bed: Bed, folder: Path, env: Mapping[str, str]) -> None:
        self._bed, self._env = bed, env
        path = folder / "remote"
        self.agent = folder / "agent"
        script = Path(systems.__file__).with_name("agent.py")
        command = shlex.join([sys.executable, str(script), str(path)])
        self.agent.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        self.agent.chmod(0o700)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            listen(self._listener, path, 128)
        except BaseException:
            self._listener.close()
            raise
        self._wake, self._closing = os.pipe()  # readable at its end: closing
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, name="remote starter")
        self._acceptor.start()

    def close(self) -> None:
        """Kill the started commands, and wait until they have ended; idempotent."""
        if self._listener.fileno() < 0:
            return
        os.close(self._closing)
        self._acceptor.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        os.close(self._wake)

    def __enter__(self) -> RemoteStarter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            if self._wake in ready([self._listener, self._wake]):
                return
            connection, _ = self._listener.accept()
            thread = threading.Thread(target=self._serve, args=(connection,), name="remote command")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        """Run one command, until it ends, its agent is gone, or we close."""
        with connection:
            if self._wake in ready([connection, self._wake]):
                return
            request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            try:
                status = self._run(json.loads(request), files, connection) if len(files) == 3 else FAILED
            finally:
                for file in files:
                    os.close(file)
            with contextlib.suppress(OSError):  # the agent is gone
                connection.sendall(b"%d" % status)

    def _run(self, request: dict[str, str], files: list[int], connection: socket.socket) -> int:
        host, command = request["host"], request["command"]
        numbers = {known.name: i for i, known in enumerate(self._bed.hosts)}
        stdin, stdout, stderr = files
        try:
            argv = self._bed.argv(numbers[host], ["sh", "-c", command])
        except (KeyError, BedError) as error:
            os.write(stderr, f"cannot start anything on {host}: {error}\n".encode())
            return FAILED
        process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=self._env)
        ended = os.pidfd_open(process.pid)
        try:
            if ended not in ready([ended, connection, self._wake]):
                process.kill()
        finally:
            os.close(ended)
        return process.wait() & 0xFF
