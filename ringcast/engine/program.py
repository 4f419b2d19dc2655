"""Flatten the steps of a schedule for one layout of an array: places in memory, to be run many times.

A program is a compiled form of the same steps. Small data are copied into memory of its own, and out of it, so that all
views that operators need are made once. Larger data stay where they are, and the views are made for each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import setitem
from typing import Any, NamedTuple

import numpy as np

from ringcast.engine.execute import MOST_LENT
from ringcast.engine.slots import TINY, ArraySlots, Layout, Memory, NoSlots
from ringcast.ops import Array, Op
from ringcast.protocol.lane import Call, Lane, Move, Pieces
from ringcast.schedules.schedule import COMBINE_LEFT, STORE, Accept, Combine, Copy, Local, Slots, Step, untouched
from ringcast.wire.header import EAGER_LIMIT
from ringcast.wire.joined import prefix

OWN = 64 << 10  # bytes of data that a program has in memory of its own …
MOST_OWN = 2 << 20  # … and at most, where a copy of the data is needed anyway
MOST = 16 << 20  # bytes of data that have programs
MOST_COMBINED = 1 << 20  # bytes of a message that is combined as a whole; the engine combines longer ones by segments
KEPT, MEMORY_KEPT = 64, 64 << 20  # programs of a rank, and bytes of their memory
PIECES = 64  # of memory of an offer, as the compiled lane has room for; and for MOST_LENT offers
SIZES = prefix(EAGER_LIMIT // TINY)  # bytes of the sizes of all frames of an eager message, at most
NOTHING = np.dtype(np.uint8)  # of data that are none
ALIGNED = 64  # bytes: places of slots that are not part of the data are multiples of this


class Place(NamedTuple):
    """A piece of the data in place of a view of it, which is made when the program runs."""

    at: int
    size: int


class Program:
    """The steps, and memory for scratch slots, for arrivals that are combined, and perhaps for the data."""

    def __init__(
        self,
        programs: Programs,
        steps: Sequence[Step],
        layout: Layout | None,
        dtype: np.dtype[Any],
        op: Op | None,
        *,
        granted: bool,
        own: bool,
    ) -> None:
        """Flatten `steps`; with `own` the data are in memory of the program.

        Raises:
            Inexpressible: a step needs the general way.
        """
        items, scratch = (layout.limits[-1], layout.scratch) if layout is not None else (0, [])
        starts = [0]
        for size in (items, *scratch):
            starts.append(_aligned(starts[-1] + size * dtype.itemsize))
        split = 0 if own else starts[1]
        flat = _Flat(layout, dtype, starts, split, _space(0), op, granted, programs.offers)
        room = _aligned(flat.room(steps))
        if not own and room > MOST_COMBINED:
            raise Inexpressible
        sizes = starts[-1] + room  # where the sizes of frames that are joined lie
        self.space = _space(sizes + SIZES * len(steps) - split)
        self.itemsize = dtype.itemsize
        views = [
            self.space[at - split : at - split + size * dtype.itemsize].view(dtype)
            for at, size in zip(starts[0 if own else 1 :], (items, *scratch)[0 if own else 1 :], strict=False)
        ]
        self.data = views.pop(0) if own else None
        self.scratch = views
        flat, sent, received = flat._replace(memory=self.space), Counter[int](), Counter[int]()
        moves = [flat.move(step, sent, received, sizes + i * SIZES) for i, step in enumerate(steps)]
        self.moves = _settled(steps, moves)
        self.offers = any(move.offers for move in self.moves)
        self._steps, self._split = steps, split
        self._writes = any(move.recv or move.before for move in self.moves)  # else the data may be read-only
        self._calls = [calls for move in self.moves for calls in (move.before, move.after)]
        self._binds = any(_is_open(call) for calls in self._calls for call in calls)
        self.prepared = programs.lane.prepare(self.moves, self.space, split)

    def load(self, slots: ArraySlots) -> None:
        """Copy the data in, if the program has them."""
        if self.data is not None:
            self.data[...] = slots.data

    def store(self, slots: ArraySlots, *, scratch: bool) -> None:
        """Copy the data out, if the program has them; and `scratch` slots, if the rest of the steps needs them."""
        if self.data is not None and self._writes:
            slots.data[...] = self.data
        if scratch:
            for mine, theirs in zip(self.scratch, slots.scratch, strict=True):
                theirs[...] = mine

    def bound(self, data: Array | None) -> tuple[Any, ...]:
        """Return the arguments by which a lane runs a program that has no data of its own."""
        assert data is not None, "it runs on data"
        bytes_ = data.view(np.uint8)
        if not self._binds:
            return bytes_, None
        return bytes_, tuple(tuple(_bound(call, data) for call in calls) for calls in self._calls)

    def offer(self, number: int, data: Array | None) -> tuple[int, int, list[memoryview], Slots]:
        """Return the message that a step offers: its peer, ordinal and frames, and the slots that these are."""
        move = self.moves[number]
        return (
            move.send_to,
            move.send_ordinal,
            [self._frame(*piece, data) for piece in move.send],
            self._steps[number].send,
        )

    def _frame(self, at: int, size: int, data: Array | None) -> memoryview:
        if at < self._split:
            assert data is not None, "it runs on data"
            return data.view(np.uint8).data[at : at + size]
        return self.space.data[at - self._split : at - self._split + size]


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _space(size: int) -> Array:
    """Return so many bytes at an aligned place."""
    memory = np.zeros(size + ALIGNED, np.uint8)
    skip = -memory.ctypes.data % ALIGNED
    return memory[skip : skip + size]


def _is_open(call: Call) -> bool:
    """Return whether a call has pieces of the data among its arguments."""
    _, operands, named = call
    return any(type(operand) is Place for operand in (*operands, *named.values()))


def _bound(call: Call, data: Array) -> Call:
    """Return a call with views of the data for pieces of it."""
    fn, operands, named = call
    size, views = data.itemsize, dict[Place, Array]()
    for operand in (*operands, *named.values()):
        if type(operand) is Place and operand not in views:
            views[operand] = data[operand.at // size : (operand.at + operand.size) // size]
    return (
        fn,
        tuple(views.get(each, each) if type(each) is Place else each for each in operands),
        {name: views[each] if type(each) is Place else each for name, each in named.items()},
    )


class Inexpressible(Exception):
    """A step that no program can have."""


class _Flat(NamedTuple):
    """The places of slots, and the views of them."""

    layout: Layout | None  # None: all messages are empty
    dtype: np.dtype[Any]
    starts: list[int]  # of the data, each scratch slot, and the room for arrivals, in bytes
    split: int  # where `memory` begins; the data, before it, are given to each run
    memory: Array
    op: Op | None
    granted: bool  # no message is eager
    lends: bool  # whether messages can be offered

    def move(self, step: Step, sent: Counter[int], received: Counter[int], sizes: int) -> Move:
        """Return a step; at `sizes` is room for the sizes of the frames of its message."""
        before = tuple(self._local(local) for local in step.local) if self.layout is not None else ()
        out = into = -1
        ordinal = arriving = joined = 0
        offers = fetches = False
        pieces: Pieces = ()
        places: Pieces = ()
        after: tuple[Call, ...] = ()
        if step.send_to is not None:
            out, pieces = step.send_to, self._pieces(step.send)
            offers = self._offers(pieces)
            if offers and _packed(pieces):  # into one frame, which is empty
                pieces = pieces[:1]
            if not offers and len(pieces) > 1 and not _packed(pieces):
                joined = len(pieces)
                pieces = ((sizes, self._join(pieces, sizes)), *pieces)
            ordinal = sent[out]
            sent[out] += 1
        if step.recv_from is not None:
            into, places = step.recv_from, self._pieces(step.recv)
            fetches = self._offers(places)
            arriving = received[into]
            received[into] += 1
            if step.accept is not STORE and self.layout is not None:
                places, after = self._combined(step, places)
        return Move(before, out, ordinal, pieces, into, arriving, places, after, offers, fetches, joined=joined)

    def _offers(self, pieces: Pieces) -> bool:
        """Return whether a message is offered, and not sent eagerly; refuse one that programs cannot have."""
        size = sum(size for _, size in pieces)
        offered = self.granted or size > EAGER_LIMIT
        if offered and (not self.lends or len(pieces) > PIECES or (size and _packed(pieces))):
            raise Inexpressible
        return offered

    def _join(self, pieces: Pieces, at: int) -> int:
        """Write the sizes of frames that are joined, and return how many bytes these are."""
        sizes = np.array([size for _, size in pieces], "<u4").view(np.uint8)
        self.memory[at - self.split : at - self.split + len(sizes)] = sizes
        return len(sizes)

    def room(self, steps: Sequence[Step]) -> int:
        """Return how many bytes arrive in a message that is combined, at most."""
        if self.layout is None:
            return 0
        combined = [
            self._pieces(step.recv) for step in steps if step.recv_from is not None and step.accept is not STORE
        ]
        return max((sum(size for _, size in pieces) for pieces in combined), default=0)

    def _pieces(self, slots: Slots) -> Pieces:
        if self.layout is None:
            return ()
        size, runs = self.dtype.itemsize, self.layout.runs(slots)
        if runs is not None:
            return tuple((start * size, (end - start) * size) for start, end in runs)
        return tuple(self._piece(int(slot)) for slot in slots)

    def _piece(self, slot: int) -> tuple[int, int]:
        """Return the place and the size of a slot of the data, or of a scratch slot."""
        assert self.layout is not None
        limits, size = self.layout.limits, self.dtype.itemsize
        scratch = slot - (len(limits) - 1)
        if scratch < 0:
            return limits[slot] * size, (limits[slot + 1] - limits[slot]) * size
        return self.starts[1 + scratch], self.layout.scratch[scratch] * size

    def _combined(self, step: Step, places: Pieces) -> tuple[Pieces, tuple[Call, ...]]:
        """Return where the message arrives, and the calls that combine it with what is there."""
        if not isinstance(step.accept, Accept):
            raise Inexpressible
        fn, room, at, calls = self._function(), self.starts[-1], self.starts[-1], []
        for start, size in places:
            arrived, piece = self._view(at, size), self._view(start, size)
            left, right = (arrived, piece) if step.accept is COMBINE_LEFT else (piece, arrived)
            if size:
                calls.append((fn, (left, right), {"out": piece}))
            at += size
        return ((room, at - room),) if places else (), tuple(calls)

    def _local(self, local: Local) -> Call:
        if isinstance(local, Copy):
            return setitem, (self._slot(local.dst), ..., self._slot(local.src)), {}
        if isinstance(local, Combine):
            operands = self._slot(local.left), self._slot(local.right)
            return self._function(), operands, {"out": self._slot(local.dst)}
        raise Inexpressible

    def _function(self) -> Callable[..., Any]:
        op = self.op
        if op is None or not isinstance(op.fn, np.ufunc) or not op.elementwise or self.dtype.kind == "c":
            raise Inexpressible
        return op.fn

    def _slot(self, slot: int) -> Array | Place:
        ((start, size),) = self._pieces((slot,)) or ((0, 0),)
        return self._view(start, size)

    def _view(self, start: int, size: int) -> Array | Place:
        if start < self.split:
            return Place(start, size)
        return self.memory[start - self.split : start - self.split + size].view(self.dtype)


class Programs:
    """The programs of one rank, by steps and slots; they belong to its lane."""

    def __init__(self, lane: Lane, *, offers: bool) -> None:
        """Pass `offers` if all ranks lend each other memory, and the lane can do that."""
        self.lane, self.offers = lane, offers
        self._known: dict[tuple[object, ...], tuple[object, Program | None]] = {}
        self._memory = 0  # bytes of all of them
        self._users: dict[tuple[int, object], dict[Any, Any]] = {}  # tables with programs, by their identity and a key

    def find(self, steps: Sequence[Step], slots: Memory, *, granted: bool, own: bool | None = None) -> Program | None:
        """Return the program of steps on such slots, all of whose messages are `granted`; None if there is none.

        It has memory of its own for the data if that is asked for, or by default if they are small.
        """
        if granted and not self.offers:
            return None
        if isinstance(slots, ArraySlots):
            own = slots.data.nbytes <= OWN or not self.offers if own is None else own
            key: tuple[object, ...] = id(steps), id(slots.layout), slots.data.dtype, id(slots.op), granted, own
            facts: object = steps, slots.layout, slots.op  # whose identities the key has
        elif isinstance(slots, NoSlots):
            key, facts, own = (id(steps), granted), steps, True
        else:
            return None
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KEPT or self._memory > MEMORY_KEPT or len(self._users) > 16 * KEPT:
                self._forget()
            known = self._known[key] = facts, _made(self, steps, slots, granted=granted, own=own)
            self._memory += known[1].space.nbytes if known[1] is not None else 0
        return known[1]

    def used(self, table: dict[Any, Any], key: object) -> None:
        """Note that an entry of a table keeps a program: it goes when the programs go."""
        self._users[id(table), key] = table

    def _forget(self) -> None:
        """Release the memory of all programs."""
        for (_, key), table in self._users.items():
            table.pop(key, None)
        self._known.clear()
        self._users.clear()
        self._memory = 0


def _made(
    programs: Programs, steps: Sequence[Step], slots: ArraySlots | NoSlots, *, granted: bool, own: bool
) -> Program | None:
    if not isinstance(steps, tuple):
        return None
    try:
        if isinstance(slots, NoSlots):
            return Program(programs, steps, None, NOTHING, None, granted=granted, own=own)
        size, dtype = slots.data.nbytes, slots.data.dtype
        total = size + sum(each.nbytes for each in slots.scratch)
        most = (MOST_OWN if own else MOST) if programs.offers else OWN
        if slots.shaped or not 0 < size <= total <= most or dtype.hasobject:
            return None
        return Program(programs, steps, slots.layout, dtype, slots.op, granted=granted, own=own)
    except Inexpressible:
        return None


def _packed(pieces: Pieces) -> bool:
    """Return whether the engine packs pieces of a message into one frame."""
    return len(pieces) > 1 and sum(size for _, size in pieces) < TINY * len(pieces)


def _settled(steps: Sequence[Step], moves: Iterable[Move]) -> list[Move]:
    """Mark the moves that wait for readers first: too much is lent then, or the move writes into lent memory."""
    lent: list[Slots] = []
    settled = []
    for step, move in zip(steps, moves, strict=True):
        settles = bool(lent) and (len(lent) >= MOST_LENT or not untouched(lent, step))
        if settles:
            lent.clear()
        if move.offers:
            lent.append(step.send)
        settled.append(move._replace(settles=settles))
    return settled


def passed(moves: Iterable[Move], code: int) -> tuple[Counter[int], Counter[int]]:
    """Return how many messages went to and came from each peer when a program ended at `code` (`Lane.run`)."""
    sent, received = Counter[int](), Counter[int]()
    for i, move in enumerate(moves):
        if 2 * i < code and move.send_to >= 0:
            sent[move.send_to] += 1
        if 2 * i + 1 < code and move.recv_from >= 0:
            received[move.recv_from] += 1
    return sent, received
