"""Files of all ranks come to rank 0, each rank's into a directory of its own; a rank that fails stops only its copy."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringcast
from ringcast import Communicator
from ringcast.transfer.collecting import collect_files
from ringcast.transfer.options import Options
from ringcast.transfer.report import CopyReport, Progress
from support.trees import described, make_tree

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZES = 1, 2, 3, 5


def collected(folder: Path, size: int, *names: str, seen: list[Progress] | None = None) -> CopyReport:
    """Collect each `folder/RANK/NAME` of all ranks in `folder/out/hRANK`."""

    def work(comm: Communicator) -> CopyReport | None:
        targets = [str(folder / "out" / f"h{rank}") for rank in range(1, size)] if comm.rank == 0 else []
        mine = [str(folder / str(comm.rank) / name) for name in names]
        watch = seen.append if seen is not None and comm.rank == 0 else None
        return collect_files(comm, mine, targets, Options(recursive=True, preserve=True), watch)

    report, *others = ringcast.run(work, size, backend="threads")
    assert others == [None] * (size - 1)
    assert report is not None
    return report


@pytest.mark.parametrize("size", SIZES)
def test_every_ranks_files_come_whole_and_once(tmp_path: Path, size: int) -> None:
    for rank in range(1, size):
        make_tree(tmp_path / str(rank) / "tree")
        (tmp_path / str(rank) / "tree" / "rank").write_bytes(bytes(rank))  # of all sizes from 1 on
    seen: list[Progress] = []
    report = collected(tmp_path, size, "tree", seen=seen)
    assert (report.ok, [found.rank for found in report.ranks]) == (True, [*range(1, size)])
    assert report.sent == report.nbytes == sum(found.written for found in report.ranks)
    for rank in range(1, size):
        came = described(tmp_path / "out" / f"h{rank}" / "tree", times=True)
        assert came == described(tmp_path / str(rank) / "tree", times=True)
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert not seen or (seen[-1].done == seen[-1].total == report.nbytes)
    again = collected(tmp_path, size, "tree")
    assert (again.ok, again.sent) == (True, 0)


@pytest.mark.parametrize("name", ["*.log", "a.log", "[ab].log"])
def test_names_may_be_patterns_and_no_match_is_an_error_of_that_rank_alone(tmp_path: Path, name: str) -> None:
    for rank in 1, 2, 3:
        (tmp_path / str(rank)).mkdir()
        if rank != 2:
            (tmp_path / str(rank) / "a.log").write_text("")  # no bytes at all
    report = collected(tmp_path, 4, name)
    assert [bool(found.error) for found in report.ranks] == [False, True, False]
    assert f"{tmp_path}/2/{name}: No such file or directory" in report.ranks[1].error
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["h1", "h3"]


def test_a_path_that_is_missing_is_named_and_the_others_of_that_rank_come(tmp_path: Path) -> None:
    for rank in 1, 2:
        (tmp_path / str(rank)).mkdir()
        for name in "abc"[rank - 1 :]:
            (tmp_path / str(rank) / name).write_text(name)
    report = collected(tmp_path, 3, "a", "b", "c", "d")
    assert not report.ok
    assert [report.ranks[rank - 1].error for rank in (1, 2)] == [
        f"{tmp_path}/1/d: No such file or directory",
        f"{tmp_path}/2/a: No such file or directory; {tmp_path}/2/d: No such file or directory",
    ]
    for rank in 1, 2:
        assert sorted(path.name for path in (tmp_path / "out" / f"h{rank}").iterdir()) == [*"abc"[rank - 1 :]]
    assert report.files == 5


def test_two_files_of_one_name_are_an_error_and_none_comes(tmp_path: Path) -> None:
    for folder in "a", "b":
        (tmp_path / "1" / folder).mkdir(parents=True)
        (tmp_path / "1" / folder / "file").write_text(folder)
    report = collected(tmp_path, 2, "a/file", "b/file", "c")
    assert "two sources have this name" in report.ranks[0].error
    assert not (tmp_path / "out").exists()


def test_a_file_whose_name_looks_like_a_pattern_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    for name in "[a]", "a":
        (tmp_path / "1" / name).write_text(name)
    assert collected(tmp_path, 2, "[a]").ok
    assert [path.name for path in (tmp_path / "out" / "h1").iterdir()] == ["[a]"]


def test_a_place_that_cannot_be_written_stops_only_that_copy(tmp_path: Path) -> None:
    for rank in 1, 2:
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "file").write_text("content")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "h1").write_text("in the way")
    report = collected(tmp_path, 3, "file")
    assert [bool(found.error) for found in report.ranks] == [True, False]
    assert "out/h1" in report.ranks[0].error
    assert (tmp_path / "out" / "h2" / "file").read_text() == "content"
