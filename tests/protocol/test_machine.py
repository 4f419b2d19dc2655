"""The protocol between two ranks, rule by rule, on links that drop, repeat, reorder and forge messages.

No sockets, no threads, no time: several `Protocol` objects in one thread, and a queue for every ordered pair.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.errors import CollectiveMismatch, PeerFailed, Revoked
from ringcast.protocol.communicators import NAMED
from ringcast.protocol.machine import Protocol
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import SEGMENT, WINDOW, Operation
from ringcast.transports.base import MemoryArrival
from ringcast.wire import header as wire
from ringcast.wire.call import Call
from ringcast.wire.control_messages import Revoke
from ringcast.wire.header import CALLS, MISMATCH, STAGES, Header, Kind
from ringcast.wire.header import EAGER_LIMIT as EAGER_LIMIT
from support.protocol_net import (
    CALL,
    CONTEXT,
    LARGE,
    NONCE,
    Buffer,
    Net,
    Open,
    check_quiet,
    check_quiet_rank,
    content,
    data_of,
    exchange,
    interleavings,
    tell,
)

# The bench.


def split(data: bytes, *sizes: int) -> list[memoryview]:
    """Cut data into frames of these sizes, and a last one with the rest."""
    view, frames = memoryview(data), []
    for size in sizes:
        frames.append(view[:size])
        view = view[size:]
    return [*frames, view]


def transfer(net: Net, size: int, *, granted: bool = False, align: int = 1, frames: Sequence[int] = ()) -> Buffer:
    """Move one message from rank 0 to rank 1 and return where it arrived."""
    ops = net.begin(granted=granted, align=align)
    data, sink = content(0, 1, 0, size), Buffer(size)
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, split(data, *frames))
    net.run()
    assert [op.error for op in ops] == [None] * len(ops)
    assert not any(op.pending for op in ops)
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    assert sink.data == data
    return sink


# Programs: for each rank, what it posts together and then waits for.


@dataclass(frozen=True)
class Out:
    to: int
    size: int
    tag: int | None = None


@dataclass(frozen=True)
class In:
    source: int
    size: int
    tag: int | None = None


Program = Sequence[Sequence["Out | In"]]


class Player:
    """One rank that runs its program: posts the next group when the one before is complete."""

    def __init__(self, net: Net, rank: int, program: Program, **kwargs: Any) -> None:
        self.protocol, self.rank, self.groups = net.ranks[rank], rank, iter(program)
        self.p2p = bool(kwargs.get("p2p"))
        self.op = self.protocol.begin(CONTEXT, kwargs.pop("call", CALL), **kwargs)
        self.numbers: Counter[Any] = Counter()
        self.sinks: list[tuple[Buffer, bytes]] = []
        self.done = False

    def advance(self) -> None:
        """Go on as far as possible. Receives are posted before sends, as the endpoint does."""
        while not self.done and not self.op.pending:
            group = next(self.groups, None)
            if group is None:
                self.done = True
                self.protocol.end(self.op)
                return
            for act in sorted(group, key=lambda act: isinstance(act, Out)):
                n = self.numbers[type(act), act.to if isinstance(act, Out) else act.source, act.tag]
                self.numbers[type(act), act.to if isinstance(act, Out) else act.source, act.tag] += 1
                seed = n if act.tag is None else 1000 * act.tag + n
                if isinstance(act, In):
                    sink = Buffer(act.size)
                    self.sinks.append((sink, content(act.source, self.rank, seed, act.size)))
                    self.protocol.receive(self.op, act.source, sink, tag=act.tag)
                else:
                    data = content(self.rank, act.to, seed, act.size)
                    self.protocol.send(self.op, act.to, split(data, act.size // 3), tag=act.tag)

    def check(self) -> None:
        assert self.op.error is None
        assert self.done, f"rank {self.rank} waits for {self.op.waiting_for}"
        assert all(sink.data == data for sink, data in self.sinks)


def play(net: Net, programs: Sequence[Program], choose: Callable[[list[tuple[int, int]]], tuple[int, int]], **kw: Any):
    """Run one program per rank to the end, whatever the order of deliveries."""
    players = [Player(net, rank, program, **kw) for rank, program in enumerate(programs)]
    for player in players:
        player.advance()
    while links := net.waiting():
        a, b = choose(links)
        net.step(a, b)
        players[b].advance()
    for player in players:
        player.check()
    check_quiet(net)


# Rule 1: every message carries its number between these two ranks.


def test_a_gap_in_the_numbers_is_a_lost_link() -> None:
    net = Net(2)
    ops = net.begin()
    for _ in range(2):
        net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    net.collect()
    net.links[0, 1].popleft()
    net.run()
    error = ops[1].error
    assert isinstance(error, PeerFailed)
    assert (error.rank, error.peer) == (1, 0)
    assert "1 messages before number 1 are missing" in str(error)


@pytest.mark.parametrize("p2p", [False, True])
def test_a_rank_that_asks_misses_the_last_message_if_it_was_lost(p2p: bool) -> None:
    net = Net(2)
    ops = net.begin(p2p=p2p)
    net.ranks[1].receive(ops[1], 0, Buffer(1), tag=0)
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")], tag=0)
    net.ranks[0].end(ops[0])  # for this rank all is done
    net.collect()
    net.links[0, 1].clear()
    net.ranks[1].probe([ops[1]])
    net.run()
    assert isinstance(ops[1].error, PeerFailed)
    assert "1 messages before number 1 are missing" in str(ops[1].error)


def test_a_question_has_one_answer_and_an_answer_has_none() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[1].receive(ops[1], 0, Buffer(1))
    net.ranks[1].probe([ops[1]])
    net.run()
    assert (net.kinds(0, 1), net.kinds(1, 0)) == ([Kind.CTS], [Kind.CTS])
    assert [protocol.keepalives for protocol in net.ranks] == [1, 1]
    assert ops[1].error is None


def test_reordered_messages_are_not_taken_for_others() -> None:
    net = Net(2)
    ops = net.begin()
    sink = Buffer(1)
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    net.ranks[0].send(ops[0], 1, [memoryview(b"y")])
    net.collect()
    net.links[0, 1].reverse()
    net.run()
    assert isinstance(ops[1].error, PeerFailed)
    assert sink.filled == 0
    assert net.ranks[1].dropped["zombie"] == 1  # the one that came late


@pytest.mark.parametrize("size", [1, LARGE])
def test_a_replay_is_dropped_and_counted(size: int) -> None:
    net = Net(2)
    ops = net.begin()
    sink, data, repeats = Buffer(size), content(0, 1, 0, size), 0
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, [memoryview(data)])
    while links := net.waiting():
        a, b = links[0]
        frames = net.links[a, b][0]
        net.step(a, b)
        net.inject(b, *frames)
        repeats += 1
    assert sum(protocol.dropped["replayed"] for protocol in net.ranks) == repeats
    assert sink.data == data
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    check_quiet(net)


def test_the_numbers_may_wrap() -> None:
    net = Net(2)
    for protocol, other in (0, 1), (1, 0):
        net.ranks[protocol].sent[other] = net.ranks[protocol].seen[other] = (1 << 32) - 2
    for _ in range(3):
        transfer(net, LARGE)
    assert {h.pair for a, _, h in net.log if a == 0} >= {(1 << 32) - 1, 0, 1}
    check_quiet(net)


def test_the_numbers_of_calls_may_wrap() -> None:
    net = Net(2)
    for protocol in net.ranks:
        protocol._contexts[CONTEXT].calls = CALLS - 1
    for _ in range(3):
        transfer(net, LARGE)
    assert {h.operation for a, _, h in net.log if a == 0} == {STAGES * CALLS, STAGES, STAGES * 2}
    check_quiet(net)


@pytest.mark.parametrize("early", [True, False])
def test_stages_of_two_calls_meet_in_whatever_order_ranks_begin_them(early: bool) -> None:
    net = Net(2)
    calls = [net.begin(), net.begin()]
    for protocol, op in (pair for ops in calls for pair in zip(net.ranks, ops, strict=True)):
        protocol.end(op)
    sender, receiver = net.ranks
    sinks = {}

    def receive() -> None:
        for call in (1, 0):
            sinks[call] = Buffer(1)
            receiver.receive(receiver.begin(CONTEXT, CALL, after=calls[call][1]), 0, sinks[call])

    if not early:
        receive()
    for call in (0, 1):
        sender.send(sender.begin(CONTEXT, CALL, after=calls[call][0]), 1, [memoryview(bytes([call]))])
    net.run()
    if early:
        receive()
    assert {call: sink.data for call, sink in sinks.items()} == {0: b"\0", 1: b"\1"}


def test_a_message_for_a_call_that_has_ended_is_a_mismatch_though_a_later_call_is_under_way() -> None:
    net = Net(2)
    ended, _ = net.begin(), net.begin()
    net.ranks[1].end(ended[1])
    ended[1].close()
    net.ranks[0].end(ended[0])
    net.ranks[0].send(net.ranks[0].begin(CONTEXT, CALL, after=ended[0]), 1, [memoryview(b"x")])
    net.run()
    assert isinstance(net.ranks[1].unreported(), CollectiveMismatch)


def forged(**fields: int) -> bytes:
    header = Header(wire.VERSION, Kind.EAGER, 0, 0, NONCE, CONTEXT, STAGES, 0, 0, 0, 1, 0, CALL.fingerprint)
    return wire.pack(header._replace(**fields))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "malformed"),
        (b"x", "malformed"),
        (forged()[:-1], "malformed"),
        *((forged(kind=kind) + b"x", "malformed") for kind in Kind if kind != Kind.EAGER),
        (forged(version=wire.VERSION + 1), "malformed"),
        (forged(version=wire.VERSION - 1), "malformed"),
        (forged(kind=0), "malformed"),
        (forged(kind=99), "malformed"),
        (forged(nonce=NONCE + 1), "foreign"),
        (forged(nonce=0), "foreign"),
        (forged(source=2), "foreign"),
        (forged(source=1), "foreign"),
        (forged(source=(1 << 32) - 1), "foreign"),
        (forged(kind=Kind.NOTICE, nonce=1), "foreign"),
        (forged(kind=Kind.WAKE, nonce=1), "foreign"),
    ],
)
def test_what_is_no_message_of_this_job_is_dropped_and_counted(header: bytes, reason: str) -> None:
    net = Net(2)
    ops = net.begin()
    sink = Buffer(1)
    net.ranks[1].receive(ops[1], 0, sink)
    net.inject(1, header, b"!")
    assert net.ranks[1].dropped == {reason: 1}
    net.ranks[0].send(ops[0], 1, [memoryview(b"x")])
    net.run()
    assert sink.data == b"x"
    assert ops[1].error is None


@pytest.mark.parametrize(
    ("fields", "frames"),
    [
        ({"length": 4}, [b"four"]),  # EAGER that has its payload in another frame
        ({"kind": Kind.RTS, "transfer": 1, "length": 9}, []),  # no list of sizes
        ({"kind": Kind.RTS, "transfer": 1, "length": 9}, [b"12345"]),
        ({"kind": Kind.RTS, "transfer": 1, "length": 9}, [struct.pack("<Q", 1 << 60)]),
    ],
)
def test_a_peer_that_breaks_the_protocol_has_failed(fields: dict[str, int], frames: list[bytes]) -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[1].receive(ops[1], 0, Open())
    net.inject(1, forged(**fields), *frames)
    assert isinstance(ops[1].error, PeerFailed)
    assert "broke the protocol" in str(ops[1].error)


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"length": 5}, b"four"),
        ({"length": 3}, b"four"),
        ({"length": 0}, b"four"),
        ({"length": 4, "transfer": 2}, b"four"),  # two joined frames without their sizes
        ({"length": 4, "transfer": 2}, struct.pack("<II", 1, 2) + b"four"),  # with sizes that do not add up
        ({"length": 4, "transfer": 2}, struct.pack("<II", 5, (1 << 32) - 1) + b"four"),
        ({"length": 0, "transfer": (1 << 32) - 1}, b""),
    ],
)
def test_an_eager_message_that_does_not_add_up_breaks_the_protocol(fields: dict[str, int], payload: bytes) -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[1].receive(ops[1], 0, Open())
    net.inject(1, forged(**fields) + payload)
    assert isinstance(ops[1].error, PeerFailed)
    assert "broke the protocol" in str(ops[1].error)


def test_joined_frames_count_though_they_are_empty() -> None:
    """A frame of no bytes takes memory too: of those that wait a peer cannot make another rank keep any number."""
    net = Net(2)
    protocol, frames, kept = net.ranks[0], 1000, 0
    for number in range(100):
        header = forged(source=1, pair=number, length=0, transfer=frames, ordinal=number, operation=STAGES)
        protocol.handle(MemoryArrival([header + bytes(4 * frames)]))
        if 1 in protocol.failed:
            break
        kept += frames
    assert 0 < kept < 1 << 12


@pytest.mark.parametrize(
    ("kind", "counting"),
    [
        (Kind.EAGER, "context"),
        (Kind.RTS, "context"),
        (Kind.CTS, "context"),
        (Kind.REFUSE, "context"),
        (Kind.RTS, "operation"),
        (Kind.RTS, "ordinal"),
        (Kind.CTS, "operation"),
        (Kind.CTS, "ordinal"),
    ],
)
def test_a_peer_that_speaks_of_ever_more_to_come_has_failed_before_memory_is_full(kind: Kind, counting: str) -> None:
    net = Net(2)
    protocol = net.ranks[0]
    said = 0
    while 1 not in protocol.failed:
        said += 1
        assert said < 20_000
        fields = {
            "kind": kind,
            "source": 1,
            "pair": said - 1,
            "length": 0,
            "operation": STAGES,
            counting: STAGES + said,
        }
        protocol.handle(MemoryArrival([forged(**fields)]))
        protocol.outbox.clear()
    assert said > 1000
    assert "broke the protocol" in protocol.failed[1].cause
    assert not any(context.grants or context.mail for context in protocol._contexts.values())


def test_communicators_that_a_peer_comes_to_first_may_be_any_number_in_a_life() -> None:
    net = Net(2)
    for context in range(1, NAMED + 10):
        net.ranks[0].send(net.ranks[0].begin(context, CALL), 1, [memoryview(b"x")])
        net.run()
        net.ranks[1].receive(net.ranks[1].begin(context, CALL), 0, Buffer(1))
        net.run()
    assert not net.ranks[1].failed


def test_who_gives_up_more_communicators_than_it_may_name_has_failed() -> None:
    net = Net(2)
    for context in range(1, NAMED + 2):
        tell(net, 0, Revoke(1, context, "why not"))
        assert (1 in net.ranks[0].failed) == (context > NAMED)
    assert "it has named" in net.ranks[0].failed[1].cause


def test_communicators_that_are_freed_without_a_call_count_no_more() -> None:
    net = Net(2)
    for context in range(1, NAMED + 10):
        net.ranks[0].send(net.ranks[0].begin(context, CALL), 1, [memoryview(b"x")])
        net.run()
        net.ranks[1].enrol(context, (0, 1))
        net.ranks[1].retire(context)
        net.run()
    assert not net.ranks[1].failed


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_who_has_no_memory_for_a_message_blames_nobody(size: int) -> None:
    class Full(Open):
        def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
            raise MemoryError(f"no room for {sum(sizes)} bytes")

    net = Net(2)
    ops = net.begin()
    net.ranks[1].receive(ops[1], 0, Full())
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(size))])
    net.run()
    assert isinstance(ops[1].error, MemoryError)
    assert not net.ranks[1].failed
    assert net.ranks[0].revoked(CONTEXT)


def test_the_dead_are_answered_once() -> None:
    """Else who asks without end, and reads no answer, fills the memory of who answers."""
    net = Net(2)
    net.ranks[1].invalidate(CONTEXT, Revoked(1, "tired"))
    for pair in range(100):
        flags = MISMATCH if pair % 2 else 0
        kind = Kind.REFUSE if pair % 2 else Kind.RTS
        net.inject(1, forged(kind=kind, flags=flags, pair=pair, length=0, transfer=1, ordinal=pair))
    assert net.kinds(1, 0) == [Kind.REFUSE, Kind.REFUSE]


def test_a_transfer_that_is_begun_twice_or_confirmed_too_early_is_a_failure() -> None:
    for twice in (True, False):
        net = Net(2)
        op, other = net.begin()
        if twice:
            for _ in range(2):
                net.ranks[1].receive(other, 0, Buffer(LARGE))
            for pair in range(2):
                sizes = struct.pack("<Q", LARGE)
                net.inject(1, forged(kind=Kind.RTS, pair=pair, ordinal=pair, transfer=4, length=LARGE), sizes)
            assert "began transfer 4 twice" in str(other.error)
        else:
            net.ranks[0].send(op, 1, [memoryview(bytes(LARGE))])
            net.inject(0, forged(kind=Kind.DONE, source=1, transfer=1))
            assert "confirmed" in str(op.error)


def test_a_grant_of_more_than_there_is_is_a_failure() -> None:
    net = Net(2)
    op, _ = net.begin()
    net.ranks[0].send(op, 1, [memoryview(bytes(LARGE))])
    net.inject(0, forged(kind=Kind.CTS, source=1, transfer=1, word=LARGE + 1))
    assert "granted" in str(op.error)


@pytest.mark.parametrize(
    ("offset", "length", "size"), [(0, 0, 0), (1, 4, 4), (0, 4, 3), (0, 3, 4), (0, 4, 9), (0, LARGE + 1, 1)]
)
def test_data_that_does_not_fit_its_header_is_a_failure(offset: int, length: int, size: int) -> None:
    net = Net(2)
    ops = net.begin()
    sink = Buffer(LARGE)
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(LARGE))])
    net.step(0, 1)
    net.inject(1, forged(kind=Kind.DATA, pair=1, transfer=1, length=length, word=offset), b"x" * size)
    assert isinstance(ops[1].error, PeerFailed)


def test_a_frame_that_is_longer_than_its_place_is_a_failure() -> None:
    """Two pieces arrive as one frame: it would be cut at the end of the first without a word."""
    net = Net(2)
    ops = net.begin(granted=True)
    sink = Buffer(5, 5)
    net.ranks[1].receive(ops[1], 0, sink)
    net.ranks[0].send(ops[0], 1, [memoryview(b"0123456789")])
    net.run()
    assert isinstance(ops[1].error, PeerFailed)
    assert "a frame of 10 bytes" in str(ops[1].error)


# Rule 2: small messages go on a budget.


@pytest.mark.parametrize("size", [0, 10, 1000, EAGER_LIMIT])
def test_a_root_that_runs_ahead_cannot_fill_a_slow_rank(size: int) -> None:
    count = 10_000 if size < 1000 else 500
    net = Net(2)
    ops = net.begin()
    data = [content(0, 1, i, size) for i in range(count)]
    for message in data:
        net.ranks[0].send(ops[0], 1, [memoryview(message)])
    kinds = net.kinds(0, 1)
    eager = kinds.count(Kind.EAGER)
    net.run()  # checks after every message what is held
    assert kinds == [Kind.EAGER] * eager + [Kind.RTS] * (count - eager)
    assert eager == min(count, net.ranks[0]._eager_credits.each // (size + 64))
    assert len(ops[0].pending) == count - eager
    for message in data:
        sink = Buffer(size)
        net.ranks[1].receive(ops[1], 0, sink)
        net.run()
        assert sink.data == message
    assert not ops[0].pending
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    check_quiet(net)
    assert net.ranks[0]._eager_credits.spent[1] < net.ranks[0]._eager_credits.each // 2


def test_budget_comes_back_with_the_next_message_that_way() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[0].send(ops[0], 1, [memoryview(b"ping")])
    net.run()
    assert net.ranks[0]._eager_credits.spent[1] == 4 + 64
    net.ranks[1].receive(ops[1], 0, Buffer(4))
    net.ranks[1].send(ops[1], 0, [memoryview(b"pong")])
    net.run()
    assert net.ranks[0]._eager_credits.spent[1] == 0
    assert net.log[-1][2].word == 4 + 64
    assert net.kinds(1, 0) == [Kind.EAGER]


def test_budget_comes_back_with_an_rts_too() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[0].send(ops[0], 1, [memoryview(b"ping")])
    net.ranks[1].receive(ops[1], 0, Buffer(4))
    net.run()
    net.ranks[1].send(ops[1], 0, [memoryview(bytes(LARGE))])
    net.run()
    assert net.ranks[0]._eager_credits.spent[1] == 0


def test_half_of_the_budget_comes_back_by_itself() -> None:
    net = Net(2)
    ops = net.begin()
    half = net.ranks[0]._eager_credits.each // 2
    for i in range(1, 100):
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(EAGER_LIMIT))])
        net.ranks[1].receive(ops[1], 0, Buffer(EAGER_LIMIT))
        net.run()
        assert net.ranks[0]._eager_credits.spent[1] < half
        spent = i * (EAGER_LIMIT + 64) % (-(-half // (EAGER_LIMIT + 64)) * (EAGER_LIMIT + 64))
        assert net.ranks[0]._eager_credits.spent[1] == spent
    assert Kind.RTS not in net.kinds(0, 1)
    assert set(net.kinds(1, 0)) == {Kind.CTS}


@pytest.mark.parametrize("p", [2, 64, 65, 1000, 100_000])
def test_all_budgets_together_are_bounded(p: int) -> None:
    assert Protocol(0, p, NONCE)._eager_credits.each == min(1 << 20, (64 << 20) // p)


def test_budgets_of_peers_are_separate() -> None:
    net = Net(3)
    ops = net.begin()
    for _ in range(100):
        net.ranks[0].send(ops[0], 1, [memoryview(bytes(EAGER_LIMIT))])
    net.ranks[0].send(ops[0], 2, [memoryview(b"x")])
    net.ranks[2].send(ops[2], 1, [memoryview(b"x")])
    assert net.kinds(0, 2) == net.kinds(2, 1) == [Kind.EAGER]


@pytest.mark.parametrize("how", ["mismatch", "size", "ended", "leftover", "poisoned", "retired"])
def test_budget_comes_back_for_messages_that_nobody_takes(how: str) -> None:
    """The budget belongs to the pair of ranks, so an error in one communicator must not eat it up for the others."""
    net = Net(2)
    mine, theirs = net.ranks
    op = mine.begin(CONTEXT, CALL)
    other = theirs.begin(CONTEXT, Call("barrier") if how == "mismatch" else CALL)
    if how == "size":
        theirs.receive(other, 0, Buffer(99))
    elif how == "ended":
        theirs.end(other)
    elif how == "poisoned":
        theirs.invalidate(CONTEXT, Revoked(1, "for a reason"))
    elif how == "retired":
        theirs.retire(CONTEXT)
    mine.send(op, 1, [memoryview(b"1234")])
    if how == "leftover":
        net.run()
        theirs.end(other)
    net.run()
    assert theirs._eager_credits.held[0] == 0
    assert theirs._eager_credits.owed[0] == mine._eager_credits.spent[1] == 4 + 64


# Rule 3: larger messages go in segments, under a window.


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("align", [1, 3, 8, 12, 16, 1000, SEGMENT - 1, SEGMENT, SEGMENT + 1, 1_500_000])
def test_segments_are_cut_between_items(align: int, granted: bool) -> None:
    size = -(-3_000_000 // align) * align
    net = Net(2)
    transfer(net, size, granted=granted, align=align, frames=(size // align // 3 * align,))
    offset = 0
    for h in data_of(net):
        assert h.word == offset
        assert h.length <= SEGMENT
        assert align > SEGMENT or h.length % align == 0  # a longer item is cut too
        offset += h.length
    assert offset == size
    check_quiet(net)


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("align", [1, 3, SEGMENT - 1, SEGMENT // 2 + 1])
def test_no_more_is_under_way_than_the_window(align: int, granted: bool) -> None:
    """A receiver that does not answer gets one window and no more."""
    net = Net(2)
    ops = net.begin(granted=granted, align=align)
    size = 20 * SEGMENT // align * align
    net.ranks[1].receive(ops[1], 0, Buffer(size))
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(size))])
    if not granted:
        net.step(0, 1)
    net.step(1, 0)
    under_way = sum(h.length for h in data_of(net))
    assert ops[0].window - ops[0].segment < under_way <= ops[0].window == max(WINDOW, 2 * ops[0].segment)
    net.run()  # check_laws holds at every step
    assert not ops[0].pending


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("frames", [(), (0,), (0, 0), (0, 0, 0)])
def test_nothing_can_be_sent(granted: bool, frames: Sequence[int]) -> None:
    net = Net(2)
    transfer(net, 0, granted=granted, frames=frames)
    check_quiet(net)


@pytest.mark.parametrize("size", [1, LARGE, 3 * SEGMENT])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pieces", [(), (1,), (0,), (5, 0, 7), (SEGMENT, 1)])
def test_pieces_arrive_in_their_places(size: int, packed: bool, pieces: Sequence[int]) -> None:
    if sum(pieces) > size:
        return
    net = Net(2)
    op, other = net.begin(granted=True)
    sizes = [*pieces, size - sum(pieces)]
    data = content(0, 1, 0, size)
    sink = Buffer(*sizes)
    net.ranks[1].receive(other, 0, sink)
    net.ranks[0].send(op, 1, [memoryview(data)] if packed else split(data, *pieces), packed=packed)
    net.run()
    assert sink.data == data
    assert [len(piece) for piece in sink.pieces] == sizes


@pytest.mark.parametrize("pieces", [(0,), (3,), (0, 3, 0), (LARGE,), (LARGE, 0, SEGMENT + 1), (1, 2 * SEGMENT)])
def test_a_message_of_unknown_size_tells_the_sizes_of_its_frames(pieces: Sequence[int]) -> None:
    net = Net(2)
    op, other = net.begin()
    data, sink = content(0, 1, 0, sum(pieces)), Open()
    net.ranks[1].receive(other, 0, sink)
    net.ranks[0].send(op, 1, split(data, *pieces)[:-1])
    net.run()
    assert [len(piece) for piece in sink.pieces] == list(pieces)
    assert sink.data == data
    assert not other.pending


# Rule 4: early grants, and who may wait for whom.


def test_a_granted_message_needs_no_request() -> None:
    net = Net(2)
    transfer(net, LARGE, granted=True)
    assert net.kinds(0, 1) == [Kind.DATA]
    assert net.kinds(1, 0) == [Kind.CTS, Kind.DONE]


def test_an_early_grant_waits_for_its_sender() -> None:
    net = Net(2)
    receiver = net.ranks[1].begin(CONTEXT, CALL, granted=True)
    sink = Buffer(5)
    net.ranks[1].receive(receiver, 0, sink)
    net.run()  # rank 0 has not even begun
    sender = net.ranks[0].begin(CONTEXT, CALL, granted=True)
    assert sender.error is None
    net.ranks[0].send(sender, 1, [memoryview(b"hello")])
    net.run()
    assert sink.data == b"hello"
    for protocol, op in zip(net.ranks, (sender, receiver), strict=True):
        protocol.end(op)
    check_quiet(net)


CROSSED = [
    [[In(1, LARGE), In(2, LARGE)]],  # A waits for B and C at once,
    [[In(2, LARGE)], [Out(0, LARGE)]],  # B for C, then it sends to A,
    [[Out(0, LARGE)], [Out(1, LARGE)]],  # C sends to A, then to B
]
RING = [[[In(2, LARGE), Out(1, LARGE)]], [[In(0, LARGE), Out(2, LARGE)]], [[In(1, LARGE), Out(0, LARGE)]]]
STAR = [[[In(1, LARGE), In(2, LARGE), In(3, LARGE)]], [[Out(0, LARGE)]], [[Out(0, LARGE)]], [[Out(0, LARGE)]]]
SWAP = [[[In(1, LARGE)], [Out(1, LARGE)]], [[Out(0, LARGE)], [In(0, LARGE)]]]


@pytest.mark.thorough
@pytest.mark.parametrize("granted", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "programs",
    [CROSSED, RING, pytest.param(STAR, marks=pytest.mark.long), SWAP],
    ids=["crossed", "ring", "star", "swap"],
)
def test_legal_programs_end_for_every_order_of_deliveries(programs: Sequence[Program], granted: bool) -> None:
    assert interleavings(lambda choose: play(Net(len(programs)), programs, choose, granted=granted)) > 5


def test_a_grant_is_withheld_only_while_another_transfer_moves() -> None:
    net = Net(3)
    ops = net.begin(granted=True)
    size = 3 * SEGMENT
    for peer in 1, 2:
        net.ranks[0].receive(ops[0], peer, Buffer(size))
    assert net.kinds(0, 1) == net.kinds(0, 2) == [Kind.CTS]  # the first is not used yet: no reason to wait
    net.ranks[1].send(ops[1], 0, [memoryview(bytes(size))])
    net.step(0, 1)
    net.step(1, 0)  # now it moves
    net.ranks[0].receive(ops[0], 2, Buffer(size))
    assert net.kinds(0, 2) == [Kind.CTS]
    net.step(1, 0)
    assert net.kinds(0, 2) == [Kind.CTS]
    net.step(1, 0)  # the last segment
    assert net.kinds(0, 2) == [Kind.CTS, Kind.CTS]


def test_where_rounds_overlap_no_grant_is_withheld_and_the_rank_goes_on_before_all_is_complete() -> None:
    net = Net(3)
    ops = net.begin(granted=False)
    size, ready = 3 * SEGMENT, []
    ops[0].concurrent, ops[0].slack = True, 1
    ops[0].on_ready = lambda: ready.append(len(ops[0].pending))
    for peer in 1, 2:
        net.ranks[0].receive(ops[0], peer, Buffer(size))
        net.ranks[peer].send(ops[peer], 0, [memoryview(bytes(size))])
    net.step(1, 0)
    net.step(0, 1)
    net.step(1, 0)  # now the first one moves
    net.step(2, 0)
    assert net.kinds(0, 2) == [Kind.CTS]
    net.step(1, 0)
    assert ready == []
    net.step(1, 0)  # the last segment
    assert ready == [1]


@pytest.mark.parametrize(("lookahead", "segments"), [(0, 3), (SEGMENT - 1, 3), (SEGMENT, 2), (2 * SEGMENT, 1)])
def test_the_next_grant_may_go_out_when_little_is_missing(lookahead: int, segments: int) -> None:
    net = Net(3, lookahead=lookahead)
    ops = net.begin(granted=True)
    size = 3 * SEGMENT
    net.ranks[0].receive(ops[0], 1, Buffer(size))
    net.ranks[1].send(ops[1], 0, [memoryview(bytes(size))])
    net.step(0, 1)
    for _ in range(segments):
        assert net.kinds(0, 2) == [] or segments == 1
        net.step(1, 0)
        if not net.kinds(0, 2) and _ == 0:
            net.ranks[0].receive(ops[0], 2, Buffer(size))
    assert net.kinds(0, 2) == [Kind.CTS]


def test_an_error_of_the_moving_transfer_sets_the_others_free() -> None:
    """A grant withheld in one communicator is sent when the transfer it waits for dies in another."""
    net = Net(3)
    size = 3 * SEGMENT
    first = [net.ranks[r].begin(1, CALL, granted=True) for r in range(2)]
    second = {r: net.ranks[r].begin(2, CALL, granted=True) for r in (0, 2)}
    net.ranks[0].receive(first[0], 1, Buffer(size))
    net.ranks[1].send(first[1], 0, [memoryview(bytes(size))])
    net.step(0, 1)
    net.step(1, 0)
    net.ranks[0].receive(second[0], 2, Buffer(size))
    assert net.kinds(0, 2) == []
    net.ranks[0].fail(first[0], TimeoutError())
    assert net.kinds(0, 2) == [Kind.CTS]


# Point-to-point.


@pytest.mark.parametrize("size", [0, 10, LARGE])
def test_tags_keep_messages_apart(size: int) -> None:
    net = Net(2)
    data = {tag: content(0, 1, tag, size) for tag in (0, 5, (1 << 32) - 1)}
    for tag, message in data.items():
        net.ranks[0].send(exchange(net, 0), 1, [memoryview(message)], tag=tag)
    net.run()
    for tag in reversed(data):
        op, sink = exchange(net, 1), Open()
        net.ranks[1].receive(op, 0, sink, tag=tag)
        net.run()
        assert sink.data == data[tag]
        net.ranks[1].end(op)


@pytest.mark.parametrize("size", [0, 10, LARGE, 3 * SEGMENT])
@pytest.mark.parametrize("dest", [0, 1])
def test_a_synchronous_send_ends_when_it_is_matched_also_by_a_receive_of_what_was_taken(size: int, dest: int) -> None:
    net, message = Net(2), content(0, dest, 0, size)
    for taken in (False, True):
        send, receive, sink = exchange(net, 0), exchange(net, dest), Open()
        send.synchronous = True
        net.ranks[0].send(send, dest, [memoryview(message)], tag=1)
        net.run()
        assert send.pending
        if taken:
            waiting = net.ranks[dest].take(CONTEXT, ANY, ANY, sink)
            assert waiting is not None
            assert not net.ranks[dest].look(CONTEXT, ANY, ANY, Open())
            net.run()
            assert send.pending
            net.ranks[dest].receive_taken(receive, sink, waiting)
        else:
            net.ranks[dest].receive(receive, 0, sink, tag=1)
        net.run()
        assert not send.pending
        assert not receive.pending
        assert sink.data == message
        net.ranks[0].end(send)
        net.ranks[dest].end(receive)
    check_quiet(net)


@pytest.mark.parametrize("posted", ["before", "after"])
def test_messages_under_one_tag_keep_their_order_whatever_their_size(posted: str) -> None:
    net = Net(2)
    sizes = [LARGE, 3, 0, 3 * SEGMENT, 7, LARGE]
    sinks = [Open() for _ in sizes]
    sends, receives = [exchange(net, 0) for _ in sizes], [exchange(net, 1) for _ in sizes]

    def send() -> None:
        for n, (op, size) in enumerate(zip(sends, sizes, strict=True)):
            net.ranks[0].send(op, 1, [memoryview(content(0, 1, n, size))], tag=9)
        net.run()

    def receive() -> None:
        for op, sink in zip(receives, sinks, strict=True):
            net.ranks[1].receive(op, 0, sink, tag=9)
        net.run()

    for act in (receive, send) if posted == "before" else (send, receive):
        act()
    assert [sink.data for sink in sinks] == [content(0, 1, n, size) for n, size in enumerate(sizes)]
    for rank, op in [*((0, op) for op in sends), *((1, op) for op in receives)]:
        net.ranks[rank].end(op)
    check_quiet(net)


def test_point_to_point_runs_beside_a_collective() -> None:
    net = Net(2)
    ops = net.begin()
    net.ranks[0].send(exchange(net, 0), 1, [memoryview(b"p2p")], tag=0)
    net.ranks[0].send(ops[0], 1, [memoryview(b"all")])
    net.run()
    one, other = Open(), Buffer(3)
    net.ranks[1].receive(ops[1], 0, other)
    net.ranks[1].receive(exchange(net, 1), 0, one, tag=0)
    assert (one.data, other.data) == (b"p2p", b"all")


# Everything at once.

SIZES = st.sampled_from([0, 1, 63, 5000, EAGER_LIMIT, LARGE, SEGMENT, SEGMENT + 1, 5 * SEGMENT])


@st.composite
def programs(draw: st.DrawFn, tags: bool = False) -> list[list[list[Out | In]]]:
    """Draw deadlock-free programs: messages in one global order, neighbours in a rank's order sometimes merged."""
    p = draw(st.integers(2, 4))
    out: list[list[list[Out | In]]] = [[] for _ in range(p)]
    for _ in range(draw(st.integers(1, 12))):
        a = draw(st.integers(0, p - 1))
        b = (a + draw(st.integers(1, p - 1))) % p
        size, tag = draw(SIZES), draw(st.integers(0, 2)) if tags else None
        for rank, act in (a, Out(b, size, tag)), (b, In(a, size, tag)):
            if out[rank] and draw(st.booleans()):
                out[rank][-1].append(act)
            else:
                out[rank].append([act])
    return out


@settings(max_examples=150)
@given(programs(), st.booleans(), st.sampled_from([0, SEGMENT]), st.randoms(use_true_random=False))
def test_any_program_ends_with_the_right_bytes_and_nothing_left(
    drawn: list[list[list[Out | In]]], granted: bool, lookahead: int, order: random.Random
) -> None:
    play(Net(len(drawn), lookahead=lookahead), drawn, order.choice, granted=granted)


@settings(max_examples=75)
@given(programs(tags=True), st.randoms(use_true_random=False))
def test_any_program_with_tags_ends_too(drawn: list[list[list[Out | In]]], order: random.Random) -> None:
    play(Net(len(drawn)), drawn, order.choice, p2p=True)


@settings(max_examples=100)
@given(programs(), st.booleans(), st.integers(0, 40), st.integers(0, 3), st.randoms(use_true_random=False))
def test_an_error_anywhere_ends_everything_that_waits_for_it(
    drawn: list[list[list[Out | In]]], granted: bool, when: int, who: int, order: random.Random
) -> None:
    """A rank gives up at any moment: all ranks that are not done hear of it (here: by the notice), none hangs."""
    net, who = Net(len(drawn)), who % len(drawn)
    players = [Player(net, rank, program, granted=granted) for rank, program in enumerate(drawn)]
    for player in players:
        player.advance()
    while links := net.waiting():
        if when == 0 and not players[who].done:
            net.ranks[who].fail(players[who].op, TimeoutError("too late"))
            for rank in range(len(drawn)):
                if rank != who:
                    tell(net, rank, Revoke(who, CONTEXT, "too late"))
        when -= 1
        a, b = order.choice([link for link in links if net.links[link]])
        net.step(a, b)
        if players[b].op.error is None:
            players[b].advance()
    for player in players:
        assert player.done or player.op.error
        assert all(data.startswith(bytes(sink.data[: sink.filled])) for sink, data in player.sinks)
    if any(player.op.error for player in players):
        for protocol in net.ranks:
            check_quiet_rank(protocol)
            assert not any(protocol._eager_credits.held)
            assert not any(protocol._budget.kept)
            assert not protocol.failed


def early(op: Operation, **fields: int) -> bytes:
    """Return the header of a message from rank 0 that comes before rank 1 needs it."""
    plain = Header(wire.VERSION, 0, 0, 0, NONCE, CONTEXT, op.number, 0, 0, 0, 0, 0, op.fingerprint)
    return wire.pack(plain._replace(**fields))


def test_two_early_requests_of_one_number_are_found_when_the_receives_are_posted() -> None:
    net = Net(2)
    op = net.begin()[1]
    for i in range(2):
        header = early(op, kind=Kind.RTS, ordinal=i, pair=i, transfer=5, length=LARGE)
        net.inject(1, header, LARGE.to_bytes(8, "little"))
    for _ in range(2):
        net.ranks[1].receive(op, 0, Buffer(LARGE))
    assert "twice" in net.ranks[1].failed[0].cause
    assert isinstance(op.error, PeerFailed)


def test_an_early_grant_of_too_much_is_found_when_the_message_is_sent() -> None:
    net = Net(2)
    op = net.begin(granted=True)[1]
    net.inject(1, early(op, kind=Kind.CTS, length=10, word=50))
    net.ranks[1].send(op, 0, [memoryview(bytes(10))])
    assert "it granted 50 bytes of a message of 10" in net.ranks[1].failed[0].cause
    assert isinstance(op.error, PeerFailed)
