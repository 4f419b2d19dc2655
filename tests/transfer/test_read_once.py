"""`read_file`: every rank has every byte, each is read once, and whatever goes wrong is an error alike on all ranks."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import ringcast
from ringcast import (
    ArgumentError,
    Communicator,
    JobAborted,
    RingcastError,
    RunFailed,
    SourceChanged,
    SourceError,
    TransferError,
)
from ringcast.transfer import read_once, rounds, shares
from ringcast.transfer.ranges import Ranges
from ringcast.transfer.rounds import Rounds
from ringcast.transfer.sources import tries
from ringcast.transfer.sources.base import Interrupted
from ringcast.transfer.sources.opening import open_source
from support.cases import each
from support.patience import patience, slowness
from support.reads import alike, named_hosts, on_host, read
from support.store import Handler, Store, store

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")

DATA = random.Random(3).randbytes(3_000_000)
HOSTS = "a", "aa", "ab", "aabb", "abcab"
Fault = Callable[[Handler, int, int], bool]


@pytest.fixture
def served() -> Iterator[Store]:
    with store(DATA) as made:
        yield made


def digests(results: list[Any]) -> set[str]:
    return {sha256(result).hexdigest() for result in results}


@pytest.mark.parametrize("hosts", HOSTS)
@each("length", [0, 1, 65_537, len(DATA)])
def test_every_rank_has_every_byte_and_none_is_read_by_all(
    hosts: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_STALLED", 10**9)  # on a busy machine a reader may get no byte for a second
    with store(DATA[:length]) as served:
        results = read(hosts, f"{served.root}/x")
        assert digests(results) == {sha256(DATA[:length]).hexdigest()}
        parts = [each for each in served.asked if each != (0, 1)] if length > 1 else []  # without the openings
        assert [*Ranges(parts)] == ([(0, length)] if length > 1 else [])
        assert sum(stop - start for start, stop in parts) <= 2 * length  # by idle hosts, of what comes late


@pytest.mark.parametrize("kind", ["path", "fsspec"])
@pytest.mark.parametrize("hosts", HOSTS)
def test_other_sources_are_read_alike(kind: str, hosts: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    fsspec.filesystem("memory").pipe_file("/bucket/file", DATA)
    results = read(hosts, str(tmp_path / "file") if kind == "path" else "memory://bucket/file", connections=2)
    assert digests(results) == {sha256(DATA).hexdigest()}


def test_ranks_of_a_host_share_an_array(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)

    def work(comm: Communicator) -> bool:
        mine = comm.read_file(tmp_path / "file", writeable=comm.rank == 1)
        right = mine.dtype == np.uint8 and bytes(mine) == DATA
        comm.barrier()
        if comm.rank == 1:
            mine[7] ^= 255
        comm.barrier()
        return right and mine[7] == DATA[7] ^ 255

    assert ringcast.run(work, 3, backend="threads") == [True] * 3


@each("length", [0, 1, len(DATA)])
def test_a_shared_array_is_read_only_for_good_unless_a_rank_may_write(length: int) -> None:
    def work(comm: Communicator) -> list[bool]:
        flags = []
        for options in {}, {"writeable": True}, {"shared": False}, {"out": np.empty(length, np.uint8)}:
            mine = comm.read_file(path, **options)
            flags.append(mine.flags.writeable)
            if length and not mine.flags.writeable:
                with pytest.raises(ValueError, match="WRITEABLE"):
                    mine.flags.writeable = True
        return flags

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(DATA[:length])
        assert ringcast.run(work, 3, backend="threads") == [[False, True, True, True]] * 3


def test_the_result_goes_into_memory_that_is_there(served: Store) -> None:
    def work(comm: Communicator) -> bool:
        with on_host("ab"[comm.rank % 2]):
            mine = np.empty((3, len(DATA) // 12), np.float32)
            return comm.read_file(served.root, out=mine) is mine and mine.tobytes() == DATA

    with named_hosts():
        assert ringcast.run(work, 4, backend="threads") == [True] * 4


def test_an_out_that_does_not_fit_is_an_error_of_all_and_the_communicator_goes_on(served: Store) -> None:
    def work(comm: Communicator) -> tuple[str, int]:
        with on_host("a"), pytest.raises(TransferError if comm.rank != 1 else ArgumentError) as caught:
            comm.read_file(served.root, out=bytearray(len(DATA) - (comm.rank == 1)))
        return str(caught.value), comm.allreduce(1)

    with named_hosts():
        results = ringcast.run(work, 3, backend="threads")
    assert [total for _, total in results] == [3] * 3
    assert "rank 1" in results[0][0]
    assert "out" in results[1][0]


@each("connections", [0, 65, 1.5, None])
def test_a_number_of_connections_that_is_none_is_refused(connections: Any) -> None:
    assert {type(error) for error in read("a", "/etc/hostname", connections=connections)} == {ArgumentError}


# What hosts see.


def test_hosts_with_the_file_read_for_those_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    results = read("abcd", lambda rank: str(tmp_path / ("file" if rank in (1, 3) else "nothing")))
    assert digests(results) == {sha256(DATA).hexdigest()}


def test_copies_on_each_host_are_recognised(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(DATA)
        os.utime(tmp_path / name, ns=(1, 1))
    assert digests(read("abc", lambda rank: str(tmp_path / "abc"[rank]))) == {sha256(DATA).hexdigest()}
    os.utime(tmp_path / "b", ns=(2, 2))
    error = alike(read("abc", lambda rank: str(tmp_path / "abc"[rank])))
    assert isinstance(error, SourceChanged)
    assert (error.host, error.rank) == ("b", 1)


@each("ranks", [(1, 2), (0, 3), (2, 2)])
def test_ranks_of_a_host_that_give_different_files_are_named(ranks: tuple[int, int]) -> None:
    """Ranks 0 and 1 are on one host, 2 and 3 on another; the first one that differs from the reader is named."""
    with tempfile.TemporaryDirectory() as folder:
        for name in "ab":
            Path(folder, name).write_bytes(DATA)
        results = read("ccdd", lambda rank: f"{folder}/{'b' if rank in ranks else 'a'}")
        wrong = 1 if (0 in ranks) != (1 in ranks) else 3
        names = ["b" if rank in ranks else "a" for rank in (wrong, wrong - 1)]
    error = alike(results)
    assert isinstance(error, SourceError)
    place, given = "cd"[wrong // 2], [f"{folder}/{name}" for name in names]
    assert (error.source, error.rank, error.host) == (given[0], None, place)
    why = "the ranks of one host must give the same path or URL"
    ranks = f"rank {wrong - 1} gives {given[1]}, rank {wrong} gives {given[0]}"
    assert str(error) == f"{given[0]}: {why}: on {place} {ranks}"


def test_ranks_of_a_host_may_name_the_same_file_in_several_ways(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    (tmp_path / "link").symlink_to("file")
    names = [f"{tmp_path}/file", f"{tmp_path}/link", f"{tmp_path}/./link"]
    assert digests(read("aaa", lambda rank: names[rank])) == {sha256(DATA).hexdigest()}


def test_a_file_that_no_host_has_is_an_error(tmp_path: Path) -> None:
    error = alike(read("aab", f"{tmp_path}/nothing"))
    assert isinstance(error, SourceError)
    assert (error.host, error.rank, error.segment) == ("a", 0, None)


def refusal(status: int, after: str | None = None) -> Fault:
    def fault(handler: Handler, *_: int) -> bool:
        handler.refuse(status, after)
        return True

    return fault


def test_a_host_without_rights_leaves_the_read_to_others(served: Store) -> None:
    served.always = lambda handler, *_: "secret" not in handler.path and refusal(403)(handler, 0, 0)
    results = read("abc", lambda rank: f"{served.root}/x{'?secret' if rank == 2 else ''}")
    assert digests(results) == {sha256(DATA).hexdigest()}


def test_no_error_and_no_message_has_a_secret(served: Store) -> None:
    served.always = refusal(403)
    error = alike(read("ab", f"{served.root}/x?secret=1".replace("//", "//user:secret@")))
    assert str(error) == f"{served.root}/x?…: rank 0 (a) cannot read it: HTTP 403 Forbidden"


# Faults while it reads.


def after(requests: int, fault: Fault) -> Fault:
    """Return a fault of all requests but the first ones."""
    lock, count = threading.Lock(), [0]

    def sometimes(handler: Handler, start: int, stop: int) -> bool:
        with lock:
            count[0] += 1
            due = count[0] > requests
        return due and fault(handler, start, stop)

    return sometimes


def answer(**how: str | int) -> Fault:
    def fault(handler: Handler, start: int, stop: int) -> bool:
        handler.part(start, stop, **how)
        return True

    return fault


PASSING = {
    "500": refusal(500),
    "short": answer(bytes=1000),
    "429": refusal(429, "0"),
    "503": refusal(503, "0"),
}


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("hosts", ["a", "abc"])
def test_faults_that_pass_leave_no_trace(name: str, hosts: str, served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "BACKOFF", 0.001)
    rng = random.Random(name)
    served.always = lambda handler, start, stop: rng.random() < 0.2 and PASSING[name](handler, start, stop)
    assert digests(read(hosts, served.root)) == {sha256(DATA).hexdigest()}


LASTING = {
    "403": (refusal(403), SourceError, "HTTP 403 Forbidden"),
    "500": (refusal(500), SourceError, "HTTP 500 Internal Server Error"),
    "whole": (
        answer(status=200),
        SourceError,
        "the server sends no parts of files: download it first (curl -O URL), or use ringcast.fetch",
    ),
    "range": (answer(Content_Range="bytes 3-4/3000000"), SourceError, "the server sends bytes 3 to 5 instead of"),
    "etag": (answer(ETag='"2"'), SourceChanged, "its ETag or time of change is another one"),
    "size": (answer(Content_Range="bytes 0-1/5"), SourceChanged, "its size is 5 bytes, and was 3,000,000"),
    "429": (refusal(429, "0"), SourceError, "the server refuses all requests"),
    "later": (refusal(429, "9999"), SourceError, "and to ask again after 9,999 s"),
}


@pytest.mark.parametrize("name", LASTING)
def test_faults_that_last_are_errors(name: str, served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "BACKOFF", 0.001)
    fault, kind, text = LASTING[name]
    served.always = after(9, fault)
    error = alike(read("abc", served.root))
    assert type(error) is kind
    assert text in str(error)


def test_a_file_that_changes_under_way_is_an_error(served: Store) -> None:
    def change(handler: Handler, *_: int) -> bool:
        handler.store.etag, handler.store.data = '"2"', DATA[::-1]
        return False

    served.always = after(12, change)
    assert type(alike(read("abcb", served.root))) is SourceChanged


def test_a_local_file_that_changes_under_way_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    run = Rounds.run

    def changing(self: Any, *arguments: Any) -> None:
        run(self, *arguments)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(Rounds, "run", changing)
    assert type(alike(read("ab", str(path)))) is SourceChanged


def test_a_host_whose_reads_fail_is_replaced(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "BACKOFF", 0.001)
    of_one = after(2, refusal(500))
    served.always = lambda handler, *range: "one" in handler.path and of_one(handler, *range)
    results = read("abc", lambda rank: f"{served.root}/{'one' if rank == 1 else 'others'}")
    assert digests(results) == {sha256(DATA).hexdigest()}


def test_a_connection_that_stalls_is_replaced(served: Store) -> None:
    """By another host, after a second."""

    def stall(handler: Handler, *_: int) -> bool:
        handler.store.ended.wait()
        handler.close_connection = True
        return True

    of_one = after(3, stall)
    served.always = lambda handler, *range: "one" in handler.path and of_one(handler, *range)
    results = read("ab", lambda rank: f"{served.root}/{'one' if rank == 1 else 'others'}")
    assert digests(results) == {sha256(DATA).hexdigest()}


def test_bytes_that_change_on_the_way_are_noticed(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    once = [1]
    monkeypatch.setattr(rounds, "crc32", lambda data: once.pop() if once else 0)
    error = alike(read("ab", served.root))
    assert "have changed on the way" in str(error)


@pytest.mark.parametrize("hosts", ["a", "ab"])
@each("moment", ["opening", "body", "later", "pause"])
def test_the_timeout_bounds_the_wait_for_a_source_that_gives_nothing(moment: str, hosts: str) -> None:
    asked = itertools.count()

    def silent(handler: Handler, start: int, stop: int) -> bool:
        if next(asked) < (0 if moment == "opening" else 6 if moment == "later" else len(hosts)):
            return False
        if moment == "pause":
            handler.refuse(429, "300")
        else:
            handler.store.ended.wait()
            handler.close_connection = True
        return True

    timeout = patience(0.3 if hosts == "a" else 1.0)
    with store(DATA) as served:
        served.always = silent
        before = time.monotonic()
        error = alike(read(hosts, served.root, timeout))
        took = time.monotonic() - before
    assert isinstance(error, SourceError)
    assert f"nothing came for {0.9 * timeout:.3g} s" in str(error)
    assert f"the timeout of the communicator is {timeout:g} s" in str(error)
    assert ("HTTP 429" in str(error)) == (moment == "pause")
    assert took < timeout + patience(5)  # a try alone lasts 60 seconds


def test_a_reader_gives_up_before_the_ranks_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is of a package that hangs, and that nothing interrupts."""
    ended = threading.Event()

    def hang(*_: Any) -> Any:
        ended.wait()
        raise Interrupted("too late")

    monkeypatch.setattr(read_once, "open_source", hang)
    try:
        error = alike(read("aa", "memory://bucket/file", timeout=patience(1.0)))
    finally:
        ended.set()
        for thread in threading.enumerate():
            if thread.name == "ringcast source":
                thread.join()
    assert isinstance(error, SourceError)
    assert "nothing came for" in str(error)


def test_a_timeout_names_the_call_of_the_program_and_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 waits in a call that `read_file` makes, for rank 0, whose package hangs."""
    timed_out, timeout = threading.Event(), patience(0.3)

    def hang(*_: Any) -> Any:
        timed_out.wait()
        raise Interrupted("too late")

    def work(comm: Communicator) -> tuple[str, str, str, str]:
        comm.timeout = timeout if comm.rank else None
        with on_host("a"), pytest.raises(RingcastError) as caught:
            comm.read_file("memory://me:secret@bucket/file")
        timed_out.set()
        first, here = comm._group.endpoint.unanswered.first, caught.value.__traceback__
        assert here is not None
        line = f"{Path(__file__).name}:{here.tb_lineno}"
        comm.timeout = None
        comm.ack_failed()
        comm.shrink()  # which answers the error
        return str(caught.value), getattr(caught.value, "inside", ""), first.place if first else "", line

    monkeypatch.setattr(read_once, "open_source", hang)
    monkeypatch.setattr(tries, "BACKOFF", 0.001)
    with named_hosts():  # rank 0 hears of the error within a tenth of a second
        text, inside, place, line = ringcast.run(work, 2, backend="threads")[1]
    call = f"read_file('memory://bucket/file') at {line}"
    why = f"did not finish within {timeout:g} s; waiting for rank 0, which may wait for the source (in bcast_into #"
    assert text.startswith(f"rank 1: {call} {why}")
    assert inside == call
    assert place == f"bcast_into at {line}"


# Servers that limit.


def test_a_limit_of_connections_is_kept_after_the_first_refusals(served: Store) -> None:
    served.most, served.after, served.rate = 5, "0", 2e6
    assert digests(read("abcd", served.root)) == {sha256(DATA).hexdigest()}
    assert served.refused


def test_a_pause_concerns_all_hosts(served: Store) -> None:
    """After the one refusal no host asks until the pause is over."""
    times: list[float] = []
    pause = ceil(patience(1))

    def note(handler: Handler, *_: int) -> bool:
        times.append(time.monotonic())
        if len(times) == 20:
            handler.refuse(429, str(pause))
            return True
        return False

    served.always = note
    served.rate = 3e6
    assert digests(read("abc", served.root)) == {sha256(DATA).hexdigest()}
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert max(gaps) > 0.7 * pause


def test_a_rank_that_waits_for_a_server_hears_at_once_that_another_one_has_failed(
    served: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has asked for a pause of 300 seconds."""
    refused = threading.Event()

    def refuse(handler: Handler, *_: int) -> bool:
        handler.refuse(429, "300")
        refused.set()
        return True

    def broken(name: str, uses: Any) -> Any:
        if name.endswith("/broken"):
            refused.wait()
            raise ZeroDivisionError
        return open_source(name, uses)

    served.faults.append(refuse)
    monkeypatch.setattr(read_once, "open_source", broken)

    heard: list[int] = []

    def work(comm: Communicator) -> None:
        with on_host("ab"[comm.rank]), pytest.raises(ZeroDivisionError if comm.rank else JobAborted) as caught:
            comm.read_file(f"{served.root}/{'broken' if comm.rank else 'x'}")
        heard.append(comm.rank)
        raise caught.value

    with named_hosts(), pytest.raises(RunFailed, match="ZeroDivisionError"):
        ringcast.run(work, 2, backend="threads")
    assert heard == [1, 0]


def test_hosts_share_in_the_reading(served: Store) -> None:
    """Where each connection is slow, each host reads about a quarter."""
    served.rate = 500_000 / slowness()
    read("abcd", lambda rank: f"{served.root}/{rank}")
    shares = dict.fromkeys("0123", 0)
    for headers, (start, stop) in zip(served.headers, served.asked, strict=True):
        shares[headers["path"][1]] += stop - start
    assert min(shares.values()) > len(DATA) // 8
