"""Result files: whole or not there, and nothing else that lies at their path is harmed."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ringcast.outfile import objection, write_whole


def put(text: str, path: Path) -> None:
    write_whole(path, lambda part: part.write_text(text) and None)


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    put("one", path)
    path.chmod(0o640)
    put("two", path)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    put("old", path)

    def half(part: Path) -> None:
        part.write_text("ha")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    put("text", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "text"


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    put("text", path)
    reader.join(10)
    assert read == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_the_writer_sees_the_ending(tmp_path: Path) -> None:
    endings: list[str] = []
    with pytest.raises(FileNotFoundError):  # it has written nothing
        write_whole(tmp_path / "plot.png", lambda part: endings.append(part.suffix))
    assert endings == [".png"]


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    assert objection(tmp_path / "new.json") == ""
    assert objection(tmp_path) == f"{tmp_path}: no file can be written there"
    assert objection(tmp_path / "no" / "file") == f"{tmp_path}/no/file: no file can be written there"
    assert objection(Path("/dev/null")) == ""
    if os.geteuid():
        assert objection(Path("/etc/passwd")) == "/etc/passwd: no permission to write there"
