"""Traces for Perfetto and chrome://tracing, in the Trace Event Format (JSON).

One row per rank. A slice for each round, in it a slice "transfer" for the time in which a message of the rank is under
way, so that the rest of the round is idle; an arrow for each message. A message that arrived before its round, as
its receive was posted ahead, has its arrow end where the round begins. The viewers draw a slice that overlaps the one
before by the least bit below it or not at all, and give an arrow that ends exactly between two slices to either of
them. So all times are whole nanoseconds since the first event, and arrows keep one nanosecond away from the ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, TypeAlias

from ringcast._util.output_files import write_whole
from ringcast.events import Event
from ringcast.monitoring.trace.pairing import Round, TracedMessage, messages, moving, rounds, within

Entry: TypeAlias = dict[str, Any]
JOB = 1  # number of the process in the viewers, whose threads are the ranks


def write_chrome(path: str | os.PathLike[str], events_by_rank: Sequence[Sequence[Event]]) -> None:
    """Write the trace to `path`, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """

    def write(file: IO[bytes]) -> None:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        file.writelines(line.encode() for line in _lines(_entries(events_by_rank)))
        file.write(b"\n]}\n")

    write_whole(path, write)


def _lines(entries: Iterable[Entry]) -> Iterator[str]:
    for i, entry in enumerate(entries):
        yield f"{',' if i else ''}\n{json.dumps(entry)}"


def _entries(events_by_rank: Sequence[Sequence[Event]]) -> Iterator[Entry]:
    by_rank = [rounds(events) for events in events_by_rank]
    clock = _Clock(min((done.start.time for mine in by_rank for done in mine), default=0.0))
    yield {"ph": "M", "name": "process_name", "pid": JOB, "args": {"name": "ringcast"}}
    for rank, (mine, moved) in enumerate(zip(by_rank, moving(by_rank), strict=True)):
        yield _row(rank, "M", name="thread_name", args={"name": f"rank {rank}"})
        yield _row(rank, "M", name="thread_sort_index", args={"sort_index": rank})
        for done in mine:
            begin, end = done.start.time, done.end.time
            yield clock.slice(rank, begin, end, **_description(done))
            for first, last in within(moved, begin, end):
                yield clock.slice(rank, first, last, name="transfer", cat="transfer")
    for number, message in enumerate(messages(by_rank)):
        yield from clock.arrow(number, message)


def _row(rank: int, phase: str, **fields: Any) -> Entry:
    # Threads are counted from 1: the viewers take thread 0 for an idle processor.
    return {"ph": phase, "pid": JOB, "tid": rank + 1, **fields}


def _description(done: Round) -> Entry:
    start, end = done.start, done.end
    args = {
        "operation": start.operation,
        "number": start.number,
        "round": start.round,
        "send_to": start.send_to,
        "bytes_out": start.sent,
        "recv_from": start.recv_from,
        "bytes_in": end.received,
    }
    return {"name": f"{start.operation} round {start.round}", "cat": "round", "args": args}


class _Clock:
    """Turns seconds into the microseconds of the format, by whole nanoseconds since `zero`."""

    def __init__(self, zero: float) -> None:
        self._zero = zero

    def _nanoseconds(self, time: float) -> int:
        return round((time - self._zero) * 1e9)

    def slice(self, rank: int, first: float, last: float, **fields: Any) -> Entry:
        start, end = self._nanoseconds(first), self._nanoseconds(last)
        return _row(rank, "X", ts=start / 1e3, dur=(end - start) / 1e3, **fields)

    def arrow(self, number: int, message: TracedMessage) -> tuple[Entry, Entry]:
        """Return the two ends of an arrow, which lie in the rounds of its sender and receiver."""
        tail, head = self._within(message.sender, message.opened), self._within(message.receiver, message.arrived)
        fields = {"name": "message", "cat": "message", "id": number, "args": {"bytes": message.nbytes}}
        return (
            _row(message.sender.start.rank, "s", ts=tail / 1e3, **fields),
            _row(message.receiver.start.rank, "f", ts=max(tail, head) / 1e3, bp="e", **fields),
        )

    def _within(self, done: Round, time: float) -> int:
        start, end = self._nanoseconds(done.start.time), self._nanoseconds(done.end.time)
        return min(max(self._nanoseconds(time), start + 1), end - 1) if end > start + 1 else start
