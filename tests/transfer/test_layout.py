"""Layout of the stream: chunks cover all contents once, and segments all missing chunks."""

from hypothesis import given
from hypothesis import strategies as st

from ringcast.transfer.layout import CHUNK, PIECE, SEGMENT, Layout, Piece, segments
from ringcast.transfer.manifest import FILE, Entry, Manifest

LENGTHS = st.one_of(st.integers(0, 3), st.integers(CHUNK - 1, CHUNK + 1), st.integers(0, 5 * CHUNK))


def manifest(files: list[list[tuple[int, int]]]) -> Manifest:
    """Return a manifest of files, of each of which the gaps before its data, and their lengths, are given."""
    entries = []
    for number, parts in enumerate(files):
        at, extents = 0, []
        for gap, length in parts:
            if length:
                extents.append((at + gap, length))
            at += gap + length
        entries.append(Entry(b"%d" % number, FILE, 0o644, 0, at, data=tuple(extents)))
    return Manifest(tuple(entries))


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), LENGTHS), max_size=3), max_size=6), st.integers(1, PIECE))
def test_pieces_cover_the_data_of_all_files_once_and_in_order(files: list[list[tuple[int, int]]], count: int) -> None:
    listed = manifest(files)
    layout = Layout(listed)
    expected = [(number, offset, n) for number, e in enumerate(listed.entries) for offset, n in e.extents]
    found: list[tuple[int, int, int]] = []
    for first in range(0, layout.chunks, count):
        piece = Piece(first, min(count, layout.chunks - first))
        spans = list(layout.spans(piece))
        assert sum(span.length for span in spans) == layout.length(piece)
        for span in spans:
            if found and found[-1][0] == span.entry and sum(found[-1][1:]) == span.offset:
                found[-1] = (span.entry, found[-1][1], found[-1][2] + span.length)
            else:
                found.append((span.entry, span.offset, span.length))
    joined: list[tuple[int, int, int]] = []  # extents that touch are one here, as spans that touch are
    for number, offset, n in expected:
        if joined and joined[-1][0] == number and sum(joined[-1][1:]) == offset:
            joined[-1] = (number, joined[-1][1], joined[-1][2] + n)
        else:
            joined.append((number, offset, n))
    assert found == joined
    assert layout.nbytes == listed.nbytes


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), LENGTHS), max_size=3), max_size=6))
def test_chunks_of_an_entry_are_those_that_have_bytes_of_it(files: list[list[tuple[int, int]]]) -> None:
    layout = Layout(manifest(files))
    expected: dict[int, list[int]] = {}
    for chunk in range(layout.chunks):
        for entry in {span.entry for span in layout.spans(Piece(chunk, 1))}:
            expected.setdefault(entry, []).append(chunk)
    assert {entry: list(layout.chunks_of(entry)) for entry in range(len(files)) if layout.chunks_of(entry)} == expected


@given(st.sets(st.integers(0, 400)))
def test_segments_have_each_missing_chunk_once_and_are_bounded(missing: set[int]) -> None:
    cut = segments(sorted(missing))
    assert [chunk for pieces in cut for piece in pieces for chunk in piece.chunks] == sorted(missing)
    assert all(piece.count <= PIECE for pieces in cut for piece in pieces)
    assert all(sum(piece.count for piece in pieces) <= SEGMENT for pieces in cut)
