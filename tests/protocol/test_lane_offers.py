"""Messages that compiled lanes offer and fetch: with the words of the engine; what is not predicted stays there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from ringcast.engine.execute import MOST_LENT as ROOM
from ringcast.engine.program import PIECES
from ringcast.protocol.eager_credits import KEPT
from ringcast.protocol.lane import Move, Pieces
from ringcast.protocol.sending import MOST_OFFERED
from ringcast.wire.header import SIZE
from support import needs
from support.cases import each
from support.lane_ends import LaneEnds, Make, makes
from support.patience import patience
from support.wrong_offers import changes, put

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

MEMORY = 1 << 17  # bytes of a rank
LONG = 100.0  # seconds of a wait that something should end
FRAMES = 8 + 3 * 8  # bytes before the header of an offer in a ring

make = pytest.fixture(makes)


def run(ends: LaneEnds, rank: int, moves: Sequence[Move], memory: bytearray, seconds: float = 0.0) -> int:
    op, lane = ends.ops[rank], ends.lanes[rank]
    return lane.run(lane.prepare(moves, memory), op.context, op.number, op.fingerprint, patience(seconds))


def offer(peer: int, ordinal: int, pieces: Pieces, *, settles: bool = False) -> Move:
    return Move((), peer, ordinal, pieces, -1, 0, (), (), offers=True, settles=settles)


def fetch(peer: int, ordinal: int, pieces: Pieces) -> Move:
    return Move((), -1, 0, (), peer, ordinal, pieces, (), fetches=True)


def split(size: int, count: int) -> Pieces:
    """Return so many pieces of this size together, with a byte between two."""
    cuts = [size * i // count for i in range(count + 1)] if count else []
    return tuple((a + i, b - a) for i, (a, b) in enumerate(pairwise(cuts)))


# The words of the engine.


@each(
    "size, out, into",
    [(0, 0, 0), (0, 1, 1), (0, 3, 2), (1, 1, 1), (9, 3, 1), (70_000, 1, 1), (70_000, 2, 5), (100_000, 64, 64)],
)
def test_an_offer_changes_the_words_that_the_engine_changes(make: Make, size: int, out: int, into: int) -> None:
    mine, theirs, memory = make("compiled", "compiled"), make("compiled", "compiled"), bytearray(MEMORY)
    data = bytearray(random.Random(size).randbytes(MEMORY))
    sent, arriving = split(size, out), split(size, into)
    assert run(mine, 0, [offer(1, 0, sent)], data) == -2, "it is not confirmed yet"
    assert run(mine, 1, [fetch(0, 0, arriving)], memory) == 2
    frames = [memoryview(data)[at : at + n] for at, n in sent]
    theirs.ops[0].lends = True
    theirs.protocols[0].send(theirs.ops[0], 1, frames) if size > 1 << 16 else offered(theirs, frames)
    theirs.endpoints[0].flush()
    got, _ = (
        theirs.receive(1, 0, size),
        theirs.transports[1].lanes,
    )  # which ends the look at a message of several frames
    assert mine.words() == theirs.words()
    assert got == b"".join(frames) == b"".join(memory[at : at + n] for at, n in arriving)
    hand_over(mine, 0, [(0, sent)], data)
    for ends in mine, theirs:
        assert ends.endpoints[0].progress(0.0)
        assert not ends.ops[0].lending
    assert mine.words() == theirs.words()


def offered(ends: LaneEnds, frames: list[memoryview]) -> None:
    """Offer a message, as the engine does with a small one where all are granted."""
    ends.ops[0].granted = True
    ends.protocols[0].send(ends.ops[0], 1, frames)
    ends.ops[0].granted = False


def hand_over(ends: LaneEnds, rank: int, sent: Sequence[tuple[int, Pieces]], memory: bytearray) -> None:
    """Let the engine await the confirmations of the offers of the last run."""
    found = ends.lanes[rank].offered()
    assert sorted(number for number, _ in found) == [number for number, _ in sent]
    for number, transfer in found:
        frames = [memoryview(memory)[at : at + n] for at, n in dict(sent)[number]]
        ends.protocols[rank].lent(ends.ops[rank], 1 - rank, number, transfer, frames)
    assert not ends.lanes[rank].offered()


def test_the_engine_reads_what_a_lane_offers_and_a_lane_what_the_engine_offers(make: Make) -> None:
    ends, size = make("compiled", "compiled"), 70_000
    data, memory = bytearray(random.Random(1).randbytes(MEMORY)), bytearray(MEMORY)
    assert run(ends, 0, [offer(1, 0, ((5, size),))], data) == -2
    assert ends.receive(1, 0, size) == data[5 : 5 + size]
    hand_over(ends, 0, [(0, ((5, size),))], data)
    assert ends.endpoints[0].progress(0.0)
    ends.ops[0].sent[1] = ends.ops[1].received[0] = 1
    ends.send(0, 1, memoryview(data)[:size])
    assert run(ends, 1, [fetch(0, 1, ((3, size),))], memory) == 2
    assert memory[3 : 3 + size] == data[:size]
    assert ends.endpoints[0].progress(0.0)
    assert not ends.ops[0].pending
    assert not any(ends.ledger(0).asked)


# Programs against a model.


def programs(rng: random.Random, memories: Sequence[bytearray]) -> list[list[Move]]:
    """Return a program for each rank: in each round a rank sends and receives once, anywhere, by any kind."""
    made: list[list[Move]] = [[] for _ in memories]
    ranks, ordinals = range(len(memories)), Counter[tuple[int, int]]()
    lent: list[set[int]] = [set() for _ in memories]
    for _ in range(20):
        shift = rng.randrange(1, len(ranks))
        sizes = [rng.choice((0, 1, 8, rng.randrange(1, 500))) for _ in ranks]
        kinds = [rng.random() < 0.7 for _ in ranks]
        for rank in ranks:
            to, source = (rank + shift) % len(ranks), (rank - shift) % len(ranks)
            out, into = places(rng, sizes[rank]), places(rng, sizes[source])
            while bytes_of(out) & bytes_of(into):
                out, into = places(rng, sizes[rank]), places(rng, sizes[source])
            settles = bool(lent[rank] & bytes_of(into))
            lent[rank] = set() if settles else lent[rank]
            lent[rank] |= bytes_of(out) if kinds[rank] else set()
            move = Move((), to, ordinals[rank, to], out, source, ordinals[source, rank], into, ())
            made[rank].append(move._replace(offers=kinds[rank], fetches=kinds[source], settles=settles))
        for rank in ranks:
            ordinals[rank, (rank + shift) % len(ranks)] += 1
    return made


def places(rng: random.Random, size: int) -> Pieces:
    """Return pieces of the first bytes of the memory, which rounds often write again."""
    start = rng.randrange(3000)
    return tuple((start + at, n) for at, n in split(size, rng.randrange(1, max(min(size, 4), 1) + 1)))


def bytes_of(pieces: Pieces) -> set[int]:
    return {i for at, n in pieces for i in range(at, at + n)}


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_programs_do_what_the_model_does(make: Make, p: int, seed: int) -> None:
    rng, ends = random.Random(seed), make(*["compiled"] * p)
    memories = [bytearray(rng.randbytes(4096)) for _ in range(p)]
    made, expected = programs(rng, memories), [bytearray(memory) for memory in memories]
    for moves in zip(*made, strict=True):
        payloads = [
            b"".join(memory[at : at + n] for at, n in m.send) for m, memory in zip(moves, expected, strict=True)
        ]
        for move, memory in zip(moves, expected, strict=True):
            payload = payloads[move.recv_from]
            for at, n in move.recv:
                memory[at : at + n], payload = payload[:n], payload[n:]
    with ThreadPoolExecutor(p) as pool:
        ended = [*pool.map(lambda r: run(ends, r, made[r], memories[r], LONG), range(p))]
    assert ended == [2 * len(moves) for moves in made]
    assert memories == expected
    for a in range(p):
        assert not any(ends.ledger(a).asked)
        assert not ends.lanes[a].offered()
        for b in range(p):
            mine, theirs = ends.ledger(a), ends.ledger(b)
            assert (mine.sent[b], mine.posted[b]) == (theirs.seen[a], theirs.matched[a])
            assert mine.posted[b] == sum(move.send_to == b for move in made[a])
            assert mine.spent[b] == theirs.owed[a]


# What ends a program.


def test_a_program_begins_no_step_that_writes_into_memory_that_is_lent(make: Make) -> None:
    ends, memory, other = make("compiled", "compiled"), bytearray(b"mine" + bytes(96)), bytearray(100)
    called: list[int] = []
    late = Move(((called.append, (1,), {}),), -1, 0, (), 1, 0, ((0, 4),), (), settles=True)
    assert run(ends, 0, [offer(1, 0, ((0, 4),)), late], memory) == -2
    assert not called
    assert run(ends, 1, [fetch(0, 0, ((0, 4),))], other) == 2
    assert other[:4] == b"mine"


def test_so_many_offers_may_be_under_way_and_no_more(make: Make) -> None:
    ends, memory = make("compiled", "compiled"), bytearray(100)
    moves = [offer(1, i, ((i, 1),)) for i in range(ROOM + 1)]
    assert run(ends, 0, moves, memory) == 2 * ROOM
    assert len(ends.lanes[0].offered()) == ROOM
    assert ends.ledger(0).asked[1] == ROOM * (KEPT + 8)


@each("count", [PIECES, PIECES + 1])
def test_so_many_pieces_may_an_offer_have_and_no_more(make: Make, count: int) -> None:
    ends, memory = make("compiled", "compiled"), bytearray(MEMORY)
    assert run(ends, 0, [offer(1, 0, split(1000, count))], memory) == (-2 if count == PIECES else 0)
    assert run(ends, 1, [fetch(0, 0, split(1000, count))], memory) == (2 if count == PIECES else 1)


@each("count", range(3))
def test_a_rank_asks_for_no_more_than_its_peer_keeps(make: Make, count: int) -> None:
    ends, memory = make("compiled", "compiled"), bytearray(100)
    ends.ledger(0).asked[1] = MOST_OFFERED - count * (KEPT + 8)
    assert run(ends, 0, [offer(1, i, ((i, 1),)) for i in range(5)], memory) == 2 * count


CHANGES = changes(1)


@each("name", CHANGES)
def test_what_is_not_the_predicted_offer_stays_where_it_is(make: Make, name: str) -> None:
    ends, memory, data = make("compiled", "compiled"), bytearray(100), bytearray(range(100))
    assert run(ends, 0, [offer(1, 0, ((10, 50),))], data) == -2
    ring = ends.segment(1).ring(0)
    CHANGES[name](ends, ring)
    before = ends.words(), bytes(ring)
    assert run(ends, 1, [fetch(0, 0, ((0, 50),))], memory) == 1
    assert (ends.words(), bytes(ring)) == before
    ends.segment(0).left[0] = 0


@each("sizes", [1, 1 << 40])
def test_an_empty_offer_of_bytes_stays_where_it_is(make: Make, sizes: int) -> None:
    ends = make("compiled", "compiled")
    assert run(ends, 0, [offer(1, 0, ((0, 0), (9, 0)))], bytearray(100)) == -2
    put(16 + SIZE + 8, sizes)(ends, ends.segment(1).ring(0))
    assert run(ends, 1, [fetch(0, 0, ())], bytearray(100)) == 1
    put(16 + SIZE + 8, 0)(ends, ends.segment(1).ring(0))
    assert run(ends, 1, [fetch(0, 0, ())], bytearray(100)) == 2


@each("size", [49, 51])
def test_a_loan_with_an_empty_piece_is_taken_back_as_any_other(make: Make, size: int) -> None:
    """By the word of its address, which the transport and the lane find alike."""
    ends, memory, data = make("compiled", "compiled"), bytearray(MEMORY), bytearray(MEMORY)
    sent = ((0, size), (size + 32, 0), (size + 160, 1))
    assert run(ends, 0, [offer(1, 0, sent)], data) == -2
    ends.transports[0].take_back([memoryview(data)[at : at + n] for at, n in sent])
    assert run(ends, 1, [fetch(0, 0, ((0, size + 1),))], memory) == 1


@each("size", [49, 51])
def test_an_offer_of_another_size_stays_where_it_is(make: Make, size: int) -> None:
    ends, memory, data = make("compiled", "compiled"), bytearray(100), bytearray(100)
    assert run(ends, 0, [offer(1, 0, ((10, 50),))], data) == -2
    assert run(ends, 1, [fetch(0, 0, ((0, size),))], memory) == 1
    assert run(ends, 1, [Move((), -1, 0, (), 0, 0, ((0, 50),), ())], memory) == 1, "it is not eager"
    assert run(ends, 1, [fetch(0, 0, ((0, 50),))], memory) == 2


def test_a_message_that_cannot_be_confirmed_is_not_taken(make: Make) -> None:
    ends, memory, data = make("compiled", "compiled"), bytearray(100), bytearray(b"123456789")
    assert run(ends, 0, [offer(1, 0, ((0, 9),))], data) == -2
    full = ends.segment(0)
    full.tails[1], full.heads[1] = 8 + (4 << 20), 8
    before = ends.words()
    assert run(ends, 1, [fetch(0, 0, ((0, 9),))], memory) == 1
    assert ends.words() == before
    full.tails[1] = full.heads[1] = 0
    assert run(ends, 1, [fetch(0, 0, ((0, 9),))], memory) == 2
    assert memory[:9] == data


@each("at", [0, 1, 2, 4, 8, 16, 24, 28, 32, 36, 40, 48, 56])
def test_what_confirms_no_offer_stays_where_it_is(make: Make, at: int) -> None:
    """One that is wrong in any field of its header."""
    ends, memory = make("compiled", "compiled"), bytearray(100)
    assert run(ends, 0, [offer(1, 0, ((0, 9),))], memory) == -2
    assert run(ends, 1, [fetch(0, 0, ((0, 9),))], bytearray(9)) == 2
    ring = ends.segment(0).ring(1)
    ring[8 + at] ^= 1
    again: list[Any] = [offer(1, 1, ((0, 9),)), Move((), -1, 0, (), -1, 0, (), (), settles=True)]
    words = ends.words()[7], ends.ledger(0).seen[1]
    assert run(ends, 0, again, memory) == -2
    assert (ends.ledger(0).seen[1], ends.segment(0).heads[1]) == (words[1], 0)
