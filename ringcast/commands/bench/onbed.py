"""Run a benchmark on emulated hosts: one rank of each system on each host, all on the same links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ringcast.commands.bench import peers
from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.launch import Launch, Where, by_peer, standard_files
from ringcast.commands.bench.remote import RemoteStarter
from ringcast.commands.bench.workers import start_workers


class OnBed:
    """The hosts of a bed; see `orchestrate.Site`."""

    def __init__(self, bed: Bed, config: Path) -> None:
        """Use these hosts; the file `config` has the constants by which ringcast chooses algorithms."""
        self._bed = bed
        self._env = {**os.environ, "RINGCAST_CONFIG": str(config.absolute())}
        self.size = len(bed.hosts)
        self.rate = bed.rate_bits
        self.meter = lambda: [bed.carried(i) for i in range(self.size)]

    def ours(self) -> Launch:
        def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
            argv = [sys.executable, "-P", "-m", "ringcast.commands.bench.systems.ringcast_system", str(path)]
            return start_workers(self._bed, argv, self._env, **standard_files(log))

        return Launch(start, "")

    def peer(self, name: str, folder: Path, stack: ExitStack, /) -> Launch:
        venv = peers.install(name)
        env, options = peers.on_bed(name, venv), peers.PEERS[name].between_hosts
        hosts = [host.name for host in self._bed.hosts]
        given = options(hosts, stack.enter_context(RemoteStarter(self._bed, folder, env)).agent) if options else []
        address, port = self._bed.hosts[0].address, next(self._bed.ports)
        return by_peer(name, venv, Where(self.size, self._bed.start, env, given, address, port))

    def objection(self, hosts: Sequence[str], /) -> str:
        if len(set(hosts)) < len(hosts):
            return f"ranks share a host, so that not all goes over the wire: {hosts}"
        return ""
