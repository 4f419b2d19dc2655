"""Two copies that write the same file at the same time: it is whole under its name, or as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringcast.errors import TransferError
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, Piece
from ringcast.transfer.listing import scan

NOT_ALONE = "big: another copy writes it at the same time"


def begun(source: Path, out: Path) -> Destination:
    """Return a destination that is ready for content."""
    made = Destination(scan([str(source)], recursive=False).manifest, f"{out}/", preserve=False)
    made.prepare()
    made.reserve()
    return made


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = os.urandom(2 * CHUNK)
    (tmp_path / "big").write_bytes(data)
    return data


def test_a_file_that_another_copy_is_writing_is_left_to_it(tmp_path: Path, content: bytes) -> None:
    first = begun(tmp_path / "big", tmp_path / "out")
    first.write(Piece(0, 1), memoryview(content)[:CHUNK])
    with pytest.raises(TransferError, match=NOT_ALONE):
        begun(tmp_path / "big", tmp_path / "out")
    first.write(Piece(1, 1), memoryview(content)[CHUNK:])
    assert first.settle([0, 1]) == 1
    assert (tmp_path / "out" / "big").read_bytes() == content


def test_a_file_that_another_copy_has_finished_is_not_replaced_by_a_part(tmp_path: Path, content: bytes) -> None:
    slow, quick = begun(tmp_path / "big", tmp_path / "out"), begun(tmp_path / "big", tmp_path / "out")
    slow.write(Piece(0, 1), memoryview(content)[:CHUNK])
    slow.settle([0])
    quick.write(Piece(0, 2), memoryview(content))
    quick.settle([0, 1])
    with pytest.raises(TransferError, match=NOT_ALONE):
        slow.write(Piece(1, 1), memoryview(content)[CHUNK:])
    third = begun(tmp_path / "big", tmp_path / "out")  # which has a part file of its own
    for late in lambda: slow.write(Piece(1, 1), memoryview(content)[CHUNK:]), lambda: slow.settle([1]):
        with pytest.raises(TransferError, match=NOT_ALONE):
            late()
    third.close()
    assert (tmp_path / "out" / "big").read_bytes() == content
