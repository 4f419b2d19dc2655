"""List the files of a remote source: one of a server; or, by fsspec, one, a directory, or all that match a pattern."""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from glob import has_magic
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.errors import TransferError
from ringcast.transfer import arrived
from ringcast.transfer.manifest import DIRECTORY, FILE, Entry, Manifest
from ringcast.transfer.origin import name_of
from ringcast.transfer.records import brief
from ringcast.transfer.sources.base import Trouble, in_a_line
from ringcast.transfer.sources.http import HttpSource
from ringcast.transfer.sources.opening import name_for_people, needs_fsspec
from ringcast.transfer.sources.remote import url_to_fs, version_of

_MAGIC = re.compile(r"[*?[]")  # of a pattern
_CHANGES = ("mtime", "LastModified", "last_modified", "updated", "created")  # of fsspec's stores, for times of change
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # a store has none


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a source: a manifest, the version of a single file, and the error, if there is one.

    It names no URL: each host opens the files below its own source, so that no other host chooses them. `identity` is
    as of `arrived.identity`.
    """

    manifest: bytes
    version: str = ""
    error: str = ""
    identity: bytes = b""


def listed(source: str, recursive: bool) -> Listed:
    """Return the files of a source."""
    try:
        if not needs_fsspec(source):
            found, version, strong = _single(source)
            versions = ["" if version.startswith("W/") else version]
        else:
            pairs = [*_of_store(source, recursive)]
            found, versions, version, strong = [entry for entry, _ in pairs], [each for _, each in pairs], "", False
        facts = ((entry.path, entry.size, each) for entry, each in zip(found, versions, strict=True))
        place = place_of(source)
        identity = arrived.identity(place, facts, "" if strong or place == source else source)
        entries = sorted([*_folders(entry.path for entry in found), *found], key=lambda entry: entry.path)
        manifest = Manifest(entries, (os.geteuid(), os.getegid()))
        manifest.check()
    except Trouble as trouble:
        return Listed(b"", error=brief(trouble.reason))
    except TransferError as error:
        return Listed(b"", error=brief(str(error)))
    except Exception as error:  # packages for stores have errors of their own
        return Listed(b"", error=in_a_line(error))
    return Listed(manifest.encode(), version, identity=identity)


def place_of(source: str) -> str:
    """Return a source without user, password and query, which may be other ones the next time."""
    return name_for_people(source).removesuffix("?…")


def _single(url: str) -> tuple[list[Entry], str, bool]:
    """Return the file of a server, its version, and whether that is an ETag that no other content has."""
    with closing(HttpSource(url)) as opened:
        changed = time.time_ns() if opened.changed is None else opened.changed
        return [Entry(os.fsencode(name_of(url)), FILE, _FILE_MODE, changed, opened.size)], opened.version, opened.strong


def _of_store(url: str, recursive: bool) -> Iterator[tuple[Entry, str]]:
    """Yield the files of a store, each with its version: one, all in a directory, or all that match a pattern."""
    files, path = url_to_fs(url)
    if has_magic(path):
        found = files.glob(path, detail=True)
    elif files.isdir(path):
        if not recursive:
            raise TransferError("a directory; -r copies it with all that is in it")
        found = files.find(path, detail=True)
    else:
        found = {path: files.info(path)}
    base = folder_of(files, path, url)
    for name, info in found.items():
        if info.get("type") != "directory":
            inside = name[len(base) :].lstrip("/")
            yield Entry(os.fsencode(inside), FILE, _FILE_MODE, _changed(info), int(info["size"])), version_of(info)
    if not found:
        raise TransferError("there is no such file")


def folder_of(files: Any, path: str, url: str) -> str:
    """Return the directory of a store below which files keep their names."""
    magic = _MAGIC.search(path)
    if magic is not None:
        return posixpath.dirname(path[: magic.start()])
    return path.rstrip("/") if url.endswith("/") and files.isdir(path) else posixpath.dirname(path.rstrip("/"))


def _changed(info: dict[str, Any]) -> int:
    """Return the time of change of a file of a store, in ns; now, where the store does not say."""
    for name in _CHANGES:
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 10**9)
        if isinstance(value, int | float):
            return int(value * 10**9)
    return time.time_ns()


def _folders(paths: Iterator[bytes]) -> Iterator[Entry]:
    """Yield the directories in which files are."""
    seen: set[bytes] = set()
    for path in paths:
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            if (folder := b"/".join(parts[:depth])) not in seen:
                seen.add(folder)
                yield Entry(folder, DIRECTORY, _FOLDER_MODE, time.time_ns())
