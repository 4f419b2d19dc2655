"""Lanes on rings and tables that another process has filled with garbage: `lane_garbage BUILD SEED ROUNDS [beside]`.

With `beside` that process goes on writing while this one takes. The program reads each ring itself too: the lane may
return no other message. It prints the number of messages that were taken.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ringcast.procs.libc import address_of
from ringcast.protocol.lane import ANY_SIZE, Move
from ringcast.protocol.matching import ANY
from ringcast.transports.memory.segment import RING
from ringcast.wire.header import EAGER, OFFER, P2P, RTS, SIZE, VERSION, Header, pack, unpack_fields
from ringcast.wire.joined import join
from support.lane_ends import CONTEXT, EXCHANGE, NONCE, LaneEnds

WORD = (1 << 64) - 1
ONE_FRAME, LENT = 1 << 40, 1 << 39
TAG = 7
TRIES = 60  # messages that are put and taken in each garbage
MARKS = (0, 1, 8, SIZE - 1, SIZE, SIZE + 1, LENT, ONE_FRAME, 2 * ONE_FRAME, WORD, WORD - 1, WORD - 7, 1 << 63)


def garbage(rng: random.Random) -> int:
    """Return a word: any, or one as they are there, perhaps not quite."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.getrandbits(64)
    if kind == 1:
        return rng.choice(MARKS)
    sizes = (SIZE, SIZE + 9, rng.randrange(200), rng.randrange(RING), RING // 2 + rng.randrange(-9, 9))
    return rng.choice((0, 1, 1, 1, 2, 3, 600)) << 40 | rng.choice((0, 0, LENT)) | rng.choice(sizes)


def message(rng: random.Random, ends: LaneEnds, payload: bytes) -> bytes:
    """Return the next message of rank 0 in a ring, perhaps with a wrong bit, or a wrong first word."""
    op, length = ends.ops[1], len(payload)
    credit = rng.choice((0, 72, rng.getrandbits(64)))
    name = VERSION, EAGER, 0, 0, NONCE, op.context, op.number, op.received.get(0, 0)
    header = Header(*name, ends.ledger(1).seen[0] & 0xFFFFFFFF, 0, length, credit, op.fingerprint)
    if rng.random() < 0.3:  # point-to-point
        joined, cut = rng.choice((0, 2)), rng.randrange(length + 1)
        header = header._replace(operation=P2P, ordinal=TAG, transfer=joined, fingerprint=EXCHANGE.fingerprint)
        payload = join((payload[:cut], payload[cut:])) if joined else payload
    data = bytearray(struct.pack("<Q", ONE_FRAME | SIZE + len(payload)) + pack(header) + payload)
    if rng.random() < 0.3:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        data[:8] = struct.pack("<Q", garbage(rng))
    return bytes(data)


def plant(rng: random.Random, ends: LaneEnds, payload: bytes) -> None:
    """Put a message where rank 1 reads next, and the words of tables near it; or something else."""
    tables, ring = ends.segment(1), ends.segment(1).ring(0)
    head = tables.heads[0]
    if rng.random() < 0.5:
        head = rng.choice((garbage(rng), rng.randrange(1 << 30), 8 * rng.randrange(1 << 30), RING - 8, WORD - 7))
        tables.heads[0] = head
    at = head % RING
    text = message(rng, ends, payload)
    if rng.random() < 0.2 and at % 8 == 0:
        ring[at : at + 8] = struct.pack("<Q", WORD)
        at = 0
    if at + len(text) <= RING:
        ring[at : at + len(text)] = text
    room = len(text) + 7 & -8
    ends.segment(1).tails[0] = (
        rng.choice((head + room, head + RING, head + RING - 8, head + room - 8, garbage(rng))) & WORD
    )
    tables.wanting[0] = garbage(rng)


def there(ends: LaneEnds, total: int) -> bytes | None:
    """Return the payload of the message that rank 1 may take, as far as its bytes and its place decide that."""
    tables, ring = ends.segment(1), bytes(ends.segment(1).ring(0))
    head, tail = tables.heads[0], tables.tails[0]
    if head == tail or head % 8:
        return None
    at = head % RING
    (word,) = struct.unpack_from("<Q", ring, at)
    if word == WORD:
        head, at = head + RING - at, 0
        (word,) = struct.unpack_from("<Q", ring)
    size = word & LENT - 1
    following = head + 8 + (size + 7 & -8)
    if word >> 40 != 1 or size < SIZE or at + 8 + size > RING:
        return None
    if following > tail and (tail - following & WORD) > RING:  # C counts modulo 2**64
        return None
    header, op = Header._make(unpack_fields(ring, at + 8)), ends.ops[1]
    name = VERSION, EAGER, 0, 0, NONCE, op.context, op.number, op.received.get(0, 0)
    number = ends.ledger(1).seen[0] & 0xFFFFFFFF
    wanted = Header(*name, number, header.transfer, size - SIZE, header.word, op.fingerprint)
    if header != wanted or header.transfer > (not header.length) or total not in (ANY_SIZE, header.length):
        return None
    return ring[at + 8 + SIZE : at + 8 + size]


def look(rng: random.Random, ends: LaneEnds, *, alone: bool) -> int:
    """Let rank 1 look for a message point-to-point, and receive it; return how many there were."""
    wanted, joined, ledger = rng.choice((ANY, TAG)), rng.choice((0, 2)), ends.ledger(1)
    before = ends.words() if alone else []
    found = ends.look(1, 0, wanted, joined)
    assert not alone or ends.words() == before
    if found is None:
        return 0
    if alone:
        header = Header._make(unpack_fields(found))
        tag, number = header.ordinal if wanted == ANY else TAG, ledger.seen[0] & 0xFFFFFFFF
        length, frames = len(found) - SIZE - 4 * joined, joined or header.transfer
        name = VERSION, EAGER, 0, 0, NONCE, CONTEXT, P2P, tag, number, frames, length, header.word
        assert header == Header(*name, EXCHANGE.fingerprint)
        assert joined or frames <= (not length)
    try:
        ends.accept(1, 0)
    except ValueError:  # the head is another one meanwhile
        assert not alone
        return 0
    return 1


def turn(rng: random.Random, ends: LaneEnds, *, alone: bool) -> int:
    """Let rank 1 take something and put something; return how many messages it took."""
    payload = rng.randbytes(rng.choice((0, 1, 9, 300)))
    for words in ends.ledger(1).held, ends.ledger(1).owed, ends.ledger(1).spent:
        words[0] = 0
    plant(rng, ends, payload)
    if rng.random() < 0.3:
        return look(rng, ends, alone=alone)
    total = rng.choice((len(payload), ANY_SIZE))
    before, expected = [*ends.ledger(1).seen], there(ends, total) if alone else None
    data = ends.take(1, 0, total)
    assert data is None or total in (len(data), ANY_SIZE)
    assert data is None or not alone or data == expected
    assert ends.ledger(1).seen[0] == before[0] + (data is not None)
    for word in (ends.segment(0).tails, ends.segment(0).heads):
        word[1] = rng.choice((word[1], garbage(rng)))
    ends.put(1, 0, payload)
    return data is not None


def turn_of_offers(rng: random.Random, ends: LaneEnds, source: memoryview, address: int) -> int:
    """Let rank 1 fetch a message that lies in `source`, as rank 0 offers it, perhaps with wrong bits; return as `turn`.

    Bits of the address may be wrong too: then the message is whatever lies there.
    """
    op, lane, size, tables = ends.ops[1], ends.lanes[1], rng.randrange(1, len(source)), ends.segment(1)
    ordinal, seen, count = op.received.get(0, 0), ends.ledger(1).seen[0], rng.randrange(512)
    name = VERSION, RTS, OFFER, 0, NONCE, op.context, op.number, ordinal
    header = Header(*name, seen & 0xFFFFFFFF, rng.randrange(1, 1 << 32), size, 0, op.fingerprint)
    loan = count, ends.segment(0).returns[count], address, size
    text = struct.pack("<4Q", 3 << 40 | LENT | 24 + SIZE + 8 + 32, SIZE, 8, 32)
    data = bytearray(text + pack(header) + struct.pack("<5Q", size, *loan))
    wrong = rng.random() < 0.7
    for _ in range(rng.randrange(1, 4) if wrong else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    tables.heads[0], tables.tails[0] = 0, len(data)
    tables.ring(0)[: len(data)] = data
    ends.segment(0).tails[1] = ends.segment(0).heads[1] = 0
    memory = bytearray(size)
    program = lane.prepare([Move((), -1, 0, (), 0, ordinal, ((0, size),), (), fetches=True)], memory)
    code = lane.run(program, op.context, op.number, op.fingerprint, 0.0)
    assert code in (1, 2)
    assert ends.ledger(1).seen[0] == seen + code - 1
    assert wrong or (code, memory) == (2, source[:size])
    op.received[0] = ordinal + code - 1
    return code - 1


@contextmanager
def scribbler(rng: random.Random, ends: LaneEnds) -> Iterator[None]:
    """A process that writes garbage into the ring, and into the words, where rank 1 reads."""
    child = os.fork()
    if not child:
        tables, words = ends.segment(1), ends.segment(1).ring(0).cast("Q")
        while True:
            at = tables.heads[0] % RING // 8
            for place in at, at + 1, rng.randrange(RING // 8):
                words[place % (RING // 8)] = garbage(rng)
            plant(rng, ends, b"")
            tables.heads[0] = garbage(rng) if rng.random() < 0.1 else tables.heads[0] & -8
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main(build: str, seed: str, rounds: str, *beside: str) -> None:
    rng, taken = random.Random(seed), 0
    ends = LaneEnds("python", build)
    ring, source = ends.segment(1).ring(0), memoryview(bytearray(rng.randbytes(5000)))
    for number in range(int(rounds)):
        fill = rng.choice(
            (bytes(RING), rng.randbytes(RING), struct.pack("<512Q", *(garbage(rng) for _ in range(512))) * (RING >> 12))
        )
        ring[:] = fill
        if beside:
            with scribbler(random.Random(f"{seed} {number}"), ends):
                taken += sum(turn(rng, ends, alone=False) for _ in range(50 * TRIES))
        else:
            taken += sum(turn(rng, ends, alone=True) for _ in range(TRIES))
            if build == "compiled":
                taken += sum(turn_of_offers(rng, ends, source, address_of(source)) for _ in range(TRIES))
    print(f"taken {taken}", flush=True)
    os._exit(0)  # tables of garbage are not closed


if __name__ == "__main__":
    main(*sys.argv[1:])
