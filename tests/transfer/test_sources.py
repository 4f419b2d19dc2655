"""Sources: what they read is what is there, whatever the server does, and each fault has its kind of error."""

from __future__ import annotations

import asyncio
import io
import os
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from ringcast.transfer.sources import http, remote
from ringcast.transfer.sources.base import Busy, Changed, Interrupted, Missing, Source, Trouble, Unreadable
from ringcast.transfer.sources.opening import name_for_people, open_source
from support.cases import each
from support.fleets import until
from support.store import Handler, Store, store

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")

DATA = random.Random(2).randbytes(700_000)
PARTS = (0, 1), (0, len(DATA)), (1, 300_000), (299_999, len(DATA)), (len(DATA) - 1, len(DATA))


@pytest.fixture
def served() -> Iterator[Store]:
    with store(DATA) as made:
        yield made


def read(source: Source, start: int = 0, stop: int = len(DATA)) -> bytes:
    into = bytearray(stop - start)
    with closing(source.connect()) as connection:
        assert sum(connection.read(start, memoryview(into))) == len(into)
    return bytes(into)


def kinds(tmp_path: Path, served: Store) -> dict[str, str]:
    (tmp_path / "file").write_bytes(DATA)
    fsspec.filesystem("memory").pipe_file("/bucket/file", DATA)
    path = str(tmp_path / "file")
    return {"path": path, "file": f"file://{path}", "http": f"{served.root}/file", "fsspec": "memory://bucket/file"}


@pytest.mark.parametrize("kind", ["path", "file", "http", "fsspec"])
def test_parts_are_those_of_the_file(kind: str, tmp_path: Path, served: Store) -> None:
    name = kinds(tmp_path, served)[kind]
    with closing(open_source(name)) as source, closing(open_source(name)) as other:
        assert (source.size, source.version) == (len(DATA), other.version)
        with closing(source.connect()) as connection:
            for start, stop in PARTS:
                into = bytearray(stop - start)
                assert sum(connection.read(start, memoryview(into))) == stop - start
                assert into == DATA[start:stop]
        source.check()


@pytest.mark.parametrize("kind", ["path", "http", "fsspec"])
def test_another_content_has_another_version(kind: str, tmp_path: Path, served: Store) -> None:
    name = kinds(tmp_path, served)[kind]
    with closing(open_source(name)) as source:
        served.data, served.etag = DATA[::-1], '"2"'
        (tmp_path / "file").write_bytes(DATA[::-1])
        os.utime(tmp_path / "file", ns=(1, 1))
        fsspec.filesystem("memory").pipe_file("/bucket/file", DATA[::-1])
        with closing(open_source(name)) as later:
            assert later.version != source.version
        with pytest.raises(Changed):
            source.check() if kind != "http" else read(source)


def test_copies_of_equal_times_and_sizes_differ_by_samples(tmp_path: Path) -> None:
    versions = set()
    for number, content in enumerate([DATA, DATA, DATA[:-1] + b"x"]):
        path = tmp_path / str(number)
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        with closing(open_source(str(path))) as source:
            versions.add(source.version)
    assert len(versions) == 2


@pytest.mark.parametrize("kind", ["path", "http", "fsspec"])
def test_an_empty_file_has_a_size(kind: str, tmp_path: Path, served: Store) -> None:
    name = kinds(tmp_path, served)[kind]
    served.data = b""
    (tmp_path / "file").write_bytes(b"")
    fsspec.filesystem("memory").pipe_file("/bucket/file", b"")
    with closing(open_source(name)) as source:
        assert source.size == 0


@pytest.mark.parametrize("name", ["/no/such/file", "/etc/hostname/x", "file:///no/such", "memory://no/such"])
def test_a_file_that_is_not_there_is_missing(name: str) -> None:
    with pytest.raises(Missing):
        open_source(name)


@pytest.mark.parametrize(
    "name", ["/etc", "/dev/zero", "what://ever", "http://", "http://h:x/", "s3x://bucket/key", "\0"]
)
def test_what_is_no_file_is_unreadable(name: str) -> None:
    with pytest.raises(Unreadable):
        open_source(name)


# Servers.


def test_connections_are_kept_and_the_condition_is_sent(served: Store) -> None:
    with closing(open_source(f"{served.root}/a?b=c")) as source, closing(source.connect()) as connection:
        for start, stop in PARTS:
            assert sum(connection.read(start, memoryview(bytearray(stop - start)))) == stop - start
        until(lambda: len(served.open) == 1)  # the one that opened the source ends in its own time
    assert [sent.get("If-Match") for sent in served.headers] == [None] + ['"1"'] * len(PARTS)
    assert {sent["path"] for sent in served.headers} == {"/a?b=c"}
    assert {sent["Accept-Encoding"] for sent in served.headers} == {"identity"}


@each("etag, changed, name", [('W/"1"', "x", None), ("", "then", "If-Unmodified-Since"), ("", "", None)])
def test_a_weak_or_missing_etag_is_compared_all_the_same(etag: str, changed: str, name: str | None) -> None:
    with store(DATA) as served:
        served.etag, served.changed = etag, changed
        with closing(open_source(served.root)) as source:
            assert read(source) == DATA
            assert {key for key in served.headers[-1] if key.startswith("If-")} == ({name} if name else set())
            served.etag, served.changed = etag and 'W/"2"', changed and "later"
            if etag or changed:
                with pytest.raises(Changed):
                    read(source)


def answer(**how: str | int) -> Callable[[Handler, int, int], bool]:
    def fault(handler: Handler, start: int, stop: int) -> bool:
        handler.part(start, stop, **how)
        return True

    return fault


def refusal(status: int, after: str | None = None) -> Callable[[Handler, int, int], bool]:
    def fault(handler: Handler, *_: int) -> bool:
        handler.refuse(status, after)
        return True

    return fault


def hang_up(handler: Handler, *_: int) -> bool:
    handler.close_connection = True
    return True


FAULTS: dict[str, tuple[Callable[[Handler, int, int], bool], type[Trouble]]] = {
    "the whole file": (answer(status=200), Unreadable),
    "no range": (answer(Content_Range=""), Unreadable),
    "a wrong range": (answer(Content_Range="bytes 1-700000/700000"), Unreadable),
    "a range without end": (answer(Content_Range="bytes 0-699999/*"), Unreadable),
    "another size": (answer(Content_Range="bytes 0-699999/700001"), Changed),
    "another etag": (answer(ETag='"3"'), Changed),
    "an encoding": (answer(Content_Encoding="gzip"), Unreadable),
    "a wrong length": (answer(Content_Length=5), Unreadable),
    "fewer bytes": (answer(bytes=1000), Interrupted),
    "nothing": (hang_up, Interrupted),
    "401": (refusal(401), Unreadable),
    "403": (refusal(403), Unreadable),
    "404": (refusal(404), Unreadable),
    "408": (refusal(408), Interrupted),
    "412": (refusal(412), Changed),
    "416": (refusal(416), Changed),
    "429": (refusal(429), Busy),
    "500": (refusal(500), Interrupted),
    "503": (refusal(503), Interrupted),
    "503 with a time": (refusal(503, "7"), Busy),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_error_and_the_next_read_is_right(name: str, served: Store) -> None:
    fault, error = FAULTS[name]
    with closing(open_source(served.root)) as source, closing(source.connect()) as connection:
        served.faults.append(fault)
        with pytest.raises(error) as caught:
            list(connection.read(0, memoryview(bytearray(len(DATA)))))
        assert type(caught.value) is error
        into = bytearray(len(DATA))
        assert sum(connection.read(0, memoryview(into))) == len(DATA)
        assert into == DATA


@each("after, seconds", [("3", 3.0), ("0", 0.0), ("Sun, 09 Sep 2001 01:46:40 GMT", 0.0), ("soon", None), (None, None)])
def test_the_time_of_a_refusal_is_read(after: str | None, seconds: float | None) -> None:
    with store(DATA) as served:
        served.faults.append(refusal(429, after))
        with pytest.raises(Busy) as caught:
            open_source(served.root)
        assert caught.value.after == seconds


def test_a_read_that_waits_can_be_interrupted(served: Store) -> None:
    asked = threading.Event()

    def stall(handler: Handler, *_: int) -> bool:
        asked.set()
        handler.store.ended.wait()
        return hang_up(handler)

    errors: list[BaseException] = []
    with closing(open_source(served.root)) as source:
        served.faults.append(stall)
        connection = source.connect()

        def wait() -> None:
            try:
                list(connection.read(0, memoryview(bytearray(10))))
            except Trouble as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        asked.wait()
        connection.interrupt()
        thread.join()
    assert [type(error) for error in errors] == [Interrupted]


def redirect(where: str, status: int = 302) -> Callable[[Handler, int, int], bool]:
    def fault(handler: Handler, *_: int) -> bool:
        handler.send_response(status)
        handler.send_header("Location", where)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    return fault


def test_a_redirection_is_followed_once_and_another_host_gets_no_password(served: Store) -> None:
    with store(DATA) as first:
        first.always = redirect(f"{served.root.replace('127.0.0.1', 'localhost')}/there?signed=1")
        with (
            closing(open_source(first.root.replace("//", "//me:secret@"))) as source,
            closing(source.connect()) as connection,
        ):
            for _ in range(3):
                assert sum(connection.read(5, memoryview(bytearray(10)))) == 10
        assert len(first.asked) == 2  # of the opening, and of the connection
        assert all("Authorization" in sent for sent in first.headers)
        assert not any("Authorization" in sent for sent in served.headers)
        assert {sent["path"] for sent in served.headers} == {"/there?signed=1"}


def test_a_redirection_that_has_expired_is_asked_for_again(served: Store) -> None:
    with store(DATA) as first:
        first.always = redirect(f"{served.root}/there")
        with closing(open_source(first.root)) as source, closing(source.connect()) as connection:
            assert sum(connection.read(5, memoryview(bytearray(10)))) == 10
            served.faults.append(refusal(403))
            assert sum(connection.read(5, memoryview(bytearray(10)))) == 10
        assert len(first.asked) == 3


@each("where", ["", "ftp://127.0.0.1/", "file:///etc/hostname", "/loop"])
def test_other_redirections_are_refused(where: str) -> None:
    with store(DATA) as served:
        served.always = redirect(where)
        with pytest.raises(Unreadable):
            open_source(served.root)


def test_https_is_not_left_for_http(served: Store, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with store(DATA, context) as first:
        with pytest.raises(Unreadable, match="certificate"):
            open_source(first.root)
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
        with closing(open_source(first.root)) as source:
            assert read(source) == DATA
        first.always = redirect(served.root)
        with pytest.raises(Unreadable, match="https to http"):
            open_source(first.root)
    assert not served.asked


def test_a_proxy_of_the_environment_is_used(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", served.root)
    with closing(open_source("http://nowhere.invalid/file")) as source:
        assert read(source) == DATA
    assert {sent["path"] for sent in served.headers} == {"http://nowhere.invalid/file"}


def test_no_server_is_an_interruption() -> None:
    with store(DATA) as served:
        root = served.root
    with pytest.raises(Interrupted):
        open_source(root)


def test_a_server_that_says_nothing_is_given_up(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE", 0.05)

    def stall(handler: Handler, *_: int) -> bool:
        handler.store.ended.wait()
        return hang_up(handler)

    served.faults.append(stall)
    with pytest.raises(Interrupted, match=r"0\.05 s"):
        open_source(served.root)


# File systems of fsspec.


@each("url", ["htp://h/a", "s3://b/a", "ftp://h/a"])
@each("installed", [True, False])
def test_a_scheme_that_nothing_here_reads_is_explained(
    url: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    def refusing(*_: Any, **__: Any) -> Any:
        raise ValueError("Protocol not known")

    with monkeypatch.context() as patched:
        if installed:
            patched.setattr("fsspec.core.url_to_fs", refusing)
        else:
            patched.setattr(remote, "import_module", missing)
        with pytest.raises(Unreadable) as caught:
            open_source(url)
    reason, pip = caught.value.reason, "it is not installed here: pip install 'fsspec"
    if url == "htp://h/a":
        assert reason == f"{'Protocol not known' if installed else 'unknown scheme htp'}; did you mean http?"
    elif installed:
        assert reason == "Protocol not known"
    else:
        assert reason.startswith(f"only fsspec reads {url[: url.index(':')]}://, and {pip}")
        assert reason.endswith("' s3fs") == (url == "s3://b/a")


class Refused(Exception):
    """An error of a package, with the fields that one of them has."""

    def __init__(self, text: str = "no", **fields: Any) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def botocore(status: int, **headers: str) -> Exception:
    return Refused(response={"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}})


def answered(status: int, **headers: str) -> Exception:
    return Refused(response=SimpleNamespace(status_code=status, headers=headers))


ERRORS: dict[str, tuple[Exception, type[Trouble], float | None]] = {
    "botocore 503": (caused(OSError(16, "slow down"), botocore(503)), Busy, None),
    "botocore 503 with a time": (caused(OSError(16, "slow"), botocore(503, **{"retry-after": "3"})), Busy, 3.0),
    "botocore 500": (caused(OSError(121, "internal"), botocore(500)), Interrupted, None),
    "botocore 403": (botocore(403), Unreadable, None),
    "aiohttp 429": (Refused(status=429, headers={"retry-after": "4"}), Busy, 4.0),
    "aiohttp 404": (Refused(status=404, headers=None), Missing, None),
    "requests 429": (answered(429, **{"retry-after": "5"}), Busy, 5.0),
    "requests 401": (answered(401), Unreadable, None),
    "gcsfs 429": (Refused(code=429), Busy, None),
    "gcsfs 503": (Refused(code="503"), Busy, None),
    "azure 503": (Refused(status_code=503, response=SimpleNamespace(headers={})), Busy, None),
    "no answer": (Refused(code="Throttling", status=None, response=None), Interrupted, None),
    "an error of itself": (Refused(response=Refused(headers=3)), Interrupted, None),
    "a wrong path": (FileNotFoundError("x"), Missing, None),
    "no rights": (PermissionError("x"), Unreadable, None),
}


class Broken(AbstractFileSystem):
    """A store that raises `error`, once, where a file is opened."""

    protocol = "broken"
    error: Exception | None = None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(DATA), "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        error, type(self).error = type(self).error, None
        if error is not None:
            raise error
        return io.BytesIO(DATA)


class Asynchronous(AsyncFileSystem):
    """A store with an event loop, which counts its requests; a read waits while `waits` is set."""

    protocol = "asynchronous"
    asked: ClassVar[list[int]] = []
    error: Exception | None = None
    begun: ClassVar[threading.Event | None] = None

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(DATA), "type": "file", "etag": "1"}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        error, type(self).error = type(self).error, None
        if error is not None:
            raise error
        self.asked.append(end - start)
        if self.begun is not None:
            self.begun.set()
            await asyncio.sleep(1e6)
        return DATA[start:end]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in Broken, Asynchronous:
        fsspec.register_implementation(kind.protocol, kind, clobber=True)
        monkeypatch.setattr(kind, "error", None)
    monkeypatch.setattr(Asynchronous, "asked", [])
    monkeypatch.setattr(remote, "_PIECES", (1 << 16, 1 << 18))
    fsspec.asyn.get_loop()  # in a thread, which stays


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("kind", [Broken, Asynchronous])
@each("name", ERRORS)
def test_each_error_of_a_package_has_its_kind_and_the_next_read_is_right(kind: Any, name: str) -> None:
    error, expected, seconds = ERRORS[name]
    with closing(open_source(f"{kind.protocol}://bucket/file")) as source, closing(source.connect()) as connection:
        kind.error = error
        with pytest.raises(expected) as caught:
            list(connection.read(0, memoryview(bytearray(len(DATA)))))
        assert type(caught.value) is expected
        assert getattr(caught.value, "after", None) == seconds
        into = bytearray(len(DATA))
        assert sum(connection.read(0, memoryview(into))) == len(DATA)
        assert into == DATA


@pytest.mark.usefixtures("stores")
def test_a_store_is_read_in_pieces_that_become_longer_while_it_is_fast() -> None:
    with closing(open_source("asynchronous://bucket/file")) as source:
        assert read(source) == DATA
    assert Asynchronous.asked == [1 << 16, 1 << 17, 1 << 18, len(DATA) - (7 << 16)]


@pytest.mark.usefixtures("stores")
def test_a_read_of_a_store_that_waits_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    monkeypatch.setattr(Asynchronous, "begun", begun)
    errors: list[BaseException] = []
    with closing(open_source("asynchronous://bucket/file")) as source:
        connection = source.connect()

        def wait() -> None:
            try:
                list(connection.read(0, memoryview(bytearray(10))))
            except Trouble as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait()
        connection.interrupt()
        thread.join()
    assert [type(error) for error in errors] == [Interrupted]


@each(
    "source, name",
    [
        ("https://me:secret@host/file?secret=1#secret", "https://host/file?…"),
        ("s3://key:secret@bucket/file?secret", "s3://bucket/file?…"),
        ("http://host:secret/", "http://…"),
        ("/a\nfile", "/a\\nfile"),
    ],
)
def test_names_have_no_secrets(source: str, name: str) -> None:
    assert name_for_people(source) == name
