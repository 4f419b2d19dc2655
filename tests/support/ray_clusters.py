"""A Ray cluster of one node on this machine, for the tests of a module."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import needs
from support.patience import patience
from support.places import TESTS

ATTEMPTS = 4  # to start a cluster
TOKEN = os.urandom(16).hex()  # one for a process: Ray keeps the first that it has read


@contextmanager
def alone() -> Iterator[None]:
    """Let one process of the tests at a time start a cluster: Ray looks for free ports before it takes them."""
    directory = os.open(TESTS, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


@contextmanager
def place(*paths: Path) -> Iterator[str]:
    """Let clusters that start meanwhile keep their files in a folder, which is yielded, and find modules in `paths`.

    The folder links to this Python's environment: Ray starts workers by a shell that splits the path of Python.
    """
    needs.package("ray")
    # Ray's own folder has sockets, whose names must be short.
    with (
        tempfile.TemporaryDirectory(prefix="rc-ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_TOKEN_PATH", f"{folder}/token")  # else Ray writes one into the user's home
        places = [*map(str, paths), str(TESTS), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        Path(folder, "token").write_text(TOKEN)
        Path(folder, "environment").symlink_to(sys.prefix)
        yield folder


def patient(look: Callable[..., Any]) -> Callable[..., Any]:
    """Return a look for the node that started: Ray gives it 30 s to register, which are too few on a busy machine."""

    def look_on(*node: str) -> Any:
        end = time.monotonic() + patience(40)
        while True:
            try:
                return look(*node)
            except RuntimeError:
                if time.monotonic() > end:
                    raise

    return look_on


def started(folder: str, settings: dict[str, Any]) -> Any:
    """Start Ray, and return what `ray.init` does.

    Beside many other tests Ray's first server sometimes never answers, for minutes, and a new one does at once. The
    reason is not known; Ray looks for free ports before it takes them, so that another program may be at one.
    """
    import ray
    from ray._private import services

    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "get_node", patient(services.get_node))
        for left in reversed(range(ATTEMPTS)):
            try:
                return ray.init(**settings)
            except Exception as error:  # Ray raises no other type for this
                end_servers(folder)
                if not left or "timed out during startup" not in str(error):
                    raise
    raise AssertionError("the last attempt returns or raises")


def end_servers(folder: str) -> None:
    """End the processes of a cluster that keeps its files in a folder."""
    servers = [each for each in psutil.Process().children(recursive=True) if folder in " ".join(command(each))]
    for server in servers:
        with suppress(psutil.NoSuchProcess):
            server.kill()
    psutil.wait_procs(servers, timeout=patience(10))


def command(process: psutil.Process) -> list[str]:
    """Return the words of a process's command; none if it has ended."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


@contextmanager
def cluster(processors: int, *paths: Path, **options: Any) -> Iterator[Any]:
    """Start a cluster whose workers find modules in `paths`; yield what `ray.init` returns."""
    with place(*paths) as folder:
        import ray

        settings = {"include_dashboard": False, "log_to_driver": False, "_temp_dir": folder} | options
        ready = started(folder, {"num_cpus": processors, **settings})
        try:
            yield ready
        finally:
            ray.shutdown()
