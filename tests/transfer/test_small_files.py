"""Small files: each lacks nothing but its name when it is written, and gets that when its digest was compared."""

from __future__ import annotations

import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import Piece
from ringcast.transfer.listing import scan
from ringcast.transfer.manifest import FILE, Entries, Entry, Manifest

COUNT, SIZE = 200, 1000  # all in one chunk
PIECE = Piece(0, 1)


def small_files(folder: Path, mode: int) -> tuple[Manifest, bytes]:
    """Make files of different content; return their manifest, and their contents one after the other."""
    folder.mkdir()
    contents = [os.urandom(SIZE) for _ in range(COUNT)]
    for number, content in enumerate(contents):
        (folder / f"{number:03}").write_bytes(content)
        (folder / f"{number:03}").chmod(mode)
    return scan([str(folder)], recursive=True).manifest, b"".join(contents)


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("mode", [0o400, 0o644])
def test_a_small_file_has_its_name_only_when_its_digest_was_compared(tmp_path: Path, mode: int, preserve: bool) -> None:
    manifest, data = small_files(tmp_path / "files", mode)
    there = tmp_path / "out" / "files"
    destination = Destination(manifest, f"{tmp_path}/out/", preserve)
    destination.prepare()
    for arrived in bytes(len(data)), data:  # at first with a wrong digest
        destination.write(PIECE, memoryview(arrived))
        destination.settle([])
        assert {path.name[-14:] for path in there.iterdir()} == {".ringcast-part"}
    assert destination.settle([0]) == COUNT
    destination.finish()
    assert contents(there) == data
    assert {stat.S_IMODE(path.stat().st_mode) for path in there.iterdir()} == {mode}


def test_a_list_of_many_files_is_kept_in_little_memory() -> None:
    count = 20_000
    packed = Manifest(Entries(Entry(b"%06d" % number, FILE, 0o644, 10**18 + number, SIZE) for number in range(count)))
    data = packed.encode()
    tracemalloc.start()
    try:
        kept = Destination(Manifest.decode(data), "out/", preserve=True)
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.layout.nbytes == count * SIZE
    assert now < 160 * count
    assert most < 320 * count
