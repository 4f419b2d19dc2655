"""Fetch a file for a job: rank 0 reads it once, and every host gets one copy, which its ranks share.

Rank 0 writes its own copy first. Then one rank of each host whose ranks do not see that file gets it from rank 0; which
ranks share files is not known beforehand, so that all look again, until nobody lacks it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, Self

from ringcast._util.output_files import write_whole
from ringcast.config.worker import cache_directory
from ringcast.errors import RingcastError, TransferError
from ringcast.net.colocation import host
from ringcast.procs import portable
from ringcast.transfer import records
from ringcast.transfer.copying import copy_files_together
from ringcast.transfer.manifest import shown
from ringcast.transfer.options import Options
from ringcast.transfer.origin import Origin, name_of, opened
from ringcast.transfer.records import announced, exchanged


class Ranks(records.Ranks, AbstractContextManager[Any], Protocol):
    """The part of a communicator that a fetch uses."""

    def create(self, ranks: Sequence[int]) -> Self | None: ...
    def revoke(self) -> None: ...


def fetch(comm: Ranks, source: str, target: str | None, sha256: str | None) -> Path:
    """Return the path of this rank's copy of a file that rank 0 can read.

    Raises:
        TransferError: rank 0 cannot read it, or a rank cannot write it; alike on all ranks.
    """
    record: dict[str, Any] = {}
    if comm.rank == 0:
        try:
            record = _read_once(comm.members[0], source, target, sha256)
        except TransferError as error:
            record = {"error": str(error)}
    record = announced(comm, 0, record)
    if "error" in record:
        raise TransferError(record["error"])
    path = _placed(target, os.fsdecode(record["name"]), os.fsdecode(record["cached"]))
    _spread(comm, path, record, believed=sha256 is None)
    return path


def _read_once(rank: int, source: str, target: str | None, sha256: str | None) -> dict[str, Any]:
    """Have the file at its place on this host; return what the others must know of it; `rank` is this one."""
    name = name_of(source)
    whole = source if "://" in source else os.path.abspath(source)
    cached = f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]}-{name}"  # other sources may have the same name
    path = _placed(target, name, cached)
    try:
        if sha256 is None or _digest(path) != sha256:
            with opened(source) as origin:
                if sha256 is not None or not _looks_like(path, origin.size, origin.mtime):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, partial(_write, origin, sha256))
        status = path.stat()
    except OSError as error:
        raise TransferError(f"rank {rank}: {shown(str(path))}: {error.strerror}") from error
    known = {"name": os.fsencode(name), "cached": os.fsencode(cached), "place": _place(path)}
    return known | {"size": status.st_size, "mtime": status.st_mtime_ns}


def _write(origin: Origin, sha256: str | None, file: IO[bytes]) -> None:
    """Write what the origin has, if it is what is expected."""
    if origin.size:
        portable.allocate(file.fileno(), origin.size)
    digest = hashlib.sha256()
    for piece in origin.pieces():
        file.write(piece)
        if sha256 is not None:
            digest.update(piece)
    if sha256 not in (None, digest.hexdigest()):
        raise TransferError(f"{origin.shown}: its SHA-256 is {digest.hexdigest()}, expected {sha256}")
    file.flush()
    if origin.mtime is not None:
        os.utime(file.fileno(), ns=(origin.mtime, origin.mtime))
    os.fsync(file.fileno())


def _spread(comm: Ranks, path: Path, record: dict[str, Any], *, believed: bool) -> None:
    """Give the file to all ranks that lack it; `believed`: one of its size and time is it, without a look inside."""
    place, has = _place(path), comm.rank == 0
    error = f"rank {comm.members[comm.rank]}: {shown(str(path))}: is a directory" if os.path.isdir(path) else ""
    believed = believed or place == record["place"]
    while True:
        has = has or (believed and _looks_like(path, record["size"], record["mtime"]))
        told = _told(comm, {"place": place, "has": has, "error": error})
        first = {each["place"]: rank for rank, each in reversed([*enumerate(told)]) if not each["has"]}
        if not first:
            return
        part = comm.create([0, *sorted(first.values())])
        if part is not None:
            error, has = _copy_among(comm, part, path), True
        _told(comm, {"error": error})  # and wait: only now all copies can be seen
        believed = True


def _told(comm: Ranks, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Exchange records with all ranks; raise where one has an error in it."""
    records = exchanged(comm, record)
    for each in records:
        if each["error"]:
            raise TransferError(each["error"])
    return records


def _copy_among(comm: Ranks, part: Ranks, path: Path) -> str:
    """Copy the file of rank 0 to the other ranks of a part; return what went wrong with the files of any of them."""
    try:
        with part:
            report = copy_files_together(part, [str(path)], str(path), 0, Options(preserve=True))
    except TransferError as error:
        return str(error)
    except RingcastError:
        comm.revoke()  # ranks that are not in this part wait for those that are
        raise
    return "\n".join(f"rank {each.rank}: {each.error}" for each in report.ranks if each.error)


def _placed(target: str | None, name: str, cached: str) -> Path:
    """Return where the file goes on this host."""
    if target is None:
        return Path(cache_directory(), "ringcast", cached)
    return Path(target, name) if target.endswith("/") or os.path.isdir(target) else Path(target)


def _place(path: Path) -> tuple[str, bytes]:
    """Return what is equal on ranks that write the same file, as far as can be known."""
    return host(), os.fsencode(path.absolute())


def _looks_like(path: Path, size: int | None, mtime: int | None) -> bool:
    """Return whether there is a file of this size and time of change."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (size, mtime)


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file; "" if there is none."""
    if not os.path.isfile(path):
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
