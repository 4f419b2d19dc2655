"""The flight recorder: what is kept, what is read back whatever is in the file, and how ranks are put side by side."""

from __future__ import annotations

import doctest
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.engine.recorder import Recorder, encoded, mapped
from ringcast.errors import RingcastError
from ringcast.monitoring import flight_record, live, rank_state
from ringcast.monitoring.live import Usage
from ringcast.protocol.operations import Operation
from ringcast.wire import flight
from ringcast.wire.call import COUNTS_OF, Call, Site
from ringcast.wire.flight import KEPT, Entry, Flight, Payload, decode, image_size, payload
from ringcast.wire.header import STAGES
from support.jobs import Job
from support.places import TESTS

CALL = Call("allreduce", "float64", (1000,), "sum", None, "doubling", 1)


def operation(number: int, call: Call = CALL, site: Site = ("prog.py", 7), stage: int = 0) -> Operation:
    return Operation(1, STAGES * number + stage, call, False, 1, site)


def recorded(memory: Recorder, numbers: range, call: Call = CALL) -> Operation:
    """Record operations that have ended, and return the last one."""
    for number in numbers:
        memory.begin(op := operation(number, call), encoded(call))
        memory.done(op)
    return op


def entries(memory: Recorder) -> tuple[Entry, ...]:
    found = decode(memory.image())
    assert found is not None
    return found.entries


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(rank_state)
    assert result.attempted > 0
    assert result.failed == 0


def test_counts_that_are_left_out_are_told_in_words() -> None:
    recorded(
        memory := Recorder(0, 1), range(1, 2), Call("allgatherv", f"float64{COUNTS_OF}", (3,), "", None, "ring", 1)
    )
    (entry,) = entries(memory)
    assert (entry.dtype, entry.shape) == ("float64", "rows of shape (3,), counts left out")


@pytest.mark.parametrize("count", [1, 2, KEPT - 1, KEPT, KEPT + 1, 2 * KEPT, 5 * KEPT + 3])
def test_the_last_operations_are_kept(count: int) -> None:
    recorded(memory := Recorder(0, 1), range(1, count + 1))
    assert [e.number for e in entries(memory)] == list(range(max(1, count - KEPT + 1), count + 1))
    assert [e.sequence for e in entries(memory)] == [e.number for e in entries(memory)]


def test_a_record_tells_the_call_and_its_times() -> None:
    memory = Recorder(2, 5)
    memory.begin(op := operation(17), encoded(CALL))
    (running,) = entries(memory)
    assert (running.state, running.end, running.round, running.rounds) == ("running", None, None, None)
    op.rounds = 3
    memory.done(op)
    (entry,) = entries(memory)
    told = (entry.collective, entry.algorithm, entry.dtype, entry.op, entry.shape, entry.root, entry.nblocks)
    assert told == ("allreduce", "doubling", "float64", "sum", "(1000,)", None, 1)
    assert (entry.state, entry.round, entry.rounds, entry.file, entry.line) == ("done", 3, 3, "prog.py", 7)
    assert entry.fingerprint == CALL.fingerprint
    assert entry.end is not None
    assert entry.start <= entry.end


@given(
    strings=st.tuples(*[st.text(max_size=300)] * 4),
    path=st.text(max_size=400),
    shape=st.lists(st.integers(0, 2**62), max_size=300).map(tuple),
    root=st.none() | st.integers(0, 2**31 - 1),
    line=st.integers(0, 2**32 - 1),
)
def test_any_strings_and_numbers_are_kept_as_far_as_there_is_room(
    strings: tuple[str, ...], path: str, shape: tuple[int, ...], root: int | None, line: int
) -> None:
    collective, algorithm, dtype, op = strings
    call, memory = Call(collective, dtype, shape, op, root, algorithm), Recorder(0, 1)
    memory.begin(operation(1, call, (path, line)), encoded(call))
    (entry,) = entries(memory)
    assert (entry.root, entry.line) == (root, line)
    for text in (entry.collective, entry.algorithm, entry.dtype, entry.op, entry.shape, entry.file):
        assert text.isprintable()
    if collective.isascii() and collective.isprintable() and len(collective) <= 32:
        assert entry.collective == collective


def test_of_a_long_path_the_end_is_kept() -> None:
    memory = Recorder(0, 1)
    memory.begin(operation(1, site=("/very" * 100 + "/train.py", 3)), encoded(CALL))
    assert entries(memory)[0].file.endswith("/very/train.py")


@given(st.binary(max_size=2000))
def test_a_foreign_file_gives_nothing_and_a_damaged_one_what_is_readable(data: bytes) -> None:
    assert decode(data) is None
    recorded(memory := Recorder(0, 1), range(1, 9))
    whole = memory.image()
    torn = decode(whole[: len(whole) - len(data)])
    assert torn is not None
    at = image_size(2) // 40
    damaged = decode(whole[:at] + data + whole[at + len(data) :])
    if damaged is not None:
        assert {e.number for e in damaged.entries if e.state == "done"} >= {8}
        flight_record.text([damaged])
        flight_record.to_json([damaged])


def test_a_file_of_any_length_gives_the_records_that_are_whole() -> None:
    recorded(memory := Recorder(0, 1), range(1, KEPT + 1))
    header, each = flight.HEADER.size, flight.RECORD.size
    for length in range(0, image_size(2) + 1, 37):
        found = decode(memory.image()[:length])
        whole = None if length < header else (length - header) // each
        assert (None if found is None else len(found.entries)) == whole


def test_bytes_are_counted_by_the_rank_that_they_are_sent_to() -> None:
    memory = Recorder(1, 3)
    for i, nbytes in enumerate((7, 0, 2**40, 2**40 + 7, 5)):
        memory.payload[i] += nbytes
    assert payload(memory.image()) == Payload((7, 0, 2**40), 2**40 + 7, 5)
    assert payload(memory.image()[:-1]) == Payload((), 0, 0)


def test_a_record_that_is_being_written_is_left_out() -> None:
    recorded(memory := Recorder(0, 1), range(1, 4))
    image = bytearray(memory.image())
    at = flight.HEADER.size + 2 * flight.RECORD.size
    assert image[at] == 2
    image[at] = 99  # its first field is another number than its last
    found = decode(bytes(image))
    assert found is not None
    assert [e.number for e in found.entries] == [1, 3]


def test_a_mapped_file_is_for_its_owner_and_survives_the_process(tmp_path: Path) -> None:
    program = f"""
import os, signal
from test_recorder import *
recorded(mapped({str(tmp_path)!r}, 3, 4), range(1, 3))
os.kill(os.getpid(), signal.SIGKILL)"""
    path = {"PYTHONPATH": str(TESTS)}
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=here, env={**os.environ, **path}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "flight-3").stat().st_mode & 0o777 == 0o600
    found = flight_record.read(str(tmp_path), range(4))
    assert found[:3] == [None] * 3
    assert found[3] is not None
    assert [e.number for e in found[3].entries] == [1, 2]
    (tmp_path / "flight-2").write_bytes((tmp_path / "flight-3").read_bytes())
    assert flight_record.read(str(tmp_path), range(3))[2] is None  # it says that it is another rank's


@pytest.mark.usefixtures("nothing_left")
def test_a_closed_recorder_tells_that_the_rank_has_left(tmp_path: Path) -> None:
    recorded(memory := mapped(str(tmp_path), 0, 1), range(1, 2))
    for _ in range(2):
        memory.close()
    (found,) = flight_record.read(str(tmp_path), range(1))
    assert found is not None
    assert found.left is not None
    assert flight_record.last([found]).startswith("has left the job after #1 allreduce")


def test_without_a_directory_the_record_is_in_memory(tmp_path: Path) -> None:
    recorded(memory := mapped(str(tmp_path / "gone"), 0, 1), range(1, 3))
    assert len(entries(memory)) == 2


def test_collectives_and_sendrecvs_of_real_ranks_are_recorded() -> None:
    job = Job("threads", 3)
    try:
        job.ask(lambda comm: (comm.allreduce(comm.rank), comm.sendrecv(1, (comm.rank + 1) % 3, (comm.rank - 1) % 3, 5)))
        flights = [decode(endpoint.recorder.image()) for endpoint in job.endpoints]
    finally:
        job.close()
    for rank, found in enumerate(flights):
        assert found is not None
        first, second = found.entries
        assert (first.collective, first.number, first.state, first.file) == ("allreduce", 1, "done", __file__)
        assert (second.collective, second.number, second.state) == ("sendrecv", 0, "done")
        assert second.shape == f"(to {(rank + 1) % 3}, from {(rank - 1) % 3}, tag 5)"


def test_calls_that_have_no_data_tell_their_arguments() -> None:
    for call, told in (
        (Call("create", shape=(0, 2), algorithm="a"), "#1 create (ranks (0, 2), by a)"),
        (Call("cart", shape=(2, 3, 0, 1, 0, 1)), "#1 cart (dims (2, 3, 0), periods (True, False, True))"),
        (Call("barrier"), "#1 barrier"),
    ):
        recorded(memory := Recorder(0, 1), range(1, 2), call)
        text = flight_record.last([decode(memory.image())])
        assert text == f"outside of any call, after {told}, at prog.py:7"


def test_a_rank_that_waits_or_fails_tells_for_whom_and_where() -> None:
    job = Job("threads", 3)

    def fail(comm) -> None:
        if comm.rank != 1:
            comm.barrier(timeout=0.3)

    try:
        assert all(isinstance(error, RingcastError) for error in job.run(fail)[::2])
        found = decode(job.endpoints[0].recorder.image())
    finally:
        job.close()
    assert found is not None
    (entry,) = found.entries
    assert (entry.state, entry.round, entry.rounds, entry.waiting_for) == ("failed", 0, 3, (1,))
    assert entry.end is not None
    assert "failed in #1 barrier (by census), round 0 of 3, waiting for rank 1, at" in flight_record.last([found])


def test_a_rank_alone_records_too() -> None:
    job = Job("threads", 1)
    try:
        job.ask(lambda comm: comm.allreduce(1))
        assert [e.state for e in entries(job.endpoints[0].recorder)] == ["done"]
    finally:
        job.close()


def flights_of(*lasts: int, call: Call = CALL) -> list[Flight | None]:
    """Return the records of ranks that have ended #1 … #last and are in the one after it; None for -1."""
    found: list[Flight | None] = []
    for rank, last in enumerate(lasts):
        memory = Recorder(rank, len(lasts))
        if last > 0:
            recorded(memory, range(1, last + 1))
        if last >= 0:
            memory.begin(operation(last + 1, call), encoded(call))
        found.append(decode(memory.image()) if last >= 0 else None)
    return found


def test_ranks_at_different_operations_are_marked() -> None:
    flights = flights_of(3, 2, 3, -1)
    rows = flight_record.merge(flights)
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.missing for row in rows] == [(3,), (3,), (3,), (1, 3)]
    last = flight_record.text(flights).splitlines()[-2:]
    assert last[0].startswith("! #4 allreduce (float64 (1000,), by doubling): running on ranks 0, 2")
    assert last[1] == "! #4: not begun on ranks 1, 3"
    told = json.loads(flight_record.to_json(flights))
    assert told["differing"][-1] == {"context": 1, "number": 4, "stage": 0, "missing": [1, 3], "ranks": [0, 2]}
    assert told["ranks"][3] is None
    assert told["ranks"][0]["entries"][-1]["number"] == 4


def test_ranks_in_different_calls_are_marked() -> None:
    one, _ = flights_of(1, 1)
    _, other = flights_of(1, 1, call=Call("bcast", "int64", (3,), root=1))
    first, second = flight_record.merge([one, other])
    assert (first.differs, second.differs) == (False, True)
    assert "! #2 bcast (int64 (3,), root 1): running on rank 1" in flight_record.text([one, other])


def test_an_operation_that_only_some_remember_is_not_one_that_others_missed() -> None:
    flights = flights_of(KEPT + 8, KEPT + 7)
    assert [row.missing for row in flight_record.merge(flights)][:-1] == [()] * KEPT
    assert flight_record.merge(flights)[-1].missing == (1,)


def test_the_stages_of_a_call_have_lines_of_their_own() -> None:
    made = [Recorder(rank, 2) for rank in range(2)]
    for rank, memory in enumerate(made):
        for stage in range(2 - rank):
            memory.begin(operation(5, stage=stage), encoded(CALL))
    flights = [decode(memory.image()) for memory in made]
    assert [(row.number, row.stage, row.missing) for row in flight_record.merge(flights)] == [(5, 0, ()), (5, 1, (1,))]
    last = flight_record.text(flights).splitlines()[-2:]
    assert last[0].startswith("! #5.1 allreduce")
    assert last[1] == "! #5.1: not begun on rank 1"


def test_many_ranks_that_did_the_same_share_a_line() -> None:
    assert len(flight_record.summary(flights_of(*[2] * flight_record.ONE_BY_ONE))) == flight_record.ONE_BY_ONE
    lines = flight_record.summary(flights_of(*[2] * 30, 1, -1))
    assert [line.split(":")[0] for line in lines] == [
        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more",
        "rank 30",
        "rank 31",
    ]


def test_many_ranks_in_the_same_call_share_a_line_however_far_they_came() -> None:
    made = [Recorder(rank, 9) for rank in range(9)]
    for rank, memory in enumerate(made):
        op = operation(1)
        op.round, op.rounds = rank % 3, 4
        memory.begin(op, encoded(CALL))
        memory.failed(op, (rank % 2,))
    (line,) = flight_record.summary([decode(memory.image()) for memory in made])
    assert "rounds 0 to 2 of 4, waiting for ranks 0, 1, at" in line


def test_a_rank_that_raised_says_so_and_not_only_that_it_left() -> None:
    none = decode(Recorder(0, 2).image())
    assert flight_record.summary([none, None], raised={0: "KeyError", 1: "KeyError"}) == [
        "rank 0: raised KeyError before its first operation",
        "rank 1: never called ringcast.init",
    ]
    memory = Recorder(0, 1)
    op = operation(1)
    memory.begin(op, encoded(CALL))
    memory.done(op)
    (line,) = flight_record.summary([decode(memory.image())], raised={0: "KeyError"})
    assert line.startswith("rank 0: raised KeyError after #1 allreduce")


def test_an_error_of_a_call_that_makes_others_has_its_traceback_and_no_line() -> None:
    memory = Recorder(0, 1)
    site = "/lib/ringcast/transfer/records.py", 210
    memory.begin(op := operation(1, site=site), encoded(CALL))
    raised = {0: "SourceError"}
    (line,) = flight_record.summary([decode(memory.image())], raised=raised)
    assert line.startswith("rank 0: in #1 allreduce")
    memory.done(op)
    flights = [decode(memory.image())]
    assert flight_record.summary(flights, raised=raised) == []
    assert len(flight_record.summary(flights)) == 1
    (line,) = flight_record.summary(flights, raised={0: "ValueError"})  # the program's own, after the call
    assert line.startswith("rank 0: raised ValueError after #1 allreduce")


def test_the_state_of_a_rank_follows_from_its_record_and_its_process() -> None:
    running, starting = flights_of(2, -1)
    assert running is not None
    usage, now = Usage(50_000_000, 12.0), running.entries[-1].start + 2.5
    state = live.state_of(0, 9, running, usage, now)
    assert (state.state, state.operation, state.since) == ("running", "#3 allreduce", pytest.approx(2.5))
    assert live.state_of(1, 9, starting, usage, now).state == "starting"
    assert live.state_of(0, 9, running, None, now).state == "ended"


def test_what_processes_take_is_measured_and_who_has_ended_takes_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    mine, none = live.measure([os.getpid(), gone.pid])
    assert mine is not None
    assert mine.memory > 1_000_000
    assert none is None


def waiting(rank: int, *peers: int, left: float | None = None, state: str = "running") -> Flight:
    """The record of a rank whose last call waits for these ranks; of none if it has made no call."""
    facts = ("barrier", "census", "", "", "", None, 1, state, 0, 2, len(peers), peers, 0.0, 0.0, None, "prog.py", 7)
    return Flight(rank, 4, 1, "host", 0.0, 0.0, left, (Entry(1, 1, 1, 0, 1, *facts),) if peers else ())


@pytest.mark.parametrize(
    ("flights", "words"),
    [
        ([], ""),
        ([waiting(0), waiting(1)], ""),
        ([waiting(0, 1), waiting(1)], "rank 1 is in no call; rank 0 waits for rank 1"),
        ([waiting(0, 1), waiting(1, 0)], "rank 0 waits for rank 1; rank 1 waits for rank 0"),
        (
            [waiting(0, 2, state="failed"), None, waiting(2), waiting(3, 2)],
            "rank 2 is in no call; ranks 0, 3 wait for rank 2",
        ),
        (
            [waiting(0, 1), waiting(1, 0, state="done"), waiting(2)],
            "ranks 1, 2 are in no call; rank 0 waits for rank 1",
        ),
        ([waiting(0, 1), waiting(1, left=1.0)], "rank 0 waits for rank 1"),
        ([waiting(0, 1, 2), waiting(1), waiting(2)], "ranks 1, 2 are in no call; rank 0 waits for ranks 1, 2"),
    ],
)
def test_who_waits_for_whom_in_words(flights: list[Flight | None], words: str) -> None:
    assert flight_record.who_waits(flights) == words


@pytest.mark.parametrize("p", [7, 100, 5000])
def test_who_waits_for_whom_is_short_however_many_they_are(p: int) -> None:
    ring = flight_record.who_waits([waiting(rank, (rank + 1) % p) for rank in range(p)])
    star = flight_record.who_waits([waiting(rank, *([0] if rank else [])) for rank in range(p)])
    assert ring.endswith(f"; {p - flight_record.MOST_WAITS} more groups wait for others")
    assert star.startswith("rank 0 is in no call; ranks 1, 2, 3")
    assert max(len(ring), len(star)) < 250
