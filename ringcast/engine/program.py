"""Flatten the steps of a schedule for one layout of an array: places in one piece of memory, to be run many times.

A program is a compiled form of the same steps. It has its own memory, which the data are copied into and out of, so
that all views that operators need are made once; so it is for small data only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcast.engine.slots import TINY, ArraySlots, Layout, Memory, NoSlots
from ringcast.ops import Array, Op
from ringcast.protocol.lane import Call, Lane, Move, Pieces
from ringcast.schedules.schedule import COMBINE_LEFT, STORE, Accept, Combine, Copy, Local, Slots, Step, untouched
from ringcast.wire.header import EAGER_IN_COLLECTIVES
from ringcast.wire.joined import prefix

MOST = 64 << 10  # bytes of data whose messages are eager …
MOST_OFFERED = 2 << 20  # … and of data that are offered; more would take longer to copy twice than is saved
KEPT = 64  # programs of a rank
MOST_LENT = 64  # offers of a program that are not confirmed …
PIECES = 64  # … and pieces of one of them, as the compiled lane has room for
SIZES = prefix(EAGER_IN_COLLECTIVES // TINY)  # bytes of the sizes of all frames of an eager message, at most
NOTHING = np.dtype(np.uint8)  # of data that are none
ALIGNED = 64  # bytes: places of slots that are not part of the data are multiples of this


class Program:
    """The steps, and memory for the data, for scratch slots and for arrivals that are combined."""

    def __init__(
        self,
        programs: Programs,
        steps: Sequence[Step],
        layout: Layout | None,
        dtype: np.dtype[Any],
        op: Op | None,
        granted: bool,
    ) -> None:
        """Flatten `steps`.

        Raises:
            Inexpressible: a step needs the general way.
        """
        items, scratch = (layout.limits[-1], layout.scratch) if layout is not None else (0, [])
        sizes = [items, *scratch, max(items, *scratch) if scratch else items]
        starts = [0]
        for size in sizes:
            starts.append(-(-(starts[-1] + size * dtype.itemsize) // ALIGNED) * ALIGNED)
        whole = starts[-1] + SIZES * len(steps)
        memory = np.zeros(whole + ALIGNED, np.uint8)
        skip = -memory.ctypes.data % ALIGNED
        space = memory[skip : skip + whole]
        self.views = [
            space[at : at + size * dtype.itemsize].view(dtype) for at, size in zip(starts, sizes, strict=False)
        ]
        flat = _Flat(layout, dtype.itemsize, starts, space, dtype, op, granted, programs.offers)
        sent, received = Counter[int](), Counter[int]()
        places = range(starts[-1], whole, SIZES)
        self.moves = _settled(
            steps, [flat.move(step, sent, received, at) for step, at in zip(steps, places, strict=True)]
        )
        self._steps, self._space = steps, space
        self._writes = any(move.recv or move.before for move in self.moves)  # else the data may be read-only
        self.prepared = programs.lane.prepare(self.moves, space)

    def load(self, slots: ArraySlots) -> None:
        """Copy the data in."""
        self.views[0][...] = slots.data

    def store(self, slots: ArraySlots, *, scratch: bool) -> None:
        """Copy the data out, and `scratch` slots, if the rest of the steps needs them."""
        if self._writes:
            slots.data[...] = self.views[0]
        if scratch:
            for mine, theirs in zip(self.views[1:-1], slots.scratch, strict=True):
                theirs[...] = mine

    def offer(self, number: int) -> tuple[int, int, list[memoryview], Slots]:
        """Return the message that a step offers: its peer, ordinal and frames, and the slots that these are."""
        move, memory = self.moves[number], self._space.data
        frames = [memory[at : at + size] for at, size in move.send]
        return move.send_to, move.send_ordinal, frames, self._steps[number].send


class Inexpressible(Exception):
    """A step that no program can have."""


class _Flat(NamedTuple):
    """The places of slots, and the views of them."""

    layout: Layout | None  # None: all messages are empty
    itemsize: int
    starts: list[int]  # of the data, each scratch slot, and the room for arrivals, in bytes
    memory: Array
    dtype: np.dtype[Any]
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
        offered = self.granted or size > EAGER_IN_COLLECTIVES
        if offered:
            fits = self.lends and bool(pieces) and all(size for _, size in pieces) and len(pieces) <= PIECES
            if not fits or _packed(pieces):
                raise Inexpressible
        return offered

    def _join(self, pieces: Pieces, at: int) -> int:
        """Write the sizes of frames that are joined, and return how many bytes these are."""
        sizes = np.array([size for _, size in pieces], "<u4").view(np.uint8)
        self.memory[at : at + len(sizes)] = sizes
        return len(sizes)

    def _pieces(self, slots: Slots) -> Pieces:
        if self.layout is None:
            return ()
        size, runs = self.itemsize, self.layout.runs(slots)
        if runs is not None:
            return tuple((start * size, (end - start) * size) for start, end in runs)
        return tuple(self._piece(int(slot)) for slot in slots)

    def _piece(self, slot: int) -> tuple[int, int]:
        """Return the place and the size of a slot of the data, or of a scratch slot."""
        assert self.layout is not None
        limits, size = self.layout.limits, self.itemsize
        scratch = slot - (len(limits) - 1)
        if scratch < 0:
            return limits[slot] * size, (limits[slot + 1] - limits[slot]) * size
        return self.starts[1 + scratch], self.layout.scratch[scratch] * size

    def _combined(self, step: Step, places: Pieces) -> tuple[Pieces, tuple[Call, ...]]:
        """Return where the message arrives, and the calls that combine it with what is there."""
        if not isinstance(step.accept, Accept):
            raise Inexpressible
        fn, room, at, calls = self._function(), self.starts[-2], self.starts[-2], []
        for start, size in places:
            arrived, piece = self._view(at, size), self._view(start, size)
            left, right = (arrived, piece) if step.accept is COMBINE_LEFT else (piece, arrived)
            if size:
                calls.append((fn, (left, right), {"out": piece}))
            at += size
        return ((room, at - room),) if places else (), tuple(calls)

    def _local(self, local: Local) -> Call:
        if isinstance(local, Copy):
            return np.copyto, (self._slot(local.dst), self._slot(local.src)), {}
        if isinstance(local, Combine):
            operands = self._slot(local.left), self._slot(local.right)
            return self._function(), operands, {"out": self._slot(local.dst)}
        raise Inexpressible

    def _function(self) -> Callable[..., Any]:
        op = self.op
        if op is None or not isinstance(op.fn, np.ufunc) or not op.elementwise or self.dtype.kind == "c":
            raise Inexpressible
        return op.fn

    def _slot(self, slot: int) -> Array:
        ((start, size),) = self._pieces((slot,)) or ((0, 0),)
        return self._view(start, size)

    def _view(self, start: int, size: int) -> Array:
        return self.memory[start : start + size].view(self.dtype)


class Programs:
    """The programs of one rank, by steps and slots; they belong to its lane."""

    def __init__(self, lane: Lane, *, offers: bool) -> None:
        """Pass `offers` if all ranks lend each other memory, and the lane can do that."""
        self.lane, self.offers = lane, offers
        self._known: dict[tuple[int, int, np.dtype[Any], int, bool], tuple[object, Program | None]] = {}

    def find(self, steps: Sequence[Step], slots: Memory, *, granted: bool) -> Program | None:
        """Return the program of steps on such slots, all of whose messages are `granted`; None if there is none."""
        if granted and not self.offers:
            return None
        if isinstance(slots, ArraySlots):
            key = id(steps), id(slots.layout), slots.data.dtype, id(slots.op), granted
            facts: object = steps, slots.layout, slots.op  # whose identities the key has
        elif isinstance(slots, NoSlots):
            key, facts = (id(steps), 0, NOTHING, 0, granted), steps
        else:
            return None
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[key] = facts, _made(self, steps, slots, granted)
        return known[1]


def _made(programs: Programs, steps: Sequence[Step], slots: ArraySlots | NoSlots, granted: bool) -> Program | None:
    if not isinstance(steps, tuple):
        return None
    try:
        if isinstance(slots, NoSlots):
            return Program(programs, steps, None, NOTHING, None, granted)
        total, most = slots.data.nbytes + sum(each.nbytes for each in slots.scratch), (MOST, MOST_OFFERED)
        if slots.shaped or not 0 < total <= most[programs.offers] or slots.data.dtype.hasobject:
            return None
        return Program(programs, steps, slots.layout, slots.data.dtype, slots.op, granted)
    except Inexpressible:
        return None


def _packed(pieces: Pieces) -> bool:
    """Return whether the engine packs pieces of a message into one frame."""
    return len(pieces) > 1 and sum(size for _, size in pieces) < TINY * len(pieces)


def _settled(steps: Sequence[Step], moves: Iterable[Move]) -> list[Move]:
    """Return the moves, of which those settle that begin while too much is lent, or write into it."""
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
