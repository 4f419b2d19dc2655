"""Copies over old files: other content, part files of an earlier copy, and data where the source has holes."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast import Communicator
from ringcast.transfer import layout
from ringcast.transfer.layout import CHUNK
from ringcast.transfer.report import CopyReport
from support.any_order import AnyOrder
from support.trees import described

pytestmark = pytest.mark.usefixtures("nothing_left")


def copied(source: Path, target: Path, **options: Any) -> list[CopyReport]:
    def work(comm: Communicator) -> CopyReport:
        return comm.bcast_file(source, f"{target}/", recursive=True, **options)

    return ringcast.run(work, 2, backend="threads")


def part_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.ringcast-part")


@pytest.mark.parametrize("size", [5, 3 * CHUNK + 5])
@pytest.mark.parametrize("verify", ["full", "size", "none"])
@pytest.mark.parametrize("left", ["nothing", "half", "all but a byte"])
def test_a_part_file_that_was_left_does_no_harm_to_a_file_that_is_whole(
    tmp_path: Path, size: int, verify: str, left: str
) -> None:
    source, there = tmp_path / "file", tmp_path / "there" / "file"
    source.write_bytes(os.urandom(size))
    there.parent.mkdir()
    there.write_bytes(source.read_bytes())
    part = {"nothing": b"", "half": bytes(size)[: size // 2], "all but a byte": bytes(1) + source.read_bytes()[1:]}
    part_of(there).write_bytes(part[left])
    assert all(report.ok for report in copied(source, there.parent, verify=verify))
    assert there.read_bytes() == source.read_bytes()


def test_a_file_that_is_one_hole_replaces_data(tmp_path: Path) -> None:
    source, there = tmp_path / "hole", tmp_path / "there" / "hole"
    source.touch()
    os.truncate(source, 2 * CHUNK)
    there.parent.mkdir()
    there.write_bytes(b"x" * (2 * CHUNK))
    assert all(report.ok for report in copied(source, there.parent))
    assert there.read_bytes() == bytes(2 * CHUNK)


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "n" * 240])
def test_the_longest_names_arrive(tmp_path: Path, name: str) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / name).write_text("content")
    assert all(report.ok for report in copied(tmp_path / "tree", tmp_path / "there"))
    assert (tmp_path / "there" / "tree" / name).read_text() == "content"


def test_trees_with_names_of_part_files_are_copied_twice_too(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "more").mkdir(parents=True)
    for name in "file", "other", "l" * 255:
        (tree / name).write_text(name)
    part_of(tree / "file").write_text("half a file")
    part_of(part_of(tree / "file")).write_text("a quarter")
    part_of(tree / "other").symlink_to("file")
    part_of(tree / "more").mkdir()
    part_of(part_of(tree / "more") / "file").mkdir()
    (tree / part_of(Path(hashlib.sha256(b"l" * 255).hexdigest()))).write_text("taken")
    for change in "", "changed":
        (tree / "file").write_text(f"file {change}")
        part_of(tree / "file").write_text(f"half a file {change}")
        assert all(report.ok for report in copied(tree, tmp_path / "there"))
        assert described(tmp_path / "there" / "tree") == described(tree)


def write_with_holes(path: Path, chunks: list[bytes]) -> None:
    """Write chunks with a hole after each."""
    with path.open("wb") as file:
        for number, chunk in enumerate(chunks):
            file.seek(2 * number * CHUNK)
            file.write(chunk)
        file.truncate(2 * len(chunks) * CHUNK)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A tree, and an older one, some chunks of which are right; segments are short, so that there are several."""
    monkeypatch.setattr(layout, "SEGMENT", 3)
    new, old = tmp_path / "new", tmp_path / "old"
    new.mkdir()
    old.mkdir()
    big = os.urandom(3 * CHUNK + 777)
    (new / "big").write_bytes(big)
    (old / "big").write_bytes(big[:CHUNK] + os.urandom(2 * CHUNK + 777))
    chunks = [os.urandom(CHUNK) for _ in range(4)]
    write_with_holes(new / "holes", chunks)
    write_with_holes(old / "holes", [os.urandom(CHUNK), chunks[1], os.urandom(CHUNK), chunks[3]])
    for number in range(4):
        (new / f"small{number}").write_bytes(os.urandom(1000 * number))
    return new, old


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def copied_over(job: AnyOrder, new: Path, old: Path, out: Path, **options: Any) -> list[Any]:
    """Copy a tree from rank 1 over the older one, which each other rank has."""
    for rank in 0, 2:
        if not (out / str(rank)).exists():
            (out / str(rank)).mkdir(parents=True)
            subprocess.run(["cp", "-r", "--sparse=always", old, out / str(rank) / "tree"], check=True)

    def work(comm: Communicator) -> CopyReport:
        return comm.bcast_file(f"{new}/", f"{out}/{comm.rank}/tree", 1, recursive=True, **options)

    return job.run(work)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"compress": "none"}, {"compress": "zstd", "sparse": True}], ids=str)
def test_what_is_right_already_stays_right_whoever_dies(
    trees: tuple[Path, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    expected = contents(trees[0])
    whole = AnyOrder(3)
    assert all(report.ok for report in copied_over(whole, *trees, tmp_path / "whole", **options))
    assert contents(tmp_path / "whole" / "0" / "tree") == expected
    places = whole.ends[2].places
    for share in range(8):
        out = tmp_path / str(share)
        results = copied_over(AnyOrder(3, victim=2, place=1 + places * share // 8), *trees, out, **options)
        if isinstance(results[0], CopyReport):
            assert contents(out / "0" / "tree") == expected
        assert all(report.ok for report in copied_over(AnyOrder(3), *trees, out, **options))
        for rank in 0, 2:
            assert contents(out / str(rank) / "tree") == expected


@pytest.mark.parametrize("options", [{"compress": "none"}, {"sparse": True}], ids=str)
def test_what_is_right_already_stays_right(trees: tuple[Path, Path], tmp_path: Path, options: dict[str, Any]) -> None:
    assert all(report.ok for report in copied_over(AnyOrder(3), *trees, tmp_path / "out", **options))
    for rank in 0, 2:
        assert contents(tmp_path / "out" / str(rank) / "tree") == contents(trees[0])
        assert (tmp_path / "out" / str(rank) / "tree" / "holes").stat().st_blocks * 512 <= 4 * CHUNK + 8192
