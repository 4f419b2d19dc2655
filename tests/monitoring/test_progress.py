"""The state of the ranks in a few numbers: out of their flight records, and added up over hosts."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ringcast.communicator import Communicator
from ringcast.engine.recorder import Recorder, encoded, mapped
from ringcast.monitoring.progress import ProgressSnapshot, draws, progress_snapshot
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Call
from ringcast.wire.flight import FILE, KEPT, PAYLOAD_AT, decode, image_size, rank_snapshot
from ringcast.wire.header import STAGES
from support.jobs import KINDS, Job


def begin(recorder: Recorder, number: int, collective: str = "allreduce") -> Operation:
    call = Call(collective, "float64", (10,), "sum", None, "doubling", 1)
    recorder.begin(op := Operation(1, STAGES * number, call, False, 1, ("prog.py", 7)), encoded(call))
    return op


@pytest.mark.parametrize("count", [0, 1, 2, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT + 5])
def test_a_glimpse_is_the_end_of_the_whole(count: int) -> None:
    recorder = Recorder(0, 1)
    for number in range(1, count + 1):
        recorder.done(begin(recorder, number))
    image = recorder.image()
    seen, whole = rank_snapshot(image), decode(image)
    assert seen is not None
    assert whole is not None
    assert seen.entry == (whole.entries[-1] if count else None)


def test_a_record_that_is_being_written_and_a_foreign_image_give_nothing() -> None:
    recorder = Recorder(0, 1)
    begin(recorder, 1)
    image = bytearray(recorder.image())
    at = image.index(b"allreduce")
    half = image.copy()
    half[at + 200 :] = bytes(len(half) - at - 200)
    seen = rank_snapshot(bytes(half))
    assert seen is not None
    assert seen.entry is None
    assert rank_snapshot(bytes(image_size(2))) is None
    assert rank_snapshot(bytes(image[: PAYLOAD_AT - 1])) is None


def test_ranks_in_operations_between_them_gone_and_not_yet_there(tmp_path: Path) -> None:
    recorders = [mapped(str(tmp_path), rank, 8) for rank in range(6)]
    for rank in range(3):
        begin(recorders[rank], 17)
    recorders[3].done(begin(recorders[3], 16, "bcast"))
    begin(recorders[4], 0, "sendrecv")
    for rank, recorder in enumerate(recorders):
        recorder.payload[-2] += 10**rank
    recorders[5].close()
    (tmp_path / FILE.format(rank=6)).write_bytes(bytes(image_size(2)))  # allocated, and nothing written yet
    whole = progress_snapshot(str(tmp_path), range(8))
    assert whole == ProgressSnapshot(5, Counter({"#17 allreduce": 3, "sendrecv": 1}), 111111)
    assert progress_snapshot(str(tmp_path), [0, 4]) + progress_snapshot(str(tmp_path), [1, 2, 3, 5, 6, 7]) == whole
    assert whole + ProgressSnapshot() == whole
    for recorder in recorders:
        recorder.close()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
@pytest.mark.parametrize("count", [1000, 300_000])
def test_the_bytes_of_a_broadcast_are_counted_once_where_they_are_sent(kind: str, count: int) -> None:
    job = Job(kind, 3)
    try:

        def work(comm: Communicator) -> None:
            comm.bcast(np.zeros(count), root=0)

        job.ask(work)
        sent = [endpoint.recorder.payload[-2] for endpoint in job.endpoints]
        assert 0 <= sum(sent) - 2 * 8 * count < 1000  # the receivers are told of the array first
    finally:
        job.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_all_bytes_that_are_sent_are_received(kind: str, p: int) -> None:
    """Small ones and large ones, in collectives and as messages, of arrays and objects."""

    def work(comm: Communicator) -> None:
        for count in (0, 1, 1000, 300_000):
            comm.allreduce(np.ones(count))
            comm.bcast(np.ones(count) if comm.rank == p - 1 else None, p - 1)
            comm.sendrecv([1.0] * count, (comm.rank + 1) % p, (comm.rank - 1) % p)

    job = Job(kind, p)
    try:
        job.ask(work)
        sent, received = (sum(end.recorder.payload[i] for end in job.endpoints) for i in (-2, -1))
        assert sent == received
        assert (sent > 0) == (p > 1)
    finally:
        job.close()


def test_the_counter_outlives_the_rank_in_the_file(tmp_path: Path) -> None:
    recorder = mapped(str(tmp_path), 0, 1)
    recorder.payload[-2] = 5
    recorder.close()
    recorder.close()
    with pytest.raises(ValueError, match="released"):
        recorder.payload[-2] = 6
    assert os.listdir(tmp_path) == [FILE.format(rank=0)]
    assert progress_snapshot(str(tmp_path), [0]) == ProgressSnapshot(sent=5)


def test_a_rank_that_draws_itself_is_seen(tmp_path: Path) -> None:
    assert not progress_snapshot(str(tmp_path), []).drawing
    draws(str(tmp_path))
    assert (ProgressSnapshot() + progress_snapshot(str(tmp_path), [])).drawing
    draws(str(tmp_path / "nowhere"))  # the terminal is there all the same
