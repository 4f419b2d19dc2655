"""Larger messages between two ranks, which compiled lanes offer and fetch: with the bytes and words of the engine."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from ringcast.protocol.eager_credits import KEPT
from ringcast.protocol.matching import ANY
from ringcast.protocol.sending import MOST_OFFERED
from ringcast.transports.memory.segment import RING
from ringcast.wire.header import EAGER_LIMIT, RTS, SIZE, unpack
from support import needs
from support.cases import each
from support.lane_ends import LaneEnds, Make, assert_alike, makes
from support.patience import patience
from support.wrong_offers import changes, put

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

LARGE = EAGER_LIMIT + 1  # bytes of a message that is offered
RECORD = 1024  # bytes of the first of two frames, at most
TAG = 7
LONG = 100.0  # seconds of a wait that something should end
SIZES = ((LARGE,), (1, LARGE), (30, 1 << 20), (RECORD, LARGE), (0, LARGE), (30, LARGE - 30))

make = pytest.fixture(makes)


def frames_of(sizes: Sequence[int], seed: int = 1) -> list[bytes]:
    return [random.Random(f"{seed} {number}").randbytes(size) for number, size in enumerate(sizes)]


def joined_in(frames: Sequence[bytes]) -> int:
    return len(frames) if len(frames) > 1 else 0


def received(ends: LaneEnds, frames: Sequence[bytes], wanted: int = TAG) -> bytes | None:
    """Return the last frame of an offer that the lane of rank 1 takes from rank 0; None if it leaves it."""
    message = ends.look(1, 0, wanted, joined_in(frames))
    if message is None:
        return None
    sizes = struct.pack(f"<{len(frames)}Q", *map(len, frames))
    assert message[SIZE:] == sizes + b"".join(frames[:-1])
    memory = bytearray(len(frames[-1]))
    return bytes(memory) if ends.fetch(1, 0, memory) else None


def refused(ends: LaneEnds, act: Callable[[], object]) -> object:
    """Return the result of something that changes nothing."""
    before = ends.words(), ends.ring(0, 1), ends.ring(1, 0)
    result = act()
    assert (ends.words(), ends.ring(0, 1), ends.ring(1, 0)) == before
    return result


# The bytes and words of the engine.


@each("sizes, place, credit, wanted", product(SIZES, (0, RING - 64), (0, 72), (TAG, ANY)))
def test_an_offer_is_that_of_the_engine(
    make: Make, sizes: tuple[int, ...], place: int, credit: int, wanted: int
) -> None:
    ends, engine, frames = make("compiled", "compiled"), make("python", "python"), frames_of(sizes)
    for each_of in ends, engine:
        each_of.start(0, 1, place)
        each_of.ledger(0).owed[1], each_of.ledger(1).spent[0] = credit, 100
    assert ends.offer_to(0, 1, TAG, frames)
    op = engine.send_to(0, 1, TAG, frames)
    assert_alike(ends, engine, [(0, 1)])
    header = unpack(refused(ends, lambda: ends.look(1, 0, wanted, joined_in(frames)))[:SIZE])  # type: ignore[index]
    assert (header.kind, header.ordinal, header.word) == (RTS, TAG, credit)
    assert received(ends, frames, wanted) == frames[-1]
    assert engine.receive_from(1, 0, wanted) == frames
    engine.endpoints[1].flush()
    _ = engine.transports[1].lanes  # which ends the look at a message of several frames
    assert_alike(ends, engine, [(1, 0)])
    assert ends.settle(0)
    assert not ends.lanes[0].offered()
    assert engine.endpoints[0].progress(0.0)
    assert not op.pending
    assert_alike(ends, engine, [])


@each("sizes", SIZES)
def test_an_engine_takes_what_a_lane_offers_and_awaits_its_reader(make: Make, sizes: tuple[int, ...]) -> None:
    ends, frames = make("compiled", "python"), frames_of(sizes)
    assert ends.offer_to(0, 1, TAG, frames)
    assert refused(ends, lambda: ends.look(1, 0, TAG, joined_in(frames))) is None, "lanes in Python take no offers"
    assert not ends.settle(0)
    op = ends.hand_over(0, 1, TAG, frames)
    assert op.pending
    assert ends.receive_from(1, 0, TAG) == frames
    ends.endpoints[1].flush()
    assert ends.endpoints[0].progress(0.0)
    assert not op.pending
    assert not any(ends.ledger(0).asked)


@each("sizes", SIZES)
def test_a_lane_takes_what_an_engine_offers(make: Make, sizes: tuple[int, ...]) -> None:
    ends, frames = make("python", "compiled"), frames_of(sizes)
    assert not refused(ends, lambda: ends.offer_to(0, 1, TAG, frames)), "lanes in Python offer nothing"
    op = ends.send_to(0, 1, TAG, frames)
    assert received(ends, frames) == frames[-1]
    assert ends.endpoints[0].progress(0.0)
    assert not op.pending


def test_messages_of_all_kinds_stay_in_order(make: Make) -> None:
    ends, rng = make("compiled", "compiled"), random.Random(1)
    for number in range(300):
        frames = frames_of((rng.randrange(1, 60), rng.choice((1, 9000, LARGE, 100_000))), number)
        tag = rng.randrange(1 << 32)
        if sum(map(len, frames)) <= EAGER_LIMIT:
            assert ends.put_to(0, 1, tag, frames)
            assert ends.look(1, 0, tag, 2) is not None
            assert not ends.fetch(1, 0, bytearray(len(frames[1]))), "it is no offer"
            assert ends.look(1, 0, tag, 2) is not None
            ends.accept(1, 0)
        else:
            assert ends.offer_to(0, 1, tag, frames)
            assert refused(ends, lambda tag=tag: ends.look(1, 0, tag ^ 1, 2)) is None
            assert received(ends, frames, rng.choice((tag, ANY))) == frames[1]
            assert ends.settle(0)
        ends.ledger(0).spent[1] = ends.ledger(1).owed[0] = 0  # as a message back returns it


# What is left to the engine.


@each("frames, name", [(frames, name) for frames in (1, 2) for name in changes(frames)])
def test_what_is_not_the_predicted_offer_stays_where_it_is(make: Make, frames: int, name: str) -> None:
    ends, sent = make("compiled", "compiled"), frames_of((30, LARGE)[2 - frames :])
    assert ends.offer_to(0, 1, TAG, sent)
    changes(frames)[name](ends, ends.segment(1).ring(0))
    assert refused(ends, lambda: received(ends, sent)) is None
    ends.segment(0).left[0] = 0


@each("sizes, joined", [((30, LARGE), 0), ((LARGE,), 2), ((1, 2, LARGE), 3), ((1, 2, LARGE), 2), ((1, LARGE), 3)])
def test_an_offer_of_other_frames_stays_where_it_is(make: Make, sizes: tuple[int, ...], joined: int) -> None:
    ends = make("compiled", "compiled")
    assert ends.offer_to(0, 1, TAG, frames_of(sizes))
    assert refused(ends, lambda: ends.look(1, 0, TAG, joined)) is None


def test_a_record_that_is_too_long_stays_where_it_is(make: Make) -> None:
    ends, frames = make("compiled", "compiled"), frames_of((RECORD + 1, LARGE))
    assert ends.offer_to(0, 1, TAG, frames)
    assert refused(ends, lambda: received(ends, frames)) is None


def test_an_offer_of_nothing_stays_where_it_is(make: Make) -> None:
    ends = make("compiled", "compiled")
    assert ends.offer_to(0, 1, TAG, [b"", b""])
    assert refused(ends, lambda: ends.look(1, 0, TAG, 2)) is None


def taken_back(ends: LaneEnds) -> None:
    for place in range(512):
        ends.segment(0).returns[place] += 1


def received_by_others(ends: LaneEnds) -> None:
    """As by a call within this one."""
    ends.segment(1).heads[0] += 8


def looked_elsewhere(ends: LaneEnds) -> None:
    assert ends.look(1, 2, TAG, 0) is None


@each("change", [taken_back, received_by_others, looked_elsewhere])
def test_what_has_changed_since_the_look_is_not_fetched(make: Make, change: Callable[[LaneEnds], None]) -> None:
    ends, frames = make("compiled", "compiled", "compiled"), frames_of((LARGE,))
    assert ends.offer_to(0, 1, TAG, frames)
    assert ends.look(1, 0, TAG, 0) is not None
    change(ends)
    assert not refused(ends, lambda: ends.fetch(1, 0, bytearray(LARGE)))


@each(
    "peer, size", [(0, LARGE - 1), (0, LARGE + 1), (0, 0), (2, LARGE), (1, LARGE), (3, LARGE), ((1 << 64) - 1, LARGE)]
)
def test_only_the_message_that_was_found_is_fetched(make: Make, peer: int, size: int) -> None:
    """From its rank, with memory of its size, and once."""
    ends, frames = make("compiled", "compiled", "compiled"), frames_of((LARGE,))
    assert ends.offer_to(0, 1, TAG, frames)
    assert ends.offer_to(2, 1, TAG, frames)
    assert ends.look(1, 0, TAG, 0) is not None
    assert not refused(ends, lambda: ends.fetch(1, peer, bytearray(size)))
    assert not refused(ends, lambda: ends.fetch(1, 0, bytearray(LARGE)))
    assert received(ends, frames) == frames[0]
    assert not refused(ends, lambda: ends.fetch(1, 0, bytearray(LARGE)))


@each("peer", [1, 2, 3, (1 << 64) - 1])
def test_only_the_message_that_was_found_is_accepted(make: Make, peer: int) -> None:
    ends = make("compiled", "compiled", "compiled")
    assert ends.put_to(0, 1, TAG, [b"a"])
    assert ends.put_to(2, 1, TAG, [b"b"])
    assert ends.look(1, 0, TAG, 0) is not None
    with pytest.raises(ValueError, match=f"rank {peer}"):
        ends.accept(1, peer)
    with pytest.raises(ValueError, match="rank 0"):
        ends.accept(1, 0)
    assert ends.look(1, 0, TAG, 0) is not None
    ends.accept(1, 0)
    assert ends.look(1, 2, TAG, 0) is not None
    ends.ledger(0).spent[1] = ends.ledger(2).spent[1] = ends.ledger(1).owed[0] = 0


def test_an_offer_is_not_accepted(make: Make) -> None:
    ends = make("compiled", "compiled")
    assert ends.offer_to(0, 1, TAG, frames_of((LARGE,)))
    assert ends.look(1, 0, TAG, 0) is not None
    with pytest.raises(ValueError, match="rank 0"):
        ends.accept(1, 0)


def test_a_message_that_cannot_be_confirmed_is_not_taken(make: Make) -> None:
    ends, frames = make("compiled", "compiled"), frames_of((30, LARGE))
    assert ends.offer_to(0, 1, TAG, frames)
    full = ends.segment(0)
    full.tails[1], full.heads[1] = 8 + RING, 8
    assert refused(ends, lambda: received(ends, frames)) is None
    full.tails[1] = full.heads[1] = 0
    assert received(ends, frames) == frames[-1]


def test_one_message_is_offered_at_a_time(make: Make) -> None:
    """Until it is settled, or handed over."""
    ends, frames = make("compiled", "compiled", "compiled"), frames_of((LARGE,))
    assert ends.offer_to(0, 1, TAG, frames)
    assert not refused(ends, lambda: ends.offer_to(0, 2, TAG, frames))
    assert received(ends, frames) == frames[0]
    assert ends.settle(0)
    assert ends.offer_to(0, 2, TAG, frames)
    assert len(ends.lanes[0].offered()) == 1
    assert ends.offer_to(0, 1, TAG, frames)


@each("count", [0, 1])
def test_a_rank_asks_for_no_more_than_its_peer_keeps(make: Make, count: int) -> None:
    ends, frames = make("compiled", "compiled"), frames_of((LARGE,))
    ends.ledger(0).asked[1] = MOST_OFFERED - count * (KEPT + 8)
    assert ends.offer_to(0, 1, TAG, frames) == bool(count)


@each("frames", [[], [b"a"] * 65])
def test_a_strange_number_of_frames_is_no_crash(make: Make, frames: list[bytes]) -> None:
    ends = make("compiled", "compiled")
    assert ends.offer_to(0, 1, TAG, frames) == (not frames)
    assert ends.look(1, 0, TAG, 0) is None


def test_what_is_no_memory_is_not_offered(make: Make) -> None:
    ends = make("compiled", "compiled")
    for frames in (["text"], [b"a", None], 3, None):
        with pytest.raises((TypeError, BufferError)):
            refused(ends, lambda frames=frames: ends.offer_to(0, 1, TAG, frames))  # type: ignore[arg-type]


# Waits for the reader.


def test_another_message_ends_a_wait_for_the_reader(make: Make) -> None:
    ends, frames = make("compiled", "compiled"), frames_of((LARGE,))
    assert ends.offer_to(0, 1, TAG, frames)
    assert ends.put_to(1, 0, TAG, [b"first"])
    assert not refused(ends, lambda: ends.settle(0, patience(LONG)))
    assert received(ends, frames) == frames[0]
    assert ends.look(0, 1, TAG, 0) is not None
    ends.accept(0, 1)
    assert ends.settle(0)
    ends.ledger(0).owed[1] = ends.ledger(1).spent[0] = 0


def test_a_look_passes_the_confirmation_that_comes_first(make: Make) -> None:
    """As where both ranks send, and then receive."""
    ends, mine, theirs = make("compiled", "compiled"), frames_of((LARGE,), 1), frames_of((LARGE,), 2)
    assert ends.offer_to(0, 1, TAG, mine)
    assert ends.offer_to(1, 0, TAG, theirs)
    assert received(ends, mine) == mine[0]
    memory = bytearray(LARGE)
    for _ in range(2):
        assert ends.look(0, 1, TAG, 0) is not None
    assert ends.fetch(0, 1, memory)
    assert memory == theirs[0]
    assert ends.settle(0)
    assert ends.settle(1)
    assert not any(ends.ledger(0).asked)
    assert not any(ends.ledger(1).asked)


@each("at", [0, 1, 2, 4, 8, 16, 24, 28, 32, 36, 40, 48, 56])
def test_what_confirms_no_offer_stays_where_it_is(make: Make, at: int) -> None:
    """One that is wrong in any field of its header."""
    ends, frames = make("compiled", "compiled"), frames_of((LARGE,))
    assert ends.offer_to(0, 1, TAG, frames)
    assert received(ends, frames) == frames[0]
    put(at - at % 8, 0x0102_0304_0506_0708)(ends, ends.segment(0).ring(1))
    assert not refused(ends, lambda: ends.settle(0))
    assert refused(ends, lambda: ends.look(0, 1, TAG, 0)) is None
