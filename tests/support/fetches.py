"""Fetches by ranks that are threads, and what each of them gets."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ringcast
from ringcast import Communicator, TransferError

DATA = random.Random(1).randbytes(2_500_000)
SECRETS = "user", "password", "token"  # in the URLs of tests, and never in an error


def fetched(size: int, source: str | Path, target: Callable[[int], str | Path | None], **options: Any) -> list[Any]:
    """Fetch on ranks that are threads, which give `target(rank)`; return paths or texts of errors."""

    def work(comm: Communicator) -> Path | str:
        mine = source if comm.rank == 0 else "not there"
        try:
            return comm.fetch(mine, target(comm.rank), **options)
        except TransferError as error:
            return str(error)

    return ringcast.run(work, size, backend="threads")


def failed(size: int, source: str | Path, target: Path) -> str:
    """Return the error of a fetch, which is the same on all ranks; it leaves no file, and tells no secret."""
    results = fetched(size, source, lambda rank: target / f"{rank}/")
    assert isinstance(results[0], str)
    assert len(set(results)) == 1
    assert not [path for path in target.rglob("*") if path.is_file()]
    text = results[0].replace(str(target), "")  # a user may be named like a secret
    assert not any(secret in text for secret in SECRETS)
    return results[0]
