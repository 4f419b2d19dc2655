"""Fetch from servers that lie, and where other users can write: no copy that is not ours, none that others may read."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from ringcast import TransferError
from ringcast.transfer import fetching
from support import second_user
from support.fetches import DATA, failed, fetched
from support.web import Web

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")


def with_header(name: str, value: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"HTTP/1.1 200 OK\r\n{name}: {value}\r\n\r\nabc".encode("latin-1"))

    return answer


@pytest.mark.parametrize("length", [1 << 63, 1 << 64, 10**40])
def test_a_length_that_no_file_can_have_is_an_error(tmp_path: Path, site: Web, length: int) -> None:
    site.pages["/x"] = with_header("Content-Length", str(length))
    assert failed(2, f"{site.root}/x", tmp_path) == (
        f"{site.root}/x: it announces {length:,} bytes, which no file can have"
    )


@pytest.mark.parametrize("length", [1 << 50, (1 << 63) - 1])
def test_a_length_for_which_there_is_no_room_is_an_error(tmp_path: Path, site: Web, length: int) -> None:
    site.pages["/x"] = with_header("Content-Length", str(length))
    told = failed(2, f"{site.root}/x", tmp_path)
    assert re.fullmatch(r"rank 0: .*: (File too large|No space left on device)", told)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", "-1"),
        ("Content-Length", "9" * 5000),
        ("Content-Length", "many"),
        ("Last-Modified", "Mon, 01 Jan 9999 00:00:00 GMT"),
        ("Last-Modified", "Mon, 01 Jan 1900 00:00:00 GMT"),
        ("Last-Modified", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"),
        ("Last-Modified", "Mon, 01 Jan 0000 00:00:00 +9999999999"),
        ("Last-Modified", "nonsense"),
    ],
)
def test_headers_that_say_nothing_are_passed_over(tmp_path: Path, site: Web, name: str, value: str) -> None:
    site.pages["/x"] = with_header(name, value)
    paths = fetched(2, f"{site.root}/x", lambda rank: f"{tmp_path}/{rank}/")
    assert [path.read_bytes() for path in paths] == [b"abc"] * 2


def said(text: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: handler.wfile.write(f"{text}\r\n\r\n".encode("latin-1"))  # type: ignore[return-value]


ORDERS = "\x1b]0;title\x07\x9b2J"
IN_WORDS = {
    ORDERS: r"\x1b]0;title\x07\x9b2J",
    f"HTTP/1.1 500 {ORDERS}": "HTTP 500 Internal Server Error",
    f"HTTP/1.1 {ORDERS}": r"HTTP/1.1 \x1b]0;title\x07\x9b2J",
    f"HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:1/{ORDERS}": "Connection refused",
    "HTTP/1.1 302 x\r\nLocation: http://[": "no valid URL",
    f"HTTP/1.1 302 x\r\nLocation: ftp{ORDERS}://x": "HTTP 404 Not Found",  # as a path of this server
    "x" * 60000: "x" * 200,
}


@pytest.mark.parametrize("answer", list(IN_WORDS), ids=range(len(IN_WORDS)))
def test_what_a_server_says_gives_a_terminal_no_orders(tmp_path: Path, site: Web, answer: str) -> None:
    site.pages["/x"] = said(answer)
    told = failed(2, f"{site.root}/x", tmp_path)
    assert told == f"{site.root}/x: {IN_WORDS[answer]}"
    assert told.isprintable()


# Other users.


def of_same_looks(site: Web, path: Path) -> None:
    """Let the second user plant a file of the size and the time that the page has."""
    second_user.plant(path)
    os.truncate(path, len(DATA))
    os.utime(path, (site.changed, site.changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kind", ["file", "right file", "link", "pipe", "writable file"])
def test_what_another_user_could_have_made_is_no_copy(
    common: Path, site: Web, size: int, checked: bool, kind: str
) -> None:
    site.pages["/x"] = DATA
    elsewhere = common / "his"
    if kind == "file":
        of_same_looks(site, common / "x")
    elif kind == "right file":
        second_user.plant(common / "x", DATA[:1000])
        (common / "x").write_bytes(DATA)
        os.utime(common / "x", (site.changed, site.changed))
    elif kind == "link":
        of_same_looks(site, elsewhere)
        second_user.act("os.symlink(sys.argv[1], sys.argv[2])", elsewhere, common / "x")
    elif kind == "pipe":
        second_user.act("os.mkfifo(sys.argv[1])", common / "x")
    else:  # ours, but in the directory of all others can write to it
        (common / "x").write_bytes(DATA[::-1])
        (common / "x").chmod(0o666)
        os.utime(common / "x", (site.changed, site.changed))
    digest = {"sha256": hashlib.sha256(DATA).hexdigest()} if checked else {}
    paths = fetched(size, f"{site.root}/x", lambda _: common, **digest)
    assert paths == [common / "x"] * size
    status = os.lstat(common / "x")
    assert stat.S_ISREG(status.st_mode)
    assert status.st_uid == os.geteuid()
    assert not status.st_mode & 0o022
    assert (common / "x").read_bytes() == DATA
    assert not elsewhere.exists() or elsewhere.read_bytes().startswith(b"planted")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_directory_that_another_user_has_laid_is_refused(common: Path, site: Web, rank: int) -> None:
    site.pages["/x"] = DATA
    second_user.act("os.mkdir(sys.argv[1])", common / "his")
    (common / "ours").mkdir()
    told = fetched(2, f"{site.root}/x", lambda each: f"{common}/{'his' if each == rank else 'ours'}/")
    assert told[0] == told[1]
    assert told[0].startswith(f"rank {rank}: ")
    assert "another user" in told[0]
    assert not list((common / "his").iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
@pytest.mark.parametrize("cached", [False, True])
def test_no_copy_can_be_read_by_more_users_than_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, cached: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.write_bytes(b"secret")
    source.chmod(mode)

    def modes() -> set[int]:
        paths = fetched(2, source, lambda rank: None if cached else tmp_path / f"copy-{rank}")
        return {stat.S_IMODE(path.stat().st_mode) for path in paths}

    before = os.umask(0)
    try:
        assert modes() == {mode & (0o600 if cached else 0o644)}
        source.chmod(0o400)
        assert modes() == {0o400}  # of copies that are there already, too
    finally:
        os.umask(before)


def test_the_name_that_rank_0_tells_is_none_of_another_directory() -> None:
    for name in b"", b".", b"..", b"../x", b"/etc/x", b"x\0":
        with pytest.raises(TransferError, match="names no file"):
            fetching._checked(name)
    assert fetching._checked(b"\xff") == "\udcff"
