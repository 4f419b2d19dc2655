"""Fetch a file for a job: it is read once, and every host gets one copy, which its ranks share.

Of a large file on a server that sends parts, one rank of each host that lacks it reads another part (`read_once.py`).
Any other file rank 0 reads alone, into its own copy, and one rank of each other host gets it from there. It is not
known beforehand which ranks share files, so all ranks look again after each round, until no rank lacks the file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast._util.safe_files import is_ours, open_folder, open_new, open_regular
from ringcast.config.worker import cache_directory
from ringcast.errors import ArgumentError, RingcastError, TransferError
from ringcast.procs import portable
from ringcast.procs.colocation import host
from ringcast.transfer import origin, records
from ringcast.transfer.copying import copy_files_together
from ringcast.transfer.options import Options
from ringcast.transfer.origin import Origin, name_of, opened
from ringcast.transfer.read_once import Ranks, read_file
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.sources.opening import name_for_people
from ringcast.transfer.sources.tries import Limit
from ringcast.wire.codec import Count, Within

_SHARED, _PRIVATE = 0o644, 0o600  # permissions of a copy at most: of one at a target, and of one in the cache
_LARGE = 16 << 20  # bytes of a file that is read in parts
CONNECTIONS = 4  # of each host to a server
_WRITABLE = 0o022  # by others, who may have changed the file


@dataclass(frozen=True, slots=True)
class Place:
    """Host and path of a copy; ranks with equal places write the same file."""

    host: str
    path: bytes


@dataclass(frozen=True, slots=True)
class First:
    """The copy of rank 0; or the file that all hosts read in parts, if `parts` has the SHA-256 of rank 0's source."""

    name: bytes
    cached: bytes  # its name in the cache
    place: Place
    size: Count
    mtime: Annotated[int, Within(-(1 << 63), (1 << 63) - 1)]
    mode: Annotated[int, Within(0, 0o777)]
    parts: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of a rank: its place, whether it is there, and the error that prevents it ("" if none does)."""

    place: Place
    has: bool
    error: str


def fetch(comm: Ranks, source: str, target: str | None, sha256: str | None) -> Path:
    """Return the path of this rank's copy of a file that rank 0 can read.

    Raises:
        TransferError: rank 0 cannot read the file, or a rank cannot write it; all ranks raise it.
    """
    silence = min(origin.SILENCE, Limit(comm.timeout).seconds)
    first = announced(comm, 0, First, lambda: _first(comm.members[0], source, target, sha256, silence))
    path = _placed(target, _checked(first.name), _checked(first.cached))
    if first.parts:
        _read_parts(comm, source, path, first, sha256)
    else:
        _spread(comm, path, first, believed=sha256 is None)
    return path


def _names(source: str) -> tuple[str, str]:
    """Return the name of the file, and its name in the cache, where other sources may have the same name."""
    name, whole = name_of(source), source if "://" in source else os.path.abspath(source)
    return name, f"{_digest(whole)[:16]}-{name}"


def _digest(source: str) -> str:
    return hashlib.sha256(os.fsencode(source)).hexdigest()


def _is_here(path: Path, first: First, sha256: str | None) -> bool:
    """Return whether a copy of ours has this digest, or else size and time of the first one, whose mode it gets."""
    same = partial(_looks_like, first.size, first.mtime) if sha256 is None else partial(_has, sha256)
    try:
        folder = open_folder(str(path.parent))
    except OSError:
        return False
    try:
        return _kept(folder, path.name, same, first.mode) is not None
    finally:
        os.close(folder)


def _read_parts(comm: Ranks, source: str, path: Path, first: First, sha256: str | None) -> None:
    """Give the file to all ranks that lack it: one of each host reads a part, and gets the others."""
    place, written = _place(path), False
    error = _why_not(path, comm.members[comm.rank])
    while True:
        has = _is_here(path, first, None if written else sha256)
        told = _told(comm, Copy(place, has, brief(error)))
        lacking = {each.place: rank for rank, each in reversed([*enumerate(told)]) if not each.has}
        if not lacking:
            return
        part = comm.create(sorted(lacking.values()))
        if part is not None:
            error = _read_part(comm, part, source, path, first, sha256)
        _told(comm, Copy(place, True, brief(error)))  # and wait: only now all copies can be seen
        written = True


def _why_not(path: Path, rank: int) -> str:
    """Return why no file can be made at a path; its directory is made if it is missing."""
    try:
        folder = open_folder(str(path.parent), make=True)
        try:
            probe = f".ringcast-{os.urandom(8).hex()}"
            os.close(open_new(probe, folder))
            os.unlink(probe, dir_fd=folder)
        finally:
            os.close(folder)
        why = "is a directory" if os.path.isdir(path) else ""
    except OSError as error:
        why = str(error.strerror)
    return f"rank {rank}: {printable(str(path))}: {why}" if why else ""


def _read_part(comm: Ranks, part: Ranks, source: str, path: Path, first: First, sha256: str | None) -> str:
    """Read the file together with the other ranks of `part`; return the error, if any."""
    rank = comm.members[comm.rank]

    def write(file: IO[bytes]) -> None:
        def room(_: Any, size: int) -> tuple[Any, memoryview, bool]:
            try:
                if size != first.size:
                    raise OSError(0, f"the source has {size:,} bytes, and had {first.size:,} a moment ago")
                portable.allocate(file.fileno(), first.size)
                memory = memoryview(mmap.mmap(file.fileno(), first.size))
            except OSError as problem:
                raise ArgumentError(rank, "fetch", "target", f"{printable(str(path))}: {problem.strerror}") from None
            return np.frombuffer(memory, np.uint8), memory, False

        # Only rank 0's source counts: a rank that has been given another one reads nothing.
        name = source if _digest(source) == first.parts else ""
        data = read_file(part, name, CONNECTIONS, room)
        if sha256 is not None and (found := hashlib.sha256(data.data).hexdigest()) != sha256:
            raise TransferError(f"{name_for_people(source)}: its SHA-256 is {found}, expected {sha256}")
        os.utime(file.fileno(), ns=(first.mtime, first.mtime))
        os.fsync(file.fileno())

    try:
        with part:
            folder = open_folder(str(path.parent))
            try:
                _written(folder, path.name, write, first.mode)
            finally:
                os.close(folder)
    except (TransferError, ArgumentError) as error:
        return str(error)
    except OSError as error:
        return f"rank {rank}: {printable(str(path))}: {error.strerror}"
    except RingcastError:
        comm.revoke()  # ranks outside of `part` wait for its ranks
        raise
    return ""


def _first(rank: int, source: str, target: str | None, sha256: str | None, silence: float) -> First:
    """Read the source into this host's copy, unless all hosts are to read parts; return the description for all.

    `rank` is this rank.
    """
    name, cached = _names(source)
    path = _placed(target, name, cached)
    widest = _SHARED if target is not None else _PRIVATE
    try:
        found = _file_of(path, source, widest, sha256, silence)
    except OSError as error:
        raise TransferError(f"rank {rank}: {printable(str(path))}: {error.strerror}") from error
    named = os.fsencode(name), os.fsencode(cached), _place(path)
    if isinstance(found, Origin):
        assert found.size is not None
        assert found.mtime is not None
        return First(*named, found.size, found.mtime, found.mode & widest & ~_umask(), _digest(source))
    return First(*named, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode))


def _file_of(path: Path, source: str, widest: int, sha256: str | None, silence: float) -> os.stat_result | Origin:
    """Keep or write a file of ours with the source's content and at most the permissions `widest`; return its status.

    A large file whose server sends parts is not read here: returns its description.

    Raises:
        OSError: the file cannot be written.
        TransferError: the source cannot be read.
    """
    folder = open_folder(str(path.parent), make=True)
    try:
        if sha256 is not None and (kept := _kept(folder, path.name, partial(_has, sha256), widest)):
            return kept
        with opened(source, silence) as found:
            mode = found.mode & widest & ~_umask()
            same = partial(_looks_like, found.size, found.mtime)
            kept = None if sha256 is not None else _kept(folder, path.name, same, mode)
            if kept is None and found.ranges and found.mtime is not None and (found.size or 0) >= _LARGE:
                return found
            return kept or _written(folder, path.name, partial(_write, found, sha256), mode)
    finally:
        os.close(folder)


def _kept(folder: int, name: str, same: Callable[[int, os.stat_result], bool], widest: int) -> os.stat_result | None:
    """Return the status of a usable copy, its permissions cut to `widest`; None if there is no usable copy.

    A file is not usable if it belongs to another user, if others can write it, or if others could have linked it there
    (see `is_ours`).
    """
    try:
        file, status = open_regular(name, folder)
    except OSError:
        return None
    try:
        if not is_ours(os.fstat(folder), status) or status.st_mode & _WRITABLE or not same(file, status):
            return None
        if stat.S_IMODE(status.st_mode) & ~widest:
            os.fchmod(file, stat.S_IMODE(status.st_mode) & widest)
        return os.fstat(file)
    finally:
        os.close(file)


def _written(folder: int, name: str, write: Callable[[IO[bytes]], None], mode: int) -> os.stat_result:
    """Write a new file by `write`, set its permissions, and rename it to `name`; return its status."""
    part = f".ringcast-{os.urandom(8).hex()}"
    with open(open_new(part, folder), "wb") as file:
        try:
            write(file)
            os.fchmod(file.fileno(), mode)
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(part, dir_fd=folder)
            raise
        return os.fstat(file.fileno())


def _write(origin: Origin, sha256: str | None, file: IO[bytes]) -> None:
    """Write the origin's content, size and time into a file.

    Raises:
        TransferError: the content cannot be read, or its SHA-256 is another one.
    """
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


def _spread(comm: Ranks, path: Path, first: First, *, believed: bool) -> None:
    """Give the file to all ranks that lack it; `believed`: a file of equal size and time counts as the file."""
    place, has = _place(path), comm.rank == 0
    error = f"rank {comm.members[comm.rank]}: {printable(str(path))}: is a directory" if os.path.isdir(path) else ""
    believed = believed or place == first.place
    while True:
        has = has or (believed and _is_here(path, first, None))
        told = _told(comm, Copy(place, has, brief(error)))
        lacking = {each.place: rank for rank, each in reversed([*enumerate(told)]) if not each.has}
        if not lacking:
            return
        part = comm.create([0, *sorted(lacking.values())])
        if part is not None:
            error, has = _copy_among(comm, part, path), True
        _told(comm, Copy(place, has, brief(error)))  # and wait: only now all copies can be seen
        believed = True


def _told(comm: Ranks, record: Copy) -> list[Copy]:
    """Exchange records with all ranks.

    Raises:
        TransferError: a record has an error; the first rank's error, on all ranks.
    """
    records = exchanged(comm, record)
    for each in records:
        if each.error:
            raise TransferError(brief(each.error))
    return records


def _copy_among(comm: Ranks, part: Ranks, path: Path) -> str:
    """Copy the file of rank 0 to the other ranks of `part`; return their errors, one in each line."""
    try:
        with part:
            report = copy_files_together(part, [str(path)], str(path), 0, Options(preserve=True))
    except TransferError as error:
        return str(error)
    except RingcastError:
        comm.revoke()  # ranks outside of `part` wait for its ranks
        raise
    return "\n".join(f"rank {each.rank}: {each.error}" for each in report.ranks if each.error)


def _checked(name: bytes) -> str:
    """Return a name that has come from another host.

    Raises:
        TransferError: the name cannot be a file in a directory.
    """
    if b"/" in name or b"\0" in name or name in (b"", b".", b".."):
        raise TransferError(f"{records.WRONG}: {printable(name)!r} names no file")
    return os.fsdecode(name)


def _placed(target: str | None, name: str, cached: str) -> Path:
    """Return the path of the file on this host."""
    if target is None:
        return Path(cache_directory(), "ringcast", cached)
    return Path(target, name) if target.endswith("/") or os.path.isdir(target) else Path(target)


def _place(path: Path) -> Place:
    return Place(host(), os.fsencode(path.absolute()))


def _looks_like(size: int | None, mtime: int | None, _: int, status: os.stat_result) -> bool:
    return (status.st_size, status.st_mtime_ns) == (size, mtime)


def _has(sha256: str, file: int, _: os.stat_result) -> bool:
    with open(file, "rb", closefd=False) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
