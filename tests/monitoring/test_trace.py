"""Traces: every round is one slice, every message one arrow between the right two, and every moment is counted once."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ringcast import collectives
from ringcast.algorithms import ALGORITHMS, Algorithm, Params, build
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis.simulate import Report, simulate
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.stage import AUTOMATIC, Choice, Group
from ringcast.communicator import Communicator
from ringcast.events import Event, RoundEnd, RoundStart
from ringcast.monitoring.trace import (
    TraceRecorder,
    align,
    from_json,
    messages,
    moving,
    pairing,
    record,
    rounds,
    summary,
    to_json,
    totals,
    write_chrome,
)
from ringcast.monitoring.trace.times import HEADINGS
from ringcast.ops import SUM
from support.jobs import Job

ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]
SIZES = (1, 2, 5, 9, 33)
Trace = list[list[Event]]


def simulated(entry: Algorithm, p: int, *, alpha: float = 1e-4, beta: float = 1e-8) -> tuple[Report, Trace]:
    """Run an algorithm on the simulator, with slots of 1000, 1001, ... bytes where they need not be equal."""
    params = Params(p, nblocks=3 if entry.blocks else 1)
    schedules = [build(entry.collective, entry.name, params, r) for r in range(p)]
    one_size = ("allreduce", "reduce", "barrier", "alltoall", "alltoallv", "shift")
    equal = entry.whole or entry.equal_counts or entry.collective in one_size
    sizes = [1000 if equal else 1000 + s for s in range(sum(schedules[0].parts))]
    trace: Trace = [[] for _ in range(p)]
    report = simulate(
        schedules,
        sizes,
        alpha=alpha,
        beta=beta,
        observer=lambda event: trace[event.rank].append(event),
        operation=entry.collective,
    )
    return report, trace


def on_the_wire(p: int, call: Callable[[Group], Any]) -> Trace:
    """Run a collective on the simulated wire."""
    wire, made = simulated_endpoints(p, alpha=1e-4, beta=1e-8)
    recorders = [TraceRecorder() for _ in made]
    groups = [Group(e, 1, NETWORKS["tcp"], recorder) for e, recorder in zip(made, recorders, strict=True)]
    drive_together(wire, made, [call(group) for group in groups])
    return [recorder.events for recorder in recorders]


def irregular(group: Group) -> Any:
    mine = np.zeros(100_000 if group.rank == 0 else group.rank, np.uint8)
    return collectives.gather.allgatherv(group, mine, None, None, AUTOMATIC)


CALLS: dict[str, Callable[[Group], Any]] = {
    "bcast": lambda g: collectives.broadcast.bcast(g, np.zeros(100_000), 0, Choice("circulant", 8)),
    "allgatherv": irregular,
    "allreduce": lambda g: collectives.reduce.allreduce(g, np.ones(50_000), SUM, None, AUTOMATIC),
    "objects": lambda g: collectives.gather.gather(g, "x" * g.rank, 0, None, AUTOMATIC),
    "barrier": collectives.reduce.barrier,
}


def written(path: Path, trace: Sequence[Sequence[Event]]) -> list[dict[str, Any]]:
    write_chrome(path, trace)
    entries: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return entries


def check_entries(entries: list[dict[str, Any]], trace: Trace) -> None:
    """Check a file against the events that it was made of."""
    assert min((e["ts"] for e in entries if "ts" in e), default=0) == 0
    assert all(e["dur"] >= 0 for e in entries if e["ph"] == "X")
    names = {e["tid"]: e["args"]["name"] for e in entries if e["name"] == "thread_name"}
    assert names == {rank + 1: f"rank {rank}" for rank in range(len(trace))}
    for rank, events in enumerate(trace):
        row = [e for e in entries if e.get("tid") == rank + 1 and e["ph"] == "X"]
        slices = [e for e in row if e["cat"] == "round"]
        starts = [event for event in events if isinstance(event, RoundStart)]
        assert [e["args"]["round"] for e in slices] == [start.round for start in starts]
        assert sum(e["args"]["bytes_out"] for e in slices) == sum(start.sent for start in starts)
        assert all(after["ts"] >= end_of(before) for before, after in pairwise(slices))
        inner = [e for e in row if e["cat"] == "transfer"]
        assert all(any(inside(e, outer) for outer in slices) for e in inner)
        assert all(after["ts"] >= end_of(before) for before, after in pairwise(inner))
    check_arrows(entries, trace)


def end_of(slice_: dict[str, Any]) -> float:
    return round(slice_["ts"] + slice_["dur"], 3)


def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return bool(outer["ts"] <= inner["ts"] and end_of(inner) <= end_of(outer))


def check_arrows(entries: list[dict[str, Any]], trace: Trace) -> None:
    tails = {e["id"]: e for e in entries if e["ph"] == "s"}
    heads = {e["id"]: e for e in entries if e["ph"] == "f"}
    sent = [
        event for events in trace for event in events if isinstance(event, RoundStart) and event.send_to is not None
    ]
    assert tails.keys() == heads.keys()
    assert len(tails) == len(heads) == len(sent) == sum(e["ph"] in "sf" for e in entries) / 2
    for number, tail in tails.items():
        head = heads[number]
        assert head["bp"] == "e"
        assert head["ts"] >= tail["ts"]
        for source, sink in ((sender, to) for sender in around(tail, entries) for to in around(head, entries)):
            assert (source["args"]["send_to"], sink["args"]["recv_from"]) == (sink["tid"] - 1, source["tid"] - 1)
            assert source["args"]["bytes_out"] == sink["args"]["bytes_in"] == head["args"]["bytes"]


def around(arrow: dict[str, Any], entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the one round that a viewer may bind an end of an arrow to, unless a round without duration is there."""
    row = [e for e in entries if e.get("tid") == arrow["tid"] and e.get("cat") == "round"]
    found = [e for e in row if e["ts"] <= arrow["ts"] <= end_of(e)]
    if any(e["dur"] <= 0.001 for e in found):  # no room for an arrow in between
        return []
    assert len(found) == 1
    return found


def check_times(trace: Trace) -> None:
    """Check that every moment of every rank is of one kind, and that what is sent is received."""
    ranks = totals(trace)
    for events, one in zip(trace, ranks, strict=True):
        assert min(one.transfer, one.idle, one.local) >= 0
        assert one.transfer + one.idle + one.local == pytest.approx(one.span)
        assert one.rounds == len(events) / 2
        assert all(done.ready <= done.start.time <= done.end.time for done in rounds(events))
    assert sum(one.sent for one in ranks) == sum(one.received for one in ranks)
    for message in messages([rounds(events) for events in trace]):
        assert message.opened <= message.arrived <= message.receiver.end.time


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=pytest.mark.long if i % 3 else ()) for i, entry in enumerate(ENTRIES)],
    ids=lambda entry: f"{entry.collective}-{entry.name}",
)
def test_every_algorithm_on_the_simulator(entry: Algorithm, tmp_path: Path) -> None:
    for p in SIZES:
        if entry.fits(Params(p)):
            continue
        report, trace = simulated(entry, p)
        ranks = totals(trace)
        assert tuple(one.sent for one in ranks) == report.sent
        assert tuple(one.received for one in ranks) == report.received
        assert all(one.span == pytest.approx(report.time) for one in ranks)
        assert len(messages([rounds(events) for events in trace])) == report.messages
        check_times(trace)
        if p <= 9:
            check_entries(written(tmp_path / "trace.json", trace), trace)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_collectives_on_the_simulated_wire(call: Callable[[Group], Any], p: int, tmp_path: Path) -> None:
    trace = on_the_wire(p, call)
    check_times(trace)
    if p <= 9:
        check_entries(written(tmp_path / "trace.json", trace), trace)


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_collectives_on_real_transports(kind: str, tmp_path: Path) -> None:
    job = Job(kind, 3)

    def traced(comm: Communicator) -> list[Event]:
        comm.barrier()
        recorder = TraceRecorder()
        comm._group.observe = recorder
        comm.bcast(np.zeros(2_000_000, np.uint8), nblocks=8)
        comm.allgatherv(np.zeros(300_000 * comm.rank, np.uint8))
        comm.allreduce(np.ones(200_000))
        return recorder.events

    try:
        trace = job.ask(traced)
    finally:
        job.close()
    check_times(trace)
    check_entries(written(tmp_path / "trace.json", trace), trace)
    for done in (done for events in trace for done in rounds(events)):
        if done.end.received:
            assert done.end.arrived is not None
            assert done.ready <= done.end.arrived <= done.end.time
    assert all(one.transfer > 0 for one in totals(trace))


@pytest.mark.parametrize("p", [2, 3, 8, 17])
def test_a_ring_leaves_all_but_two_ranks_idle_where_one_has_everything(p: int) -> None:
    schedules = [build("allgatherv", "ring", Params(p), rank) for rank in range(p)]
    trace: Trace = [[] for _ in range(p)]
    simulate(schedules, [1000] + [0] * (p - 1), alpha=0.0, beta=1.0, observer=lambda e: trace[e.rank].append(e))
    for rank, one in enumerate(totals(trace)):
        assert one.span == (p - 1) * 1000
        assert one.transfer == (1000 if rank in (0, p - 1) else 2000)  # received, and then sent on
        assert one.local == 0
    hops = [(max(0.0, 1000.0 * (rank - 1)), min(1000.0 * (rank + 1), 1000.0 * (p - 1))) for rank in range(p)]
    assert moving([rounds(events) for events in trace]) == [[hop] for hop in hops]


def start(rank: int, time: float, to: int | None, nbytes: int, source: int | None, number: int = 1) -> RoundStart:
    return RoundStart(rank, "call", number, 0, time, to, nbytes, source)


def end(rank: int, time: float, nbytes: int, wait: float, arrived: float | None = None, number: int = 1) -> RoundEnd:
    return RoundEnd(rank, "call", number, 0, time, nbytes, wait, arrived)


def test_transfer_begins_with_the_later_rank_and_ends_with_the_last_byte() -> None:
    trace: Trace = [[start(0, 10, 1, 7, None), end(0, 19, 0, 9)], [start(1, 12, None, 0, 0), end(1, 17, 7, 5, 16)]]
    sender, receiver = totals(trace)
    assert (sender.span, sender.transfer, sender.idle) == (9, 4, 5)
    assert (receiver.span, receiver.transfer, receiver.idle) == (9, 4, 5)


def test_what_an_eager_sender_does_after_its_round_is_not_transfer() -> None:
    trace: Trace = [[start(0, 0, 1, 7, None), end(0, 1, 0, 1)], [start(1, 5, None, 0, 0), end(1, 8, 7, 3, 6)]]
    sender, receiver = totals(trace)
    assert (sender.transfer, receiver.transfer, receiver.idle) == (0, 1, 7)
    assert moving([rounds(events) for events in trace]) == [[], [(5, 6)]]


def test_a_message_may_come_before_its_round_where_the_receive_was_posted_ahead() -> None:
    ahead = RoundStart(1, "call", 1, 1, 14, None, 0, 0, 9)
    trace: Trace = [
        [start(0, 10, 1, 7, None), end(0, 13, 0, 3)],
        [start(1, 8, 2, 0, None), end(1, 11, 0, 3), ahead, RoundEnd(1, "call", 1, 1, 15, 7, 1, 12)],
    ]
    sender, receiver = totals(trace)
    assert moving([rounds(events) for events in trace]) == [[(10, 12)], [(10, 12)]]
    assert (sender.span, sender.transfer, sender.local, sender.idle) == (7, 2, 0, 5)
    assert (receiver.transfer, receiver.local, receiver.idle) == (2, 2, 3)


def test_time_between_two_rounds_is_local() -> None:
    events: list[Event] = [
        start(0, 0, None, 0, 1),
        end(0, 1, 0, 1),
        start(0, 4, None, 0, 1, 2),
        end(0, 6, 0, 2, None, 2),
    ]
    (only,) = totals([events])
    assert (only.span, only.transfer, only.local, only.idle, only.rounds) == (6, 0, 3, 3, 2)


def test_a_round_without_an_end_is_left_out(tmp_path: Path) -> None:
    trace: Trace = [[start(0, 0, 1, 7, None)], [start(1, 0, None, 0, 0), end(1, 2, 7, 2, 1)]]
    assert [len(rounds(events)) for events in trace] == [0, 1]
    assert messages([rounds(events) for events in trace]) == []
    assert {e["ph"] for e in written(tmp_path / "trace.json", trace)} == {"M", "X"}


def test_the_table_has_a_row_for_each_rank_and_their_sums() -> None:
    report, trace = simulated(ALGORITHMS["bcast"]["circulant"], 5)
    heading, *rows, last = summary(trace).splitlines()
    assert re.split("  +", heading.strip()) == list(HEADINGS)
    assert len({len(line) for line in (heading, *rows, last)}) == 1
    cells = [row.split() for row in rows]
    assert [row[0] for row in cells] == ["0", "1", "2", "3", "4"]
    assert [int(row[-1]) for row in cells] == list(report.received)
    total = last.split()
    assert total[0] == "total"
    for column in (1, 2, 3):
        assert float(total[column]) == pytest.approx(sum(float(row[column]) for row in cells), abs=0.005)
    for column in (-3, -2, -1):
        assert int(total[column]) == sum(int(row[column]) for row in cells)
    assert summary([[]]).splitlines()[-1].split() == ["total", "0.000", "0.000", "0.000", "0.0%", "0", "0", "0"]


def test_events_survive_json() -> None:
    trace = on_the_wire(5, irregular)
    events = [event for mine in trace for event in mine]
    assert [from_json(json.loads(json.dumps(to_json(event)))) for event in events] == events
    for wrong in ([], ["middle", 0], ["start", 1], ["end", *range(9)], None, [[]]):
        with pytest.raises(ValueError, match="expected an event as a list that begins with start or end, got"):
            from_json(wrong)


def test_a_barrier_sets_the_clock_of_every_rank() -> None:
    def work(group: Group) -> Any:
        yield from collectives.reduce.barrier(group)
        return (yield from irregular(group))

    true, p = on_the_wire(9, work), 9
    offsets = [1000.0 * rank for rank in range(p)]
    seen = [[shifted(event, by) for event in events] for events, by in zip(true, offsets, strict=True)]
    found = align(seen)
    check_times(found)
    for rank, events in enumerate(found):
        rest = [event for event in true[rank] if event.operation != "barrier"]
        assert len(events) == len(rest) > 0
        # In a simulation all ranks leave the barrier within the time of its rounds: 4 times alpha.
        assert [e.time for e in events] == pytest.approx([e.time - 4e-4 for e in rest], abs=4e-4)
    with pytest.raises(ValueError, match="rank 0: expected the trace to begin with a barrier"):
        align(found)
    with pytest.raises(ValueError, match=r"rank 0: .*, not nothing"):
        align([[]])


def shifted(event: Event, by: float) -> Event:
    kind, rank, operation, number, index, time, *rest = to_json(event)
    if rest[-1] is not None:  # ready, or arrived
        rest[-1] += by
    return from_json([kind, rank, operation, number, index, time + by, *rest])


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    _, trace = simulated(ALGORITHMS["bcast"]["circulant"], 3)
    entries = written(path, trace)
    before = path.read_bytes()
    unfit = RoundStart(0, "call", 1, 0, 0.0, object(), 0, None)
    with pytest.raises(TypeError):
        write_chrome(path, [[unfit, end(0, 1, 0, 1)]])
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        write_chrome(tmp_path / "nowhere" / "trace.json", trace)
    with pytest.raises(IsADirectoryError):
        write_chrome(tmp_path, trace)
    assert list(tmp_path.iterdir()) == [path]
    assert list(tmp_path.parent.glob("*.part")) == []
    assert written(path, trace) == entries


@pytest.mark.parametrize("module", [record, pairing], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_thousand_ranks(tmp_path: Path) -> None:
    report, trace = simulated(ALGORITHMS["bcast"]["circulant"], 1000)
    entries = written(tmp_path / "trace.json", trace)
    assert sum(e["ph"] == "s" for e in entries) == report.messages == 3 * 999
    assert len(summary(trace).splitlines()) == 1002
