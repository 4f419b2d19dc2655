"""The ring in shared memory against a model, a queue of messages; and with garbage in it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.transports.memory import ring
from ringcast.transports.memory.ring import RingReader, RingWriter, pack_loans

SMALL, AFRESH = 4096, 512  # bytes of a ring here, so that it is soon full, and of the part where it starts afresh
LARGEST = SMALL // 2 - 8
WORD = (1 << 64) - 1


@pytest.fixture(scope="module", autouse=True)
def small_rings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RING", SMALL), ("_MASK", SMALL - 1), ("LARGEST", LARGEST), ("_AFRESH", AFRESH)):
            patch.setattr(ring, name, value)
        yield


class Ends:
    """Both ends of a ring, and the model."""

    def __init__(self) -> None:
        self.memory = bytearray(SMALL)
        self.tails, self.heads = (memoryview(bytearray(16)).cast("Q") for _ in range(2))
        self.writer = RingWriter(memoryview(self.memory), self.tails, self.heads, 1)
        self.reader = RingReader(memoryview(self.memory), self.heads, 1)
        self.model: deque[tuple[list[bytes], list[tuple[int, int]]]] = deque()

    def put(self, frames: Sequence[bytes], loans: Sequence[tuple[int, int]] = ()) -> bool:
        done = self.writer.put(frames, pack_loans(loans))
        if done:
            self.model.append((list(frames), list(loans)))
        return done

    def take(self) -> None:
        frames, loans = self.reader.take(self.tails[1])
        assert ([bytes(frame) for frame in frames], list(loans)) == self.model.popleft()
        self.reader.release()

    def check(self) -> None:
        assert self.writer.empty == (not self.model) == (self.heads[1] == self.tails[1])
        assert self.tails[1] - self.heads[1] <= SMALL
        assert self.tails[0] == self.heads[0] == 0, "a word of another writer was changed"

    def drain(self) -> None:
        while self.model:
            self.take()
        self.check()


def message(rng: random.Random) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return one of any shape: often of one frame, or with empty ones; sometimes with loans, or as large as may be."""
    loans = [(rng.randrange(WORD), rng.randrange(WORD)) for _ in range(rng.choice((0, 0, 0, 1, 3)))]
    count = rng.choice((1, 1, 2, 5))
    left = LARGEST - (8 * (count + bool(loans)) + 16 * len(loans) if count > 1 or loans else 0)
    if rng.random() < 0.1:
        sizes = [left, *[0] * (count - 1)]
        rng.shuffle(sizes)
    else:
        sizes = [rng.choice((0, 1, 7, 8, 9, rng.randrange(left // count))) for _ in range(count)]
    return [rng.randbytes(size) for size in sizes], loans


@pytest.mark.parametrize("seed", range(40))
def test_what_is_put_is_taken_in_order_whatever_its_size(seed: int) -> None:
    rng, ends, refused = random.Random(seed), Ends(), 0
    for _ in range(300):
        if ends.model and rng.random() < 0.5:
            ends.take()
        elif not ends.put(*(next_one := message(rng))):
            refused += 1
            while not ends.put(*next_one):  # there is room when enough has been taken
                ends.take()
        ends.check()
    ends.drain()
    assert refused, "the ring was never full"


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 900), min_size=1, max_size=2)), max_size=60))
def test_any_order_of_puts_and_takes(steps: list[list[int] | None]) -> None:
    """None takes a message; else one with frames of these sizes is put."""
    ends = Ends()
    for number, step in enumerate(steps):
        if step is not None:
            ends.put([bytes([number % 256]) * size for size in step])
        elif ends.model:
            ends.take()
        ends.check()
    ends.drain()


def at(place: int) -> Ends:
    """Return a ring that is empty from there on."""
    ends = Ends()
    ends.tails[1] = ends.heads[1] = place
    ends.writer = RingWriter(memoryview(ends.memory), ends.tails, ends.heads, 1)
    ends.reader.skip(place)
    ends.reader.release()
    return ends


@pytest.mark.parametrize("size", [0, 1, AFRESH - 8, AFRESH, AFRESH + 1, LARGEST - 8, LARGEST])
def test_a_message_fits_into_an_empty_ring_wherever_that_is(size: int) -> None:
    for place in range(0, 2 * SMALL, 8):
        ends = at(place)
        assert ends.put([b"x" * size]), f"{place=}"
        ends.drain()


def test_a_message_that_no_ring_takes_is_refused_at_once() -> None:
    for frames, lent in ([bytes(LARGEST + 1)], b""), ([bytes(LARGEST - 15), b""], b""), ([b""], bytes(LARGEST - 15)):
        ends = Ends()
        with pytest.raises(ValueError, match="fit into the ring"):
            ends.writer.put(frames, lent)
        ends.check()


def test_a_full_ring_takes_nothing_and_then_exactly_what_was_given_back() -> None:
    ends = Ends()
    for _ in range(SMALL // 64):
        assert ends.put([bytes(56)])
    assert not ends.put([b""])
    ends.take()
    assert not ends.put([bytes(57)])
    assert ends.put([bytes(56)])
    assert not ends.put([b""])
    ends.drain()


def test_a_ring_that_is_empty_starts_afresh() -> None:
    """Else one message after the other would touch all pages of the ring, and none would be in the caches."""
    ends, used = Ends(), set()
    for _ in range(10 * SMALL // 64):
        assert ends.put([b"x" * 56])
        frames, _ = ends.reader.take(ends.tails[1])
        used.add(ends.reader.next % SMALL)
        frames.clear()
        ends.take()
    assert max(used) <= AFRESH + 64


def test_frames_stay_until_their_release() -> None:
    ends = Ends()
    ends.put([b"a" * 1000, b"b" * 1000])
    frames, _ = ends.reader.take(ends.tails[1])
    while ends.put([b"x" * 500]):
        pass
    assert [bytes(frame) for frame in frames] == [b"a" * 1000, b"b" * 1000]


# Garbage.

MARKS = (0, 1, 7, 8, 16, 24, 1 << 39, 1 << 40, 2 << 40, 3 << 40, (1 << 24) - 1 << 40, WORD, WORD - 1, 1 << 63)


def garbage(rng: random.Random) -> int:
    """Return a word: any, or one as they are there, perhaps not quite."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.getrandbits(64)
    if kind == 1:
        return rng.choice(MARKS)
    return rng.choice((0, 1, 1, 2, 3, 17, 600)) << 40 | rng.choice((0, 1 << 39)) | rng.randrange(SMALL)


@pytest.mark.parametrize("seed", range(60))
def test_garbage_is_a_message_or_refused_and_always_comes_to_its_end(seed: int) -> None:
    """Nothing but ValueError is raised, no frame lies outside of the ring, and each look goes on by a word at least."""
    rng = random.Random(seed)
    for _ in range(40):
        ends = Ends()
        words = memoryview(ends.memory).cast("Q")
        for i in range(len(words)):
            words[i] = garbage(rng)
        tail = rng.choice((8, rng.randrange(1, 2 * SMALL), SMALL, WORD, WORD - 7, 1 << 63, rng.getrandbits(64)))
        head = rng.choice((0, rng.randrange(SMALL), max(0, tail - SMALL), max(0, tail - 16), WORD - 15))
        ends.reader.skip(head)
        ends.reader.release()
        for _ in range(SMALL // 8 + 2):
            if ends.heads[1] == tail:
                break
            before = ends.heads[1]
            try:
                frames, loans = ends.reader.take(tail)
                assert all(0 <= address <= WORD for loan in loans for address in loan)
                assert frames
                assert sum(map(len, frames)) <= SMALL
                assert before < ends.reader.next <= tail
            except ValueError:
                ends.reader.skip(tail)
            ends.reader.release()
        assert ends.heads[1] == tail
