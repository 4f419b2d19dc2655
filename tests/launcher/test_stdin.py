"""Standard input of a rank: here, on another host, one that does not read, and none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.patience import patience
from support.ports import free_port
from support.terminals import LAUNCH, LIMIT, on_terminal

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

MUCH = 5_000_000  # bytes; more than may be under way
COUNT = "import os, sys; data = sys.stdin.buffer.read(); print(os.environ['RANK'], len(data), sum(data))"
DATA = bytes(range(256)) * (MUCH // 256)


def launch(*arguments: str, data: bytes = DATA) -> tuple[int, list[str]]:
    done = subprocess.run(
        [*LAUNCH, "--output", "none", *arguments], input=data, stdout=subprocess.PIPE, timeout=patience(LIMIT)
    )
    return done.returncode, sorted(done.stdout.decode().splitlines())


def counted(reader: int, size: int) -> list[str]:
    return [f"{rank} {len(DATA) if rank == reader else 0} {sum(DATA) if rank == reader else 0}" for rank in range(size)]


@pytest.mark.parametrize(("options", "reader"), [((), 0), (("--stdin", "2"), 2), (("--stdin", "none"), -1)])
def test_one_rank_gets_all_of_it_and_the_others_nothing(options: Sequence[str], reader: int) -> None:
    assert launch("-n", "3", *options, "python", "-c", COUNT) == (0, counted(reader, 3))


def two_nodes(program: str, stdin: int, *, rank: int = 1) -> tuple[int, list[str]]:
    """Run a job of two nodes, of which the ranks of node 1 have an agent between themselves and the launcher."""
    port = free_port()
    where = [*LAUNCH, "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--stdin", str(rank), "--output", "none"]
    commands = [[*where, "--node-rank", str(node), "python", "-c", program] for node in (0, 1)]
    with (
        subprocess.Popen(commands[0], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first,
        subprocess.Popen(commands[1], stdin=subprocess.DEVNULL) as second,
    ):
        try:
            out, err = first.communicate(timeout=patience(LIMIT))
            second.wait(patience(LIMIT))
        finally:
            first.kill()
            second.kill()
    assert first.returncode == second.returncode, err
    return first.returncode, sorted(out.decode().splitlines())


def test_a_rank_on_another_node_gets_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    with subprocess.Popen(["cat", tmp_path / "data"], stdout=subprocess.PIPE) as source:
        assert source.stdout is not None
        assert two_nodes(COUNT, source.stdout.fileno()) == (0, counted(1, 2))


def test_a_file_goes_to_another_node_too(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    with (tmp_path / "data").open() as file:
        assert two_nodes(COUNT, file.fileno()) == (0, counted(1, 2))


@pytest.mark.parametrize("program", ["pass", "import sys; sys.stdin.buffer.read(1000); sys.stdin.close()"])
@pytest.mark.parametrize("far", [False, True], ids=["here", "far"])
def test_a_rank_that_does_not_read_all_delays_no_end(program: str, far: bool) -> None:
    endless = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    with endless:
        try:
            assert endless.stdout is not None
            if far:
                assert two_nodes(program, endless.stdout.fileno()) == (0, [])
            else:
                done = subprocess.run(
                    [*LAUNCH, "-n", "2", "python", "-c", program], stdin=endless.stdout, timeout=patience(LIMIT)
                )
                assert done.returncode == 0
        finally:
            endless.kill()


def test_input_that_never_comes_delays_no_end() -> None:
    reading, writing = os.pipe()
    try:
        assert two_nodes("pass", reading) == (0, [])
    finally:
        os.close(reading)
        os.close(writing)


def test_a_terminal_goes_to_nobody_unless_a_rank_is_named() -> None:
    program = "import os, sys; print(os.environ['RANK'], repr(sys.stdin.readline()))"
    with on_terminal("-q", "-n", "2", "python", "-c", program) as job:
        assert job.end() == 0
    assert sorted(job.lines) == ["", "[0] 0 ''", "[1] 1 ''"]
    with on_terminal("-n", "2", "--stdin", "1", "python", "-c", program) as job:
        job.wait_for(r"\[0\] 0 ''")
        job.type("words\n")
        assert job.end() == 0
    assert "[1] 1 'words\\n'" in job.lines


def test_run_reads_no_input_of_its_caller() -> None:
    program = (
        "import ringcast, sys; ringcast.run(lambda comm: __import__('sys').stdin.read(), 2); print(sys.stdin.read())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"mine", capture_output=True, timeout=patience(LIMIT))
    assert (done.returncode, done.stdout) == (0, b"mine\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("3", "--stdin 3: a job of 3 has no such rank; the last one is 2\n"),
        ("-1", "'-1': must be a rank, or none"),
        ("all", "'all': must be a rank, or none"),
    ],
)
def test_ranks_that_are_not_there_are_refused(value: str, text: str) -> None:
    done = subprocess.run(
        [*LAUNCH, "-n", "3", f"--stdin={value}", "true"], capture_output=True, text=True, timeout=patience(LIMIT)
    )
    assert done.returncode == 2
    assert text in done.stderr
