"""Options of copies: what is compressed arrives as it was, zeros need no room, and a slow disk is waited for or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast import Communicator, RunFailed
from ringcast.transfer import compression, copying, layout
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK
from ringcast.transfer.options import Options
from ringcast.transfer.report import CopyReport
from ringcast.transfer.stalls import Stalls
from support.flipping import Flipping
from support.patience import patience
from support.trees import described, make_tree

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a chunk at a time, five in a segment: there are as many messages as in a large copy."""
    monkeypatch.setattr(layout, "PIECE", 1)
    monkeypatch.setattr(layout, "SEGMENT", 5)


def copied(source: Path, out: Path, size: int = 3, **options: Any) -> list[CopyReport]:
    def work(comm: Communicator) -> CopyReport:
        return comm.bcast_file(source, f"{out}/{comm.rank}/", recursive=True, **options)

    return ringcast.run(work, size, backend="threads")


def mixed_tree(root: Path) -> Path:
    """Make a tree in which some pieces get shorter, and some do not."""
    make_tree(root, 3_000_000)
    (root / "text").write_bytes(b"".join(b"%d " % number for number in range(900_000)))
    (root / "zeros").write_bytes(bytes(3 * CHUNK + 17))
    return root


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("compress", ["auto", "zstd", "none"])
@pytest.mark.parametrize("sparse", [False, True])
def test_all_arrives_as_it_was(tmp_path: Path, compress: str, sparse: bool) -> None:
    tree = mixed_tree(tmp_path / "tree")
    report = copied(tree, tmp_path / "out", compress=compress, sparse=sparse)[0]
    assert report.ok
    assert report.sent == report.nbytes
    if compress == "zstd":
        assert report.travelled < 0.6 * report.sent
    if compress == "none":
        assert report.travelled == report.sent
    for rank in "1", "2":
        assert described(tmp_path / "out" / rank / "tree") == described(tree)
        blocks = (tmp_path / "out" / rank / "tree" / "zeros").stat().st_blocks
        assert blocks * 512 < 65536 if sparse else blocks * 512 > 3 * CHUNK
    assert copied(tree, tmp_path / "out", compress=compress, sparse=sparse)[0].sent == 0


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("times", [1, 7])
def test_bits_that_are_flipped_in_compressed_pieces_and_in_zeros_are_found(tmp_path: Path, times: int) -> None:
    tree = mixed_tree(tmp_path / "tree")
    options = Options(recursive=True, compress="zstd" if times == 1 else "none", sparse=True)

    def work(comm: Communicator) -> CopyReport:
        flipping: Any = Flipping(comm, times)
        return copying.copy_files(flipping, [str(tree)], f"{tmp_path}/out/{comm.rank}/", 0, options)

    report = ringcast.run(work, 3, backend="threads")[0]
    assert report.ok
    assert report.sent > report.nbytes
    assert described(tmp_path / "out" / "2" / "tree") == described(tree)


def test_zeros_replace_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * CHUNK) + b"end")
    for rank, name in (1, "file"), (2, ".file.ringcast-part"):
        (tmp_path / "out" / str(rank)).mkdir(parents=True)
        (tmp_path / "out" / str(rank) / name).write_bytes(b"x" * CHUNK + bytes(CHUNK) + b"end")
    assert copied(tmp_path / "file", tmp_path / "out", sparse=True)[0].ok
    for rank in "1", "2":
        assert (tmp_path / "out" / rank / "file").read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_rank_without_zstd_is_named_if_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    there = compression.zstd()
    monkeypatch.setattr(
        copying, "zstd", lambda: None if threading.current_thread().name == f"ringcast-rank-{lacking}" else there
    )
    (tmp_path / "file").write_bytes(bytes(3 * CHUNK))
    with pytest.raises(RunFailed, match=r"has neither Python 3.14 nor the package zstandard: pip install 'zstandard"):
        copied(tmp_path / "file", tmp_path / "out", compress="zstd")
    report = copied(tmp_path / "file", tmp_path / "out", compress="auto")[0]
    assert (report.ok, report.travelled) == (True, report.sent)


@pytest.mark.parametrize(
    ("cost", "ratio", "speed", "rate", "wins"),
    [
        (1e-9, 0.3, None, None, True),  # the speed is not known yet
        (1e-9, 0.95, None, None, False),
        (5e-9, 0.3, 12.5e6, None, True),
        (5e-9, 0.3, 1e9, None, False),
        (5e-9, 0.3, 1e9, 10e6, True),  # the rate is what limits
        (5e-9, 0.3, None, 10e6, True),
        (5e-9, 0.3, None, 1e9, False),
    ],
)
def test_a_piece_is_compressed_if_that_takes_less_time_than_it_saves(
    cost: float, ratio: float, speed: float | None, rate: float | None, wins: bool
) -> None:
    for mode, expected in ("auto", wins), ("zstd", True):
        compressor = compression.Compressor(mode, rate)
        compressor.cost, compressor.ratio, compressor.speed = cost, ratio, speed
        assert compressor.wins == expected


class SlowDisk:
    """The disk of some ranks: each write takes so many seconds, or never ends before `free`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float]) -> None:
        self.free = threading.Event()
        write = Destination.write

        def slow(this: Destination, piece: layout.Piece, data: memoryview) -> None:
            rank = int(Path(this._places.base.decode()).name)
            self.free.wait(seconds.get(rank, 0.0))
            write(this, piece, data)

        monkeypatch.setattr(Destination, "write", slow)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(b"".join((b"%7d " % number) * (CHUNK // 8) for number in range(40)))
    return path


@pytest.fixture
def threads_end(nothing_left: None) -> Iterator[None]:
    """Wait for the end of threads that were given up."""
    yield
    await_writers()


def await_writers() -> None:
    for thread in threading.enumerate():
        if thread.name == "ringcast-writer":
            thread.join(patience(10))
            assert not thread.is_alive()


FOREVER = 1e6


@pytest.mark.usefixtures("threads_end", "small_pieces")
@pytest.mark.parametrize("compress", ["zstd", "none"])
def test_a_disk_that_blocks_holds_up_nobody_for_longer_than_was_said(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch, compress: str
) -> None:
    disk = SlowDisk(monkeypatch, {1: FOREVER})
    monkeypatch.setattr(layout, "SEGMENT", 20)  # more than there are buffers
    began = time.monotonic()
    try:
        report = copied(big, tmp_path / "out", slow=patience(2.0), compress=compress)[0]
    finally:
        disk.free.set()
    assert time.monotonic() - began < patience(30)  # it is 2 s and the copy, on an idle machine
    assert [bool(rank.error) for rank in report.ranks] == [True, False]
    assert report.ranks[0].error.startswith("too slow: its disk made all others wait ")
    assert report.ranks[0].stalled > 0.0
    assert (tmp_path / "out" / "2" / "big").read_bytes() == big.read_bytes()
    assert [path.name for path in (tmp_path / "out" / "1").iterdir()] == [".big.ringcast-part"]


@pytest.mark.usefixtures("threads_end", "small_pieces")
def test_a_disk_that_is_slow_all_the_time_is_left_out_between_segments_and_resumed(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = patience(0.2)
    with monkeypatch.context() as patched:
        disk = SlowDisk(patched, {1: pause})
        report = copied(big, tmp_path / "out", slow=12.5 * pause)[0]
        disk.free.set()
        await_writers()  # the file is theirs until then
    assert report.ranks[0].error.startswith("too slow: its disk made all others wait ")
    assert 0 < report.ranks[0].written < report.nbytes
    assert not report.ranks[1].error
    again = copied(big, tmp_path / "out")[0]
    assert again.ok
    assert again.ranks[0].found >= report.ranks[0].written
    assert (tmp_path / "out" / "1" / "big").read_bytes() == big.read_bytes()


@pytest.mark.usefixtures("small_pieces")
def test_ranks_wait_for_a_slow_disk_and_it_is_named(tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = patience(0.02)
    SlowDisk(monkeypatch, {1: pause})
    report = copied(big, tmp_path / "out")[0]
    assert report.ok
    assert report.ranks[0].stalled > 15 * pause
    assert report.ranks[0].stalled > report.ranks[1].stalled


def test_what_the_quickest_disk_takes_is_nobodys_fault() -> None:
    stalls = Stalls(5.0)
    for _ in range(3):
        stalls.segment = 4.0
        assert stalls.left == pytest.approx(1.0 - stalls.total)
        stalls.next_segment(3.9)
    assert (stalls.total, stalls.segment) == (pytest.approx(0.3), 0.0)
    stalls.segment = 6.0
    stalls.next_segment(1.0)
    assert stalls.exceeded
    assert Stalls(None).left is None


@pytest.mark.usefixtures("threads_end", "small_pieces")
def test_the_copy_ends_when_no_rank_is_left_that_writes(
    tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch, {1: FOREVER})
    try:
        report = copied(big, tmp_path / "out", 2, slow=0.1)[0]
    finally:
        disk.free.set()
    assert not report.ok
    assert report.sent == 5 * CHUNK


def peak(field: str) -> int:
    """Return a size from the system's status of this process, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[field].split()[0])


@pytest.mark.parametrize("slow", [pytest.param(1.0, marks=pytest.mark.live), None])
def test_memory_is_bounded_while_a_disk_is_slow(tmp_path: Path, slow: float | None) -> None:
    source = tmp_path / "big"
    source.write_bytes(bytes(range(256)) * (160 * CHUNK // 256))

    def work(comm: Communicator) -> tuple[int, bool]:
        if comm.rank == 1:
            SlowDisk(pytest.MonkeyPatch(), {1: FOREVER if slow else 0.02})
        comm.barrier()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = peak("VmRSS")
        report = comm.bcast_file(source, f"{tmp_path}/out/{comm.rank}/", slow=slow)
        return peak("VmHWM") - before, report.ok

    results = ringcast.run(work, 3)
    assert [ok for _, ok in results] == [slow is None] * 3
    assert max(grown for grown, _ in results) < 64 * CHUNK, results
