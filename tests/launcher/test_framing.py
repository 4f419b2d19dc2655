"""The stream of messages between launcher and agent: however it is cut, the same messages come out of it."""

from __future__ import annotations

import contextlib
import itertools
import struct
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ringcast_launcher.hosts.framing import LARGEST, MARK, MOST_NOISE, PIECE, CodecError, Frames, cut, encode, joined

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9) | st.text(), inner, max_size=4),
    max_leaves=10,
)


def fed(frames: Frames, data: bytes, cuts: list[int]) -> list[Any]:
    """Return the messages of a stream that arrives in these pieces."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [message for a, b in itertools.pairwise(edges) for message in frames.feed(data[a:b])]


@given(messages=st.lists(PLAIN, max_size=6), cuts=st.lists(st.integers(0, 1 << 12)), noise=st.none() | st.binary())
def test_what_is_sent_arrives_wherever_it_is_cut(messages: list[Any], cuts: list[int], noise: bytes | None) -> None:
    assume(noise is None or (noise + MARK).find(MARK) == len(noise))
    frames = Frames(marked=noise is not None)
    start = b"" if noise is None else noise + MARK
    assert fed(frames, start + b"".join(map(encode, messages)), cuts) == messages
    assert (frames.noise, frames.begun) == (noise or b"", True)


def test_every_cut_of_one_stream() -> None:
    data = b"Welcome!\nringcast-agent" + MARK + encode(["a", 1]) + encode(None)
    for a in range(len(data) + 1):
        for b in range(a, len(data) + 1):
            assert fed(Frames(marked=True), data, [a, b]) == [["a", 1], None]


def test_without_a_mark_all_is_noise_and_the_last_of_it_is_kept() -> None:
    frames = Frames(marked=True)
    for i in range(2000):
        assert frames.feed(b"%0100d\n" % i) == []
    assert not frames.begun
    assert len(frames.noise) == MOST_NOISE
    assert frames.noise.endswith(b"1999\n")
    assert frames.feed(MARK + encode(7)) == [7]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("<I", LARGEST + 1), f"a message of {LARGEST + 1} bytes was announced"),
        (b"bash: no such thing\n", "a message of .* bytes was announced"),
        (struct.pack("<I", 1) + b"\xc1", "a message cannot be read"),
        (struct.pack("<I", 0), "a message cannot be read"),
        (struct.pack("<I", 2) + b"\x01\x02", "a message cannot be read"),
        (struct.pack("<I", 3) + b"\x81\x90\x01", "a message cannot be read"),
        (struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff", "a message cannot be read"),
        (struct.pack("<I", 3000) + b"\x91" * 3000, "a message cannot be read"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(CodecError, match=words):
        Frames(marked=False).feed(data)


@given(data=st.binary(max_size=200))
def test_garbage_is_refused_or_is_messages_but_nothing_else(data: bytes) -> None:
    with contextlib.suppress(CodecError):
        Frames(marked=False).feed(data)


@given(message=PLAIN, length=st.sampled_from([0, 1, PIECE - 3, PIECE, 3 * PIECE + 1]))
def test_what_is_cut_into_frames_is_joined_again(message: Any, length: int) -> None:
    frames = cut([message, bytes(length)])
    assert max(map(len, frames)) <= PIECE
    assert joined(frames) == [message, bytes(length)]


@pytest.mark.parametrize(
    ("frames", "words"),
    [([], "cannot be read"), ([b"\xc1"], "cannot be read"), ([bytes(LARGEST), b"x"], f"{LARGEST + 1} bytes came")],
)
def test_frames_that_are_no_message_are_refused(frames: list[bytes], words: str) -> None:
    with pytest.raises(CodecError, match=words):
        joined(frames)
