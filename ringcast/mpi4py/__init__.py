"""Programs for mpi4py as they are: `python -m ringcast.mpi4py program.py`, or `ringcast-launch --as-mpi4py program.py`.

A folder first in PYTHONPATH has a package `mpi4py`. A variable of the environment reaches every kind of program:
scripts, `python -m pytest`, kernels of notebooks, and the processes that they start. A finder in sys.meta_path would
have to be put there again by each of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "package"


def path(environment: Mapping[str, str]) -> str:
    """Return PYTHONPATH with the folder of our package `mpi4py` before all that it has.

    >>> path({"PYTHONPATH": "lib"}).removeprefix(str(FOLDER))
    ':lib'
    """
    others = environment.get("PYTHONPATH")
    return f"{FOLDER}{os.pathsep}{others}" if others else str(FOLDER)
