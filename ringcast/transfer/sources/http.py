"""A file on an http or https server, read by ranges over connections that are kept.

Every answer is checked: its status, its range, its length, and that the file is the one that was opened, by the ETag or
else by the time of change. Redirections are followed, but not from https to http, and another host gets no password.
A server that redirects may do so to a URL that is valid for a while only: when that is refused, it is asked again.
"""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from socket import SHUT_RDWR, socket
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ringcast.errors import TransferError
from ringcast.transfer.origin import SILENCE, changed_at, url_of
from ringcast.transfer.sources.base import Busy, Changed, Interrupted, Trouble, Unreadable, in_a_line
from ringcast.transfer.sources.tries import seconds_of
from ringcast.version import __version__

_REDIRECTIONS = 301, 302, 303, 307, 308
_MOST_REDIRECTIONS = 10
_EXPIRED = 401, 403, 404, 410  # answers of a URL that was valid for a while
_BLOCKS = 1 << 14, 1 << 19  # bytes of a step, which ends when all of them have come
_SOON, _LATE = 0.005, 0.03  # seconds of a step after which the next one is longer or shorter
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_NOTHING = re.compile(r"bytes \*/(\d{1,18})", re.ASCII)


class HttpSource:
    """A file on a server, of the size, the version and the time of change (ns, or None) that its first answer has."""

    def __init__(self, url: str, uses: Callable[[HttpConnection], object] = lambda _: None) -> None:
        """Ask for its facts, by a connection that `uses` is called with."""
        parts = url_of(url)
        assert parts is not None
        self.size, self.version, self.condition = -1, "", ("", "")
        self.changed: int | None = None
        user, at, host = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=host, fragment="")
        self.password = f"Basic {base64.b64encode(unquote(user).encode()).decode()}" if at else ""
        with closing(HttpConnection(self)) as connection:
            uses(connection)
            self.size, self.version, self.changed, self.condition = connection.facts()

    @property
    def strong(self) -> bool:
        """Whether the version is an ETag that no other content has."""
        return self.condition[0] == "If-Match"

    def connect(self) -> HttpConnection:
        """Return a connection, which is made by its first read."""
        return HttpConnection(self)

    def check(self) -> None:
        """Do nothing: each answer was checked."""

    def close(self) -> None:
        """Do nothing: connections are closed by themselves."""


class HttpConnection:
    """A connection to a server, made when it is needed, and again after an error."""

    def __init__(self, source: HttpSource) -> None:
        self._source, self._url = source, source.url
        self._client: http.client.HTTPConnection | None = None
        self._to = ""  # scheme, host and port of `_client`
        self._socket: socket | None = None  # of the last request: the client forgets one that the server will close
        self._response: http.client.HTTPResponse | None = None  # has a hold on such a socket

    def facts(self) -> tuple[int, str, int | None, tuple[str, str]]:
        """Return size, version, time of change, and the header by which a server refuses a file that has changed."""
        with self._troubles():
            response = self._answer("bytes=0-0")
            if response.status == http.client.OK and response.length == 0:
                size = 0
            elif response.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                found = _NOTHING.fullmatch(response.headers.get("Content-Range", ""))
                if found is None or int(found[1]):
                    raise Unreadable(_status(response))
                size = 0
            else:
                size = _checked(response, 0, 1, None)
            return size, _version(response), changed_at(response), _condition(response)

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        """Fill `into` with the bytes from `start` on; yield the number of bytes of each step."""
        source, done = self._source, 0
        whole = False
        try:
            with self._troubles():
                response = self._answer(f"bytes={start}-{start + len(into) - 1}")
                if response.status in (http.client.PRECONDITION_FAILED, http.client.REQUESTED_RANGE_NOT_SATISFIABLE):
                    raise Changed(_status(response))
                _checked(response, start, start + len(into), source.size)
                if _version(response) != source.version:
                    raise Changed("its ETag or time of change is another one than at the start")
                block = _BLOCKS[0]
                while done < len(into):
                    began = time.monotonic()
                    length = response.readinto(into[done : done + block])
                    if not length:
                        raise Interrupted(f"{done:,} bytes came, of {len(into):,}")
                    done += length
                    block = _next_block(block, time.monotonic() - began)
                    whole = done == len(into)
                    if whole and response.read(1):
                        raise Unreadable("the server sends more bytes than it announces")
                    yield length
        finally:
            if not whole:  # also where the caller needs no more
                self.close()

    def interrupt(self) -> None:
        """Have a read that waits in another thread meet the end of its connection."""
        if (waits := self._socket) is not None:
            with suppress(OSError):
                waits.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next read makes another one."""
        self._socket = None
        for each in self._response, self._client:
            if each is not None:
                each.close()
        self._response = self._client = None

    def _answer(self, wanted: str) -> http.client.HTTPResponse:
        """Return the answer to a request of a range, after all redirections."""
        for _ in range(_MOST_REDIRECTIONS):
            response = self._ask(wanted)
            if response.status in _REDIRECTIONS:
                self._redirect(response)
            elif response.status in _EXPIRED and self._url != self._source.url:
                self._url = self._source.url
                response = self._ask(wanted)
                if response.status not in _REDIRECTIONS:
                    return _accepted(response)
                self._redirect(response)
                return _accepted(self._ask(wanted))
            else:
                return _accepted(response)
        raise Unreadable(f"more than {_MOST_REDIRECTIONS} redirections")

    def _ask(self, wanted: str) -> http.client.HTTPResponse:
        url, name, value = self._url, *self._source.condition
        headers = {"Range": wanted, "Accept-Encoding": "identity", "User-Agent": f"ringcast/{__version__}"}
        if name:
            headers[name] = value
        if self._source.password and _origin(url) == _origin(self._source.url):
            headers["Authorization"] = self._source.password
        if self._client is None or self._to != _origin(url):
            self.close()
            self._client, self._to = _client(url), _origin(url)
        path = url.path or "/"
        target = f"{path}?{url.query}" if url.query else path
        if url.scheme == "http" and _proxy(url):
            target = url.geturl()
        client = self._client
        if client.sock is None:
            client.connect()
        self._socket = client.sock  # before the request, so that `interrupt` ends the wait for its answer
        client.request("GET", target, headers=headers)
        self._response = client.getresponse()
        return self._response

    def _redirect(self, response: http.client.HTTPResponse) -> None:
        place = response.headers.get("Location", "")
        self.close()
        try:
            url = url_of(urljoin(self._url.geturl(), place))
        except TransferError:
            url = None
        if not place or url is None or url.scheme not in ("http", "https"):
            raise Unreadable("a redirection to no http(s) URL")
        if (self._url.scheme, url.scheme) == ("https", "http"):
            raise Unreadable("a redirection from https to http, which is not followed")
        self._url = url._replace(netloc=url.netloc.rpartition("@")[2], fragment="")

    def _troubles(self) -> _Troubles:
        return _Troubles(self)


class _Troubles:
    """Turns errors of the network and of http into a `Trouble`, and closes the connection then."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return
        self._connection.close()
        if isinstance(error, Trouble):
            return
        if isinstance(error, ssl.SSLCertVerificationError | http.client.InvalidURL):
            raise Unreadable(in_a_line(error)) from None
        if isinstance(error, TimeoutError):
            raise Interrupted(f"nothing came for {SILENCE:g} s") from None
        if isinstance(error, http.client.IncompleteRead):
            raise Interrupted("the connection ended early") from None
        if isinstance(error, OSError | http.client.HTTPException | ValueError):
            raise Interrupted(in_a_line(error)) from None


def _next_block(block: int, seconds: float) -> int:
    """Return the bytes of the next step: few of a slow connection, so that others get them soon."""
    if seconds < _SOON:
        return min(_BLOCKS[1], 2 * block)
    return max(_BLOCKS[0], block // 2) if seconds > _LATE else block


def _client(url: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    if not url.hostname:
        raise Unreadable("a URL without a host")
    proxy = _proxy(url)
    if not proxy:
        return kind(url.hostname, url.port, timeout=SILENCE)
    by = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    client = kind(by.hostname or "", by.port, timeout=SILENCE)
    if url.scheme == "https":
        user, at, _ = by.netloc.rpartition("@")
        secret = base64.b64encode(unquote(user).encode()).decode()
        client.set_tunnel(url.hostname, url.port, {"Proxy-Authorization": f"Basic {secret}"} if at else None)
    return client


def _proxy(url: SplitResult) -> str:
    """Return the proxy that the environment names for a URL; "" if there is none."""
    return "" if url.hostname and proxy_bypass(url.hostname) else getproxies().get(url.scheme, "")


def _origin(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc}".lower()


def _accepted(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """Return an answer whose status says that there is one, or that the file has changed."""
    status, after = response.status, response.headers.get("Retry-After")
    if status == http.client.TOO_MANY_REQUESTS or (status == http.client.SERVICE_UNAVAILABLE and after):
        raise Busy(_status(response), seconds_of(after))
    if status >= 500 or status == http.client.REQUEST_TIMEOUT:
        raise Interrupted(_status(response))
    if status >= 400 and status not in (
        http.client.PRECONDITION_FAILED,
        http.client.REQUESTED_RANGE_NOT_SATISFIABLE,
    ):
        raise Unreadable(_status(response))
    return response


def _checked(response: http.client.HTTPResponse, start: int, stop: int, size: int | None) -> int:
    """Return the size of the file by an answer that must have exactly these bytes, of a file of this size."""
    if response.status != http.client.PARTIAL_CONTENT:
        way = "download it first (curl -O URL), or use ringcast.fetch"  # before the reason: lines may be cut
        raise Unreadable(f"the server sends no parts of files: {way} (HTTP {response.status} to a request of a range)")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unreadable("the server encodes the content, although it was asked not to")
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None:
        raise Unreadable("HTTP 206 without a range")
    first, last, total = map(int, found.groups())
    if size is not None and total != size:
        raise Changed(f"its size is {total:,} bytes, and was {size:,}")
    if (first, last + 1) != (start, stop):
        raise Unreadable(f"the server sends bytes {first} to {last + 1} instead of {start} to {stop}")
    if response.length not in (None, stop - start):
        raise Unreadable(f"the server announces {response.length:,} bytes for a range of {stop - start:,}")
    return total


def _version(response: http.client.HTTPResponse) -> str:
    return response.headers.get("ETag", "") or response.headers.get("Last-Modified", "")


def _condition(response: http.client.HTTPResponse) -> tuple[str, str]:
    """Return the header that has the server refuse another version; a weak ETag works in none."""
    etag, changed = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
    if etag:
        return ("", "") if etag.startswith("W/") else ("If-Match", etag)
    return ("If-Unmodified-Since", changed) if changed else ("", "")


def _status(response: http.client.HTTPResponse) -> str:
    return f"HTTP {response.status} {http.client.responses.get(response.status, '')}".rstrip()
