"""Run schedules on a virtual clock: rounds, time and volume of a collective, without processes or data.

A message takes alpha + beta * bytes (Hockney's model) and starts when both of its ranks are in the step it belongs
to; a step ends with the last of its at most two messages, and costs nothing without one. The number of rounds is the
time if every message takes one unit, that is, the longest chain of messages in which each waits for the one before.
Ranks are matched by `ringcast.analysis.lockstep.run_in_lockstep`.

`simulate_bcast` does the same for the circulant broadcast on all ranks at once, with numpy: 100,000 ranks in seconds.

p ranks; q = ceil(log2 p); r = rank counted from the root; n blocks; k = round mod q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.analysis.lockstep import Cursor, fault, run_in_lockstep
from ringcast.errors import ScheduleError
from ringcast.events import Event, Observer, RoundEnd, RoundStart
from ringcast.schedules.blocks import behind, schedule_tables, skips
from ringcast.schedules.schedule import Schedule


@dataclass(frozen=True)
class Report:
    """The cost of a collective. Volumes are per rank, in bytes, or in slots where no sizes were given."""

    rounds: int
    time: float
    messages: int
    sent: tuple[int, ...]
    received: tuple[int, ...]

    @property
    def volume(self) -> int:
        """The largest volume that one rank sends or receives, which bounds the time from below."""
        return max(*self.sent, *self.received)


def simulate(
    schedules: Sequence[Schedule],
    sizes: Sequence[int] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    observer: Observer | None = None,
    operation: str = "collective",
) -> Report:
    """Run `schedules`, one per rank, and return their cost; takes O(1) per step and slot moved.

    Args:
        schedules: of ranks 0, 1, …
        sizes: bytes of each slot of the user's buffer (scratch follows from it); None counts each slot as one byte.
        alpha: seconds per message.
        beta: seconds per byte.
        observer: gets every step with a message as an event, in order of time, after the run.
        operation: the name of this run in events.

    Raises:
        ScheduleError: the schedules break a rule of the model, or a slot is received in one of another size.
    """
    clock = _Clock(schedules, sizes, alpha, beta)
    log = _Log(clock, operation)
    rounds = run_in_lockstep(schedules, clock if observer is None else log)
    if observer is not None:
        for event in sorted(log.events, key=lambda event: event.time):
            observer(event)
    return clock.report(rounds)


class _Clock:
    """The stage that counts seconds: for each rank the time at which it is ready for its next step."""

    def __init__(self, schedules: Sequence[Schedule], sizes: Sequence[int] | None, alpha: float, beta: float) -> None:
        layout = schedules[0]
        nuser, p = sum(layout.parts), len(schedules)
        if sizes is not None and len(sizes) != nuser:
            raise ValueError(f"sizes must have one entry for each of the {nuser} slots of the buffer, not {len(sizes)}")
        user = [1] * nuser if sizes is None else list(sizes)
        self.sizes = user + [user[s] for s in layout.scratch]
        self._alpha, self._beta = alpha, beta
        self.ready, self._until = [0.0] * p, [0.0] * p  # _until: the end of the messages that a step has had so far
        self._sent, self._received, self._messages = [0] * p, [0] * p, 0

    def enter(self, cursor: Cursor) -> None:
        pass

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        nbytes = self._weigh(sender, receiver)
        a, b = sender.rank, receiver.rank
        end = max(self.ready[a], self.ready[b]) + self._alpha + self._beta * nbytes
        for r in (a, b):
            self._until[r] = max(self._until[r], end)
        self._sent[a] += nbytes
        self._received[b] += nbytes
        self._messages += 1

    def leave(self, cursor: Cursor) -> None:
        self.ready[cursor.rank] = self._until[cursor.rank]

    def weight(self, slots: Sequence[int]) -> int:
        return sum(map(self.sizes.__getitem__, slots))

    def _weigh(self, sender: Cursor, receiver: Cursor) -> int:
        """Return the bytes of a message, whose two ends must cut it alike."""
        out, into = ([self.sizes[s] for s in slots] for slots in (sender.send, receiver.recv))
        if out != into:
            raise fault(sender, receiver.rank, f"sends slots of {out} bytes, which the peer receives as {into}")
        return sum(out)

    def report(self, rounds: int) -> Report:
        sent, received = tuple(self._sent), tuple(self._received)
        return Report(rounds, max(self.ready), self._messages, sent, received)


class _Log:
    """A clock whose ticks are kept as events; steps without messages leave none."""

    def __init__(self, clock: _Clock, operation: str) -> None:
        self.events: list[Event] = []
        self._clock, self._operation = clock, operation
        self._begun = list(clock.ready)

    def enter(self, cursor: Cursor) -> None:
        r, step = cursor.rank, cursor.step
        self._begun[r] = now = self._clock.ready[r]
        if not cursor.met:
            nbytes = self._clock.weight(cursor.send)
            event = RoundStart(r, self._operation, 0, cursor.index, now, step.send_to, nbytes, step.recv_from)
            self.events.append(event)

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        self._clock.deliver(sender, receiver)

    def leave(self, cursor: Cursor) -> None:
        self._clock.leave(cursor)
        r, step = cursor.rank, cursor.step
        if step.send_to is not None or step.recv_from is not None:
            now, nbytes = self._clock.ready[r], self._clock.weight(cursor.recv)
            self.events.append(RoundEnd(r, self._operation, 0, cursor.index, now, nbytes, now - self._begun[r]))


Tables: TypeAlias = tuple[NDArray[np.int8], NDArray[np.int8]]


def simulate_bcast(
    p: int, nblocks: int, nbytes: int, *, alpha: float = 1.0, beta: float = 0.0, tables: Tables | None = None
) -> Report:
    """Broadcast `nbytes` bytes in `nblocks` blocks from rank 0 to `p` ranks, and return the cost.

    Every block is really moved, as a bit per rank and block: the `tables` (of this `p`; by default from
    `schedule_tables`) are checked, not trusted. Costs O(n + q) numpy passes over p ranks, and n * p bytes of memory.

    Raises:
        ScheduleError: the two ends of a message disagree, a rank sends a block that it does not hold, receives a block
            twice, or ends without a block.
    """
    if p < 1 or nblocks < 1 or nbytes < 0:
        raise ValueError(f"p and nblocks must be positive, nbytes not negative: not {p}, {nblocks}, {nbytes}")
    run = _BcastRun(p, nblocks, nbytes, alpha, beta)
    recv, send = schedule_tables(p) if tables is None else tables
    q, s = len(recv), skips(p)
    x = -(nblocks - 1) % q if q else 0
    for i in range(x, x + nblocks - 1 + q) if q else ():
        k, off = i % q, i // q * q - x
        run.round(i - x, s[k], run.blocks(recv[k], off), run.blocks(send[k], off))
    return run.report()


class _BcastRun:
    """All ranks of one broadcast: the blocks that they have, and the times at which they are ready for the next round.

    Arrays have an entry for each rank; a block is -1 where there is no message.
    """

    def __init__(self, p: int, n: int, nbytes: int, alpha: float, beta: float) -> None:
        self._p, self._n, self._nbytes = p, n, nbytes
        sizes = np.diff(np.arange(n + 1) * nbytes // n)
        self._sizes, self._cost = np.append(sizes, 0), np.append(alpha + beta * sizes, 0.0)  # the last: of block -1
        self._ranks = np.arange(p)
        # Row n, which is also row -1, is for ranks without a message; its values have no meaning.
        self._has = np.zeros((n + 1, p), np.bool_)
        self._has[:, 0] = True
        self._ready, self._rounds = np.zeros(p), np.zeros(p, np.int32)
        self._sent, self._messages = np.zeros(p, np.int64), 0

    def blocks(self, row: NDArray[np.int8], off: int) -> NDArray[np.intp]:
        """Return the block of each rank in a round, from its row of the table."""
        b = np.add(row, off, dtype=np.intp)
        return np.minimum(np.maximum(b, -1, out=b), self._n - 1, out=b)

    def round(self, i: int, skip: int, into: NDArray[np.intp], out: NDArray[np.intp]) -> None:
        """Do round i: rank r sends block out[r] to r + skip and receives block into[r] from r - skip."""
        into[0] = out[-skip] = -1  # no rank sends to the root
        self._refuse(i, skip, behind(out, skip) != into, "expects another block than is sent to it")
        moves, has = into >= 0, self._has.reshape(-1)
        mine = into * self._p + self._ranks
        theirs = mine - skip  # the same block on the rank r - skip
        theirs[:skip] += self._p
        self._refuse(i, skip, moves & ~has[theirs], "is sent a block that the sender does not hold")
        self._refuse(i, skip, moves & has[mine], "receives a block for the second time")
        has[mine] = True
        self._tick(skip, into, moves)

    def _tick(self, skip: int, into: NDArray[np.intp], moves: NDArray[np.bool_]) -> None:
        """Move the clocks of ranks that send or receive; a rank does each at most once in a round."""
        self._ready = _later(self._ready, skip, moves, self._cost[into])
        self._rounds = _later(self._rounds, skip, moves, 1)
        self._sent += behind(self._sizes[into], self._p - skip)
        self._messages += int(np.count_nonzero(moves))

    def _refuse(self, i: int, skip: int, wrong: NDArray[np.bool_], text: str) -> None:
        if wrong.any():
            r = int(wrong.argmax())
            raise ScheduleError(f"rank {r}, step {i}, peer {(r - skip) % self._p}: {text}")

    def report(self) -> Report:
        has = self._has[: self._n]
        if not has.all():
            b, r = (int(v[0]) for v in np.nonzero(~has))
            raise ScheduleError(f"rank {r}, at the end: has not received block {b}")
        received = (0,) + (self._nbytes,) * (self._p - 1)  # all ranks have each block, and no block came twice
        rounds, time = int(self._rounds.max()), float(self._ready.max())
        return Report(rounds, time, self._messages, tuple(self._sent.tolist()), received)


def _later(clock: NDArray[Any], skip: int, moves: NDArray[np.bool_], cost: NDArray[np.float64] | int) -> NDArray[Any]:
    """Return the clock of each rank after its receipt from r - skip, if it `moves`, and its message to r + skip."""
    end = np.where(moves, np.maximum(behind(clock, skip), clock) + cost, clock)
    # Where no message moves, `end` has no meaning, and must not reach the clock of the rank that does not send.
    sends = behind(np.where(moves, end, 0), len(clock) - skip)
    later: NDArray[Any] = np.maximum(end, sends)
    return later
