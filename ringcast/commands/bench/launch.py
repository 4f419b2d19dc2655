"""Start the ranks of a peer, wherever commands can be started, and say how in words."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench import peers
from ringcast.commands.bench.job import Starter


@dataclass(frozen=True, slots=True)
class Launch:
    """A way to start the ranks of a system.

    Attributes:
        start: does it.
        command: how, as a person would type it; "": there is no such command.
    """

    start: Starter
    command: str


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a peer's ranks.

    Attributes:
        size: number of ranks.
        start_on: starts a command there, given a host's number, the command, and options of subprocess.Popen; rank i is
            for host i, an mpirun for host 0.
        env: the whole environment of the commands.
        options: of the mpirun.
        address: of host 0.
        port: a tcp port of host 0 that nobody uses.
    """

    size: int
    start_on: Callable[..., subprocess.Popen[Any]]
    env: Mapping[str, str]
    options: Sequence[str]
    address: str
    port: int


def by_peer(name: str, venv: Path, where: Where) -> Launch:
    """Return what starts a peer's ranks: its mpirun, or, if it has none, this process starts each."""
    return Launch(
        _by_mpirun(name, venv, where) if peers.PEERS[name].mpirun else _each(name, venv, where), _shown(name, where)
    )


def _by_mpirun(name: str, venv: Path, where: Where) -> Starter:
    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        argv = [str(venv / "bin" / peers.PEERS[name].mpirun), *_arguments(where), *peers.worker(name, venv, path)]
        return [where.start_on(0, argv, env=where.env, **standard_files(log))]

    return start


def _each(name: str, venv: Path, where: Where) -> Starter:
    def start(path: Path, log: int) -> list[subprocess.Popen[bytes]]:
        argv = peers.worker(name, venv, path)
        envs = [{**where.env, **peers.of_torch(i, where.size, where.address, where.port)} for i in range(where.size)]
        return [where.start_on(i, argv, env=env, **standard_files(log)) for i, env in enumerate(envs)]

    return start


def _arguments(where: Where) -> list[str]:
    return ["-n", str(where.size), *where.options]


def _shown(name: str, where: Where) -> str:
    peer = peers.PEERS[name]
    variables = [f"{variable}={value}" for variable, value in where.env.items() if variable not in peers.PLACES]
    starter = [peer.mpirun, *_arguments(where)] if peer.mpirun else []
    return shlex.join([*variables, *starter, "python", peer.script])


def standard_files(log: int) -> dict[str, Any]:
    """Return the standard files of ranks, whose output goes to the descriptor `log`, as options of subprocess.Popen."""
    return {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
