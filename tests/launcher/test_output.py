"""Output of the workers: whole lines, prefixes, files, and what is kept for the last report."""

import doctest
import os
import random
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringcast._util import redrawn
from ringcast_launcher.output import output
from ringcast_launcher.output.output import Lines, Tail, Writer, file_name, open_sinks, parse
from support.cases import each
from support.patience import patience


def pieces(data: bytes, seed: int) -> list[bytes]:
    """Cut data at random places."""
    cuts = sorted(random.Random(seed).choices(range(len(data) + 1), k=20))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@each("text", [b"", b"a", b"\n", b"a\n", b"a\nb", b"\n\nx\n\n", b"line\n" * 50 + b"end"])
@each("seed", range(10))
def test_every_line_gets_one_prefix_however_it_is_cut(text: bytes, seed: int) -> None:
    lines = Lines(b"[3] ")
    written = [lines.feed(piece) for piece in pieces(text, seed)]
    assert all(part == b"" or (part.startswith(b"[3] ") and part.endswith(b"\n")) for part in written)
    assert b"".join(written) + lines.flush() == b"".join(b"[3] " + line + b"\n" for line in text.splitlines())


def test_without_prefix_lines_stay_as_they_are() -> None:
    lines = Lines()
    assert lines.feed(b"a\nb\nc") == b"a\nb\n"
    assert lines.flush() == b"c\n"


def test_a_line_without_end_is_cut_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_LINE", 100)
    lines = Lines(b"> ")
    assert lines.feed(b"x" * 60) == b""
    assert lines.feed(b"x" * 60) == b"> " + b"x" * 120 + b"\n"
    assert lines.feed(b"y\n") == b"> y\n"


def test_the_last_traceback_is_found_and_the_tail_is_bounded() -> None:
    tail = Tail()
    tail.feed(b"Traceback (most recent call last):\n  old\nKeyError: 1\n")
    for _ in range(1000):
        tail.feed(b"noise " * 100 + b"\n")
    assert tail.traceback() == ""
    tail.feed(b"Traceback (most recent call last):\n  new\n")
    tail.feed(b"ValueError: 2\n")
    assert tail.traceback() == "Traceback (most recent call last):\n  new\nValueError: 2\n"


@pytest.mark.parametrize("spec", ["", "tagged", "dir", "dir=", "file=", "tag=1"])
def test_unknown_outputs_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="must be tag, none, dir=DIRECTORY or file=PATTERN"):
        parse(spec)


@pytest.mark.parametrize(
    ("pattern", "size", "name"),
    [("a-%r", 17, "a-3"), ("a-%R", 17, "a-03"), ("%h/%R", 1000, "n1/003"), ("log", 17, "log.03"), ("log", 1, "log")],
)
def test_file_names(pattern: str, size: int, name: str) -> None:
    assert file_name(pattern, 3, size, "n1") == name


def sinks_to(spec: str, writer: Writer, files: ExitStack) -> tuple[output.Sink, output.Sink]:
    return open_sinks(spec, 3, 12, "n1", writer=writer, environment={}, files=files)


def test_directory_output(tmp_path: Path) -> None:
    with ExitStack() as files:
        out, err = sinks_to(f"dir={tmp_path}/logs", Writer(), files)
        out.feed(b"one\ntw")
        err.feed(b"oops\n")
        out.end()
    assert (tmp_path / "logs/rank-03.out").read_bytes() == b"one\ntw\n"
    assert (tmp_path / "logs/rank-03.err").read_bytes() == b"oops\n"


def test_file_output_takes_both_streams_line_by_line(tmp_path: Path) -> None:
    with ExitStack() as files:
        out, err = sinks_to(f"file={tmp_path}/%h/%R", Writer(), files)
        out.feed(b"one, half of tw")
        err.feed(b"oops\n")
        out.feed(b"o\n")
        out.end()
    assert (tmp_path / "n1/03").read_bytes() == b"oops\none, half of two\n"


def test_colours_go_to_terminals_only() -> None:
    for colour, prefix in ((False, b"[3] "), (True, b"\x1b[35m[3]\x1b[0m ")):
        reading, writing = os.pipe()
        writer = Writer()
        output.Stream(writer, writing, output._prefix(3, colour)).feed(b"x\n")
        writer.close()
        os.close(writing)
        with open(reading, "rb") as file:
            assert file.read() == prefix + b"x\n"


def test_no_thread_for_the_output_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    writer = Writer()
    with pytest.raises(OSError, match="can't start new thread for the output; allow more processes"):
        writer.put(1, b"x")
    writer.close()


def test_a_slow_reader_delays_the_output_but_not_the_caller() -> None:
    reading, writing = os.pipe()
    writer, line = Writer(), b"x" * 1023 + b"\n"
    while not writer.full:
        writer.put(writing, line * 64)
    closer = threading.Thread(target=writer.close)
    closer.start()
    total = 0
    while closer.is_alive() or total % 65536:
        total += len(os.read(reading, 65536))
        if total > output.MAX_PENDING:
            break
    os.set_blocking(reading, False)
    closer.join(patience(10))
    rest = 0
    while True:
        try:
            rest += len(os.read(reading, 65536))
        except BlockingIOError:
            break
    assert total + rest > output.MAX_PENDING
    assert (total + rest) % len(line) == 0
    os.close(reading)
    os.close(writing)


def test_a_reader_that_went_away_is_forgotten() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = Writer()
    for _ in range(100):
        writer.put(writing, b"x" * 100_000)
    writer.close()
    assert not writer.full
    os.close(writing)


@pytest.mark.parametrize("spec", ["tag", "none"])
def test_ranks_that_are_not_shown_are_silent(spec: str) -> None:
    reading, writing = os.pipe()
    kept = os.dup(1)
    os.dup2(writing, 1)
    try:
        writer = Writer()
        for rank in range(4):
            with ExitStack() as files:
                out, _ = open_sinks(spec, rank, 4, "n1", writer=writer, environment={}, files=files, shown={1, 3})
                out.feed(b"here is %d\nand " % rank)
                out.end()
        writer.close()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writing)
    with open(reading, "rb") as file:
        lines = file.read().replace(b"[1] ", b"").replace(b"[3] ", b"")
    assert lines == b"here is 1\nand \nhere is 3\nand \n"


def test_files_get_the_output_of_all_ranks(tmp_path: Path) -> None:
    with ExitStack() as files:
        spec = f"dir={tmp_path}"
        out, _ = open_sinks(spec, 0, 4, "n1", writer=Writer(), environment={}, files=files, shown=frozenset({1}))
        out.feed(b"here\n")
    assert (tmp_path / "rank-0.out").read_bytes() == b"here\n"


BAR = b"\r 10%|#   |\r 50%|##  |\r100%|####|"


@each("end", [b"\n", b"", b"\r", b"\nmore\n"])
@each("seed", range(10))
def test_of_a_line_that_was_redrawn_the_last_state_is_written(end: bytes, seed: int) -> None:
    lines = Lines(b"[3] ", redraws=True)
    written = b"".join(map(lines.feed, pieces(BAR + end, seed))) + lines.flush()
    assert written == b"[3] 100%|####|\n" + b"[3] more\n" * (b"more" in end)


@each("text", [b"a\r\nb\r\n", b"\r\n", b"a\n"])
@each("seed", range(10))
def test_lines_that_only_end_with_a_carriage_return_keep_it(text: bytes, seed: int) -> None:
    lines = Lines(redraws=True)
    assert b"".join(map(lines.feed, pieces(text, seed))) + lines.flush() == text


def test_nothing_is_left_of_a_bar_that_was_erased() -> None:
    lines = Lines(b"[3] ", redraws=True)
    assert (lines.feed(BAR + b"\r           \r"), lines.redrawn) == (b"", "")
    assert lines.flush() == b""


def test_a_bar_that_is_redrawn_for_ever_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_LINE", 100)
    lines = Lines(b"[3] ", redraws=True)
    for percent in range(1000):
        assert lines.feed(b"\r\x1b[32m%d" % percent) == b""
        assert lines.redrawn == f"[3] {percent}"
    assert not lines.split


def test_what_may_be_no_text_is_written_as_it_is() -> None:
    lines = Lines()
    assert lines.feed(b"a\rb\n") + lines.feed(b"c\rd") + lines.flush() == b"a\rb\nc\rd\n"


def test_a_line_that_was_split_is_told_of_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(output, "MAX_LINE", 1 << 20)
    told: list[bytes] = []

    class Told(Writer):
        def put(self, file: int, data: bytes) -> None:
            told.extend([data] if b"split" in data else [])

    with ExitStack() as files:
        for out in (sinks_to("tag", Told(), files)[0], sinks_to(f"dir={tmp_path}", Told(), files)[0]):
            out.feed(b"x" * (3 << 20))
            out.feed(b"x" * (3 << 20) + b"\n")
    assert told == [b"ringcast-launch: rank 3 wrote a line of more than 1 MiB: it was split\n"] * 2


def test_the_examples_of_redrawn_lines_are_true() -> None:
    result = doctest.testmod(redrawn)
    assert (result.attempted, result.failed) == (4, 0)
