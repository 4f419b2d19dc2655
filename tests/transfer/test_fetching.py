"""Fetch: rank 0 alone reads, all ranks have every byte, each host writes one copy, and errors are alike on all."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast import ArgumentError, Communicator, PeerFailed, Revoked, TransferError
from ringcast.transfer import fetching, origin, shares
from support.any_order import AnyOrder, Died
from support.cases import each
from support.fetches import DATA, failed, fetched
from support.patience import patience
from support.reads import named_hosts, on_host
from support.store import store
from support.web import Web, web

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")

SIZES = 1, 2, 3, 5


@pytest.mark.parametrize("size", SIZES)
@each("length", [0, 1, len(DATA)])
def test_all_ranks_have_what_is_asked_for_once(tmp_path: Path, site: Web, size: int, length: int) -> None:
    site.pages["/a/model.bin"] = DATA[:length]
    folder = tmp_path / str(length)
    site.asked.clear()
    paths = fetched(size, f"{site.root}/a/model.bin?token=x", lambda rank: f"{folder}/{rank}/")
    assert paths == [folder / str(rank) / "model.bin" for rank in range(size)]
    assert all(path.read_bytes() == DATA[:length] for path in paths)
    assert len(site.asked) == 1
    assert len({path.stat().st_mtime for path in paths}) == 1


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_a_file_of_rank_0_is_copied(tmp_path: Path, form: str) -> None:
    source = tmp_path / "a file"
    source.write_bytes(DATA)
    text = form.format(source).replace(" ", "%20") if "file:" in form else form.format(source)
    paths = fetched(3, text, lambda rank: tmp_path / f"copy-{rank}")
    assert paths == [tmp_path / f"copy-{rank}" for rank in range(3)]
    assert all(path.read_bytes() == DATA for path in paths)
    assert source.read_bytes() == DATA


def test_a_path_that_is_no_text_is_copied(tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b"\xff\n")
    source.write_bytes(b"1")
    paths = fetched(2, source, lambda rank: f"{tmp_path}/{rank}/")
    assert [path.read_bytes() for path in paths] == [b"1", b"1"]


def test_ranks_of_one_host_share_a_copy_which_is_written_once(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "copy_files_together", None)  # which is not called
    site.pages["/model.bin"] = DATA
    paths = fetched(5, f"{site.root}/model.bin", lambda _: tmp_path)
    assert set(paths) == {tmp_path / "model.bin"}
    assert os.listdir(tmp_path) == ["model.bin"]


def test_one_rank_of_each_host_gets_the_file(tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five ranks on three hosts, which have directories of their own."""
    copied: list[int] = []
    copy = fetching.copy_files_together

    def counted(comm: Any, *arguments: Any) -> Any:
        copied.append(comm.members[comm.rank])
        return copy(comm, *arguments)

    monkeypatch.setattr(fetching, "copy_files_together", counted)
    site.pages["/model.bin"] = DATA
    paths = fetched(5, f"{site.root}/model.bin", lambda rank: tmp_path / "abacb"[rank])
    assert [path.read_bytes() for path in paths] == [DATA] * 5
    assert sorted(copied) == [0, 1, 3]


def test_ranks_that_only_seem_to_share_files_get_them_too(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers of a pod do: one kernel, and other files at the same path."""
    monkeypatch.setattr(fetching, "_place", lambda path: ("one host", b"one path"))
    site.pages["/model.bin"] = DATA
    paths = fetched(4, f"{site.root}/model.bin", lambda rank: tmp_path / str(rank // 2))
    assert [path.read_bytes() for path in paths] == [DATA] * 4


def test_a_copy_is_kept_while_the_server_tells_the_same_size_and_time(tmp_path: Path, site: Web) -> None:
    source = f"{site.root}/model.bin"

    def written() -> list[int]:
        return [path.stat().st_ctime_ns for path in fetched(3, source, lambda rank: f"{tmp_path}/{rank}/")]

    site.pages["/model.bin"] = DATA
    first = written()
    assert written() == first
    site.pages["/model.bin"], site.changed = DATA[::-1], 1e9 + 1
    second = written()
    assert not {*second} & {*first}
    assert [(tmp_path / str(rank) / "model.bin").read_bytes() for rank in range(3)] == [DATA[::-1]] * 3
    site.changed = None
    assert written() != second


def test_a_local_file_that_changed_is_copied_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for data in b"one", b"two":
        source.write_bytes(data)
        paths = fetched(2, source, lambda rank: tmp_path / f"copy-{rank}")
        assert [path.read_bytes() for path in paths] == [data] * 2


def test_with_a_digest_the_server_is_not_asked_again_and_what_is_damaged_is_mended(tmp_path: Path, site: Web) -> None:
    digest = hashlib.sha256(DATA).hexdigest().upper()
    source, target = f"{site.root}/model.bin", lambda rank: f"{tmp_path}/{rank}/"
    site.pages["/model.bin"] = DATA
    paths = fetched(3, source, target, sha256=digest)
    status = paths[2].stat()
    damaged = bytearray(DATA)
    damaged[1_500_000] ^= 1
    paths[2].write_bytes(damaged)
    os.utime(paths[2], ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert fetched(3, source, target, sha256=digest) == paths
    assert [path.read_bytes() for path in paths] == [DATA] * 3
    assert len(site.asked) == 1


def test_another_digest_is_an_error_and_the_old_file_stays(tmp_path: Path, site: Web) -> None:
    site.pages["/model.bin"] = DATA
    (tmp_path / "model.bin").write_bytes(b"old")
    texts = fetched(3, f"{site.root}/model.bin", lambda _: tmp_path, sha256="0" * 64)
    found = hashlib.sha256(DATA).hexdigest()
    assert set(texts) == {f"{site.root}/model.bin: its SHA-256 is {found}, expected {'0' * 64}"}
    assert os.listdir(tmp_path) == ["model.bin"]
    assert (tmp_path / "model.bin").read_bytes() == b"old"


@pytest.mark.parametrize("wrong", ["", "0" * 63, "g" * 64])
def test_a_digest_that_is_none_is_refused(tmp_path: Path, wrong: str) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(ArgumentError) as caught:
            comm.fetch("any", tmp_path, sha256=wrong)
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == ["sha256"] * 2


def test_without_a_target_files_of_the_same_name_lie_apart_in_the_cache(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    site.pages |= {"/a/model.bin": b"a", "/b/model.bin": b"b"}
    one, other = (fetched(2, f"{site.root}/{name}/model.bin", lambda _: None) for name in "ab")
    assert len({*one, *other}) == 2
    assert {path.parent for path in (*one, *other)} == {tmp_path / "ringcast"}
    assert [one[0].read_bytes(), other[0].read_bytes()] == [b"a", b"b"]


def test_the_module_has_a_fetch_for_the_whole_job(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"1")
    results = ringcast.run(
        lambda _: ringcast.fetch(tmp_path / "source", tmp_path / "copy").read_bytes(), 2, backend="threads"
    )
    assert results == [b"1", b"1"]


# Servers.


def redirect(where: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", where)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def test_redirects_are_followed_and_get_no_password(tmp_path: Path, site: Web) -> None:
    site.pages |= {
        "/first": redirect("/second"),
        "/second": redirect(f"http://localhost:{site.port}/third"),
        "/third": b"found",
    }
    paths = fetched(2, f"{site.root}/first".replace("//", "//user:pass%3Aword@"), lambda rank: f"{tmp_path}/{rank}/")
    assert [path.read_bytes() for path in paths] == [b"found"] * 2
    assert paths[0].name == "first"
    told = [(path, headers.get("Authorization")) for path, headers in site.asked]
    assert told == [("/first", "Basic dXNlcjpwYXNzOndvcmQ="), ("/second", None), ("/third", None)]


def test_a_body_without_a_length_is_read_to_its_end(tmp_path: Path, site: Web) -> None:
    def chunked(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    site.pages["/x"] = chunked
    assert [path.read_bytes() for path in fetched(2, f"{site.root}/x", lambda rank: f"{tmp_path}/{rank}/")] == [
        b"abcde"
    ] * 2


def short(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x" * 10)


def broken_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"1000\r\nabc")


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"nonsense\r\n\r\n")


def partial(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(206)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


ANSWERS: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None], str]] = {
    "short": (short, "10 bytes came, of 1,000; fetch it again"),
    "broken off": (broken_off, "the connection ended before the file; fetch it again"),
    "nonsense": (nonsense, "nonsense"),
    "nothing": (lambda _: None, "Remote end closed connection without response"),
    "partial": (partial, "HTTP 206, not the whole file"),
    "no right": (lambda handler: handler.send_error(401), "HTTP 401 Unauthorized"),
    "wrong": (lambda handler: handler.send_error(500), "HTTP 500 Internal Server Error"),
    "in a circle": (redirect("/x?token=2"), "HTTP 302 Found"),
    "to a file": (redirect("file:///etc/passwd?token"), "HTTP 302 Found"),
    "to ftp": (redirect("ftp://user:password@127.0.0.1/x"), "unknown url type: ftp"),
}


@pytest.mark.parametrize("answer", list(ANSWERS))
def test_what_is_wrong_with_an_answer_is_told_on_all_ranks(tmp_path: Path, site: Web, answer: str) -> None:
    site.pages["/x"], reason = ANSWERS[answer]
    source = f"{site.root}/x?token=1".replace("//", "//user:password@")
    assert failed(3, source, tmp_path) == f"{site.root}/x?…: {reason}"


@pytest.mark.parametrize("size", [1, 3])
def test_there_is_no_such_page(tmp_path: Path, site: Web, size: int) -> None:
    assert failed(size, f"{site.root}/gone", tmp_path) == f"{site.root}/gone: HTTP 404 Not Found"


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        source = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
        assert failed(2, source, tmp_path) == f"{source}: Connection refused"


@pytest.mark.parametrize("begins", [False, True])
def test_a_server_that_falls_silent_is_given_up(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    monkeypatch.setattr(origin, "SILENCE", 0.2)
    over = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        if begins:
            short(handler)
        over.wait(patience(60))

    site.pages["/x"] = silent
    try:
        assert failed(2, f"{site.root}/x", tmp_path) == f"{site.root}/x: no answer within 0.2 s"
    finally:
        over.set()


def test_the_timeout_of_the_communicator_bounds_a_silent_server(tmp_path: Path, site: Web) -> None:
    over = threading.Event()
    site.pages["/x"] = lambda _: over.wait(patience(60)) and None

    def work(comm: Communicator) -> str:
        comm.timeout = 0.5
        with pytest.raises(TransferError) as caught:
            comm.fetch(f"{site.root}/x", f"{tmp_path}/")
        return str(caught.value)

    try:
        assert ringcast.run(work, 1, backend="threads") == [f"{site.root}/x: no answer within 0.45 s"]
    finally:
        over.set()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_certificate_must_be_trusted(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with web(context) as secure:
        secure.pages["/x"] = DATA
        if trusted:
            paths = fetched(2, f"{secure.root}/x", lambda rank: f"{tmp_path}/{rank}/")
            assert [path.read_bytes() for path in paths] == [DATA] * 2
        else:
            assert "certificate verify failed" in failed(2, f"{secure.root}/x", tmp_path)


# Sources and targets.

WRONG = {
    "ftp://user:password@host/x": "ftp://…: expected http, https, file, or a path",
    "http://user:password@host:port/x": "http://…: no valid URL",
    "http://user:pass word@host/x": "http://…: a URL writes spaces and other characters than ASCII as %XX",
    "http://host/": "http://host/: this names no file",
    "http://host/a%2f..": "http://host/a%2f..: this names no file",
    "http:///x?token=1": "http:///x?…: no host given",
    "file://user:password@far/x": "file://…: the file is on another host",
    "/": "/: this names no file",
    "/etc": "/etc: no file; comm.bcast_file copies directories",
    "/dev/zero": "/dev/zero: no file; comm.bcast_file copies directories",
    "/no/such/file": "/no/such/file: No such file or directory",
    "": ": this names no file",
}


@pytest.mark.parametrize("source", list(WRONG))
def test_a_source_that_cannot_be_read_is_told_on_all_ranks(tmp_path: Path, source: str) -> None:
    assert failed(2, source, tmp_path) == WRONG[source]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("kind", ["a file where the directory shall be", "a directory where the file shall be"])
def test_a_rank_that_cannot_write_is_named_on_all(tmp_path: Path, rank: int, kind: str) -> None:
    (tmp_path / "source").write_bytes(DATA)
    if kind.startswith("a file"):
        (tmp_path / str(rank)).write_bytes(b"in the way")
    else:
        (tmp_path / str(rank) / "source").mkdir(parents=True)
    texts = fetched(3, tmp_path / "source", lambda each: f"{tmp_path}/{each}/")
    assert len(set(texts)) == 1
    assert texts[0].startswith(f"rank {rank}: {tmp_path}/{rank}")
    assert not list(tmp_path.rglob(".*ringcast*"))


@pytest.mark.parametrize("digest", [None, hashlib.sha256(DATA).hexdigest()])
@pytest.mark.parametrize("size", SIZES)
def test_a_large_file_of_a_server_is_read_in_parts(
    tmp_path: Path, size: int, digest: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_LARGE", 1)
    monkeypatch.setattr(shares, "_STALLED", 10**9)  # on a busy machine a reader may get no byte for a second
    with store(DATA) as served, named_hosts():

        def work(comm: Communicator) -> Path:
            with on_host(f"h{comm.rank}"):
                return comm.fetch(f"{served.root}/model.bin?key=x", f"{tmp_path}/{comm.rank}/", sha256=digest)

        for turn in range(2):
            paths = ringcast.run(work, size, backend="threads")
            assert [path.read_bytes() for path in paths] == [DATA] * size
            assert {(path.stat().st_mtime, path.stat().st_mode & 0o777) for path in paths} == {(10**9, 0o644)}
            parts = [part for part in served.asked if part != (0, 1)]
            if turn == 0:
                assert sum(stop - start for start, stop in parts if (start, stop) != (0, len(DATA))) <= 2 * len(DATA)
            else:
                assert len(parts) == (0 if digest else 1)  # of rank 0, which sees size and time
            served.forget()
        paths[-1].unlink()
        assert [path.read_bytes() for path in ringcast.run(work, size, backend="threads")] == [DATA] * size
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("size", [2, 3])
def test_parts_are_read_by_the_ranks_that_give_the_same_source(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_LARGE", 1)
    with store(DATA) as served:  # the others give none
        paths = fetched(size, f"{served.root}/model.bin", lambda rank: f"{tmp_path}/{rank}/")
    assert [path.read_bytes() for path in paths] == [DATA] * size


def test_parts_that_cannot_be_read_or_written_are_an_error_on_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_LARGE", 1)
    (tmp_path / "2").write_text("in the way")

    def told(folder: str, **options: Any) -> str:
        texts = fetched(3, f"{served.root}/model.bin?token=1", lambda rank: f"{tmp_path}{folder}/{rank}/", **options)
        assert len({*texts}) == 1
        assert "token" not in str(texts[0])
        return str(texts[0])

    with store(DATA) as served:
        assert "/model.bin?…: its SHA-256 is " in told("/a", sha256="0" * 64)
        assert told("").startswith(f"rank 2: {tmp_path}/2/model.bin: ")
        served.always = lambda handler, start, stop: (start, stop) != (0, len(DATA)) and handler.refuse(403) is None
        assert "403" in told("/b")
        served.always = lambda handler, start, stop: False
        monkeypatch.setattr(fetching.portable, "allocate", full)
        assert "No space left on device" in told("/c")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["2"]


def full(file: int, size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def deaths(tmp_path: Path, victim: int, share: int, of: int) -> None:
    """Kill a rank at one of `of` places: the others have the file or an error, and fetch it again later."""
    source, size = tmp_path / "source", 4
    if not source.exists():
        source.write_bytes(DATA)
    out = tmp_path / f"{victim} {share}"

    def run(job: AnyOrder, folder: Path) -> list[Any]:
        return job.run(lambda comm: comm.fetch(source, f"{folder}/{comm.rank}/"))

    whole = AnyOrder(size)
    run(whole, tmp_path / f"whole {victim} {share}")
    place = 1 + whole.ends[victim].places * share // of
    results = run(AnyOrder(size, victim=victim, place=place), out)
    for rank, result in enumerate(results):
        if rank == victim:
            assert isinstance(result, Died)
        elif isinstance(result, Path):
            assert result.read_bytes() == DATA
        elif isinstance(result, PeerFailed):
            assert result.ranks == (victim,)
        else:
            assert isinstance(result, (Revoked, TransferError)), result
    assert all(path.read_bytes() == DATA for path in out.glob("*/source"))  # under its name a file is whole
    assert [path.read_bytes() for path in run(AnyOrder(size), out)] == [DATA] * size
    assert not list(out.rglob(".*"))


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.long)])
@each("share", range(0, 6, 2))
def test_a_rank_that_dies_is_named_and_nobody_hangs(tmp_path: Path, victim: int, first: int, share: int) -> None:
    deaths(tmp_path, victim, first + share, 6)


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
@each("share", range(15))
def test_a_rank_may_die_at_many_places(tmp_path: Path, victim: int, share: int) -> None:
    deaths(tmp_path, victim, share, 15)
