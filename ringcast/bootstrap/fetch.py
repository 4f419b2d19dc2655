"""`ringcast.fetch`: a file for all ranks of the job."""

from __future__ import annotations

import sys
from os import PathLike
from pathlib import Path

from ringcast.bootstrap.world import init


def fetch(source: str | PathLike[str], target: str | PathLike[str] | None = None, *, sha256: str | None = None) -> Path:
    """Return the path of a copy of a file that rank 0 alone reads: `ringcast.init().fetch`, which describes it.

    Args:
        source: path of a file on rank 0, or URL (http, https, file).
        target: path of the copy; None: in the user's cache directory.
        sha256: the expected SHA-256 of the file, as 64 hexadecimal digits.

    Returns:
        The path of the copy on this rank's host.

    Raises:
        ArgumentError, TransferError: as `Communicator.fetch`.

    >>> ringcast.fetch("/etc/hostname", "./").name
    'hostname'
    """
    return init()._fetch(source, target, sha256, sys._getframe().f_back)
