"""Open a file at a path or an http(s) URL, to be read once from begin to end.

Messages show a URL without user, password and query, because these may be credentials.
"""

from __future__ import annotations

import base64
import http.client
import os
import stat
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import url2pathname

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.errors import TransferError
from ringcast.version import __version__

SILENCE = 60.0  # seconds without a byte, after which a server is given up
_PIECE = 1 << 20
_BEYOND = 1 << 63  # of sizes and times
_LONGEST = 200  # characters of a server's text that are shown
_HANDLERS = (  # of urllib; without those for files, ftp and data, to which a server could redirect
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.UnknownHandler,
)


class _Stream(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that is open to be read.

    Attributes:
        shown: its name for messages.
        size: number of bytes; None where the server does not say.
        mtime: time of the last change, in ns; None where the server does not say.
        stream: the open file or response.
        mode: permission bits; a URL has none, so 0o666 stands for them.
        ranges: whether the server sends parts.
        silence: seconds without a byte, after which it is given up.
    """

    shown: str
    size: int | None
    mtime: int | None
    stream: _Stream
    mode: int = 0o666
    ranges: bool = False
    silence: float = SILENCE

    def pieces(self) -> Iterator[memoryview]:
        """Yield the content; each piece is valid until the next one.

        Raises:
            TransferError: the file cannot be read, or has more or fewer bytes than `size`.
        """
        buffer, arrived = memoryview(bytearray(_PIECE)), 0
        with _naming(self.shown, self.silence):
            while length := self.stream.readinto(buffer):
                arrived += length
                yield buffer[:length]
        if self.size not in (None, arrived):
            raise TransferError(f"{self.shown}: {arrived:,} bytes came, of {self.size:,}; fetch it again")


def name_of(source: str) -> str:
    """Return the name of the file, without directories.

    Raises:
        TransferError: the source names no file.
    """
    url = url_of(source)
    name = os.path.basename(source if url is None else unquote(url.path.rpartition("/")[2]))
    if name in ("", ".", "..") or "\0" in name:
        raise TransferError(f"{shown(source)}: this names no file")
    return name


@contextmanager
def opened(source: str, silence: float = SILENCE) -> Iterator[Origin]:
    """Open a path or URL; a server is given up after `silence` seconds without a byte.

    Raises:
        TransferError: there is no such file, or it cannot be read.
    """
    url = url_of(source)
    if url is None or url.scheme == "file":
        with _file(source if url is None else url2pathname(url.path)) as origin:
            yield origin
    else:
        with _naming(shown(source), silence):
            response = _opener().open(_request(url), timeout=silence)
        with response:
            yield _answer(shown(source), response, silence)


def url_of(source: str) -> SplitResult | None:
    """Return the parts of a URL; None for a path."""
    scheme, colon, _ = source.partition("://")
    if not colon:
        return None
    if scheme.lower() not in ("http", "https", "file"):
        raise TransferError(f"{printable(scheme)}://…: expected http, https, file, or a path")
    if " " in source or not (source.isascii() and source.isprintable()):
        raise TransferError(f"{printable(scheme)}://…: a URL writes spaces and other characters than ASCII as %XX")
    try:
        url = urlsplit(source)
        _ = url.port  # urlsplit checks the port only when it is read
    except ValueError:
        raise TransferError(f"{printable(scheme)}://…: no valid URL") from None
    if url.scheme == "file" and url.hostname not in (None, "localhost"):
        raise TransferError("file://…: the file is on another host")
    return url


def shown(source: str) -> str:
    """Return the source for messages, without user, password and query of a URL."""
    url = url_of(source)
    if url is None:
        return printable(source)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}{'?…' if url.query else ''}"


def open_file(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file to be read, and return its descriptor and status.

    Raises:
        OSError: there is no such file.
    """
    # Without O_NONBLOCK the open of a pipe without a writer would wait for ever.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(0, "no file; comm.bcast_file copies directories")
    return file, status


@contextmanager
def _file(path: str) -> Iterator[Origin]:
    with _naming(printable(path), SILENCE):
        file, status = open_file(path)
    with open(file, "rb", buffering=0) as stream:
        yield Origin(
            printable(path), status.st_size, _in_range(status.st_mtime_ns), stream, stat.S_IMODE(status.st_mode)
        )


def _request(url: SplitResult) -> urllib.request.Request:
    user, at, host = url.netloc.rpartition("@")
    request = urllib.request.Request(url._replace(netloc=host, fragment="").geturl())
    if at:
        # A server may redirect to another host, which must not get the password.
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(unquote(user).encode()).decode()}")
    return request


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", f"ringcast/{__version__}")]
    return opener


def _answer(name: str, response: http.client.HTTPResponse, silence: float) -> Origin:
    if response.status != http.client.OK:
        raise TransferError(f"{name}: HTTP {response.status}, not the whole file")
    if response.length is not None and response.length >= _BEYOND:
        raise TransferError(f"{name}: it announces {response.length:,} bytes, which no file can have")
    ranges = response.headers.get("Accept-Ranges", "").lower() == "bytes"
    return Origin(name, response.length, changed_at(response), response, ranges=ranges, silence=silence)


def changed_at(response: http.client.HTTPResponse) -> int | None:
    """Return the time of the last change of an answer's file, in ns; None where the server does not say."""
    try:
        changed = parsedate_to_datetime(response.headers.get("Last-Modified", ""))
        return _in_range(int(changed.timestamp()) * 10**9)
    except (ValueError, TypeError, OverflowError):
        return None


def _in_range(mtime: int) -> int | None:
    """Return a time in ns; None if it is one that some file systems cannot keep."""
    return mtime if 0 <= mtime < _BEYOND else None


@contextmanager
def _naming(name: str, silence: float) -> Iterator[None]:
    """Turn errors of the system, the network and http into a TransferError that names the source."""
    try:
        yield
    except HTTPError as error:
        with error:
            reason = f"HTTP {error.code} {http.client.responses.get(error.code, '')}".rstrip()
        raise TransferError(f"{name}: {reason}") from None  # a cause could show the URL of a redirection
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last one of a redirect
        raise TransferError(f"{name}: {reason_of(error, silence)}") from None


def reason_of(error: object, silence: float) -> str:
    """Return the reason of an error as text; text from the server is cut, and control characters become escapes."""
    if isinstance(error, URLError):
        return reason_of(error.reason, silence)
    if isinstance(error, TimeoutError):
        return f"no answer within {silence:.3g} s"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended before the file; fetch it again"
    reason = isinstance(error, OSError) and error.strerror
    if not reason and isinstance(error, ValueError | http.client.InvalidURL):
        return "no valid URL"
    return printable(reason or str(error).strip())[:_LONGEST]
