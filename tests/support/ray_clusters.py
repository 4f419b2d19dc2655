"""A Ray cluster of one node on this machine, for the tests of a module."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import needs
from support.patience import patience
from support.places import TESTS

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
        end = time.monotonic() + patience(120)
        while True:
            try:
                return look(*node)
            except RuntimeError:
                if time.monotonic() > end:
                    raise

    return look_on


@contextmanager
def cluster(processors: int, *paths: Path, **options: Any) -> Iterator[Any]:
    """Start a cluster whose workers find modules in `paths`; yield what `ray.init` returns."""
    with place(*paths) as folder:
        import ray
        from ray._private import services

        settings = {"include_dashboard": False, "log_to_driver": False, "_temp_dir": folder} | options
        with alone(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(services, "get_node", patient(services.get_node))
            started = ray.init(num_cpus=processors, **settings)
        try:
            yield started
        finally:
            ray.shutdown()
