"""Run a benchmark on one host: ringcast and its peers, each with its defaults between processes of one machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ringcast.commands.bench import peers
from ringcast.commands.bench.job import GRACE
from ringcast.commands.bench.launch import Launch, Where, by_peer, standard_files
from ringcast.commands.bench.orchestrate import Meter
from ringcast.procs.process_tree import kill, members

LOOPBACK = "127.0.0.1"
LOOK = 0.05  # seconds between two looks whether all processes of a peer have ended


class OneHost:
    """The machine of this process; see `orchestrate.Site`. There is no meter, as memory has no counters of bytes."""

    rate: int | None = None
    meter: Meter | None = None

    def __init__(self, size: int, folder: Path) -> None:
        """Each launch will start `size` ranks of a system; `folder` holds files of the peers while their ranks live."""
        self.size = size
        self._folder = folder

    def ours(self) -> Launch:
        command = ["-n", str(self.size)]

        def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
            argv = [sys.executable, "-P", "-m", "ringcast_launcher", *command, "--output", "none"]
            argv += ["python", "-P", "-m", "ringcast.commands.bench.systems.ringcast_system", str(path)]
            return [_start(0, argv, **standard_files(log))]

        return Launch(start, " ".join(["ringcast-launch", *command]))

    def peer(self, name: str, _: Path, stack: ExitStack, /) -> Launch:
        venv = peers.install(name)
        files = self._folder / name
        files.mkdir(exist_ok=True)
        env, options = peers.on_one_host(name, venv, files), peers.PEERS[name].on_one_host
        stack.callback(_end, files)
        return by_peer(name, venv, Where(self.size, _start, env, options, LOOPBACK, _free_port()))

    def objection(self, _: Sequence[str], /) -> str:
        return ""


def _start(_: int, command: Sequence[str], /, **options: Any) -> subprocess.Popen[Any]:
    # In a session of its own, so that Ctrl-C reaches only the benchmark, which then ends the jobs in order.
    return subprocess.Popen(command, start_new_session=True, **options)


def _end(folder: Path) -> None:
    """End all processes of a peer that outlive its ranks; they have GRACE seconds to clean up."""
    tags = {f"TMPDIR={folder}".encode()}
    deadline = time.monotonic() + GRACE
    while members((), tags) and time.monotonic() < deadline:
        time.sleep(LOOK)
    kill(lambda: members((), tags))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
