"""Verify symbolically that schedules obey the one-ported model, and fulfil the postcondition of their collective.

`verify` runs schedules on the symbolic values of `ringcast.analysis.postconditions` and follows the values in the slots
of each rank.

p ranks; a step is named by its index in the schedule of its rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ringcast.analysis.lockstep import Cursor, fault, named, run_in_lockstep
from ringcast.analysis.postconditions import Postcondition, Value
from ringcast.errors import ScheduleError
from ringcast.schedules.schedule import STORE, Accept, Combine, Copy, Merge, Schedule


def verify(schedules: Sequence[Schedule], postcondition: Postcondition, *, ordered: bool = False) -> int:
    """Check that `schedules`, one per rank, obey the model and turn `postcondition.start` into `postcondition.end`.

    Returns the number of rounds, as `run_in_lockstep` does.

    Beside the checks of `run_in_lockstep`: no rank sends a slot that it does not hold, receives data that it has,
    counts a contribution twice, puts a piece into a slot of another piece's size, or misses the postcondition at its
    end. With `ordered`, operands must be combined in rank order, as for an operator that is not commutative. Costs
    about 1 µs per slot moved.

    Raises:
        ScheduleError: a check fails; the text names rank, step, peer and slot, and the expected value.
    """
    if len(postcondition.start) != len(schedules):
        raise ScheduleError(f"{len(schedules)} schedules, but a postcondition for {len(postcondition.start)} ranks")
    ledger = _Ledger(schedules, postcondition, ordered=ordered)
    rounds = run_in_lockstep(schedules, ledger)
    ledger.check_end(postcondition)
    return rounds


class _Ledger:
    """The symbolic values of all ranks, as messages move them."""

    def __init__(self, schedules: Sequence[Schedule], postcondition: Postcondition, *, ordered: bool) -> None:
        layout = schedules[0]
        self._ordered = ordered
        self._nuser = sum(layout.parts)
        self._piece = (*range(self._nuser), *layout.scratch)  # of each slot: the piece that fits into it
        self._alike = postcondition.alike
        self._held: list[list[Value | None]] = [
            [start.get(s) for s in range(layout.nslots)] for start in postcondition.start
        ]
        self._out: list[list[Value]] = [[] for _ in schedules]

    def enter(self, cursor: Cursor) -> None:
        for local in cursor.step.local:
            if isinstance(local, Merge):
                self._merge(cursor, local)
            else:
                self._do(cursor, local)
        held = self._held[cursor.rank]
        self._out[cursor.rank] = out = [v for s in cursor.send if (v := held[s]) is not None]
        if len(out) < len(cursor.send):
            missing = next(s for s in cursor.send if held[s] is None)
            raise fault(cursor, cursor.to, f"sends slot {missing}, which it does not hold")

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        held, piece = self._held[receiver.rank], self._piece
        for slot, value, accept in zip(receiver.recv, self._out[sender.rank], receiver.step.accepts(), strict=True):
            if value[0] != piece[slot] and not self._alike:
                text = f"receives {_tell(value)} in slot {slot}, which is for piece {piece[slot]}"
                raise fault(receiver, sender.rank, text)
            if accept is STORE:
                if (old := held[slot]) is not None:
                    self._check_news(receiver, sender.rank, slot, value, old)
                held[slot] = value
            else:
                held[slot] = self._join(receiver, sender.rank, slot, value, accept)

    def leave(self, cursor: Cursor) -> None:
        pass

    def _check_news(self, cursor: Cursor, peer: int, slot: int, value: Value, old: Value) -> None:
        """Check that `value` may be stored: scratch may change in any way, the buffer only become more complete."""
        superset = old[1] | value[1] == value[1] != old[1]
        if value == old or (slot < self._nuser and not superset):
            raise fault(cursor, peer, f"receives {_tell(value)} in slot {slot}, where it already has {_tell(old)}")

    def _join(self, cursor: Cursor, peer: int, slot: int, value: Value, accept: Accept) -> Value:
        old = self._held[cursor.rank][slot]
        if old is None:
            raise fault(cursor, peer, f"combines {_tell(value)} with slot {slot}, which it does not hold")
        left, right = (value, old) if accept is Accept.COMBINE_LEFT else (old, value)
        return self._combined(cursor, peer, slot, left, right)

    def _combined(self, cursor: Cursor, peer: int | None, slot: int, left: Value, right: Value) -> Value:
        """Return op(left, right)."""
        if left[0] != right[0]:
            wrong = "different pieces"
        elif left[1] & right[1]:
            wrong = "contributions counted twice"
        elif self._ordered and left[1] >= right[1] & -right[1]:
            wrong = "not in rank order"
        else:
            return left[0], left[1] | right[1]
        raise fault(cursor, peer, f"combines {_tell(left)} with {_tell(right)} in slot {slot}: {wrong}")

    def _do(self, cursor: Cursor, local: Copy | Combine) -> None:
        """Apply a local step to one slot."""
        held = self._held[cursor.rank]
        operands = [held[s] for s in named(local)[1:]]
        values = [v for v in operands if v is not None]
        if len(values) < len(operands):
            raise fault(cursor, None, f"{local} needs a slot that the rank does not hold")
        value = self._combined(cursor, None, local.dst, *values) if isinstance(local, Combine) else values[0]
        if value[0] != self._piece[local.dst] and not self._alike:
            raise fault(cursor, None, f"{local} puts {_tell(value)} into a slot for piece {self._piece[local.dst]}")
        held[local.dst] = value

    def _merge(self, cursor: Cursor, merge: Merge) -> None:
        """Merge whole runs into one; each run has contributors of its own, and fills one slot for each of them."""
        held = self._held[cursor.rank]
        values = [v for s in merge.slots if (v := held[s]) is not None]
        if len(values) < len(merge.slots):
            raise fault(cursor, None, f"{merge} needs a slot that the rank does not hold")
        together = 0
        for contributors, number in Counter(mask for _, mask in values).items():
            if number != contributors.bit_count():
                raise fault(cursor, None, f"{merge} takes {number} slots of a run of {contributors.bit_count()}")
            if together & contributors:
                raise fault(cursor, None, f"{merge} counts contributions twice")
            together |= contributors
        for slot, (piece, _) in zip(merge.slots, values, strict=True):
            held[slot] = piece, together

    def check_end(self, postcondition: Postcondition) -> None:
        for rank, (held, end) in enumerate(zip(self._held, postcondition.end, strict=True)):
            for slot, value in end.items():
                if held[slot] != value:
                    now = _tell(held[slot])
                    raise ScheduleError(f"rank {rank}, at the end: slot {slot} has {now}, not {_tell(value)}")


def _tell(value: Value | None) -> str:
    """Return `value` in words.

    >>> _tell((4, 0b1011))
    'piece 4 of ranks 0-1,3'
    """
    if value is None:
        return "nothing"
    piece, mask = value
    ranks = [r for r in range(mask.bit_length()) if mask >> r & 1]
    starts = [r for r in ranks if not mask << 1 >> r & 1]
    ends = [r for r in ranks if not mask >> 1 >> r & 1]
    runs = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    return f"piece {piece} of rank{'s' * (len(ranks) != 1)} {runs}"
