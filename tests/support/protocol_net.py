"""Protocols of some ranks, joined by links that drop, repeat, reorder and forge messages."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ringcast.protocol.machine import Protocol
from ringcast.protocol.operations import Operation, Receive, put_into_views
from ringcast.transports.base import Frame, MemoryArrival
from ringcast.wire import header as wire
from ringcast.wire.call import Call
from ringcast.wire.control_messages import Notice, notice_frames
from ringcast.wire.header import EAGER_LIMIT, Header, Kind
from support.under_way import holding

NONCE = 0x1234_5678_9ABC_DEF0


CONTEXT = 7


LARGE = EAGER_LIMIT + 1  # bytes that do not go eagerly


CALL = Call("bcast", dtype="float64", shape=(10,), root=0, algorithm="circulant")


class Buffer:
    """A sink of known size, in several pieces; `placed` must come in order and without holes."""

    def __init__(self, *sizes: int) -> None:
        self.pieces = [bytearray(size) for size in sizes]
        self.total: int | None = sum(sizes)
        self.filled = 0

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        raise AssertionError("the total is known")

    def view(self, offset: int, length: int) -> memoryview:
        for piece in self.pieces:
            if offset < len(piece):
                return memoryview(piece)[offset:]
            offset -= len(piece)
        return memoryview(bytearray())

    def placed(self, offset: int, length: int) -> None:
        assert offset == self.filled
        self.filled += length

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


class Open(Buffer):
    """A sink that learns its size from the message."""

    def __init__(self) -> None:
        super().__init__()
        self.total = None

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        self.pieces = [bytearray(size) for size in sizes]


class Net:
    """Ranks 0 … p-1, and what is under way between them. Laws that hold at every step are checked at every step."""

    def __init__(self, p: int, *, lookahead: int = 0, continues: bool = False) -> None:
        self.ranks = [Protocol(r, p, NONCE, lookahead=lookahead, continues=continues) for r in range(p)]
        self.links: dict[tuple[int, int], deque[list[Frame]]] = {
            (a, b): deque() for a in range(p) for b in range(p) if a != b
        }
        self.log: list[tuple[int, int, Header]] = []  # everything that was ever sent

    def collect(self) -> None:
        """Take what the protocols want sent; a copy, as on a real wire."""
        for a, protocol in enumerate(self.ranks):
            outbox = [*protocol.outbox]
            protocol.outbox.clear()
            for b, frames, _, _ in outbox:
                self.links[a, b].append([bytes(frame) for frame in frames])
                self.log.append((a, b, wire.unpack(bytes(frames[0]))))

    def waiting(self) -> list[tuple[int, int]]:
        """Return the links with messages on them."""
        self.collect()
        return [link for link, queue in self.links.items() if queue]

    def step(self, a: int, b: int) -> None:
        """Deliver the first message from a to b."""
        self.collect()
        self.ranks[b].handle(MemoryArrival(self.links[a, b].popleft()))
        self.collect()
        check_laws(self.ranks[b])

    def run(self, choose: Callable[[list[tuple[int, int]]], tuple[int, int]] | None = None) -> None:
        """Deliver everything, in an order of the caller's choice."""
        while links := self.waiting():
            self.step(*(choose(links) if choose else links[0]))

    def inject(self, b: int, *frames: Frame) -> None:
        """Let rank b receive a message from nowhere."""
        self.ranks[b].handle(MemoryArrival(frames))
        self.collect()

    def kinds(self, a: int, b: int, since: int = 0) -> list[Kind]:
        """Return the kinds of the messages that a has sent to b."""
        self.collect()
        return [Kind(h.kind) for source, dest, h in self.log[since:] if (source, dest) == (a, b)]

    def begin(self, **kwargs: Any) -> list[Operation]:
        """Begin the same operation on all ranks."""
        return [protocol.begin(CONTEXT, kwargs.pop("call", CALL), **kwargs) for protocol in self.ranks]


def exchange(net: Net, rank: int) -> Operation:
    """Begin a point-to-point call of a rank."""
    return net.ranks[rank].begin(CONTEXT, Call("sendrecv"), p2p=True)


def check_laws(protocol: Protocol) -> None:
    """Assert what holds after every message."""
    for source, held in enumerate(protocol._eager_credits.held):
        assert 0 <= held <= protocol._eager_credits.each, f"{held} eager bytes of rank {source} are held"
    for spent in protocol._eager_credits.spent:
        assert 0 <= spent <= protocol._eager_credits.each
    for recv in protocol._receiving.transfers.values():
        assert recv.total is not None
        assert 0 <= recv.granted - recv.received <= recv.operation.window
        assert recv.granted <= recv.total
    for send in protocol._sending.transfers.values():
        assert send.offset <= max(send.credit, 0) or send.total == 0
    for recv in protocol._receiving.withheld:
        before = (
            {t for t in recv.operation.pending if isinstance(t, Receive)} if recv.operation.ahead is recv else set()
        )
        assert protocol._receiving.moving or before, "a grant is withheld while nothing moves or comes before"
    assert 0 <= protocol._sending.trailing <= protocol.lookahead


def check_quiet(net: Net) -> None:
    """Assert that no table of any rank holds anything, and that every byte of budget is accounted for."""
    assert net.waiting() == []
    for protocol in net.ranks:
        assert not holding(protocol, "outbox"), protocol.rank
        assert not protocol._sending.trailing
        for context in protocol._contexts.values():
            assert not context.active
            assert not context.exchanges
            assert not any(box._posted or box._arrived for box in context.mail.values())
            assert not any(context.grants.values())
        assert not any(protocol._eager_credits.held)
        assert not any(protocol._budget.kept)
    for a, b in net.links:
        assert net.ranks[a]._eager_credits.spent[b] == net.ranks[b]._eager_credits.owed[a]


@lru_cache(maxsize=1024)
def content(a: int, b: int, n: int, size: int) -> bytes:
    """Return what message n from a to b says."""
    return random.Random(f"{a} {b} {n} {size}").randbytes(size)


def interleavings(run: Callable[[Callable[[list[tuple[int, int]]], tuple[int, int]]], None]) -> int:
    """Call `run(choose)` for every order of deliveries that a rank can tell from the others; return how many states.

    A rank's state is a function of the sequence of sources that it has heard, so a set of such sequences that was
    seen before need not be entered again.
    """

    class Seen(Exception):
        pass

    visited: set[tuple[tuple[int, ...], ...]] = set()
    todo: list[list[tuple[int, int]]] = [[]]
    while todo:
        prefix = todo.pop()
        taken: list[tuple[int, int]] = []
        heard: dict[int, list[int]] = {}

        def choose(
            links: list[tuple[int, int]],
            prefix: list[tuple[int, int]] = prefix,
            taken: list[tuple[int, int]] = taken,
            heard: dict[int, list[int]] = heard,
        ) -> tuple[int, int]:
            if len(taken) >= len(prefix):
                state = tuple(tuple(heard.get(r, ())) for r in range(4))
                if state in visited:
                    raise Seen
                visited.add(state)
                todo.extend([*taken, link] for link in links[1:])
            link = prefix[len(taken)] if len(taken) < len(prefix) else links[0]
            taken.append(link)
            heard.setdefault(link[1], []).append(link[0])
            return link

        with contextlib.suppress(Seen):
            run(choose)
    return len(visited)


def tell(net: Net, rank: int, notice: Notice) -> None:
    net.inject(rank, *notice_frames(notice, NONCE))


def data_of(net: Net) -> list[Header]:
    return [h for _, _, h in net.log if h.kind == Kind.DATA]


def check_quiet_rank(protocol: Protocol) -> None:
    assert not protocol._sending.transfers
    assert not protocol._sending.promised
    assert not protocol._receiving.transfers
    assert not protocol._receiving.withheld
    assert not any(box._posted for context in protocol._contexts.values() for box in context.mail.values())
