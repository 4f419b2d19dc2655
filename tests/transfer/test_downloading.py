"""Files of remote sources come to the disk of every rank, each byte read once; files that are there are not read."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import ringcast
from ringcast import Communicator, RingcastError
from ringcast.transfer import downloading
from ringcast.transfer.downloading import Downloaded, download_files
from ringcast.transfer.layout import CHUNK
from ringcast.transfer.options import Options
from ringcast.transfer.report import Progress
from ringcast.transfer.sources.base import Changed, Interrupted
from ringcast.transfer.sources.packed import Packed, Window
from ringcast.transfer.sources.remote import RemoteSource
from support.patience import patience
from support.reads import alike, named_hosts, on_host
from support.store import store

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")

SIZES = 1, 2, 3, 5
DATA = random.Random(5).randbytes(5_000_000)


@pytest.fixture
def files() -> Iterator[dict[str, bytes]]:
    """Many small files, empty ones, and some of more than a chunk, as memory://snapshot."""
    draw = random.Random(7)
    made = {f"a/{i}.bin": draw.randbytes(draw.choice([0, 1, 100, 70_000])) for i in range(30)}
    made |= {"large": draw.randbytes(3_000_001), "a/b/deep": b"x", "none": b""}
    held = fsspec.filesystem("memory")
    for name, content in made.items():
        held.pipe_file(f"/snapshot/{name}", content)
    yield made
    held.rm("/snapshot", recursive=True)


def download(
    size: int, source: str, out: Path, watch: Callable[[Progress], object] | None = None, **options: Any
) -> list[Any]:
    """Copy to `out/RANK/` on ranks that are hosts of their own."""

    def work(comm: Communicator) -> Downloaded | RingcastError:
        with on_host(f"h{comm.rank}"):
            mine = watch if comm.rank == 0 else None
            try:
                return download_files(comm, source, f"{out}/{comm.rank}/", Options(**options), 2, mine)
            except RingcastError as error:
                return error

    with named_hosts():
        return ringcast.run(work, size, backend="threads")


@pytest.mark.parametrize("size", SIZES)
def test_a_file_of_a_server(tmp_path: Path, size: int) -> None:
    seen: list[Progress] = []
    with store(DATA) as served:
        results = download(size, f"{served.root}/model.bin", tmp_path, seen.append)
        assert [(mine.files, mine.nbytes, mine.error) for mine in results] == [(1, len(DATA), "")] * size
        for rank in range(size):
            assert (tmp_path / str(rank) / "model.bin").read_bytes() == DATA
        assert sum(stop - start for start, stop in served.asked) < 2 * len(DATA)
        assert (seen[-1].done, seen[-1].total) == (len(DATA), len(DATA))
        served.forget()
        again = download(size, f"{served.root}/model.bin", tmp_path)
        assert [mine.written for mine in again] == [0] * size
        assert {*served.asked} == {(0, 1)}  # the openings


def test_with_preserve_a_file_has_the_time_of_the_server_and_is_read_again_when_that_has_changed(
    tmp_path: Path,
) -> None:
    with store(DATA) as served:
        for time_of_change in 1_000_000_000, 1_100_000_000:
            served.changed = formatdate(time_of_change, usegmt=True)
            for read in True, False:
                served.forget()
                results = download(2, f"{served.root}/model.bin", tmp_path, preserve=True)
                assert [mine.error for mine in results] == ["", ""]
                assert ({*served.asked} != {(0, 1)}) == read
                assert {(tmp_path / f"{rank}/model.bin").stat().st_mtime_ns for rank in (0, 1)} == {
                    time_of_change * 10**9
                }


@pytest.mark.parametrize("size", SIZES)
def test_progress_is_seen_before_a_window_is_over_and_all_bytes_are_counted(tmp_path: Path, size: int) -> None:
    seen: list[Progress] = []
    with store(DATA) as served:
        served.rate = 3_000_000 / size
        results = download(size, f"{served.root}/model.bin", tmp_path, seen.append)
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert done[0] < len(DATA) / 2 < done[-1] == len(DATA)
    assert {progress.total for progress in seen} == {len(DATA)}
    assert (seen[-1].network > 0) == (size > 1)
    assert sum(mine.source.nbytes for mine in results) >= len(DATA)
    assert sum(mine.network.nbytes for mine in results) == (size - 1) * len(DATA)
    assert all(moved.seconds > 0 for mine in results for moved in (mine.source, mine.network) if moved.nbytes)


@pytest.mark.parametrize("rate", [None, 2_000_000])
def test_a_server_that_refuses_requests_is_not_asked_for_so_many_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float | None
) -> None:
    """It refuses some of the first window, and then at most the requests that come before it has seen others end."""
    monkeypatch.setattr(downloading, "WINDOW", 1)
    refused: list[int] = []
    with store(DATA) as served:
        served.most, served.rate = 4, rate

        def watch(progress: Progress) -> None:
            if progress.done >= CHUNK:
                refused.append(served.refused)

        results = download(4, f"{served.root}/model.bin", tmp_path, watch)
        refused.append(served.refused)
    assert {mine.error for mine in results} == {""}
    assert refused[0] > 0
    assert refused[-1] - refused[0] <= served.most
    assert (tmp_path / "3" / "model.bin").read_bytes() == DATA


@pytest.mark.parametrize("size", SIZES)
def test_a_snapshot_of_many_files(
    tmp_path: Path, files: dict[str, bytes], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "WINDOW", 1)
    (tmp_path / "0" / "snapshot").mkdir(parents=True)
    (tmp_path / "0" / "snapshot" / "large").write_bytes(files["large"])
    results = download(size, "memory://snapshot", tmp_path, recursive=True)
    assert {mine.error for mine in results} == {""}
    for rank in range(size):
        found = {
            str(path.relative_to(tmp_path / str(rank) / "snapshot")): path.read_bytes()
            for path in (tmp_path / str(rank)).rglob("*")
            if path.is_file()
        }
        assert found == files


def test_a_pattern_and_a_directory_without_its_name(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert {mine.error for mine in download(2, "memory://snapshot/a/1*.bin", tmp_path / "pattern")} == {""}
    names = {path.name for path in (tmp_path / "pattern" / "1").iterdir()}
    assert names == {name[2:] for name in files if name.startswith("a/1")}
    for pattern in "a/*.bin", "[a]/1.bin", "?/2*.bin":
        out = tmp_path / pattern.replace("/", " ").replace("*", "x")
        assert {mine.error for mine in download(2, f"memory://snapshot/{pattern}", out)} == {""}
        found = {str(path.relative_to(out / "1")) for path in (out / "1").rglob("*.bin")}
        inside = "" if pattern.startswith("a/") else "a/"
        assert found <= {inside + name[2:] for name in files if name.startswith("a/")}
        assert found
    assert {mine.error for mine in download(2, "memory://snapshot/", tmp_path / "all", recursive=True)} == {""}
    assert (tmp_path / "all" / "1" / "large").read_bytes() == files["large"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("memory://snapshot", "a directory; -r copies it"),
        ("memory://nothing/here", "/nothing/here"),
        ("memory://snapshot/*.not", "there is no such file"),
        ("no-such://a/b", "no-such"),
        ("http://user:secret@127.0.0.1:1/x", "http://127.0.0.1:1/x: "),
    ],
)
def test_a_source_that_cannot_be_listed_is_an_error_alike(
    tmp_path: Path, files: dict[str, bytes], source: str, text: str
) -> None:
    error = str(alike(download(2, source, tmp_path)))
    assert text in error
    assert "secret" not in error


def test_a_rank_that_cannot_write_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("in the way")
    with store(DATA) as served:
        assert "rank 1: " in str(alike(download(3, f"{served.root}/model.bin", tmp_path)))
        results = download(3, f"{served.root}/model.bin", tmp_path, keep_going=True)
    assert [bool(mine.error) for mine in results] == [False, True, False]
    assert (tmp_path / "2" / "model.bin").read_bytes() == DATA


@pytest.mark.parametrize("name", ["/snapshot/../../out", "/snapshot/a/../b", "/snapshot/a/./b", "/snapshot/a\0b"])
def test_names_that_lead_elsewhere_are_refused(
    tmp_path: Path, files: dict[str, bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"/snapshot/good": {"size": 1}, name: {"size": 1}}
    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "find", lambda *_, **__: found)
        error = alike(download(2, "memory://snapshot/", tmp_path, recursive=True))
    assert "no path below the destination" in str(error)
    assert not [*tmp_path.rglob("*")]


def test_a_rate_holds_for_all_hosts_together(tmp_path: Path, files: dict[str, bytes]) -> None:
    began = time.monotonic()
    assert {mine.error for mine in download(2, "memory://snapshot/large", tmp_path, rate=6e6)} == {""}
    assert time.monotonic() - began > 0.2  # 3 MB take half a second, less the first piece of each connection


def test_a_file_that_changes_is_an_error_on_all_ranks(
    tmp_path: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(self: RemoteSource) -> None:
        raise Changed("it is another one")

    monkeypatch.setattr(RemoteSource, "check", changed)
    results = download(3, "memory://snapshot/large", tmp_path)
    assert {type(each) for each in results} == {ringcast.SourceChanged}
    assert not [path for path in tmp_path.rglob("large") if path.is_file()]


class Held:
    """A source in memory."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.version, self.closed = data, len(data), "1", 0

    def connect(self) -> Held:
        return self

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        into[:] = self.data[start : start + len(into)]
        yield len(into)

    def check(self) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("sizes", [[0], [1], [0, 3, 0, 0, 5, 1, 0], [7, 7]])
def test_any_part_of_packed_files_is_their_bytes(sizes: list[int]) -> None:
    contents = [np.random.default_rng(i).bytes(size) for i, size in enumerate(sizes)]
    packed = Packed(sizes, [str(i) for i in range(len(sizes))], lambda number: Held(contents[number]))  # type: ignore[arg-type]
    whole = b"".join(contents)
    for start in range(len(whole) + 1):
        for stop in range(start, len(whole) + 1):
            window = Window(packed, start, stop, "")
            into = bytearray(stop - start)
            connection = window.connect()
            assert sum(connection.read(0, memoryview(into))) == stop - start
            connection.close()
            assert into == whole[start:stop]
    packed.close()


def test_a_wait_for_the_rate_ends_when_the_read_is_given_up() -> None:
    packed = Packed([2], ["a"], lambda _: Held(b"ab"), rate=1e-4)  # type: ignore[arg-type]
    connection = Window(packed, 0, 2, "").connect()
    assert sum(connection.read(0, memoryview(bytearray(1)))) == 1
    ended: list[Interrupted] = []

    def read() -> None:
        try:
            sum(connection.read(1, memoryview(bytearray(1))))  # three hours later
        except Interrupted as error:
            ended.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    connection.interrupt()
    reader.join(patience(10))
    assert ended
    packed.close()
