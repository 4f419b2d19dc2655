"""A file wherever fsspec reads: s3://, gs://, hf://, memory:// and others, by the package that fsspec has for it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ringcast._util.optional import how_to_install
from ringcast.transfer.sources.base import Changed, Interrupted, Missing, Trouble, Unreadable, in_a_line

_VERSIONS = (  # fields of `info` that change with the content, by the names that stores give them
    *("ETag", "etag", "e_tag", "md5Hash", "content_md5", "checksum", "generation", "blob_id", "oid", "version_id"),
    *("LastModified", "last_modified", "mtime", "modified", "updated", "created"),
)


def url_to_fs(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        Trouble: fsspec cannot make one.
    """
    try:
        core = import_module("fsspec.core")
    except ImportError:
        needed = how_to_install("fsspec")
        raise Unreadable(f"only fsspec reads such a source, and it is not installed here: {needed}") from None
    try:
        files, path = core.url_to_fs(url)
    except Exception as error:  # packages for stores have errors of their own
        raise _trouble(error) from None
    return files, path


class RemoteSource:
    """A file of a file system of fsspec."""

    def __init__(self, files: Any, path: str) -> None:
        self._files, self._path = files, path
        try:
            self.size, self.version = self._facts()
        except Exception as error:  # packages for stores have errors of their own
            raise _trouble(error) from None

    def connect(self) -> RemoteSource:
        """Return the source itself: fsspec has connections of its own."""
        return self

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        """Fill `into` with the bytes from `start` on, in one step."""
        try:
            data = self._files.cat_file(self._path, start=start, end=start + len(into))
        except Exception as error:  # as in `url_to_fs`
            raise _trouble(error) from None
        if len(data) != len(into):
            raise Interrupted(f"{len(data):,} bytes came, of {len(into):,}")
        into[:] = data
        yield len(data)

    def check(self) -> None:
        """Raise Changed if `info` has another size, or another value that changes with the content."""
        try:
            facts = self._facts()
        except Exception as error:  # as in `url_to_fs`
            raise _trouble(error) from None
        if facts != (self.size, self.version):
            raise Changed("its size or version is another one than at the start")

    def interrupt(self) -> None:
        """Do nothing: fsspec has time limits of its own."""

    def close(self) -> None:
        """Do nothing: a read ends by itself, and fsspec keeps its connections."""

    def _facts(self) -> tuple[int, str]:
        self._files.invalidate_cache()
        info: dict[str, Any] = self._files.info(self._path)
        size = info.get("size")
        if info.get("type") == "directory" or not isinstance(size, int):
            raise Unreadable("it has no size, or is a directory")
        return size, " ".join(f"{name}={info[name]}" for name in _VERSIONS if info.get(name) is not None)


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, Trouble):
        return error
    if isinstance(error, FileNotFoundError):
        return Missing("there is no such file")
    if isinstance(error, PermissionError | ImportError | ValueError | TypeError | NotImplementedError):
        return Unreadable(in_a_line(error))
    return Interrupted(in_a_line(error))
