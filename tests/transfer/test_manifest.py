"""Manifest: it lists what the system lists, travels unchanged, and never leads out of the destination."""

import os
import socket
from pathlib import Path

import msgpack
import pytest

from ringcast import TransferError
from ringcast.transfer.listing import scan
from ringcast.transfer.manifest import DIRECTORY, FILE, LINK, Entry, Manifest, shown
from support.trees import make_tree


def test_a_manifest_lists_what_the_system_finds_and_travels_unchanged(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    listing = scan([str(tree)], recursive=True)
    manifest = listing.manifest
    expected = {b"tree"}
    for folder, directories, files in os.walk(os.fsencode(tree)):
        below = os.path.relpath(folder, os.fsencode(tmp_path))
        expected |= {os.path.join(below, name) for name in [*directories, *files]}
    assert {entry.path for entry in manifest.entries} == expected
    for number, entry in enumerate(manifest.entries):
        place = listing.place(number)
        status = os.lstat(place)
        assert listing.inodes[number] == status.st_ino
        assert entry.mtime == status.st_mtime_ns
        assert (entry.kind == LINK) == os.path.islink(place)
        assert (entry.kind == DIRECTORY) == (os.path.isdir(place) and not os.path.islink(place))
        if entry.kind == FILE:
            assert entry.size == status.st_size
            content, data = Path(os.fsdecode(place)).read_bytes(), bytearray(status.st_size)
            for offset, length in entry.extents:
                data[offset : offset + length] = content[offset : offset + length]
            assert data == content  # what is in no extent is a hole, which reads as zeros
    assert list(Manifest.decode(manifest.encode()).entries) == list(manifest.entries)


def test_a_slash_means_what_is_in_the_directory(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    named = {entry.path for entry in scan([str(tree)], recursive=True).manifest.entries}
    inside = {entry.path for entry in scan([f"{tree}/"], recursive=True).manifest.entries}
    assert named == {b"tree"} | {b"tree/" + path for path in inside}


@pytest.mark.parametrize("path", [b"", b"/etc/x", b"../x", b"a/../../x", b"a//b", b".", b"a/.", b"a\0b", b"no/such"])
def test_a_manifest_that_leads_out_of_the_destination_is_refused(path: bytes) -> None:
    entries = (Entry(b"a", DIRECTORY, 0o755, 0), Entry(path, FILE, 0o644, 0))
    with pytest.raises(TransferError):
        Manifest.decode(Manifest(entries).encode())


@pytest.mark.parametrize("kind", [FILE, LINK])
def test_nothing_lies_below_a_file_or_a_link_nor_is_anything_there_twice(kind: str) -> None:
    for path in b"a/x", b"a":
        entries = (Entry(b"a", kind, 0o755, 0, target=b"/etc"), Entry(path, FILE, 0o644, 0))
        with pytest.raises(TransferError):
            Manifest.decode(Manifest(entries).encode())


def test_what_cannot_be_copied_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket")[-100:] if len(str(tmp_path)) < 80 else "\0unused")
        with pytest.raises(TransferError, match="pipe: neither file, directory nor link"):
            scan([str(tmp_path)], recursive=True)
    with pytest.raises(TransferError, match="-r copies it"):
        scan([str(tmp_path)], recursive=False)
    with pytest.raises(TransferError, match="No such file"):
        scan([str(tmp_path / "nothing")], recursive=True)


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in "a", "b":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same").write_text(folder)
    with pytest.raises(TransferError, match="same: two sources have this name"):
        scan([str(tmp_path / "a" / "same"), str(tmp_path / "b" / "same")], recursive=False)


def test_an_error_names_five_problems_and_counts_the_others(tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        scan([str(tmp_path / f"no{i}") for i in range(9)], recursive=False)
    assert str(caught.value).count("No such file") == 5
    assert "and 4 more" in str(caught.value)


def test_names_are_shown_without_control_characters() -> None:
    assert shown("a\nb") == "a\\nb"
    assert shown(b"a\xff") == "a\\udcff"
    assert shown("größe 1") == "größe 1"


def test_modes_of_a_manifest_are_permission_bits_only() -> None:
    packed = msgpack.packb((0, 0)) + msgpack.packb([(b"a", 0, 0o177777, (0, 0), 0, b"", [])])
    assert Manifest.decode(packed).entries[0].mode == 0o7777


def test_a_manifest_that_is_damaged_is_an_error_in_words() -> None:
    right = (b"a", 0, 0o644, (0, 0), 10, b"", ((0, 5), (7, 3)))
    assert Manifest.decode(packed(right)).entries[0].extents == ((0, 5), (7, 3))
    wrong = {
        0: ("a", 7, None, (b"a",)),
        1: (3, -4, "file", None),
        2: ("rw", None),
        3: (0, (0,), (0, -1), (1 << 63, 0)),
        4: (-1, 1 << 63, None, "10"),
        5: (None, "etc", 5),
        6: (((0, 11),), ((5, 5), (4, 1)), ((0, 0),), ((-1, 2),), 7, ((1,),)),
    }
    for place, values in wrong.items():
        for value in values:
            fields = [*right[:place], value, *right[place + 1 :]]
            with pytest.raises(TransferError, match=r"damaged|more than can be copied"):
                Manifest.decode(packed(fields))
    whole = packed(right)
    for length in range(len(whole)):
        with pytest.raises(TransferError):
            Manifest.decode(whole[:length])
    for data in b"", b"\xc1", b"\xff" * 20, b"\xdd\xff\xff\xff\xff", packed(right, right):
        with pytest.raises(TransferError):
            Manifest.decode(data)


def packed(*entries: object) -> bytes:
    """Return entries as they travel."""
    data: bytes = msgpack.packb((0, 0)) + msgpack.packb(entries)
    return data
