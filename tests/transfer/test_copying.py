"""Copies among ranks: every rank has every byte, what is there is not sent, and ranks may die at any place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast import Communicator, PeerFailed, Revoked, TransferError
from ringcast.transfer import destination
from ringcast.transfer.copying import copy_files
from ringcast.transfer.options import Options
from ringcast.transfer.report import CopyReport, Progress
from support.any_order import AnyOrder, Died
from support.cases import each, long_but
from support.flipping import Flipping
from support.trees import HOLE, described, make_tree

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZES = 1, 2, 3, 5


def copied(tree: Path, out: Path, size: int, *, root: int = 0, **options: Any) -> list[CopyReport]:
    """Copy a tree on ranks that are threads; each rank but the root has a directory of its own."""

    def work(comm: Communicator) -> CopyReport:
        mine = str(tree) if comm.rank == root else "not there"
        return comm.bcast_file(mine, f"{out}/{comm.rank}/", root, recursive=True, **options)

    return ringcast.run(work, size, backend="threads")


@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_get_all_and_a_second_copy_sends_nothing(tmp_path: Path, size: int) -> None:
    tree, root = make_tree(tmp_path / "tree"), size - 1
    expected = described(tmp_path / "tree", times=True)
    reports = copied(tree, tmp_path / "out", size, root=root, preserve=True)
    assert all(report.ok and len(report.ranks) == size - 1 for report in reports)
    for rank in range(size):
        if rank != root:
            assert described(tmp_path / "out" / str(rank) / "tree", times=True) == expected
            assert (tmp_path / "out" / str(rank) / "tree" / "holes").stat().st_blocks * 512 < HOLE
    again = copied(tree, tmp_path / "out", size, root=root, preserve=True)
    assert {report.sent for report in again} == {0}
    assert all(rank.found == reports[0].nbytes and not rank.written for rank in again[0].ranks)


def test_modes_and_times_of_files_that_are_there_are_kept_too(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    copied(tree, tmp_path / "out", 2)
    (tree / "large").chmod(0o640)
    os.utime(tree / "large", ns=(5, 5))
    report = copied(tree, tmp_path / "out", 2, preserve=True)[0]
    assert (report.ok, report.sent) == (True, 0)
    assert described(tmp_path / "out" / "1" / "tree", times=True) == described(tree, times=True)


def test_times_of_any_year_are_kept(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for year in -1_000, 1600, 1969, 2261, 2263, 2400, 100_000:
        (tmp_path / "tree" / str(year)).write_bytes(b"x")
        (tmp_path / "tree" / f"link {year}").symlink_to("x")
        time = (year - 1970) * 31_556_952 * 10**9 + 123_456_789
        for name in str(year), f"link {year}":
            os.utime(tmp_path / "tree" / name, ns=(time, time), follow_symlinks=False)  # as far as this disk can
    os.utime(tmp_path / "tree", ns=(10**19, 10**19))
    expected = described(tmp_path / "tree", times=True)
    for verify in "full", "size":
        report = copied(tmp_path / "tree", tmp_path / "out", 2, preserve=True, verify=verify)[0]
        assert report.ok
        assert described(tmp_path / "out" / "1" / "tree", times=True) == expected
    assert report.sent == 0


def test_without_preserve_times_are_new_and_modes_are_masked(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    os.utime(tree / "kilo", ns=(1, 1))
    (tree / "kilo").chmod(0o4777)
    old = os.umask(0o027)
    try:
        copied(tree, tmp_path / "out", 2)
    finally:
        os.umask(old)
    status = (tmp_path / "out" / "1" / "tree" / "kilo").stat()
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert status.st_mtime_ns != 1


@pytest.mark.parametrize(("target", "name"), [("file", "file"), ("made/", "made/one"), ("there", "there/one")])
def test_a_file_gets_the_name_of_the_target_or_goes_into_it(tmp_path: Path, target: str, name: str) -> None:
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "out" / "there").mkdir(parents=True)

    def work(comm: Communicator) -> bool:
        return comm.bcast_file(tree / "one", f"{tmp_path}/out/{target}").ok

    assert ringcast.run(work, 2, backend="threads") == [True, True]
    assert (tmp_path / "out" / name).read_bytes() == (tree / "one").read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [{"root": 2}, {"root": -1}, {"rate": 0}, {"rate": -1.0}, {"verify": "sha1"}, {"compress": "gzip"}, {"slow": 0.0}],
    ids=str,
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(tmp_path: Path, wrong: dict[str, Any]) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(ringcast.ArgumentError) as caught:
            comm.bcast_file("any", str(tmp_path), **wrong)
        return caught.value.argument

    assert ringcast.run(work, 2, backend="threads") == list(wrong) * 2


def test_what_changed_is_sent_and_nothing_else(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    copied(tree, tmp_path / "out", 3, preserve=True)
    flipped = tmp_path / "out" / "2" / "tree" / "large"
    status, data = flipped.stat(), bytearray(flipped.read_bytes())
    data[2_500_000] ^= 1  # with the size and the time as before: only a digest tells
    flipped.write_bytes(data)
    os.utime(flipped, ns=(status.st_mtime_ns, status.st_mtime_ns))
    by_size = copied(tree, tmp_path / "out", 3, preserve=True, verify="size")
    assert by_size[0].sent == 0
    by_digest = copied(tree, tmp_path / "out", 3, preserve=True)
    assert by_digest[0].sent == 1 << 20
    assert described(tmp_path / "out" / "2" / "tree", times=True) == described(tree, times=True)
    everything = copied(tree, tmp_path / "out", 3, preserve=True, verify="none")
    assert everything[0].sent == everything[0].nbytes


def test_old_content_in_holes_does_not_stay(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    old = tmp_path / "out" / "1" / "tree" / "holes"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * (4 * HOLE))
    copied(tree, tmp_path / "out", 2)
    assert described(tmp_path / "out" / "1" / "tree") == described(tree)


@pytest.mark.parametrize("times", [1, 3, 1000])
def test_a_bit_that_is_flipped_on_the_way_is_found(tmp_path: Path, times: int) -> None:
    tree = make_tree(tmp_path / "tree")

    def work(comm: Communicator) -> CopyReport:
        flipping: Any = Flipping(comm, times)
        return copy_files(flipping, [str(tree)], f"{tmp_path}/out/{comm.rank}/", 0, Options(recursive=True))

    report = ringcast.run(work, 3, backend="threads")[0]
    if times < 1000:
        assert report.ok
        assert report.sent > report.nbytes
        assert described(tmp_path / "out" / "1" / "tree") == described(tree)
    else:
        assert all("chunks arrived with wrong digests, 3 times" in rank.error for rank in report.ranks)
        assert not (tmp_path / "out" / "1" / "tree" / "large").exists()


def test_a_source_that_changes_while_it_is_read_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")

    def work(comm: Communicator) -> str:
        def grow(progress: Progress) -> None:
            with (tree / "large").open("ab") as file:
                file.write(b"more")

        try:
            comm.bcast_file(tree, f"{tmp_path}/out/{comm.rank}/", recursive=True, rate=2e6, progress=grow)
        except TransferError as error:
            return str(error)
        return ""

    texts = ringcast.run(work, 2, backend="threads")
    assert texts[0] == texts[1]
    assert "large: changed while it was read" in texts[0]
    assert not (tmp_path / "out" / "1" / "tree" / "large").exists()


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_rank_that_cannot_take_the_files_stops_the_copy_or_is_left_out(tmp_path: Path, keep_going: bool) -> None:
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1").write_text("a file where a directory shall be")

    def work(comm: Communicator) -> Any:
        try:
            return comm.bcast_file(tree, f"{tmp_path}/out/{comm.rank}/", recursive=True, keep_going=keep_going)
        except TransferError as error:
            return str(error)

    results = ringcast.run(work, 3, backend="threads")
    if keep_going:
        assert [bool(rank.error) for rank in results[0].ranks] == [True, False]
        assert described(tmp_path / "out" / "2" / "tree") == described(tree)
    else:
        assert len(set(results)) == 1
        assert f"rank 1: {tmp_path}/out/1/" in results[0]
        assert described(tmp_path / "out" / "2") == {} or not (tmp_path / "out" / "2" / "tree" / "one").exists()


@pytest.mark.parametrize("kind", ["directory for a file", "file for a directory", "link for a directory"])
def test_nothing_is_written_where_something_else_is(tmp_path: Path, kind: str) -> None:
    tree = make_tree(tmp_path / "tree")
    there = tmp_path / "out" / "1" / "tree"
    there.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    if kind == "directory for a file":
        (there / "one").mkdir()
    elif kind == "file for a directory":
        (there / "deep").write_text("in the way")
    else:
        (there / "deep").symlink_to(outside)
    with pytest.raises(ringcast.RunFailed, match=r"is a directory there|is there, and no directory"):
        copied(tree, tmp_path / "out", 2)
    assert not list(outside.iterdir())


def test_a_full_disk_is_an_error_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "tree")

    def full(path: bytes) -> Any:
        return os.statvfs_result((4096, 4096, 1000, 10, 10, 0, 0, 0, 0, 255))

    monkeypatch.setattr(destination.os, "statvfs", full)
    sent: list[Progress] = []
    with pytest.raises(ringcast.RunFailed, match=r"rank 1: .*no space: [\d,]+ bytes are needed, 40,960 are free"):
        copied(tree, tmp_path / "out", 2, progress=sent.append)
    assert not sent


DRAWN: list[dict[str, Any]] = [
    {"compress": compress, "sparse": sparse, "slow": slow}
    for compress, sparse, slow in [("auto", False, None), ("zstd", True, 1000.0), ("zstd", False, None)]
]


def lossy(job: AnyOrder, tree: Path, out: Path, options: dict[str, Any]) -> list[Any]:
    def work(comm: Communicator) -> Any:
        return comm.bcast_file(tree, f"{out}/{comm.rank}/", 1, recursive=True, **options)

    return job.run(work)


def deaths(tmp_path: Path, size: int, victim: int, share: int, of: int) -> None:
    """Kill a rank at one of `of` places that are spread over a copy, and copy again what is missing."""
    tree = tmp_path / "tree"
    if not tree.exists():
        make_tree(tree, 2_500_000)
    options = DRAWN[share % len(DRAWN)]
    whole = AnyOrder(size)
    lossy(whole, tree, tmp_path / f"whole {size} {victim} {share}", options)
    place = 1 + whole.ends[victim].places * share // of
    out = tmp_path / f"out {size} {victim} {share}"
    job = AnyOrder(size, victim=victim, place=place)
    results = lossy(job, tree, out, options)
    for rank, result in enumerate(results):
        if rank == victim:
            assert isinstance(result, Died)
        elif isinstance(result, CopyReport):
            lacking = [lost.rank for lost in result.ranks if lost.error]
            assert lacking in ([], [victim])
            assert rank == 1 or described(out / str(rank) / "tree") == described(tree)
        else:
            assert isinstance(result, (TransferError, PeerFailed, Revoked)), result
            assert victim == 1 or place > whole.ends[victim].places - 40, result
    again = lossy(AnyOrder(size), tree, out, options)
    assert all(report.ok for report in again)
    for rank in range(size):
        assert rank == 1 or described(out / str(rank) / "tree") == described(tree)
    assert not [path for path in out.rglob("*") if path.name.endswith(".ringcast-part")]


@pytest.mark.parametrize("victim", long_but((0, 3), [0, 1, 3]))
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.long)])
@each("share", range(0, 6, 2))
def test_ranks_that_die_at_some_places_cost_the_others_nothing(
    tmp_path: Path, victim: int, first: int, share: int
) -> None:
    deaths(tmp_path, 4, victim, first + share, 6)


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1, 2, 4])
@each("share", range(24))
def test_ranks_that_die_at_many_places_cost_the_others_nothing(tmp_path: Path, victim: int, share: int) -> None:
    deaths(tmp_path, 5, victim, share, 24)
