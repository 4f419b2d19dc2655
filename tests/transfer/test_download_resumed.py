"""A copy of a remote source that broke off goes on where it was, if the source is the same; else it begins anew."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import ringcast
from ringcast import Communicator, RingcastError
from ringcast.transfer import downloading
from ringcast.transfer.downloading import Downloaded, download_files
from ringcast.transfer.layout import CHUNK
from ringcast.transfer.options import Options
from ringcast.transfer.report import Progress
from ringcast.transfer.sources.base import Unreadable
from ringcast.transfer.sources.packed import Packed
from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure
from support.jobs import Job
from support.reads import alike, named_hosts, on_host
from support.store import Store, store

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy", "short_windows")

CHUNKS = 8
DATA = random.Random(5).randbytes(CHUNKS * CHUNK - 77)
OTHER = random.Random(6).randbytes(len(DATA))


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "WINDOW", 1)


@pytest.fixture
def served() -> Iterator[Store]:
    with store(DATA) as made:
        yield made


def download(
    size: int, source: str, out: Path, watch: Callable[[Progress], object] | None = None, **options: Any
) -> Any:
    """Copy to `out/RANK/` on ranks that are hosts of their own."""

    def work(comm: Communicator) -> Downloaded | RingcastError:
        with on_host(f"h{comm.rank}"):
            try:
                mine = watch if comm.rank == 0 else None
                return download_files(comm, source, f"{out}/{comm.rank}/", Options(**options), 2, mine)
            except RingcastError as error:
                return error

    with named_hosts():
        return ringcast.run(work, size, backend="threads")


def break_off(size: int, source: str, out: Path, chunks: int, **options: Any) -> None:
    """Begin a copy whose source cannot be read any more when so many chunks have come."""
    broken: list[bool] = []

    def pace(*_: object) -> None:
        if broken:
            raise Unreadable("broken off")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Packed, "pace", pace)
        found = download(
            size, source, out, lambda progress: progress.done >= chunks * CHUNK and broken.append(True), **options
        )
    assert "broken off" in str(alike(found))


def asked(served: Store) -> int:
    """Return the first byte that was asked for, but for the openings."""
    return min((start for start, stop in served.asked if (start, stop) != (0, 1)), default=len(served.data))


def hidden(out: Path) -> list[Path]:
    return [path for path in out.rglob(".*") if path.is_file()]


def whole(out: Path, size: int, name: str = "model.bin", data: bytes = DATA) -> bool:
    """Return whether all hosts have the file, and nothing else is left of the copy."""
    return not hidden(out) and all((out / str(rank) / name).read_bytes() == data for rank in range(size))


@pytest.mark.parametrize("chunks", [1, 4, CHUNKS - 1])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_only_what_is_missing_is_read(served: Store, tmp_path: Path, size: int, chunks: int) -> None:
    break_off(size, f"{served.root}/model.bin", tmp_path, chunks)
    assert not [*tmp_path.rglob("model.bin")]
    served.forget()
    results = download(size, f"{served.root}/model.bin?token=other", tmp_path)
    assert {mine.error for mine in results} == {""}
    assert asked(served) >= chunks * CHUNK
    assert all(mine.written <= len(DATA) - chunks * CHUNK for mine in results)
    assert whole(tmp_path, size)


def test_a_copy_may_break_off_again_and_again(served: Store, tmp_path: Path) -> None:
    for chunks in 1, 1, 1:
        break_off(2, f"{served.root}/model.bin", tmp_path, chunks)
    served.forget()
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert asked(served) >= 3 * CHUNK
    assert whole(tmp_path, 2)


def test_a_host_that_lacks_parts_gets_them_from_others(served: Store, tmp_path: Path) -> None:
    break_off(3, f"{served.root}/model.bin", tmp_path, 5)
    for path in hidden(tmp_path / "1"):
        path.unlink()
    served.forget()
    results = download(4, f"{served.root}/model.bin", tmp_path)  # and a new one
    assert {mine.error for mine in results} == {""}
    assert asked(served) >= 5 * CHUNK
    assert [mine.written > 5 * CHUNK for mine in results] == [False, True, False, True]
    assert whole(tmp_path, 4)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_host_that_comes_late_gets_a_file_of_the_right_time_from_others(
    served: Store, tmp_path: Path, size: int
) -> None:
    """One that has another time may be another version: it is read again, and passed on by no host."""
    source = f"{served.root}/model.bin"
    for late, stale in (1, False), (0, False), (0, True):
        assert {mine.error for mine in download(size, source, tmp_path, preserve=True)} == {""}
        (tmp_path / str(late) / "model.bin").unlink()
        if stale:
            for rank in range(1, size):
                (tmp_path / str(rank) / "model.bin").write_bytes(OTHER)
        served.forget()
        results = download(size, source, tmp_path, preserve=True)
        assert [mine.written for mine in results if mine.written] == [len(DATA)] * (size if stale else 1)
        assert asked(served) == (0 if stale else len(DATA))
        assert whole(tmp_path, size)


def test_a_host_that_comes_late_gets_a_file_of_the_right_size_alone_from_the_source(
    served: Store, tmp_path: Path
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.bin").write_bytes(OTHER)
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert (tmp_path / "0" / "model.bin").read_bytes() == DATA


VERSIONS = {
    "another ETag": (('"1"', "now"), ('"2"', "now")),
    "a weak ETag": (('W/"1"', "now"), ('W/"1"', "now")),
    "a weak ETag later": (('"1"', "now"), ('W/"1"', "now")),
    "another time": (("", "now"), ("", "then")),
    "no version": (("", ""), ("", "")),
    "no version later": (('"1"', "now"), ("", "")),
}


@pytest.mark.parametrize("change", VERSIONS)
def test_another_version_is_read_from_its_start(served: Store, tmp_path: Path, change: str) -> None:
    """So is one that may be another one, as far as the server says."""
    before, after = VERSIONS[change]
    served.etag, served.changed = before
    break_off(2, f"{served.root}/model.bin", tmp_path, 4)
    served.forget()
    (served.etag, served.changed), served.data = after, OTHER
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert asked(served) == 0
    assert whole(tmp_path, 2, data=OTHER)


def test_another_size_is_another_version(served: Store, tmp_path: Path) -> None:
    break_off(2, f"{served.root}/model.bin", tmp_path, 4)
    served.forget()
    served.data = OTHER + b"more"
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert asked(served) == 0
    assert whole(tmp_path, 2, data=served.data)


def test_the_time_of_change_is_a_version(served: Store, tmp_path: Path) -> None:
    served.etag = ""
    break_off(2, f"{served.root}/model.bin", tmp_path, 4)
    served.forget()
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert asked(served) >= 4 * CHUNK
    assert whole(tmp_path, 2)


def test_without_an_etag_another_query_is_another_source(served: Store, tmp_path: Path) -> None:
    """Two files of one size and one time of change may differ in it alone."""
    served.etag = ""
    for query, goes_on in ("?id=2", False), ("?id=1", True):
        break_off(2, f"{served.root}/model.bin?id=1", tmp_path, 4)
        assert b"id=" not in b"".join(path.read_bytes() for path in hidden(tmp_path))
        served.forget()
        served.data = DATA if goes_on else OTHER
        assert {mine.error for mine in download(2, f"{served.root}/model.bin{query}", tmp_path)} == {""}
        assert (asked(served) >= 4 * CHUNK) == goes_on
        assert whole(tmp_path, 2, data=served.data)
        for path in tmp_path.glob("*/*"):
            path.unlink()
        served.data = DATA


def test_with_verify_none_all_is_read(served: Store, tmp_path: Path) -> None:
    break_off(2, f"{served.root}/model.bin", tmp_path, 4)
    served.forget()
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path, verify="none")} == {""}
    assert asked(served) == 0
    assert whole(tmp_path, 2)


def damage_part(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(CHUNK + 5)
        file.write(b"wrong")


def damage_record(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes(40) + content[80:-7])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "part": damage_part,
    "arrived": damage_record,
    "other": lambda path: path.name.endswith("-arrived") and path.write_bytes(bytes(1000)),
    "gone": lambda path: path.name.endswith("-part") and path.unlink(),
}


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("kind", DAMAGE)
def test_what_was_damaged_meanwhile_is_read_again(served: Store, tmp_path: Path, kind: str, hosts: int) -> None:
    """Where one host of two has it undamaged, that one passes it on."""
    break_off(2, f"{served.root}/model.bin", tmp_path, 4)
    for rank in range(hosts):
        for path in hidden(tmp_path / str(rank)):
            if kind not in ("part", "arrived") or path.name.endswith(kind):
                DAMAGE[kind](path)
    served.forget()
    assert {mine.error for mine in download(2, f"{served.root}/model.bin", tmp_path)} == {""}
    assert (asked(served) >= 4 * CHUNK) == (hosts == 1)
    assert whole(tmp_path, 2)


def test_a_link_in_the_place_of_the_record_is_not_followed(served: Store, tmp_path: Path) -> None:
    break_off(1, f"{served.root}/model.bin", tmp_path, 4)
    (record,) = [path for path in hidden(tmp_path) if path.name.endswith("-arrived")]
    record.rename(tmp_path / "victim")
    record.symlink_to(tmp_path / "victim")
    before = (tmp_path / "victim").read_bytes()
    assert {mine.error for mine in download(1, f"{served.root}/model.bin", tmp_path)} == {""}
    assert (tmp_path / "victim").read_bytes() == before
    assert whole(tmp_path, 1)


def test_files_of_a_store_go_on_unless_one_of_them_has_changed(tmp_path: Path) -> None:
    held, draw = fsspec.filesystem("memory"), random.Random(7)
    files = {name: draw.randbytes(size) for name, size in (("a", 700_000), ("b", 5_000_000), ("c", 10), ("d", 900_000))}
    for name, content in files.items():
        held.pipe_file(f"/resumed/{name}", content)
    try:
        break_off(2, "memory://resumed/", tmp_path, 3, recursive=True)
        assert not [*tmp_path.rglob("b")]
        results = download(2, "memory://resumed/", tmp_path, recursive=True)
        assert [(mine.error, mine.written <= len(DATA) - 3 * CHUNK) for mine in results] == [("", True)] * 2
        assert all(whole(tmp_path, 2, name, content) for name, content in files.items())
        for path in tmp_path.glob("*/*"):
            os.unlink(path)
        break_off(2, "memory://resumed/", tmp_path, 3, recursive=True)
        held.pipe_file("/resumed/b", OTHER[: len(files["b"])])
        assert {mine.error for mine in download(2, "memory://resumed/", tmp_path, recursive=True)} == {""}
        assert whole(tmp_path, 2, "b", OTHER[: len(files["b"])])
    finally:
        held.rm("/resumed", recursive=True)


@pytest.fixture
def held() -> Iterator[Any]:
    """A store without servers, with DATA as memory://resumed/x.bin."""
    held = fsspec.filesystem("memory")
    held.pipe_file("/resumed/x.bin", DATA)
    yield held
    held.rm("/resumed", recursive=True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_file_of_a_store_that_changes_while_hosts_look_at_what_they_have_is_not_mixed(
    tmp_path: Path, held: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(size, "memory://resumed/x.bin", tmp_path, 3)
    prepare = downloading._Mine.prepare

    def late(self: Any) -> None:
        prepare(self)
        if held.cat_file("/resumed/x.bin") != OTHER:
            held.pipe_file("/resumed/x.bin", OTHER)

    with monkeypatch.context() as patched:
        patched.setattr(downloading._Mine, "prepare", late)
        error = alike(download(size, "memory://resumed/x.bin", tmp_path))
    assert isinstance(error, ringcast.SourceChanged), error
    assert not [*tmp_path.rglob("x.bin")]
    assert {mine.error for mine in download(size, "memory://resumed/x.bin", tmp_path)} == {""}
    assert whole(tmp_path, size, "x.bin", OTHER)


class Killed(BaseException):
    """Ends the program of a rank."""


@pytest.mark.parametrize("chunks", [1, 5, CHUNKS - 1])
def test_a_file_of_a_store_is_not_mixed_where_the_only_host_that_had_it_open_dies(
    tmp_path: Path, held: Any, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one opens it when it has become another one."""
    dead, here, packed = threading.Event(), threading.local(), downloading._packed

    def opened_late(*arguments: Any) -> Packed:
        made = packed(*arguments)
        opens, last = made._open, here.rank == 1

        def late(number: int) -> Any:
            if last and not dead.is_set():
                raise Unreadable("not yet")
            return opens(number)

        made._open = late
        return made

    def work(comm: Communicator) -> Any:
        here.rank = comm.rank

        def watch(progress: Progress) -> None:
            if progress.done >= chunks * CHUNK:
                held.pipe_file("/resumed/x.bin", OTHER)
                endpoint = comm._group.endpoint
                endpoint.control.send(Failing(endpoint.rank, Failure("killed", "")))
                dead.set()
                raise Killed

        with on_host(f"h{comm.rank}"):
            out = f"{tmp_path}/{comm.rank}/"
            return download_files(comm, "memory://resumed/x.bin", out, Options(), 2, None if comm.rank else watch)

    monkeypatch.setattr(downloading, "_packed", opened_late)
    job = Job("threads", 2)
    try:
        with named_hosts():
            results = job.run(work)
    finally:
        job.close()
    assert [type(each) for each in results] == [Killed, ringcast.SourceChanged], results
    assert not [*tmp_path.rglob("x.bin")]
