"""Output that cannot be written at once, or not at all: it is waited for, or the exit code and a line tell of it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ringcast._util import streams
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.decide.lost_output import Losses
from ringcast_launcher.output.output import LogFile, Writer
from support.patience import patience

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 60  # seconds; nothing here takes nearly as long
LINES = 40_000
FULL = os.strerror(errno.ENOSPC)
# The reader waits at the other end of `gate` until all is written.
NUMBERS = f"import sys\nfor i in range({LINES}): print(i, file=sys.{{stream}})\nopen('{{gate}}', 'w').close()"

full_disk = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def read_late_and_slowly(gate: Path, reading: int, found: bytearray) -> None:
    """Read when all is written, so that the pipe has been full, and a little at a time, so that it is full again."""
    gate.open().close()
    while data := os.read(reading, 500):
        found += data


def numbers_through(stream: int, gate: Path, command: list[str]) -> tuple[int, list[bytes], str]:
    """Return the exit code, the lines that came through a non-blocking pipe, and what the other stream had."""
    os.mkfifo(gate)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    files = {1: writing, 2: subprocess.PIPE} if stream == 1 else {1: subprocess.PIPE, 2: writing}
    found = bytearray()
    with subprocess.Popen(command, stdout=files[1], stderr=files[2], text=True) as process:
        os.close(writing)
        reader = threading.Thread(target=read_late_and_slowly, args=(gate, reading, found))
        reader.start()
        other = process.communicate(timeout=patience(LIMIT))
        reader.join()
    os.close(reading)
    return process.returncode, bytes(found).splitlines(), other[2 - stream] or ""


@pytest.mark.parametrize(("stream", "name"), [(1, "stdout"), (2, "stderr")])
def test_a_slow_reader_of_a_non_blocking_pipe_gets_every_line(tmp_path: Path, stream: int, name: str) -> None:
    gate = tmp_path / "gate"
    command = [*LAUNCH, "-n", "1", "python", "-c", NUMBERS.format(stream=name, gate=gate)]
    code, lines, other = numbers_through(stream, gate, command)
    assert lines == [b"[0] %d" % i for i in range(LINES)]
    assert (code, other) == (0, "")


@pytest.mark.parametrize(("stream", "name"), [(1, "stdout"), (2, "stderr")])
def test_run_hands_every_line_to_a_non_blocking_pipe(tmp_path: Path, stream: int, name: str) -> None:
    gate = tmp_path / "gate"
    program = f"""
import ringcast
def work(comm):
    exec({NUMBERS.format(stream=name, gate=gate)!r})
    return comm.rank
if __name__ == "__main__":
    assert ringcast.run(work, 1) == [0]
"""
    code, lines, other = numbers_through(stream, gate, [sys.executable, "-c", program])
    assert lines == [b"[0] %d" % i for i in range(LINES)]
    assert (code, other) == (0, "")


def launch(*arguments: str, stdout: object = subprocess.PIPE, stderr: object = subprocess.PIPE) -> tuple[int, str, str]:
    done = subprocess.run([*LAUNCH, *arguments], stdout=stdout, stderr=stderr, text=True, timeout=patience(LIMIT))
    return done.returncode, done.stdout or "", done.stderr or ""


def report_of(path: Path) -> tuple[int, str]:
    report = json.loads(path.read_text())
    return report["exit_code"], report["cause"]


@full_disk
@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_full_disk_as_standard_output_is_an_error(tmp_path: Path, p: int) -> None:
    wrote = tmp_path / "wrote"
    with open("/dev/full", "wb") as full:
        program = f"echo out; echo err >&2; echo $RANK >>{wrote}"
        code, _, errors = launch(
            *("-q", "-n", str(p), "--json-report", str(tmp_path / "report"), "--", "sh", "-c", program), stdout=full
        )
    cause = f"standard output cannot be written ({FULL}); the rest of the output is lost"
    *others, last = errors.splitlines()
    assert (code, last) == (1, f"ringcast-launch: {cause}")
    assert sorted(others) == [f"[{rank}] err" for rank in range(p)]
    assert report_of(tmp_path / "report") == (1, cause)
    assert sorted(wrote.read_text().split()) == [str(rank) for rank in range(p)]  # the job was not ended for that


@full_disk
def test_a_full_disk_as_standard_error_is_an_error(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        code, out, _ = launch(
            "-n", "1", "--json-report", str(tmp_path / "report"), "--", "sh", "-c", "echo out; echo err >&2",
            stderr=full,
        )  # fmt: skip
    assert (code, out) == (1, "[0] out\n")
    assert report_of(tmp_path / "report")[0] == 1
    assert FULL in report_of(tmp_path / "report")[1]


@full_disk
def test_a_job_that_fails_anyhow_keeps_its_cause(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        code, _, errors = launch("-n", "1", "--", "sh", "-c", "echo out; exit 7", stdout=full)
    first, last = errors.splitlines()
    assert code == 7
    assert first == f"ringcast-launch: standard output cannot be written ({FULL}); the rest of the output is lost"
    assert last.endswith("failed: exit code 7")


@full_disk
def test_a_full_disk_under_an_output_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").symlink_to("/dev/full")
    code, _, errors = launch("-n", "1", "--output", f"dir={tmp_path}", "--", "sh", "-c", "echo out; echo err >&2")
    assert code == 1
    assert errors == (
        f"ringcast-launch: {tmp_path}/rank-0.out cannot be written ({FULL}); the rest of the output is lost\n"
    )
    assert (tmp_path / "rank-0.err").read_text() == "err\n"


@full_disk
def test_a_full_disk_under_a_dry_run_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        code, _, errors = launch("-n", "1", "--dry-run", "true", stdout=full)
    assert (code, FULL in errors, errors.count("\n")) == (1, True, 1)


@full_disk
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_run_raises_where_the_ranks_output_cannot_be_written(name: str) -> None:
    program = f"""
import ringcast, sys
try:
    ringcast.run(lambda comm: print("x", file=__import__("sys").{name}), 1)
except OSError as error:
    assert error.errno == {errno.ENOSPC}
    import os; os._exit(5)  # what the full stream still holds is nobody's concern
"""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], **{name: full}, timeout=patience(LIMIT))
    assert done.returncode == 5


@pytest.mark.parametrize("stream", [1, 2])
def test_nobody_reads_is_the_code_of_sigpipe_and_no_word(tmp_path: Path, stream: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as file:
        done = launch(
            "-n", "1", "--json-report", str(tmp_path / "report"), "--", "sh", "-c", f"echo x >&{stream}",
            **{{1: "stdout", 2: "stderr"}[stream]: file},
        )  # fmt: skip
    assert done == (141, "", "")
    name = {1: "standard output", 2: "standard error"}[stream]
    assert report_of(tmp_path / "report") == (141, f"the reader of {name} has gone")


@pytest.mark.parametrize(("stream", "told"), [(1, True), (2, False)])
def test_a_closed_stream_gets_nothing_and_nothing_takes_its_place(stream: int, told: bool) -> None:
    command = f'"$@" {stream}>&-'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *LAUNCH, "-n", "1", "--", "sh", "-c", f"echo x >&{stream}"],
        capture_output=True, text=True, timeout=patience(LIMIT),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert (os.strerror(errno.EBADF) in done.stderr) == told


def test_a_writer_tells_of_the_first_error_of_each_stream() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = Writer()
    for _ in range(100):
        writer.put(writing, b"x" * 100_000)
    writer.settle(patience(LIMIT))
    assert not writer.full
    assert (writer.losses.code, writer.losses.causes) == (141, [])
    os.close(writing)
    writer.put(987_654, b"x")
    writer.put(987_654, b"x")
    writer.close()
    assert writer.losses.code == 1
    (cause,) = writer.losses.causes
    assert cause.startswith("file descriptor 987654 cannot be written (")


@full_disk
def test_a_file_that_is_full_takes_nothing_more() -> None:
    losses = Losses()
    file = LogFile(Path("/dev/full"), "wb", losses)
    file.write(b"")
    assert losses.code == 0
    file.write(b"x")
    file.write(b"y")
    file.close()
    assert losses.causes == [f"/dev/full cannot be written ({FULL}); the rest of the output is lost"]


def test_lost_output_is_the_cause_of_a_job_that_is_well_otherwise() -> None:
    losses = Losses()
    assert JobReport(0).but_for(losses) == JobReport(0)
    losses.note("standard output", BrokenPipeError())
    assert JobReport(0).but_for(losses) == JobReport(141, "the reader of standard output has gone")
    losses.note("log", OSError(errno.EIO, "bad disk"))
    losses.note("log", OSError(errno.EIO, "another"))
    cause = "log cannot be written (bad disk); the rest of the output is lost"
    assert JobReport(0).but_for(losses) == JobReport(1, cause)
    assert JobReport(3, "failed").but_for(losses) == JobReport(3, "failed")


def test_text_streams_without_a_file_of_their_own_are_written_as_always(capsys: pytest.CaptureFixture[str]) -> None:
    streams.write_text(sys.stdout, "a\nb")
    streams.flush(sys.stdout)
    assert capsys.readouterr().out == "a\nb"
