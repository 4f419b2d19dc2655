"""Predicted messages in shared memory, by both lanes: the bytes and words of the engine; all else is left to it."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from ringcast.protocol.eager_credits import cost
from ringcast.protocol.lane import ANY_SIZE
from ringcast.protocol.matching import ANY
from ringcast.transports.memory.segment import RING
from ringcast.wire.header import EAGER, SIZE, VERSION, Header, pack, unpack, unpack_fields
from ringcast.wire.joined import join
from support import needs
from support.cases import each
from support.lane_ends import BUILDS, NONCE, LaneEnds, Make, assert_alike, makes, need
from support.patience import patience
from support.places import TESTS

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

AFRESH = 5 << 18  # where an empty ring starts afresh
LEAST = 8 + SIZE  # bytes of a message in a ring
SIZES = (None, 0, 1, 7, 8, 9, 1000, 65536)  # of a message, in bytes; None: of no frame
PLACES = (
    *(0, 8, 72, AFRESH - 8, AFRESH, AFRESH + 8),
    *(RING - 65536 - LEAST + shift for shift in (-8, 0, 8)),
    *(RING - LEAST - shift for shift in range(-64, 32, 8)),
    *(3 * RING - LEAST, 7 * RING + AFRESH),
)


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


make = pytest.fixture(makes)


@pytest.fixture
def ends(make: Make, build: str) -> LaneEnds:
    return make(build, build)


def message(size: int | None, seed: int = 1) -> bytes | None:
    return None if size is None else random.Random(seed).randbytes(size)


def room(size: int) -> int:
    """Return how many bytes of a ring a message takes."""
    return LEAST + (size + 7 & -8)


# The same bytes and words as by the engine.


JOINED = ((1, 1), (0, 0), (0, 7, 0), (20_000, 20_000, 1), (16_384,) * 4, (1,) * 300)  # sizes of frames


@each("sizes, credit", product(JOINED, (0, 72)))
def test_frames_that_are_joined_are_those_of_the_engine(
    both: tuple[LaneEnds, LaneEnds], sizes: tuple[int, ...], credit: int
) -> None:
    ends, engine = both
    frames = [message(size, size) or b"" for size in sizes]
    for each_of in both:
        each_of.start(0, 1, 0)
        each_of.ledger(0).owed[1], each_of.ledger(1).spent[0] = credit, 100
    assert ends.put(0, 1, join(frames), len(frames))
    engine.send(0, 1, *frames)
    assert_alike(ends, engine, [(0, 1)])
    assert refused(ends, lambda: ends.take(1, 0)) is None, "it does not say how the frames are divided"
    assert refused(ends, lambda: ends.take(1, 0, sum(sizes) + 1)) is None
    assert ends.take(1, 0, sum(sizes)) == engine.receive(1, 0, sum(sizes)) == b"".join(frames)
    assert_alike(ends, engine, [])
    for each_of in both:
        each_of.ledger(0).spent[1] = each_of.ledger(1).owed[0] = 0


@each("at, change", [(0, 1), (4, 1), (7, 128), (11, 1)])
def test_frames_whose_sizes_do_not_add_up_stay_where_they_are(ends: LaneEnds, at: int, change: int) -> None:
    ends.start(0, 1, 0)
    assert ends.put(0, 1, join([b"ab", b"", b"c"]), 3)
    ends.segment(1).ring(0)[8 + SIZE + at] ^= change
    assert refused(ends, lambda: ends.take(1, 0, 3)) is None
    ends.segment(1).ring(0)[8 + SIZE + at] ^= change
    assert ends.take(1, 0, 3) == b"abc"
    ends.ledger(0).spent[1] = ends.ledger(1).owed[0] = 0


@each("count", [4, 5, 1 << 30, (1 << 32) - 1])
def test_more_frames_than_there_are_sizes_stay_where_they_are(ends: LaneEnds, count: int) -> None:
    ends.start(0, 1, 0)
    assert ends.put(0, 1, join([b"ab", b"", b"c"]), 3)
    ends.segment(1).ring(0)[8 + 36 : 8 + 40] = struct.pack("<I", count)
    assert refused(ends, lambda: ends.take(1, 0, 3)) is None
    assert refused(ends, lambda: ends.take(1, 0, 15)) is None
    ends.segment(1).heads[0] = ends.segment(1).tails[0]
    ends.ledger(1).seen[0] += 1
    ends.ops[1].received[0] = ends.ops[0].sent[1]
    ends.ledger(0).spent[1] = 0


@each("place, size", product(PLACES, SIZES))
def test_a_message_is_that_of_the_engine_wherever_it_lies(
    both: tuple[LaneEnds, LaneEnds], place: int, size: int | None
) -> None:
    ends, engine = both
    for each_of in both:
        each_of.start(0, 1, place)
    payload, expected = message(size, place), message(size, place) or b""
    assert ends.put(0, 1, payload)
    engine.send(0, 1, payload)
    assert_alike(ends, engine, [(0, 1)])
    assert ends.take(1, 0, len(expected)) == engine.receive(1, 0, len(expected)) == expected
    assert_alike(ends, engine, [])
    for each_of in both:  # as a message back returns it
        each_of.ledger(0).spent[1] = each_of.ledger(1).owed[0] = 0


@pytest.fixture
def both(make: Make, build: str) -> tuple[LaneEnds, LaneEnds]:
    """Ranks that use lanes, and ranks that do not."""
    return make(build, build), make("python", "python")


@pytest.mark.parametrize("seed", range(8))
def test_any_messages_in_any_order_are_those_of_the_engine(both: tuple[LaneEnds, LaneEnds], seed: int) -> None:
    """As far as there is credit: where there is none a lane does nothing, which leaves it to the engine."""
    ends, engine = both
    rng, under_way, refusals = random.Random(seed), {0: list[bytes](), 1: list[bytes]()}, {"put": 0, "take": 0}
    for number in range(800):
        if number % 100 == 0:  # so long only one of them sends
            source, takes = rng.randrange(2), rng.choice((0.2, 0.5, 0.8))
        rank = 1 - source if under_way[source] and rng.random() < takes else source
        if rank != source:
            expected = under_way[source][0]
            total = rng.choice((len(expected), ANY_SIZE))
            if ends.take(rank, 1 - rank, total) is None:
                refusals["take"] += 1
                assert ends.ledger(rank).owed[1 - rank] + cost(len(expected), 0) >= 1 << 19
                continue
            assert engine.receive(rank, 1 - rank, len(expected)) == under_way[source].pop(0)
        else:
            size = rng.choice((*SIZES, rng.randrange(65536)))
            payload = message(size, number)
            if not ends.put(rank, 1 - rank, payload):
                refusals["put"] += 1
                assert ends.ledger(rank).spent[1 - rank] + cost(size or 0, 0) > 1 << 20
                continue
            engine.send(rank, 1 - rank, payload)
            under_way[rank].append(payload or b"")
        assert ends.words() == engine.words()
    assert_alike(ends, engine)
    assert all(refusals.values()), refusals


@each("size", SIZES)
def test_the_credit_is_spent_to_the_last_byte(ends: LaneEnds, size: int | None) -> None:
    ends.start(0, 1, 0)
    spent, needed = ends.ledger(0).spent, cost(size or 0, 0)
    spent[1] = (1 << 20) - needed + 1
    assert refused(ends, lambda: ends.put(0, 1, message(size))) is False
    spent[1] -= 1
    assert ends.put(0, 1, message(size))
    assert spent[1] == 1 << 20


def refused(ends: LaneEnds, act: Callable[[], object]) -> object:
    """Return the result of something that changes nothing."""
    before = ends.words(), ends.ring(0, 1)
    result = act()
    assert (ends.words(), ends.ring(0, 1)) == before
    return result


@each("place, size", product(PLACES, SIZES))
def test_a_ring_takes_what_the_engine_could_write_there_and_no_more(
    ends: LaneEnds, place: int, size: int | None
) -> None:
    """It is full but for some bytes; only where they would do, something is written."""
    payload, spent = message(size), ends.ledger(0).spent
    needed = room(size or 0)
    place += RING
    skipped = RING - place % RING if place % RING + needed > RING else 0
    ends.start(0, 1, place, RING - needed - skipped + 8)
    assert refused(ends, lambda: ends.put(0, 1, payload)) is False
    ends.start(0, 1, place, RING - needed - skipped)
    assert ends.put(0, 1, payload)
    assert ends.segment(1).tails[0] == place + skipped + needed
    spent[1] = 0


# Messages point-to-point.


SEVERAL = ((), (0,), (9,), (16384,), (7, 0), (30, 8), (30, 16354), (1, 2, 3), (0,) * 9)  # sizes of the frames


def frames_of(sizes: tuple[int, ...], seed: int = 1) -> list[bytes]:
    return [random.Random(f"{seed} {number}").randbytes(size) for number, size in enumerate(sizes)]


def whole(frames: list[bytes]) -> bytes:
    """Return the payload of a message, as the protocol describes it."""
    joined = len(frames) > 1
    return b"".join([*(len(frame).to_bytes(4, "little") for frame in frames if joined), *frames])


def joined_in(frames: Sequence[bytes]) -> int:
    return len(frames) if len(frames) > 1 else 0


@each("place, sizes, wanted", product(PLACES, SEVERAL, (7, ANY)))
def test_a_message_between_two_ranks_is_that_of_the_engine(
    both: tuple[LaneEnds, LaneEnds], place: int, sizes: tuple[int, ...], wanted: int
) -> None:
    ends, engine = both
    for each_of in both:
        each_of.start(0, 1, place)
    frames = frames_of(sizes, place)
    assert ends.put_to(0, 1, 7, frames)
    engine.send_to(0, 1, 7, frames)
    assert_alike(ends, engine, [(0, 1)])
    before = ends.words()
    for _ in range(2):
        message = ends.look(1, 0, wanted, joined_in(frames))
        assert message is not None
        assert message[SIZE:] == whole(frames)
        assert unpack(message[:SIZE]).ordinal == 7
        assert ends.words() == before, "it stays where it is"
    ends.accept(1, 0)
    assert engine.receive_from(1, 0, wanted) == frames
    assert_alike(ends, engine, [])
    for each_of in both:  # as a message back returns it
        each_of.ledger(0).spent[1] = each_of.ledger(1).owed[0] = 0


@pytest.mark.parametrize("seed", range(4))
def test_any_messages_between_two_ranks_are_those_of_the_engine(both: tuple[LaneEnds, LaneEnds], seed: int) -> None:
    """As far as there is credit, as above; a receive of another tag, or of other frames, changes nothing."""
    ends, engine = both
    rng, refusals = random.Random(seed), {"put": 0, "look": 0}
    under_way: dict[int, list[tuple[int, list[bytes]]]] = {0: [], 1: []}
    for number in range(800):
        if number % 200 == 0:
            source, takes = rng.randrange(2), rng.choice((0.2, 0.5, 0.6))
        rank = 1 - source if under_way[source] and rng.random() < takes else source
        if rank != source:
            tag, expected = under_way[source][0]
            joined = joined_in(expected)
            for others in (tag + 1, joined), (tag, joined + 2), (ANY, joined + 3):
                assert ends.look(rank, source, *others) is None
            wanted = rng.choice((tag, ANY))
            message = ends.look(rank, source, wanted, joined)
            if message is None:
                refusals["look"] += 1
                size = cost(sum(map(len, expected)), joined)
                assert ends.ledger(rank).owed[source] + size >= 1 << 19
                continue
            assert message[SIZE:] == whole(expected)
            ends.accept(rank, source)
            assert engine.receive_from(rank, source, wanted) == under_way[source].pop(0)[1]
        else:
            frames = frames_of(rng.choice((*SEVERAL, (30, rng.randrange(16000)), (30, 16354), (16384,))), number)
            tag = rng.randrange(1 << 32)
            if not ends.put_to(rank, 1 - rank, tag, frames):
                refusals["put"] += 1
                assert ends.ledger(rank).spent[1 - rank] + cost(sum(map(len, frames)), joined_in(frames)) > 1 << 20
                continue
            engine.send_to(rank, 1 - rank, tag, frames)
            under_way[rank].append((tag, frames))
        assert ends.words() == engine.words()
    assert_alike(ends, engine)
    assert all(refusals.values()), refusals


@each("sizes", SEVERAL)
def test_joined_frames_have_their_price(ends: LaneEnds, sizes: tuple[int, ...]) -> None:
    """To the last byte, where they are sent and where they are received."""
    frames = frames_of(sizes)
    needed, joined = cost(sum(sizes), joined_in(frames)), joined_in(frames)
    spent, owed, held = ends.ledger(0).spent, ends.ledger(1).owed, ends.ledger(1).held
    ends.start(0, 1, 0)
    spent[1] = (1 << 20) - needed + 1
    assert refused(ends, lambda: ends.put_to(0, 1, 0, frames)) is False
    spent[1] -= 1
    assert ends.put_to(0, 1, 0, frames)
    assert spent[1] == 1 << 20
    for words, least in (owed, (1 << 19) - needed), (held, (1 << 20) + SIZE - needed + 1):
        words[0] = least
        assert refused(ends, lambda: ends.look(1, 0, 0, joined)) is None
        words[0] = 0
    owed[0] = (1 << 19) - needed - 1
    assert ends.look(1, 0, 0, joined) is not None
    ends.accept(1, 0)
    assert owed[0] == (1 << 19) - 1
    spent[1] = owed[0] = 0


@pytest.mark.parametrize("sizes", [(), (0,), (9,), (7, 0), (30, 8)], ids=str)
@pytest.mark.parametrize("wanted", [7, ANY])
def test_a_message_between_two_ranks_with_any_other_bit_is_left(
    ends: LaneEnds, sizes: tuple[int, ...], wanted: int
) -> None:
    """But for the credit, and the tag if it may be any; and an empty message is of no frame or of one."""
    frames = frames_of(sizes)
    ends.put_to(0, 1, 7, frames)
    ring, before = ends.segment(1).ring(0), ends.words()
    free = {*range(8 * CREDIT_AT, 8 * CREDIT_AT + 64), LENT, *([8 * JOINED_AT] if not sum(sizes) else [])}
    free |= {*range(8 * TAG_AT, 8 * TAG_AT + 32)} if wanted == ANY else set()
    for bit in {*range(8 * LEAST)} - (free if len(frames) < 2 else free - {8 * JOINED_AT}):
        ring[bit // 8] ^= 1 << bit % 8
        assert ends.look(1, 0, wanted, joined_in(frames)) is None, f"bit {bit}"
        assert ends.words() == before
        ring[bit // 8] ^= 1 << bit % 8
    assert ends.look(1, 0, wanted, joined_in(frames)) is not None


# What a lane leaves to the engine: it says so, and nothing has changed.


@pytest.mark.parametrize("size", [0, 9])
def test_a_message_with_any_other_bit_is_left_where_it_is(ends: LaneEnds, size: int) -> None:
    """But for the credit, which may be any; and an empty message is of no frame or of one."""
    ends.put(0, 1, message(size))
    ring = ends.segment(1).ring(0)
    free = {*range(8 * CREDIT_AT, 8 * CREDIT_AT + 64), LENT, *([8 * JOINED_AT] if size == 0 else [])}
    for bit in {*range(8 * LEAST)} - free:
        ring[bit // 8] ^= 1 << bit % 8
        for total in size, ANY_SIZE:
            assert left(ends, total), f"bit {bit}"
        ring[bit // 8] ^= 1 << bit % 8
    assert ends.take(1, 0, size) == message(size)


LENT = 39  # the mark of lent memory, which a message of one frame never has: nothing looks at it there
NUMBERED = Header._make(unpack_fields(bytes(range(SIZE))))  # each byte is its own offset
CREDIT_AT, JOINED_AT, TAG_AT = (8 + (number & 0xFF) for number in (NUMBERED.word, NUMBERED.transfer, NUMBERED.ordinal))


def left(ends: LaneEnds, total: int = ANY_SIZE, patience: float = 0.0) -> bool:
    """Return whether rank 1 leaves what rank 0 has sent to the engine, and nothing has changed."""
    before = ends.words()
    return ends.take(1, 0, total, patience) is None and ends.words() == before


@each("field", [field for field in Header._fields if field != "word"])
def test_a_whole_message_that_differs_in_one_field_goes_to_the_engine(ends: LaneEnds, field: str) -> None:
    """As it comes from a peer that is in another call, or of another job: `test_machine` says what becomes of it."""
    op = ends.ops[0]
    name = (VERSION, EAGER, 0, 0, NONCE, op.context, op.number, op.sent.get(1, 0))
    header = Header(*name, ends.ledger(1).seen[0], 0, 9, 0, op.fingerprint)
    ends.start(0, 1, ends.segment(1).heads[0])
    ends.transports[0].send(1, [pack(header._replace(**{field: getattr(header, field) + 1})) + bytes(9)])
    assert left(ends)
    ends.segment(1).heads[0] = ends.segment(1).tails[0]
    ends.transports[0].send(1, [pack(header) + bytes(9)])
    assert ends.take(1, 0, 9) == bytes(9)
    ends.ops[0].sent[1] = ends.ops[1].received[0]


@each("size, total", [(9, 8), (9, 10), (9, 0), (0, 1), (None, 1)])
def test_a_message_of_another_size_is_left(ends: LaneEnds, size: int | None, total: int) -> None:
    ends.start(0, 1, 0)
    ends.put(0, 1, message(size))
    assert left(ends, total)
    assert ends.take(1, 0, size or 0) is not None


def test_other_messages_are_left(ends: LaneEnds) -> None:
    """Requests, messages of two frames, and lent memory."""
    transport, header = ends.transports[0], bytes(ends.segment(1).ring(0)[8:LEAST])
    ends.put(0, 1, b"")
    for send in (
        lambda: transport.send(1, [header, b""]),
        lambda: transport.send(1, [header, bytes(9)]),
        lambda: transport.send(1, [header[:-1]]),
        lambda: transport.send(1, [b""]),
        lambda: transport.lend(1, [header], [memoryview(b"lent")]),
    ):
        ends.segment(1).heads[0] = ends.segment(1).tails[0]
        send()
        assert left(ends)
        assert ends.transports[1].poll(0.0) is not None


def test_a_message_of_another_rank_is_not_looked_at(make: Make, build: str) -> None:
    ends = make(build, build, build)
    ends.put(2, 1, b"other")
    assert left(ends)
    assert ends.take(1, 2, 5) == b"other"


def test_nothing_goes_to_a_rank_that_has_left(make: Make, build: str) -> None:
    ends = make(build, build)
    ends.segment(1).mark_closed()
    assert refused(ends, lambda: ends.put(0, 1, b"x")) is False


def test_nothing_goes_to_itself_or_to_a_rank_that_was_not_met(ends: LaneEnds) -> None:
    assert refused(ends, lambda: ends.put(0, 0, b"x")) is False


@pytest.mark.parametrize("credit", [0, 1, 72, 73, 1 << 20, (1 << 64) - 1])
def test_credit_comes_back_but_never_more_than_was_spent(ends: LaneEnds, credit: int) -> None:
    ends.ledger(0).owed[1], ends.ledger(1).spent[0] = credit, 72
    assert ends.put(0, 1, b"x")
    assert ends.ledger(0).owed[1] == 0
    assert ends.take(1, 0, 1) == b"x"
    assert ends.ledger(1).spent[0] == max(72 - credit, 0)


@each("size", SIZES)
def test_a_message_that_makes_half_of_the_credit_owed_is_left(ends: LaneEnds, size: int | None) -> None:
    """The engine then returns all of it, by a message of its own."""
    owed, needed = ends.ledger(1).owed, cost(size or 0, 0)
    ends.put(0, 1, message(size))
    owed[0] = (1 << 19) - needed
    assert left(ends)
    owed[0] -= 1
    assert ends.take(1, 0) is not None
    owed[0] = ends.ledger(0).spent[1] = 0


@each("size", SIZES)
def test_a_message_beyond_the_budget_is_left(ends: LaneEnds, size: int | None) -> None:
    """The engine then gives up its sender."""
    held, needed = ends.ledger(1).held, cost(size or 0, 0)
    ends.put(0, 1, message(size))
    held[0] = (1 << 20) + SIZE - needed + 1
    assert left(ends)
    held[0] -= 1
    assert ends.take(1, 0) is not None
    held[0] = ends.ledger(0).spent[1] = ends.ledger(1).owed[0] = 0


# Garbage.


@pytest.mark.parametrize("beside", [[], ["beside"]], ids=["before", "beside"])
@pytest.mark.parametrize("seed", ["1", *(pytest.param(str(n), marks=pytest.mark.long) for n in range(2, 24))])
def test_garbage_is_never_taken(build: str, seed: str, beside: list[str]) -> None:
    """In rings and tables, written before a lane looks or meanwhile: by a program of its own, as a lane might crash."""
    rounds = "3" if beside else "12" if int(seed) > 1 else "5"
    program = [sys.executable, "-m", "support.programs.lane_garbage", build, seed, rounds, *beside]
    done = subprocess.run(program, cwd=TESTS, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, f"code {done.returncode}: {done.stderr}"
    assert int(done.stdout.removeprefix("taken ")) > 20
