"""Programs of lanes against a model, which plays them by lists; and how far they come where a message does not."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringcast.protocol.eager_credits import cost
from ringcast.protocol.lane import Move, Pieces
from ringcast.wire.header import SIZE, unpack
from support import needs
from support.cases import each
from support.lane_ends import BUILDS, LaneEnds, Make, makes, need
from support.patience import patience

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

MEMORY = 4096  # bytes of a rank
LONG = 100.0  # seconds of a wait that something should end


make = pytest.fixture(makes)


def pieces(rng: random.Random, size: int) -> Pieces:
    """Return pieces of so many bytes together that do not overlap; some of them may be empty."""
    cuts = sorted(rng.randrange(size + 1) for _ in range(rng.randrange(4)))
    found, at = [], rng.randrange(MEMORY - 2 * size - 40)
    for length in (b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)):
        found.append((at, length))
        at += length + rng.randrange(8)
    return tuple(found)


def add(memory: bytearray, at: int, *, number: int) -> None:
    """Change a byte: in any other order the result would be another one."""
    memory[at] = (3 * memory[at] + number) % 256


def programs(rng: random.Random, memories: Sequence[bytearray]) -> list[list[Move]]:
    """Return a random program for each rank, which end: in each round a rank sends and receives at most once."""
    made: list[list[Move]] = [[] for _ in memories]
    ranks, ordinals = range(len(memories)), Counter[tuple[int, int]]()

    def calls(rank: int) -> tuple[tuple[Callable[..., None], tuple[bytearray, int], dict[str, int]], ...]:
        places = [rng.randrange(MEMORY) for _ in range(rng.randrange(3))]
        return tuple((add, (memories[rank], at), {"number": rng.randrange(99)}) for at in places)

    for _ in range(12):
        sizes = [rng.choice((None, 0, 1, 8, rng.randrange(1000))) for _ in ranks]  # of the message of each rank
        shift = rng.randrange(len(ranks))
        silent = {rank for rank in ranks if not shift or rng.random() < 0.2}
        for rank in ranks:
            to, source = (rank + shift) % len(ranks), (rank - shift) % len(ranks)
            size, arriving = sizes[rank], sizes[source]
            send, recv = (() if n is None else pieces(rng, n) for n in (size, arriving))
            out = -1 if rank in silent else to
            into = -1 if source in silent else source
            move = (out, ordinals[rank, to], send if out >= 0 else (), into, ordinals[source, rank], recv)
            made[rank].append(Move(calls(rank), *move if into >= 0 else (*move[:5], ()), calls(rank)))
        for rank in set(ranks) - silent:
            ordinals[rank, (rank + shift) % len(ranks)] += 1
    return made


def played(made: Sequence[Sequence[Move]], memories: Sequence[bytearray]) -> None:
    """Play the programs on lists, round by round."""
    for moves in zip(*made, strict=True):
        payloads = {}
        for rank, move in enumerate(moves):
            for fn, (_, at), named in move.before:
                fn(memories[rank], at, **named)
            payloads[rank, move.send_to] = [byte for at, size in move.send for byte in memories[rank][at : at + size]]
        for rank, move in enumerate(moves):
            if move.recv_from >= 0:
                payload = payloads[move.recv_from, rank]
                places = [i for at, size in move.recv for i in range(at, at + size)]
                for i, byte in zip(places, payload, strict=True):
                    memories[rank][i] = byte
            for fn, (_, at), named in move.after:
                fn(memories[rank], at, **named)


def run(ends: LaneEnds, rank: int, moves: Sequence[Move], memory: bytearray, seconds: float = LONG) -> int:
    op, lane = ends.ops[rank], ends.lanes[rank]
    program = lane.prepare(moves, memory)
    return lane.run(program, op.context, op.number, op.fingerprint, patience(seconds))


@pytest.mark.parametrize("builds", [("python",) * 3, ("compiled",) * 3, ("python", "compiled", "compiled")])
@pytest.mark.parametrize("seed", range(5))
def test_programs_do_what_the_model_does(make: Make, builds: tuple[str, ...], seed: int) -> None:
    rng, ends = random.Random(seed), make(*builds)
    memories = [bytearray(rng.randbytes(MEMORY)) for _ in builds]
    made, expected = programs(rng, memories), [bytearray(memory) for memory in memories]
    played(made, expected)
    with ThreadPoolExecutor(len(builds)) as pool:
        ends_at = [*pool.map(lambda r: run(ends, r, made[r], memories[r]), range(len(builds)))]
    assert ends_at == [2 * len(moves) for moves in made]
    assert memories == expected
    for a, b in ((0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)):
        mine, theirs = ends.ledger(a), ends.ledger(b)
        count = sum(move.send_to == b for move in made[a])
        assert (mine.sent[b], mine.posted[b], theirs.seen[a], theirs.matched[a]) == (count,) * 4
        assert mine.spent[b] == theirs.owed[a]


def exchange(memory: bytearray, peer: int, count: int) -> list[Move]:
    """Return a program in which two ranks exchange a byte so often, and each adds to what has come."""
    return [
        Move((), peer, i, ((0, 1),), peer, i, ((1, 1),), ((add, (memory, 1), {"number": i}),)) for i in range(count)
    ]


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


COUNT = 5  # exchanges


@each("k", range(COUNT))
def test_a_program_ends_where_the_next_message_has_not_come(make: Make, build: str, k: int) -> None:
    """Messages that came before the end are received, and messages due before it are sent."""
    ends = make(build, build)
    mine, theirs = bytearray(2), bytearray(2)
    assert run(ends, 1, [move._replace(recv_from=-1) for move in exchange(theirs, 0, k)], theirs) == 2 * k
    assert run(ends, 0, exchange(mine, 1, COUNT), mine, 0.0) == 2 * k + 1
    assert (ends.ledger(0).sent[1], ends.ledger(0).seen[1]) == (k + 1, k)
    assert (ends.ledger(0).posted[1], ends.ledger(0).matched[1]) == (k + 1, k)


@each("k", range(COUNT))
def test_a_program_ends_where_a_message_cannot_go(make: Make, build: str, k: int) -> None:
    ends, memory, peer = make(build, build), bytearray(2), bytearray(2)
    moves = [move._replace(recv_from=-1) for move in exchange(memory, 1, COUNT)]
    ends.ledger(0).spent[1] = (1 << 20) - k * (64 + 1)
    assert run(ends, 0, moves, memory) == 2 * k
    assert (ends.ledger(0).sent[1], ends.ledger(0).posted[1]) == (k, k)
    assert run(ends, 1, [move._replace(send_to=-1) for move in exchange(peer, 0, k)], peer) == 2 * k


class Refused(Exception):
    """Of a call of a program."""


def refuse() -> None:
    raise Refused


@each("k, when", [(k, when) for k in range(COUNT) for when in ("before", "after")])
def test_an_error_of_a_call_comes_out(make: Make, build: str, k: int, when: str) -> None:
    """Before a message nothing of it has gone; after one it has come."""
    ends, mine, theirs = make(build, build), bytearray(2), bytearray(2)
    run(ends, 1, [move._replace(recv_from=-1) for move in exchange(theirs, 0, COUNT)], theirs)
    moves = exchange(mine, 1, COUNT)
    moves[k] = moves[k]._replace(**{when: ((refuse, (), {}),)})
    with pytest.raises(Refused):
        run(ends, 0, moves, mine)
    ledger, after = ends.ledger(0), when == "after"
    assert (ledger.sent[1], ledger.posted[1], ledger.seen[1], ledger.matched[1]) == (k + after,) * 4


@each("sent, joined", [((), 0), (((0, 0),), 1), (((0, 0), (1, 0)), 1)])
def test_a_message_of_no_piece_is_of_no_frame(make: Make, build: str, sent: Pieces, joined: int) -> None:
    """As those of a barrier; one of empty pieces is of an empty frame."""
    ends, memory = make(build, build), bytearray(2)
    assert run(ends, 0, [Move((), 1, 0, sent, -1, 0, (), ())], memory) == 2
    assert unpack(ends.ring(0, 1)[8 : 8 + SIZE]).transfer == joined
    assert run(ends, 1, [Move((), -1, 0, (), 0, 0, sent, ())], memory) == 2


@each("builds", [("python",) * 2, ("compiled",) * 2, ("python", "compiled"), ("compiled", "python")])
def test_frames_that_are_joined_come_as_the_bytes_that_they_are(make: Make, builds: tuple[str, str]) -> None:
    """Their sizes are in the first piece; what comes is divided otherwise."""
    ends, memory, theirs = make(*builds), bytearray(MEMORY), bytearray(MEMORY)
    memory[:8], memory[100:103], memory[200:207] = struct.pack("<2I", 3, 7), b"abc", b"defghij"
    move = Move((), 1, 0, ((0, 8), (100, 3), (200, 7)), -1, 0, (), (), joined=2)
    assert run(ends, 0, [move], memory) == 2
    assert run(ends, 1, [Move((), -1, 0, (), 0, 0, ((5, 1), (9, 9)), ())], theirs) == 2
    assert theirs[5:6] + theirs[9:18] == b"abcdefghij"
    assert ends.ledger(0).spent[1] == ends.ledger(1).owed[0] == cost(10, 2)
    assert (ends.protocols[0].payload[-2], ends.protocols[1].payload[-1]) == (10, 10)


def test_the_compiled_lane_takes_no_joined_frames_without_room_for_their_sizes(make: Make) -> None:
    ends = make("compiled", "compiled")
    with pytest.raises(ValueError, match="joined"):
        ends.lanes[0].prepare([Move((), 1, 0, ((0, 11),), -1, 0, (), (), joined=3)], bytearray(MEMORY))
    assert not ends.put(0, 1, b"12345678901", 3)


@pytest.mark.parametrize("place", [(MEMORY, 1), (MEMORY - 1, 2), (1, MEMORY), ((1 << 64) - 1, 2), (-1, 1)])
def test_the_compiled_lane_takes_no_piece_beyond_the_memory(make: Make, place: tuple[int, int]) -> None:
    ends, memory = make("compiled", "compiled"), bytearray(MEMORY)
    for move in (Move((), 1, 0, (place,), -1, 0, (), ()), Move((), -1, 0, (), 1, 0, (place,), ())):
        with pytest.raises((ValueError, OverflowError)):
            ends.lanes[0].prepare([move], memory)
