"""Hosts of a copy that lie: nothing that they send runs, takes memory, is written elsewhere or blames another host."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import ringcast
from ringcast import Communicator, RingcastError, RunFailed, TransferError
from ringcast.commands.cp.order import answer, line
from ringcast.transfer import records
from ringcast.transfer.copying import copy_files
from ringcast.transfer.framing import AHEAD, TRAILER, Lengths, write_trailer
from ringcast.transfer.manifest import FILE, Entry, Manifest
from ringcast.transfer.options import Options
from ringcast.transfer.records import Digests, Disk, Ended, Failed, Listing, Settled, Standing, announced, exchanged
from ringcast.transfer.report import CopyReport, RankReport, report_of
from ringcast.transfer.seal import Seal, new_keys
from ringcast.wire.codec import encode
from support import needs
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

ESCAPE = "\x1b]0;title\x07\nrank 1: is to blame\x9b2J"


class Runs:
    """An object that makes a file where it is unpickled."""

    def __init__(self, sign: Path) -> None:
        self._sign = str(sign)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._sign, "w")


class Alone:
    """Rank 1 of two, to which a hostile rank 0 sends what it likes: bytes in a broadcast, lengths and records."""

    rank, members = 1, (0, 1)

    def __init__(self, sent: bytes = b"", length: int | None = None, theirs: bytes = b"") -> None:
        prefix = (len(sent) if length is None else length) & ((1 << 64) - 1)
        self._stream = memoryview(prefix.to_bytes(8, "little") + sent)
        self._length, self._theirs = length, theirs

    def bcast_into(self, buffer: Any, _: int = 0) -> None:
        came, self._stream = self._stream[: len(buffer)], self._stream[len(buffer) :]
        memoryview(buffer)[: len(came)] = came

    def allgather(self, own: Any) -> Any:
        return np.array([len(self._theirs) if self._length is None else self._length, own])

    def allgatherv(self, own: Any, counts: Any) -> Any:
        return np.concatenate([np.frombuffer(self._theirs, np.uint8), own])[: sum(counts)]


def received(sent: bytes, kind: type[Any] = Listing, length: int | None = None, seal: Seal | None = None) -> Any:
    return announced(Alone(sent, length), 0, kind, seal=seal)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("root", [0, 1])
def test_a_root_that_sends_a_pickle_runs_nothing_elsewhere(tmp_path: Path, size: int, root: int) -> None:
    """Also in a job that takes Python objects: a copy takes none."""

    def work(comm: Communicator) -> None:
        if comm.rank == root:
            comm.bcast(Runs(tmp_path / "run"), root)
        else:
            comm.bcast_file("", tmp_path / str(comm.rank), root)

    with pytest.raises(RunFailed):
        ringcast.run(work, size, backend="threads")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("large", [False, True])
def test_records_arrive_as_they_were_sent(large: bool) -> None:
    sent = Listing(os.urandom(100_000) if large else b"few")

    def work(comm: Communicator) -> bool:
        told = announced(comm, 1, Listing, lambda: sent)  # type: ignore[arg-type]
        own = exchanged(comm, Disk(float(comm.rank), 0.0, comm.rank == 1))  # type: ignore[arg-type]
        return told == sent and own == [Disk(float(rank), 0.0, rank == 1) for rank in range(3)]

    assert ringcast.run(work, 3, backend="threads") == [True] * 3


NO_RECORDS = {
    "nothing": b"",
    "a pickle": pickle.dumps(Runs(Path("/tmp/never"))),
    "another record": encode(Disk(0.0, 0.0, True)),
    "half of one": encode(Listing(b"12345"))[:-2],
    "two": encode(Listing(b"1")) * 2,
    "a text for bytes": msgpack.packb(["Listing", "1"]),
    "a number for bytes": msgpack.packb(["Listing", 1]),
    "too many fields": msgpack.packb(["Listing", b"1", b"2"]),
    "a map": msgpack.packb({"manifest": b"1"}),
    "many nothings": msgpack.packb(["Listing", [None] * 100_000]),
    "a deep one": b"\x91" * 100_000,
}


@pytest.mark.parametrize("sent", list(NO_RECORDS))
def test_what_is_no_record_is_a_typed_error(sent: str) -> None:
    with pytest.raises(TransferError, match="another host sends data that is no part of a copy") as caught:
        received(NO_RECORDS[sent])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("length", [-1, 1 << 33, 1 << 62, 1 << 63])
def test_a_length_that_no_record_has_takes_no_memory(length: int) -> None:
    with pytest.raises(TransferError, match="bytes are announced"):
        received(b"x" * 5000, length=length)


@pytest.mark.parametrize("length", [-1, 0, -(1 << 63), 1 << 20, (1 << 63) - 1])
def test_a_length_of_another_rank_is_bounded(length: int) -> None:
    with pytest.raises(TransferError, match="bytes are announced"):
        exchanged(Alone(length=length), Disk(0.0, 0.0, True))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "theirs",
    [
        Disk(math.nan, 0.0, True),
        Disk(math.inf, 0.0, True),
        Disk(0.0, -1e9, True),
        Disk(-1.0, 0.0, True),
        Disk("1", 0.0, True),  # type: ignore[arg-type]
        Disk(0.0, 0.0, 1),  # type: ignore[arg-type]
        Standing(False, True, "", False),
    ],
    ids=str,
)
def test_a_field_of_another_rank_is_bounded(theirs: Any) -> None:
    with pytest.raises(TransferError, match="another host sends"):
        exchanged(Alone(theirs=encode(theirs)), Disk(0.0, 0.0, True))  # type: ignore[arg-type]


def test_digests_are_as_many_as_their_chunks() -> None:
    assert Digests(bytes(64)).of([3, 5]) == {3: bytes(32), 5: bytes(32)}
    assert Digests(b"").of([]) == {}
    for wrong in Digests(bytes(63)), Digests(bytes(96)), Digests(b""):
        with pytest.raises(TransferError):
            wrong.of([3, 5])
    with pytest.raises(TransferError):
        received(encode(Settled((-1,), Digests(b""), False)), Settled)


@pytest.mark.parametrize("first", [(), (1,), (1, 2, 3, 4), (0, 1, 1), (1, 1, 101), (1, 1, 1 << 63)])
def test_lengths_of_first_payloads_are_those_of_pieces(first: tuple[int, ...]) -> None:
    with pytest.raises(TransferError):
        Lengths(first, [100] * 5)


@pytest.mark.parametrize("following", [0, 101, (1 << 64) - 1])
def test_the_length_that_follows_a_payload_is_that_of_a_piece(following: int) -> None:
    lengths = Lengths([100] * AHEAD, [100] * 5)
    message = np.zeros(lengths.next_message(), np.uint8)
    message[-TRAILER:].data[:] = following.to_bytes(TRAILER, "little")
    with pytest.raises(TransferError):
        lengths.payload(message)


def test_lengths_of_a_segment_are_those_that_were_written() -> None:
    written = [5, 1, 100, 7, 9]
    lengths = Lengths(written[:AHEAD], [100] * 5)
    for number, length in enumerate(written):
        assert lengths.next_message() == length + TRAILER
        message = np.zeros(length + TRAILER, np.uint8)
        write_trailer(message, written[number + AHEAD] if number + AHEAD < len(written) else 0)
        assert len(lengths.payload(message)) == length


RIGHT = (b"a", 0, 0o644, (5, 0), 10, b"", ((0, 3), (5, 5)))
WRONG_ENTRIES = {
    "a path that is text": ("a", *RIGHT[1:]),
    "no such kind": (b"a", 3, *RIGHT[2:]),
    "a negative kind": (b"a", -1, *RIGHT[2:]),
    "a mode that is text": (b"a", 0, "7", *RIGHT[3:]),
    "a negative size": (*RIGHT[:4], -1, b"", None),
    "a huge size": (*RIGHT[:4], 1 << 63, b"", None),
    "a size that is no number": (*RIGHT[:4], 1.5, b"", None),
    "a target that is text": (*RIGHT[:5], "x", None),
    "data beyond the end": (*RIGHT[:6], ((0, 11),)),
    "data before the beginning": (*RIGHT[:6], ((-1, 3),)),
    "data that overlap": (*RIGHT[:6], ((0, 3), (2, 3))),
    "data backwards": (*RIGHT[:6], ((5, 3), (0, 3))),
    "data of no length": (*RIGHT[:6], ((0, 0),)),
    "data that are none": (*RIGHT[:6], 7),
    "data at half a byte": (*RIGHT[:6], ((0.5, 1),)),
    "a time that is none": (*RIGHT[:3], 5, *RIGHT[4:]),
    "too few fields": RIGHT[:6],
    "too many fields": (*RIGHT, 1),
    "no entry": None,
}


def listed(*entries: Any) -> bytes:
    return b"".join(map(msgpack.packb, [(0, 0), entries]))


@pytest.mark.parametrize("wrong", list(WRONG_ENTRIES))
def test_a_list_of_files_that_is_none_is_a_typed_error(wrong: str) -> None:
    assert Manifest.decode(listed(RIGHT)).entries[0].extents == RIGHT[6]
    with pytest.raises(TransferError):
        Manifest.decode(listed(WRONG_ENTRIES[wrong]))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92", b"\xdd\xff\xff\xff\xff", msgpack.packb(5), b"\x93" * 5000])
def test_bytes_that_are_no_list_of_files_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(TransferError):
        Manifest.decode(data)


def test_files_of_more_bytes_than_can_be_counted_are_a_typed_error() -> None:
    huge = [(b"%d" % number, *RIGHT[1:4], (1 << 63) - 1, b"", None) for number in range(3)]
    with pytest.raises(TransferError):
        Manifest.decode(listed(*huge))


# Compressed pieces.

BOMB = """
import resource, sys, zstandard
from ringcast.transfer.compression import decompressed
data = memoryview(sys.stdin.buffer.read())
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
assert decompressed(data, 4 << 20) is None
print(max(0, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - used))
"""


@pytest.mark.parametrize("told", [True, False], ids=["its length is in it", "its length is not in it"])
def test_a_small_piece_that_would_become_gigabytes_takes_no_more_than_its_length(told: bool) -> None:
    needs.package("zstandard")
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3, write_content_size=told)
    stream = compressor.compressobj(size=3 << 30 if told else -1)
    nothing = bytes(1 << 24)
    bomb = b"".join([*(stream.compress(nothing) for _ in range(192)), stream.flush()])
    assert len(bomb) < 400_000
    done = subprocess.run([sys.executable, "-c", BOMB], input=bomb, capture_output=True, timeout=patience(100))
    assert not done.stderr, done.stderr
    assert int(done.stdout) < 40 << 20


# What the root announces, on its way through others.


def test_what_was_changed_on_its_way_is_refused() -> None:
    public, secret = new_keys()
    sealed = bytearray(Seal(public, secret).sealed(encode(Listing(b"files"))))
    assert received(bytes(sealed), seal=Seal(public)) == Listing(b"files")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(TransferError, match="another host has changed"):
            received(bytes(changed), seal=Seal(public))
    for cut in b"", sealed[:10], sealed[64:], encode(Failed("give up")):
        with pytest.raises(TransferError, match="another host has changed"):
            received(bytes(cut), seal=Seal(public))
    with pytest.raises(TransferError, match="another host has changed"):
        received(bytes(sealed), seal=Seal(new_keys()[0]))


class Between:
    """A communicator through which a hostile host passes on what the root announces, changed."""

    def __init__(self, comm: Communicator, change: Callable[[memoryview], None]) -> None:
        self._comm, self._change = comm, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def bcast_into(self, buffer: Any, root: int) -> None:
        self._comm.bcast_into(buffer, root)
        self._change(memoryview(buffer))


def test_a_host_that_passes_other_content_on_is_found_out(tmp_path: Path) -> None:
    """It writes another name into the list of files, which without a seal would be written there."""
    (tmp_path / "source").write_bytes(b"content")
    public, secret = new_keys()

    def change(data: memoryview) -> None:
        at = bytes(data).find(b"source")
        if at >= 0:
            data[at : at + 6] = b"evil!!"

    def work(comm: Communicator, sealed: bool) -> str:
        seal = Seal(public, secret if comm.rank == 0 else b"") if sealed else None
        between: Any = Between(comm, change) if comm.rank == 2 else comm
        out = f"{tmp_path}/{sealed}/{comm.rank}/"
        try:
            copy_files(between, [str(tmp_path / "source")], out, 0, Options(recursive=True), None, seal)
        except RingcastError as error:
            return str(error)
        return ""

    assert ringcast.run(partial(work, sealed=False), 3, backend="threads") == ["", "", ""]
    assert (tmp_path / "False" / "2" / "evil!!").exists()
    assert "another host has changed" in ringcast.run(partial(work, sealed=True), 3, backend="threads")[2]
    assert not list((tmp_path / "True").rglob("evil*"))


# Reports.


def test_a_report_is_that_of_the_host_which_it_came_from_and_has_no_control_characters() -> None:
    report = report_of(3, Ended(ESCAPE, 1, 2, 0.0, 0.0, ESCAPE * 1000))
    assert report.rank == 3
    assert report.host.isprintable()
    assert report.error.isprintable()
    assert len(report.error) <= records.LONGEST


def test_an_error_of_another_host_is_one_line() -> None:
    def work(comm: Communicator) -> str:
        try:
            copy_files(comm, [__file__], f"/proc/self/no{ESCAPE}/", 0, Options())  # type: ignore[arg-type]
        except TransferError as error:
            return str(error)
        return ""

    told = ringcast.run(work, 3, backend="threads")[0]
    assert [text.partition(":")[0] for text in told.splitlines()] == ["rank 1", "rank 2"]
    assert all(text.isprintable() for text in told.splitlines())


REPORT = CopyReport(1, 2, 2, 2, 0.5, (RankReport(1, "h1"),))


def test_lines_that_are_no_answer_are_passed_over() -> None:
    assert answer(line(REPORT)) == REPORT
    plain = json.loads(line(REPORT))
    for wrong in (
        "",
        "[",
        "[" * 100_000,
        "[]",
        "5",
        '["CopyReport"]',
        '["CopyReport", {"ranks": []}]',
        json.dumps(["Progress", "1", 2, None]),
        json.dumps(["Order", [], "", []]),
        json.dumps([*plain[:-1], [[-1, "h1", 0, 0, 0.0, 0.0, ""]]]),
        json.dumps([*plain[:-1], [[1, "h1", 0, 0, 0.0, 0.0]]]),
        json.dumps([*plain[:-2], math.nan, plain[-1]]),
    ):
        assert answer(wrong) is None, wrong


def test_a_manifest_of_the_root_is_not_looked_for_by_others() -> None:
    entry = Entry(b"../x", FILE, 0o644, 0, 1)
    with pytest.raises(TransferError):
        Manifest.decode(Manifest([entry]).encode())
