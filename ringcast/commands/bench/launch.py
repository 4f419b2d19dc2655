"""Start the ranks of a peer, on one host or several, and give the command as text."""

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
        start: starts the ranks.
        command: the same as a person would type it; "": there is no such command.
    """

    start: Starter
    command: str


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a peer's ranks.

    Attributes:
        size: number of ranks.
        start_on: starts a command on a host; its arguments are the host's number, the command, and options of
            subprocess.Popen. Rank i runs on host i, an mpirun on host 0.
        env: the whole environment of the commands.
        options: of the mpirun.
        address: of host 0.
        port: a free tcp port of host 0.
    """

    size: int
    start_on: Callable[..., subprocess.Popen[Any]]
    env: Mapping[str, str]
    options: Sequence[str]
    address: str
    port: int


def by_peer(name: str, venv: Path, where: Where) -> Launch:
    """Return the launch of a peer's ranks: by its mpirun, or, if it has none, by this process, one by one."""
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
    """Return options of subprocess.Popen for ranks: no input, and output to the descriptor `log`."""
    return {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
