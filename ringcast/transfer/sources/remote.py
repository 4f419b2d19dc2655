"""A file wherever fsspec reads: s3://, gs://, hf://, memory:// and others, by the package that fsspec has for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from threading import Lock
from typing import Any

from ringcast._util.near_words import did_you_mean
from ringcast._util.optional import how_to_install
from ringcast._util.printable import printable
from ringcast.transfer.sources.base import Busy, Changed, Interrupted, Missing, Trouble, Unreadable, in_a_line
from ringcast.transfer.sources.tries import seconds_of

_VERSIONS = (  # fields of `info` that change with the content, by the names that stores give them
    *("ETag", "etag", "e_tag", "md5Hash", "content_md5", "checksum", "generation", "blob_id", "oid", "version_id"),
    *("LastModified", "last_modified", "mtime", "modified", "updated", "created"),
)
_PACKAGES = {  # beside fsspec, of common schemes
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    "hf": "huggingface_hub",
}
_PIECES = 1 << 20, 4 << 20  # bytes of a piece, which ends when all of them have come; each connection has one in memory
_SOON, _LATE = 0.2, 1.0  # seconds of a piece after which the next one is longer or shorter
_REFUSALS = HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE  # the latter is "SlowDown" of S3
_MOST_CAUSES = 8  # errors of a chain that are looked at


def url_to_fs(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        Trouble: fsspec cannot make one.
    """
    scheme = printable(url.partition("://")[0].lower())
    near = did_you_mean(scheme, ("http", "https", "file", *_PACKAGES)) if scheme not in _PACKAGES else ""
    try:
        core = import_module("fsspec.core")
    except ImportError:
        needed = f"{how_to_install('fsspec')} {_PACKAGES.get(scheme, '')}".rstrip()
        why = f"only fsspec reads {scheme}://, and it is not installed here: {needed}"
        raise Unreadable(f"unknown scheme {scheme}{near}" if near else why) from None
    try:
        files, path = core.url_to_fs(url, skip_instance_cache=True)  # the program's own is left as it is
    except Exception as error:  # packages for stores have errors of their own
        trouble = _trouble(error)
        trouble.reason += near if isinstance(trouble, Unreadable) else ""
        raise trouble from None
    _try_once(files)
    return files, path


def _try_once(files: Any) -> None:
    """Have s3fs and botocore try once: they would ask 25 times before they say that the store wants fewer requests."""
    if hasattr(files, "retries") and hasattr(files, "config_kwargs"):
        files.retries = 1
        files.config_kwargs = {"retries": {"max_attempts": 0}, **files.config_kwargs}


def version_of(info: Mapping[str, Any]) -> str:
    """Return the version of a file by what its store says; "" if that is nothing that changes with the content."""
    return " ".join(f"{name}={info[name]}" for name in _VERSIONS if info.get(name) is not None)


class RemoteSource:
    """A file of a file system of fsspec."""

    def __init__(self, files: Any, path: str) -> None:
        self._files, self._path = files, path
        try:
            self.size, self.version = self._facts()
        except Exception as error:  # packages for stores have errors of their own
            raise _trouble(error) from None

    def connect(self) -> _Reads:
        """Return a connection: of a file system that is asynchronous inside, one whose reads can be interrupted."""
        kind = import_module("fsspec.asyn").AsyncFileSystem
        return (_Requests if isinstance(self._files, kind) else _OpenFile)(self._files, self._path)

    def check(self) -> None:
        """Raise Changed if `info` has another size, or another value that changes with the content."""
        try:
            facts = self._facts()
        except Exception as error:  # as in `url_to_fs`
            raise _trouble(error) from None
        if facts != (self.size, self.version):
            raise Changed("its size or version is another one than at the start")

    def close(self) -> None:
        """Do nothing: fsspec keeps its connections."""

    def _facts(self) -> tuple[int, str]:
        self._files.invalidate_cache()
        info: dict[str, Any] = self._files.info(self._path)
        size = info.get("size")
        if info.get("type") == "directory" or not isinstance(size, int):
            raise Unreadable("it has no size, or is a directory")
        return size, version_of(info)


class _Reads:
    """Reads pieces of a file, longer ones from a store that answers fast."""

    def __init__(self, files: Any, path: str) -> None:
        self._files, self._path = files, path
        self._length = _PIECES[0]

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        """Fill `into` with the bytes from `start` on, piece by piece."""
        done = 0
        while done < len(into):
            piece, began = into[done : done + self._length], time.monotonic()
            try:
                data = self._piece(start + done, len(piece))
            except Exception as error:  # as in `url_to_fs`
                self.close()
                raise _trouble(error) from None
            if len(data) != len(piece):
                raise Interrupted(f"{len(data):,} bytes came, of {len(piece):,}")
            piece[:] = data
            done += len(piece)
            self._adapt(time.monotonic() - began)
            yield len(piece)

    def interrupt(self) -> None:
        """Do nothing: the read of a piece ends by the time limits of the package."""

    def close(self) -> None:
        """Close what is open until the next read."""

    def _piece(self, start: int, length: int) -> bytes:
        raise NotImplementedError

    def _adapt(self, seconds: float) -> None:
        if seconds < _SOON:
            self._length = min(_PIECES[1], 2 * self._length)
        elif seconds > _LATE:
            self._length = max(_PIECES[0], self._length // 2)


class _Requests(_Reads):
    """Reads of a file system that has an event loop in a thread of its own: a request for each piece."""

    def __init__(self, files: Any, path: str) -> None:
        super().__init__(files, path)
        self._future: Future[bytes] | None = None
        self._lock = Lock()  # a request that has begun is known to `interrupt`

    def interrupt(self) -> None:
        """Cancel the request that another thread waits for."""
        with self._lock:
            if self._future is not None:
                self._future.cancel()

    def _piece(self, start: int, length: int) -> bytes:
        request = self._files._cat_file(self._path, start=start, end=start + length)
        with self._lock:
            future: Future[bytes] = asyncio.run_coroutine_threadsafe(request, self._files.loop)
            self._future = future
        try:
            return future.result()
        except CancelledError:
            raise Interrupted("the read was given up") from None
        finally:
            self._future = None


class _OpenFile(_Reads):
    """Reads of any other file system: of a file that stays open, as to open one may take several requests."""

    _file: Any = None

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # it has been read only
                file.close()

    def _piece(self, start: int, length: int) -> bytes:
        if self._file is None:
            try:
                self._file = self._files.open(self._path, "rb", cache_type="none")  # a cache would read ahead
            except TypeError:  # of one that takes no such argument
                self._file = self._files.open(self._path, "rb")
        self._file.seek(start)
        data: bytes = self._file.read(length)
        return data


def _trouble(error: Exception) -> Trouble:
    """Return the kind of trouble that an error of a package is, by its type, or by the HTTP status that it names."""
    if isinstance(error, Trouble):
        return error
    status, after = _answer(error)
    if status in _REFUSALS:
        return Busy(f"HTTP {status}: {in_a_line(error)}", seconds_of(after))
    if isinstance(error, FileNotFoundError) or status == HTTPStatus.NOT_FOUND:
        return Missing("there is no such file")
    final = PermissionError | ImportError | ValueError | TypeError | NotImplementedError
    if isinstance(error, final) or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Unreadable(in_a_line(error))
    return Interrupted(in_a_line(error))


def _answer(error: BaseException | None) -> tuple[int | None, str | None]:
    """Return the HTTP status and Retry-After of the answer that caused an error, as far as it or a cause names them.

    The packages have no error in common: botocore's has a dictionary, those of requests, httpx and azure an answer,
    those of aiohttp and gcsfs fields.
    """
    for _ in range(_MOST_CAUSES):
        if error is None:
            break
        answer = getattr(error, "response", None)
        if isinstance(answer, dict):
            found = answer.get("ResponseMetadata", {})
            status, headers = found.get("HTTPStatusCode"), found.get("HTTPHeaders")
        else:
            places = [each for each in (error, answer) if each is not None]
            fields = [str(getattr(each, name, "")) for each in places for name in ("status", "status_code", "code")]
            status = next((int(field) for field in fields if field.isdecimal()), None)
            headers = getattr(answer, "headers", None) or getattr(error, "headers", None)
        if isinstance(status, int) and status >= HTTPStatus.BAD_REQUEST:
            return status, headers.get("retry-after") if isinstance(headers, Mapping) else None
        error = error.__cause__ or error.__context__
    return None, None
