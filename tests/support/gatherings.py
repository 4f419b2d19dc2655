"""Ranks that no launcher starts and that meet through a store: as threads of the test, or as processes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ringcast.adapters.meeting import meet
from ringcast.communicator import Communicator
from support.key_values import Folder
from support.places import TESTS

PRELUDE = """
import os, sys
import numpy as np
import ringcast
from ringcast.adapters.meeting import meet
from support.key_values import Folder
folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
"""


def threads(
    work: Callable[[Communicator], Any], folder: Path, size: int, *, among: Iterable[int] = (), **options: Any
) -> list[Any]:
    """Return by rank what `work` returns or raises, for the ranks `among` these of one group, in threads."""
    results: list[Any] = [None] * size

    def rank(number: int) -> None:
        try:
            comm = meet(Folder(folder), number, size, **options)
            try:
                results[number] = work(comm)
            finally:
                comm.finalize()
        except Exception as error:
            results[number] = error

    running = [threading.Thread(target=rank, args=(number,)) for number in among or range(size)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return results


def process(program: str, folder: Path, rank: int, size: int, **env: str) -> subprocess.Popen[str]:
    """Start a process that is a rank: `program` finds meet, Folder, folder, rank and size."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(folder), str(rank), str(size)],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OPENBLAS_NUM_THREADS": "1", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
