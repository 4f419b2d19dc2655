"""`read_rows`: each rank has its rows, as numpy and pyarrow read them, no byte of others, and errors alike on all."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, Communicator, JobAborted, RingcastError, RunFailed, SourceChanged, SourceError
from ringcast.transfer.sources import tries
from support import needs
from support.cases import each
from support.patience import patience
from support.reads import alike
from support.store import Handler, store

pytestmark = pytest.mark.usefixtures("nothing_left", "no_proxy")

SIZES = 1, 2, 3, 5
GIVEN = {1: [9], 2: [0, 9], 3: [4, 0, 5], 5: [1, 3, 0, 0, 5]}
ARRAYS = {
    "bytes": np.arange(9, dtype=np.uint8),
    "table": np.arange(45.0).reshape(9, 5),
    "fortran": np.asfortranarray(np.arange(90, dtype=">i2").reshape(9, 2, 5)),
    "structured": np.array([(i, 2.5 * i) for i in range(9)], [("a", "i4"), ("b", "f8")]),
    "empty rows": np.zeros((9, 0)),
    "no rows": np.zeros((0, 4), np.float32),
    "text": np.array([f"row {i}" for i in range(9)]),
}


def saved(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def read(size: int, source: str | Path | Callable[[int], str], *args: Any, **options: Any) -> list[Any]:
    def work(comm: Communicator) -> Any:
        mine = source(comm.rank) if callable(source) else source
        try:
            return comm.read_rows(mine, *args, **options)
        except RingcastError as error:
            return error

    return ringcast.run(work, size, backend="threads")


def divided(size: int, counts: list[int]) -> list[slice]:
    return [slice(sum(counts[:rank]), sum(counts[: rank + 1])) for rank in range(size)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ARRAYS)
def test_rows_of_npy_are_those_of_numpy(tmp_path: Path, name: str, size: int) -> None:
    array = ARRAYS[name]
    path = tmp_path / "rows.npy"
    path.write_bytes(saved(array))
    for counts in [len(part) for part in np.array_split(array, size)], GIVEN[size]:
        if sum(counts) == len(array):
            for mine, part in zip(read(size, path, counts), divided(size, counts), strict=True):
                assert (mine.dtype, mine.shape) == (array.dtype, array[part].shape)
                assert mine.tobytes() == array[part].tobytes()
    for mine, expected in zip(read(size, path), np.array_split(array, size), strict=True):
        assert mine.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_a_server_gives_each_byte_once(size: int) -> None:
    array = np.arange(30_000.0).reshape(-1, 3)
    with store(saved(array)) as served:
        results = read(size, f"{served.root}/rows.npy")
        head = len(served.data) - array.nbytes
        parts = sorted(part for part in served.asked if part[0] >= head)
    assert np.array_equal(np.concatenate(results), array)
    assert [start for start, _ in parts] == [head, *(stop for _, stop in parts[:-1])]


@pytest.mark.parametrize("size", SIZES)
def test_rows_and_nothing_else(tmp_path: Path, size: int) -> None:
    path, array = tmp_path / "rows", np.arange(54, dtype="<i2").reshape(9, 3, 2)
    path.write_bytes(b"head" + array.tobytes())
    for mine, expected in zip(
        read(size, path, dtype="<i2", row=(3, 2), offset=4), np.array_split(array, size), strict=True
    ):
        assert np.array_equal(mine, expected)
        assert mine.shape == expected.shape


@pytest.mark.parametrize("size", SIZES)
@each("groups", [1, 2, 4, 100])
def test_rows_of_parquet_are_those_of_pyarrow(tmp_path: Path, size: int, groups: int) -> None:
    needs.package("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": np.arange(9), "b": [f"row {i}" for i in range(9)]})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=groups)
    for mine, part in zip(read(size, path, GIVEN[size]), divided(size, GIVEN[size]), strict=True):
        assert mine.equals(table.slice(part.start, part.stop - part.start))
    names = [mine.column_names for mine in read(size, path, columns=["b"])]
    assert names == [["b"]] * size


OBJECTS = saved(np.array([{}, None], object), allow_pickle=True)
WRONG = {
    "text": (b"some text", {}, "neither a .npy nor a Parquet file; of rows and nothing else, give their dtype"),
    "nothing": (b"", {}, "neither a .npy nor a Parquet file"),
    "objects": (OBJECTS, {}, "it has Python objects, which are not unpickled"),
    "no rows": (saved(np.float64(1)), {}, "its array has no dimension"),
    "cut": (saved(np.arange(9))[:-1], {}, "it has 199 bytes"),
    "head": (b"\x93NUMPY\x01\x00\xff\xff{", {}, "no .npy file: "),
    "parquet": (b"PAR1 and no more", {}, "no Parquet file: "),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_has_no_such_rows_is_an_error_alike_on_all_ranks(tmp_path: Path, name: str, size: int) -> None:
    content, options, reason = WRONG[name]
    (tmp_path / "file").write_bytes(content)
    error = alike(read(size, tmp_path / "file", **options))
    assert isinstance(error, SourceError)
    assert reason in str(error)


@pytest.mark.parametrize("size", SIZES)
def test_arguments_that_do_not_fit_are_refused_on_all_ranks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "rows.npy"
    path.write_bytes(saved(np.arange(9)))
    for counts in [8, *[0] * (size - 1)], [9] * size + [0], [-1, 10][:size]:
        errors = read(size, path, counts)
        assert {type(error) for error in errors} == {ArgumentError}, errors
        assert f"expected a number of rows for each of {size} ranks, 9 together" in str(errors[0])
    path = tmp_path / "raw"
    path.write_bytes(bytes(200))
    for options in (
        {"dtype": "i8", "row": 1000},
        {"dtype": "i8", "offset": -8},
        {"dtype": object},
        {"dtype": "no"},
        {"row": 2},
    ):
        assert {type(error) for error in read(size, path, **options)} == {ArgumentError}


def test_a_dtype_beside_the_files_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.npy").write_bytes(saved(np.arange(9)))
    assert "it is a npy file, which says its dtype: leave that out" in str(
        alike(read(2, tmp_path / "file.npy", dtype="i8"))
    )


def test_ranks_that_ask_for_different_rows_all_raise(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(16))

    def work(comm: Communicator) -> Any:
        with pytest.raises(ArgumentError, match="expected the same on all ranks"):
            comm.read_rows(path, dtype="i4" if comm.rank else "f4")
        return comm.allreduce(1)

    assert ringcast.run(work, 3, backend="threads") == [3] * 3


def test_ranks_that_see_different_files_all_raise(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"{rank}.npy").write_bytes(saved(np.arange(9) + (rank == 2)))
        os.utime(tmp_path / f"{rank}.npy", ns=(5, 5))
    error = alike(read(3, lambda rank: str(tmp_path / f"{rank}.npy")))
    assert isinstance(error, SourceChanged)
    assert "rank 2" in str(error)


@each("name", ["busy", "broken off"])
def test_a_server_that_fails_now_and_then_is_asked_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "BACKOFF", 0.001)
    array = np.arange(1000)

    def busy(handler: Handler, start: int, stop: int) -> bool:
        handler.send_response(429)
        handler.send_header("Retry-After", "0")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    def broken(handler: Handler, start: int, stop: int) -> bool:
        handler.close_connection = True
        return True

    with store(saved(array)) as served:
        served.faults += [busy if name == "busy" else broken] * 3
        assert np.array_equal(np.concatenate(read(2, f"{served.root}/rows.npy")), array)


def test_a_rank_that_waits_for_a_server_hears_at_once_that_another_one_has_failed() -> None:
    """The server has asked for a pause of 300 seconds."""
    heard: list[int] = []

    def work(comm: Communicator) -> None:
        if comm.rank:
            refused.wait()
            raise ZeroDivisionError
        with pytest.raises(JobAborted):
            comm.read_rows(f"{served.root}/rows.npy")
        heard.append(comm.rank)

    refused = threading.Event()

    def refuse(handler: Handler, *_: int) -> bool:
        handler.refuse(429, "300")
        refused.set()
        return True

    with store(b"") as served:
        served.always = refuse
        with pytest.raises(RunFailed, match="ZeroDivisionError"):
            ringcast.run(work, 2, backend="threads")
    assert heard == [0]


def test_a_server_that_always_fails_is_named_with_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "BACKOFF", 0.001)

    def broken(handler: Handler, start: int, stop: int) -> bool:
        handler.close_connection = start > 4000
        return handler.close_connection

    with store(saved(np.arange(1000))) as served:
        served.always = broken
        error = alike(read(2, f"{served.root}/rows.npy"))
    assert isinstance(error, SourceError)
    assert (error.rank, error.segment) == (1, (128 + 4000, 128 + 8000))


@each("moment", ["opening", "rows"])
def test_the_timeout_bounds_the_wait_for_a_source_that_gives_nothing(moment: str) -> None:
    timeout = patience(0.5)

    def silent(handler: Handler, start: int, stop: int) -> bool:
        if moment == "rows" and start < 4000:
            return False
        handler.store.ended.wait()
        handler.close_connection = True
        return True

    def work(comm: Communicator) -> RingcastError | None:
        comm.timeout = timeout
        try:
            comm.read_rows(f"{served.root}/rows.npy")
        except RingcastError as error:
            return error
        return None

    with store(saved(np.arange(20_000))) as served:
        served.always = silent
        before = time.monotonic()
        error = alike(ringcast.run(work, 2, backend="threads"))
        took = time.monotonic() - before
    assert isinstance(error, SourceError)
    assert f"nothing came for {0.9 * timeout:.3g} s" in str(error)
    assert took < timeout + patience(5)  # a try alone lasts 60 seconds
