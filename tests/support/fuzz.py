"""Nonsense for every door of a job: a member that lies, a stranger that shouts, a server that is none.

`PYTHONPATH=tests python -m support.fuzz --seconds 600 --seed N` goes on from seed N and prints the seed of a case that
fails; `--case SEED` runs that one alone. The laws are the asserts: nothing escapes from where messages are taken,
tables stay bounded, every call ends with a result or with a typed error, and ranks that the liar did not name can still
talk.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgpack
import numpy as np

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import simulated_endpoints
from ringcast.collectives.point_to_point import sendrecv
from ringcast.collectives.stage import AUTOMATIC, Group
from ringcast.config.worker import WorkerConfig
from ringcast.control import ControlClient
from ringcast.control import client as client_module
from ringcast.control.envelope import open_sealed, seal
from ringcast.control.events import Tick
from ringcast.control.membership import Membership
from ringcast.control.server import _event
from ringcast.engine.endpoint import Control, Endpoint
from ringcast.engine.execute import Steps
from ringcast.engine.task import Task
from ringcast.errors import CollectiveTimeout, PeerFailed, RingcastError
from ringcast.ops import SUM
from ringcast.protocol.eager_credits import EAGER_CREDIT
from ringcast.protocol.machine import Protocol
from ringcast.transports.base import Frame, MemoryArrival
from ringcast.transports.simulated import SimulatedTransport, SimulatedWire
from ringcast.wire import codec
from ringcast.wire import header as wire
from ringcast.wire.call import NOWHERE
from ringcast.wire.control_messages import (
    TO_WORKER,
    Abort,
    Alive,
    Beat,
    Bye,
    Failed,
    Failing,
    Finished,
    FromMember,
    Hello,
    Leave,
    Left,
    Refused,
    Revoke,
    Roster,
    ToServer,
    ToWorker,
)
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
from ringcast.wire.header import Header, Kind
from ringcast.wire.votes import AGREE, Decision, Vote
from support.under_way import TRANSFERS

LIAR = 2  # its messages are twisted; ranks 0 and 1 must bear that
CONTEXT = 7
FRESH = 0x5EED_0F_7A1C << 20  # contexts from here on the liar does not know
WIDTHS = dict(zip(Header._fields, (8, 8, 16, 32, 64, 64, 32, 32, 32, 32, 64, 64, 64), strict=True))
DATA_KINDS = tuple(kind for kind in Kind if kind <= Kind.REFUSE)

# What is said.


def number(rng: random.Random, bits: int) -> int:
    """Return a number of so many bits of which programs are afraid."""
    edge = rng.choice((0, 1, 2, 3, 7, 64, 255, 1 << 10, 1 << 16, 1 << 20, (1 << bits - 1) - 1, 1 << bits - 1, 1 << 62))
    return rng.choice((edge, -edge, rng.getrandbits(bits), rng.getrandbits(8))) % (1 << bits)


def garbage(rng: random.Random) -> list[bytes]:
    """Return frames without a meaning."""
    return [rng.randbytes(rng.choice((0, 1, 8, 63, 64, 65, 200, 5000))) for _ in range(rng.randint(1, 4))]


def twisted(rng: random.Random, frames: Sequence[Frame]) -> list[bytes]:
    """Return a message with one or two things changed: a field of the header, its length, the payload, the frames."""
    said = [bytes(frame) for frame in frames]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if len(said[0]) >= wire.SIZE and rng.random() < 0.75:
            said[0] = _another_field(rng, said[0])
        else:
            said = _other_frames(rng, said)
    return said


def _another_field(rng: random.Random, frame: bytes) -> bytes:
    header = Header._make(struct.unpack_from("<BBHIQQIIIIQQQ", frame))
    name = rng.choice(Header._fields)
    value = rng.choice(DATA_KINDS) if name == "kind" and rng.random() < 0.8 else number(rng, WIDTHS[name])
    if rng.random() < 0.3:  # near to what is right
        value = (getattr(header, name) + rng.choice((-2, -1, 1, 2))) % (1 << WIDTHS[name])
    return wire.pack(header._replace(**{name: value})) + frame[wire.SIZE :]


def _other_frames(rng: random.Random, said: list[bytes]) -> list[bytes]:
    i = rng.randrange(len(said))
    match rng.randrange(6):
        case 0:
            return [*said[:i], said[i][: rng.randint(0, len(said[i]))], *said[i + 1 :]]
        case 1:
            return [*said[:i], said[i] + rng.randbytes(rng.choice((1, 8, 100_000))), *said[i + 1 :]]
        case 2:
            return [*said[:i], *said[i + 1 :]] or [b""]
        case 3:
            return [*said[:i], rng.randbytes(rng.choice((0, 8, 16, 1000))), *said[i:]]
        case 4:
            return [*said, *said[1:]]
        case _:
            return [*said, *[b""] * rng.randint(1, 5)]


def plain(rng: random.Random, depth: int = 0) -> Any:
    """Return a value that msgpack can carry, of any type."""
    kind = rng.randrange(10 if depth < 3 else 7)
    match kind:
        case 0:
            return rng.choice((0, 1, -1, 2, 3, 1 << 31, 1 << 32, (1 << 64) - 1, -(1 << 63), -(1 << 31)))
        case 1:
            return rng.choice(("", "x", "é" * 5, "y" * 3000))
        case 2:
            return rng.randbytes(rng.choice((0, 1, 50)))
        case 3:
            return rng.choice((None, True, False))
        case 4:
            return rng.choice((0.5, float("nan"), float("inf"), -1e300))
        case 5 | 6:
            return rng.randint(-3, 5)
        case 7:
            return [plain(rng, depth + 1) for _ in range(rng.randint(0, 4))]
        case 8:
            return {rng.randint(-2, 5): plain(rng, depth + 1) for _ in range(rng.randint(0, 4))}
    return {rng.choice(("type", "rank", "sent", "cause")): plain(rng, depth + 1)}


CARDS = (EndpointCard("a"), EndpointCard("b", near="s 1:1 /a"), EndpointCard("c"))
REQUESTS: tuple[ToServer, ...] = (
    Hello("1", 1, 3, CARDS[1], 5, "h"),
    Alive(1),
    Leave(),
    Revoke(1, 9, "because", 1),
    Failing(1, Failure("e", "t", (0,))),
    Finished(1, {0: 3}, {0: 1}, {0: 1}),
    Vote(1, 9, 1, AGREE),
)
ANSWERS: tuple[ToWorker, ...] = (
    Roster(CARDS, True),
    Refused("no"),
    Left(),
    Beat(),
    Bye(1, 4),
    Failed(1, Failure("e")),
    Revoke(1, 9, "because", 1),
    Abort("because"),
    Decision(9, 1, (0, 1), (AGREE, AGREE)),
)
NESTED = b"\x91" * 5000 + b"\xc0"


def envelope(rng: random.Random, nonce: int, count: int, known: Sequence[ToServer | ToWorker]) -> bytes:
    """Return what might be a message of the control plane: one of those `known`, with something else in it."""
    message = codec.plain(rng.choice(known))
    for _ in range(rng.choice((0, 1, 1, 2))):
        message[rng.randrange(len(message))] = plain(rng)
    if rng.random() < 0.1:
        message.pop()
    said = [nonce, count, message]
    if rng.random() < 0.2:
        said[rng.randrange(3)] = plain(rng)
    data: bytes = msgpack.packb(said)
    match rng.randrange(12):
        case 0:
            return data[: rng.randint(0, len(data))]
        case 1:
            return data + rng.randbytes(3)
        case 2:
            return rng.choice((NESTED, b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xc7\x01\xff\x00", rng.randbytes(40)))
        case 3:
            i = rng.randrange(len(data))
            return data[:i] + rng.randbytes(1) + data[i + 1 :]
    return data


# A member that lies, on the simulated wire.


class Lying:
    """The transport of a rank whose messages may be dropped, twisted, repeated, joined by others from any time.

    Their pair numbers are put right again, mostly: else the first lie would be a gap, and the end.
    """

    def __init__(self, inner: SimulatedTransport, nonce: int, rng: random.Random, rate: float) -> None:
        self._inner, self._nonce, self._rng, self._rate = inner, nonce, rng, rate
        self._said: list[list[bytes]] = []
        self._pairs = [0, 0, 0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        rng, honest = self._rng, [bytes(frame) for frame in frames]
        self._said.append(honest)
        said = [honest]
        if rng.random() < self._rate:
            lie = twisted(rng, rng.choice(self._said)) if rng.random() < 0.9 else garbage(rng)
            said = rng.choice(([lie], [honest, lie], [lie, honest], [], [honest, honest], [lie] * 20))
        for message in said:
            self._inner.send(peer, self._stamped(peer, message))

    def _stamped(self, peer: int, message: list[bytes]) -> list[bytes]:
        if len(message[0]) < wire.SIZE:
            return message
        header = Header._make(struct.unpack_from("<BBHIQQIIIIQQQ", message[0]))
        if header.source == 1 - peer:  # one member can speak for another: all have the same key
            header = header._replace(source=LIAR)
        elif self._rng.random() < 0.02:
            return message
        if (header.version, header.nonce, header.source) != (wire.VERSION, self._nonce, LIAR):
            return message
        if header.kind not in DATA_KINDS or (len(message[0]) > wire.SIZE and header.kind != Kind.EAGER):
            return message
        pair, self._pairs[peer] = self._pairs[peer], self._pairs[peer] + 1
        return [wire.pack(header._replace(pair=pair)) + message[0][wire.SIZE :], *message[1:]]


def calls(rng: random.Random) -> Callable[[Group], Steps[Any]]:
    """Return a call of any kind and size, the same for all ranks."""
    n = rng.choice((1, 100, 20_000, 40_000))
    data = np.arange(n, dtype=np.int64)
    root = rng.randrange(3)
    several = np.tile(data, (3, 1))
    return rng.choice(
        (
            lambda group: collectives.broadcast.bcast(group, data if group.rank == root else None, root, AUTOMATIC),
            lambda group: collectives.reduce.allreduce(group, data, SUM, None, AUTOMATIC),
            lambda group: collectives.gather.allgather(group, data, None, AUTOMATIC),
            lambda group: collectives.alltoall.alltoall(group, several, None, AUTOMATIC),
            lambda group: collectives.reduce.barrier(group),
            lambda group: sendrecv(group, data, (group.rank + 1) % 3, (group.rank - 1) % 3, 5),
            lambda group: collectives.gather.gather(group, data, root, None, AUTOMATIC),
        )
    )


def drive_all(wire_: SimulatedWire, endpoints: Sequence[Endpoint], steps: Sequence[Steps[Any]]) -> list[Any]:
    """Run one generator per rank until nothing moves; return results and errors. Who then waits runs into a timeout."""
    tasks = [Task(endpoint, generator, NOWHERE) for endpoint, generator in zip(endpoints, steps, strict=True)]
    ends: dict[int, Any] = {}

    def advance(i: int) -> None:
        if i not in ends and tasks[i].poll():
            ends[i] = tasks[i].error or tasks[i].result

    def settle() -> None:
        while (rank := wire_.deliver()) is not None:
            for i, endpoint in enumerate(endpoints):
                if endpoint.rank == rank:
                    while endpoint.progress(wire_.now):
                        check(endpoint.protocol)
                    advance(i)

    for i, task in enumerate(tasks):
        task.advance()
        advance(i)
    settle()
    for patience in range(3):
        for i, task in enumerate(tasks):
            if i in ends:
                continue
            task.patience = wire_.now
            op = task.operation
            assert op is not None
            if patience < 2:
                task.endpoint.probe([op])
                advance(i)
                continue
            ends[i] = CollectiveTimeout(task.endpoint.rank, op.waiting_for, 1.0, op.where)
            task.fail(ends[i])
        settle()
    return [ends[i] for i in range(len(tasks))]


class Unaccusing:
    """A line to the control plane that accuses no rank: all ranks lose one that a member calls failed."""

    def __init__(self, inner: Control) -> None:
        self._inner = inner

    def send(self, message: FromMember) -> None:
        self._inner.send(replace(message, failed=None) if isinstance(message, Revoke) else message)

    def close(self) -> None:
        self._inner.close()


def lie(seed: int) -> None:
    """Let a member lie during a few calls; the two others end each of them, and can still talk to each other."""
    rng = random.Random(seed)
    lookahead = rng.choice((0, 0, 1 << 20))
    simulated, endpoints = simulated_endpoints(3)
    for endpoint in endpoints:
        endpoint.protocol.lookahead = lookahead
    liar = endpoints[LIAR]
    liar.control = Unaccusing(liar.control)
    liar.transport = Lying(liar.transport, liar.protocol.nonce, rng, rng.choice((0.02, 0.2, 1.0)))
    for context in range(CONTEXT, CONTEXT + 3):
        groups = [Group(endpoint, context, NETWORKS["ipc"]) for endpoint in endpoints]
        for _ in range(3):
            call = calls(rng)
            for end in drive_all(simulated, endpoints, [call(group) for group in groups])[:LIAR]:
                # A lie about the length or kind of a value cannot be told from a value by those who carry it.
                assert not isinstance(end, Exception) or isinstance(end, RingcastError), repr(end)
    talk(simulated, endpoints[:LIAR])
    for endpoint in endpoints[:LIAR]:
        assert set(endpoint.protocol.failed) <= {LIAR}, endpoint.protocol.failed


def talk(simulated: SimulatedWire, endpoints: Sequence[Endpoint]) -> None:
    """Let two ranks exchange messages of all kinds on a communicator without a name."""
    if any(endpoint.protocol.aborted is not None for endpoint in endpoints):
        return
    for n in (1, 1000, 100_000):
        data = np.arange(n)
        groups = [Group(endpoint, FRESH + n, NETWORKS["ipc"]) for endpoint in endpoints]
        steps = [sendrecv(group, data + group.rank, 1 - group.rank, 1 - group.rank, 0) for group in groups]
        for rank, end in enumerate(drive_all(simulated, endpoints, steps)):
            if isinstance(end, PeerFailed) and end.peer == LIAR:
                continue
            if isinstance(end, Exception):
                raise end
            np.testing.assert_array_equal(end, data + 1 - rank)


def held(protocol: Protocol) -> int:
    """Return how many things the tables of a rank hold, and thousands of bytes of messages that wait."""
    states = protocol._contexts.values()
    boxes = [box for state in states for box in state.mail.values()]
    mail = sum(len(queue) for box in boxes for queue in (*box._arrived.values(), *box._posted.values()))
    waits = [item for box in boxes for queue in box._arrived.values() for item in queue]
    size = sum(len(frame) + 250 for _, frames in waits for frame in frames)
    grants = sum(len(found) + 1 for state in states for found in state.grants.values())
    tables = *TRANSFERS, "_contexts.retired", "failed", "finished"
    named = sum(len(attrgetter(name)(protocol)) for name in tables)
    return len(protocol._contexts) + len(boxes) + mail + size // 1000 + grants + named


MOST = 40_000  # things that one member may make another keep: small messages fill the budget of 1 MB with 16384


def check(protocol: Protocol) -> None:
    """Assert what holds after every message, whoever sent it."""
    for source, size in enumerate(protocol._eager_credits.held):
        assert 0 <= size <= protocol._eager_credits.each + wire.SIZE, f"{size} eager bytes of rank {source} are held"
    for spent in protocol._eager_credits.spent:
        assert 0 <= spent <= protocol._eager_credits.each
    for recv in protocol._receiving.transfers.values():
        assert recv.total is not None
        assert 0 <= recv.granted - recv.received <= recv.operation.window
        assert recv.granted <= recv.total
    assert 0 <= protocol._sending.trailing <= protocol.lookahead
    for peer, kept in enumerate(protocol._budget.kept):
        assert 0 <= kept <= EAGER_CREDIT or peer in protocol.failed
    assert len(protocol._contexts) < MOST


def flood(seed: int, messages: int = 30_000) -> None:
    """Let a member say one thing many times, with a field that counts on; what is kept of it stays bounded."""
    rng = random.Random(seed)
    nonce = rng.getrandbits(64)
    protocol = Protocol(0, 3, nonce, continues=rng.random() < 0.5)
    kind, name = rng.choice(DATA_KINDS), rng.choice(("context", "operation", "ordinal", "transfer", "fingerprint"))
    payload = rng.choice(([], [bytes(8)], [bytes(800)]))
    flags = rng.choice((0, 0, 1, 2, wire.HELD, wire.MORE_ROOM, wire.LENT))
    fields = {"flags": flags, "context": rng.choice((1, CONTEXT)), "transfer": rng.choice((0, 9))}
    length = sum(map(len, payload)) if kind == Kind.EAGER else 0
    first = Header(wire.VERSION, kind, 0, LIAR, nonce, 0, 1, 0, 0, 0, length, 0, 0)._replace(**fields)
    said = 0
    for i in range(messages):
        header = first._replace(pair=i, **{name: i})
        said_by = [wire.pack(header) + b"".join(payload)] if kind == Kind.EAGER else [wire.pack(header), *payload]
        protocol.handle(MemoryArrival(said_by))
        said += len(protocol.outbox)
        protocol.outbox.clear()
        if LIAR in protocol.failed:
            break
    assert held(protocol) < MOST, f"{held(protocol)} things are kept of {messages} messages of kind {kind!r} by {name}"
    assert set(protocol.failed) <= {LIAR}
    check(protocol)


def shout(seed: int, messages: int = 300) -> None:
    """Let a stranger say anything to one rank: garbage, and headers with a field of another job."""
    rng = random.Random(seed)
    simulated, endpoints = simulated_endpoints(2)
    protocol = endpoints[0].protocol
    for _ in range(messages):
        header = Header._make(number(rng, WIDTHS[name]) for name in Header._fields)
        header = header._replace(version=wire.VERSION, kind=rng.randint(0, 9), source=rng.randint(0, 3))
        if header.nonce == protocol.nonce:
            continue
        said = rng.choice((garbage(rng), [wire.pack(header), *garbage(rng)], [wire.pack(header)]))
        protocol.handle(MemoryArrival(said))
    assert sum(protocol.dropped.values()) >= messages - 1
    assert held(protocol) == 0
    talk(simulated, endpoints)


# The control plane.


def petition(seed: int, messages: int = 300) -> None:
    """Let strangers and members say anything to the server; it answers in messages that can be sent, and goes on."""
    rng = random.Random(seed)
    nonce, size = rng.getrandbits(64), 3
    roster = Membership(size, version="1", hosted=rng.random() < 0.5)
    for i in range(messages):
        message = open_sealed(envelope(rng, nonce, i, REQUESTS), nonce)
        connection = b"c%d" % rng.randrange(6)
        event = _event(message[1], connection, roster.rank_of(connection)) if message else Tick()
        for action in roster.handle(event, i / 10) if event is not None else ():
            if hasattr(action, "message"):
                seal(nonce, i, action.message)
                codec.parse(codec.plain(action.message), TO_WORKER)
        assert isinstance(roster.over, bool)
        assert isinstance(roster.due, float)


def proclaim(seed: int, messages: int = 300) -> None:
    """Let a false server say anything to a worker: what it takes for news are notices for its inbox, nothing else."""
    rng = random.Random(seed)
    nonce = rng.getrandbits(64)
    news: list[list[bytes]] = []
    client = ControlClient(WorkerConfig(0, 3, "ipc://nowhere", hosted=True, nonce=nonce), CARDS[0], news.append, None)
    worker = client_module._Conversation(client, None)
    for i in range(messages):
        message = open_sealed(envelope(rng, nonce, i, ANSWERS), nonce)
        if message is not None:
            worker._understand(message[1])
    client.close()
    protocol = Protocol(0, 3, nonce, continues=rng.random() < 0.5)
    for frames in news:
        dropped = sum(protocol.dropped.values()) - protocol.dropped["foreign"]
        protocol.handle(MemoryArrival(frames))
        lost = sum(protocol.dropped.values()) - protocol.dropped["foreign"]  # of a rank that the job does not have
        assert lost == dropped, frames
    assert held(protocol) < messages


CASES: dict[str, Callable[[int], None]] = {
    "lie": lie,
    "flood": flood,
    "shout": shout,
    "petition": petition,
    "proclaim": proclaim,
}


def seeds(first: int, seconds: float) -> Iterator[int]:
    """Return seeds until so many seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield first
        first += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=CASES, help="this one alone")
    arguments = parser.parse_args()
    done = 0
    for seed in seeds(arguments.seed, arguments.seconds):
        for name in [arguments.case] if arguments.case else CASES:
            try:
                CASES[name](seed)
            except BaseException as error:
                error.add_note(f"PYTHONPATH=tests python -m support.fuzz --case {name} --seed {seed} --seconds 0.1")
                raise
            done += 1
    print(f"{done} cases")


if __name__ == "__main__":
    main()
