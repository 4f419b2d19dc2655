"""Bad input that used to raise errors of Python's or numpy's own, each as a user types it."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import ArgumentError, Communicator, RunFailed
from ringcast._util import input_files
from ringcast.engine.datatypes import MOST_DIMENSIONS
from support.patience import patience

BYTES = os.fsdecode(b"a\xffb\xc3")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
SSH = {"SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22"}
SHOW = "import os, sys; print(*map(os.fsencode, [*sys.argv[1:], os.environ.get('A', '')]))\n"


def launch(*arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ringcast_launcher", "--output", "none", *arguments]
    return subprocess.run(command, capture_output=True, timeout=timeout, env=ENVIRONMENT | SSH, check=False)


def refused(*arguments: str) -> str:
    """Return the one line in which a command line is refused."""
    done = launch(*arguments)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert done.stderr.count(b"\n") == 1
    return done.stderr.decode("utf-8", "surrogateescape")


# Calls.


def alone(call: Any, p: int = 3) -> str:
    """Return the error of a call, which must be about a wrong argument."""
    with pytest.raises(RunFailed) as failed:
        ringcast.run(call, p, backend="threads")
    assert isinstance(failed.value.__cause__, ArgumentError)
    return str(failed.value.__cause__)


@pytest.mark.parametrize(
    "count", [math.inf, -math.inf, math.nan, 2**58, 2**63, 2**64, np.float64("inf"), np.uint64(2**63)]
)
@pytest.mark.parametrize("name", ["gatherv", "allgatherv", "scatterv", "reduce_scatter", "alltoallv", "recvcounts"])
def test_counts_that_no_array_has(name: str, count: Any) -> None:
    def call(c: Communicator) -> None:
        mine = np.arange(6.0)
        if name == "alltoallv":
            c.alltoallv(mine, [2, 2, count])
        elif name == "recvcounts":
            c.alltoallv(mine, [2, 2, 2], [2 if rank == c.rank else count for rank in range(c.size)])
        elif name.startswith(("gather", "allgather")):
            getattr(c, name)(mine, [6 if rank == c.rank else count for rank in range(c.size)])
        else:
            getattr(c, name)(mine, counts=[0, count, 6])

    assert "counts: expected" in alone(call)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["bcast", "allreduce", "allgatherv", "scan", "alltoall", "scatter", "shift"])
def test_arrays_of_as_many_dimensions_as_numpy_has(name: str, p: int) -> None:
    def call(c: Communicator) -> int:
        array = np.ones((c.size,) + (1,) * (MOST_DIMENSIONS - 1))
        got = c.shift(array, 1) if name == "shift" else getattr(c, name)(array)
        return int(got.ndim)

    dimensions = MOST_DIMENSIONS - (name == "scatter")
    assert ringcast.run(call, p, backend="threads") == [dimensions] * p


@pytest.mark.parametrize("name", ["gather", "allgather"])
def test_what_is_stacked_has_a_dimension_less(name: str) -> None:
    most = MOST_DIMENSIONS - 1
    assert f"value: expected an array of {most} dimensions or less" in alone(
        lambda c: getattr(c, name)(np.ones((1,) * MOST_DIMENSIONS))
    )
    ringcast.run(lambda c: getattr(c, name)(np.ones((1,) * most)), 3, backend="threads")


@pytest.mark.parametrize("tag", [np.uint64(3), np.uint8(255), np.int32(3), np.uint32(2**32 - 1)])
@pytest.mark.filterwarnings("error")
def test_tags_of_numpy(tag: Any) -> None:
    def call(c: Communicator) -> list[int]:
        ends = np.uint8((c.rank + 1) % c.size), np.uint64((c.rank - 1) % c.size)
        return [c.sendrecv(c.rank, *ends, tag) for _ in range(3)]

    assert ringcast.run(call, 3, backend="threads") == [[2] * 3, [0] * 3, [1] * 3]


@pytest.mark.parametrize("tag", [np.uint64(2**63), np.int8(-1), np.float32(1)])
def test_tags_of_numpy_that_are_none(tag: Any) -> None:
    assert "tag: expected a number from 0" in alone(lambda c: c.sendrecv(1, 1 - c.rank, 1 - c.rank, tag), 2)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("items", [0, 1, 100_000])  # without a grant, and with
def test_roots_blocks_and_counts_of_numpy(p: int, items: int) -> None:
    def call(c: Communicator) -> list[int]:
        root, counts = np.int64(c.size - 1), np.full(c.size, items, np.int16 if items < 9 else np.int32)
        ones = np.ones(items, np.uint8)
        got = c.bcast(ones if c.rank == root else None, root, algorithm="circulant", nblocks=np.int32(2))
        total = c.reduce(ones, root=root)
        every = c.gatherv(ones, counts, root)
        return [got.size, *([] if total is None or every is None else [total.size, every.size])]

    assert ringcast.run(call, p, backend="threads") == [[items]] * (p - 1) + [[items, items, p * items]]


@pytest.mark.parametrize("timeout", [np.float32(1.5), np.int64(30), np.uint8(30), np.float64(30), 10**400, math.inf])
def test_timeouts_of_numpy(timeout: Any) -> None:
    def call(c: Communicator) -> None:
        c.barrier(timeout=timeout)
        c.timeout = timeout
        c.barrier()

    ringcast.run(call, 3, backend="threads")
    ringcast.run(call, 2, backend="threads", timeout=timeout)


@pytest.mark.parametrize("timeout", [np.float32("nan"), math.nan, np.int8(-1), np.float64(0), np.array([1.0]), "3"])
def test_timeouts_that_are_none(timeout: Any) -> None:
    assert "timeout: expected a number of seconds above 0" in alone(lambda c: c.barrier(timeout=timeout))


# Bytes that are no text.


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_arguments_and_variables_that_are_no_text(verbose: list[str], tmp_path: Path) -> None:
    program = tmp_path / f"{BYTES}.py"
    program.write_text(SHOW)
    done = launch(*verbose, "-n", "1", "-x", f"A={BYTES}", str(program), BYTES)
    assert (done.returncode, done.stdout) == (0, f"{os.fsencode(BYTES)} {os.fsencode(BYTES)}\n".encode()), done.stderr
    assert b"Error" not in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_they_reach_other_hosts_as_they_are(verbose: list[str], tmp_path: Path) -> None:
    program, starter = tmp_path / f"{BYTES}.py", tmp_path / "starter"
    program.write_text(SHOW)
    starter.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    starter.chmod(0o755)
    hosts = ["--rsh-agent", shlex.quote(str(starter)), "-H", "h1.test", "-x", f"A={BYTES}"]
    done = launch(*verbose, *hosts, str(program), BYTES)
    assert (done.returncode, done.stdout) == (0, f"{os.fsencode(BYTES)} {os.fsencode(BYTES)}\n".encode()), done.stderr
    assert b"Error" not in done.stderr
    told = launch("--dry-run", *hosts, str(program), BYTES)
    assert (told.returncode, told.stderr) == (0, b"")
    assert os.fsencode(BYTES) in told.stdout


@pytest.mark.live
def test_what_is_not_there_and_no_text(tmp_path: Path) -> None:
    for arguments in (
        ["-n", "1", f"{BYTES}.py"],
        ["-n", "1", "--wdir", BYTES, "x"],
        ["-n", "1", "--config", BYTES, "x"],
    ):
        refused(*arguments)
    refused("--hostfile", BYTES, "x")
    refused("-H", BYTES, "x")


# Files and commands that are none.


def test_a_quotation_without_end() -> None:
    assert refused("-H", "h1.test", "--rsh-agent", '"', "true").endswith('--rsh-agent ": no closing quotation\n')
    command = [sys.executable, "-m", "ringcast", "doctor", "-H", "h1.test", "--rsh-agent", '"']
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ringcast doctor: no closing quotation\n".replace("no", "No")


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_command_is_none(blank: str) -> None:
    """Else the name of the host would be taken for the command."""
    usual = launch("--dry-run", "-H", "h1.test", "true")
    done = launch("--dry-run", "-H", "h1.test", "--rsh-agent", blank, "true")
    assert (done.returncode, done.stdout) == (0, usual.stdout)


@pytest.mark.live
@pytest.mark.parametrize("option", [["-n", "1", "--config"], ["--hostfile"]])
def test_files_without_end(option: list[str], tmp_path: Path) -> None:
    assert "more than 1 MB" in refused(*option, "/dev/zero", "true")
    (tmp_path / "large").write_bytes(bytes(input_files.LARGEST + 1))
    assert "more than 1 MB" in refused(*option, str(tmp_path / "large"), "true")
    assert "directory" in refused(*option, str(tmp_path), "true")
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it
    refused(*option, str(tmp_path / "pipe"), "true")


def test_a_pipe_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"h1 slots=2\n")
    monkeypatch.setattr(input_files, "PATIENCE", 0.1)
    with pytest.raises(OSError, match=r"it did not end within 0\.1 s"):
        input_files.read(f"/dev/fd/{reading}")
    os.write(writing, b"h1 slots=2\n")
    os.close(writing)
    assert input_files.read(f"/dev/fd/{reading}") == b"h1 slots=2\n"
    os.close(reading)
