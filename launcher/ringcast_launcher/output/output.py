"""Write the output of the workers to sinks: whole lines with a prefix, or files.

`tag` writes `[rank] ` before every line, `none` writes the lines as they are, `dir=D` is `D/rank-R.out` and
`D/rank-R.err`, `file=PATTERN` takes both streams of a rank, where %r is the rank, %R the rank with leading zeros and
%h the host (without %r or %R, `.%R` is appended for more than one rank). A line is never mixed with another one.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections import deque
from collections.abc import Container, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol, TypeAlias

from ringcast._util.last_line import Line
from ringcast._util.redrawn import RETURN, as_shown, plain_text, shortened
from ringcast._util.streams import write_all
from ringcast.config.worker import can_redraw
from ringcast_launcher.decide.lost_output import Losses, place_of

MAX_LINE = 1 << 24  # bytes; a longer line is split, so that a worker that never ends its line cannot fill the memory
MAX_PENDING = 1 << 22  # bytes that may wait for a slow reader of our output before the workers have to wait as well
TAIL = 1 << 16  # bytes of a worker's standard error that are kept for the last report
_COLOURS = (36, 32, 33, 35, 34, 31)
_TRACEBACK = b"Traceback (most recent call last):"
_SYNTAX_ERROR = re.compile(rb'^  File "[^\n]*", line \d+\n(?: [^\n]*\n)*(?:\w+\.)*\w+: ', re.MULTILINE)
_Item: TypeAlias = "tuple[int, bytes] | str | threading.Event"


class Lines:
    """Cuts a stream into whole lines and puts a prefix before each of them.

    With `redraws`, a line that was redrawn in place (`redrawn`) becomes the text that a terminal finally shows; with
    `prompts`, each unfinished line counts as redrawn.

    Attributes:
        split, told: whether a line was split because it was too long, and whether a note on it was printed.
    """

    def __init__(self, prefix: bytes = b"", *, redraws: bool = False, prompts: bool = False) -> None:
        self._prefix, self._redraws, self._prompts = prefix, redraws, prompts
        self._parts: list[bytes] = []
        self._size = 0
        self.split = self.told = False

    def feed(self, data: bytes) -> bytes:
        """Return the lines that `data` completes; the rest is kept."""
        lines, newline, rest = data.rpartition(b"\n")
        whole = b"".join([*self._parts, lines]) if newline else b""
        if newline:
            self._parts, self._size = [], 0
        if rest:
            self._keep(rest)
        tagged = self._tagged(whole) if newline else b""
        if self._size < MAX_LINE:
            return tagged
        self.split = True
        return tagged + self.flush()

    def flush(self) -> bytes:
        """Return the last line, if it has not ended."""
        rest, self._parts, self._size = b"".join(self._parts), [], 0
        if self._redraws and RETURN in rest:
            rest = as_shown(rest.rstrip(RETURN)).rstrip()  # an erased bar leaves nothing
        return self._tagged(rest) if rest else b""

    @property
    def redrawn(self) -> str:
        """The last line as a terminal shows it now, if the rank is redrawing it in place; else empty."""
        if not self._redraws or not (self._prompts or RETURN in b"".join(self._parts[:1])):
            return ""
        rest = b"".join(self._parts)
        shown = plain_text(rest)
        if self._prompts and rest.endswith(b" "):
            shown += " "  # separates the typed answer from the question
        return f"{plain_text(self._prefix)} {shown}" if self._prefix and shown else shown

    def _keep(self, rest: bytes) -> None:
        self._parts.append(rest)
        self._size += len(rest)
        if self._redraws and RETURN in rest:
            self._parts = [shortened(b"".join(self._parts))]
            self._size = len(self._parts[0])

    def _tagged(self, lines: bytes) -> bytes:
        if self._redraws and RETURN in lines:
            lines = b"\n".join(map(as_shown, lines.split(b"\n")))
        return self._prefix + lines.replace(b"\n", b"\n" + self._prefix) + b"\n" if self._prefix else lines + b"\n"


class Writer:
    """Writes to the launcher's own streams from a thread, so that a slow reader does not silence the control plane.

    A stream that cannot be written gets no more output, and `losses` note it: the job goes on. Where standard error is
    a terminal, it has a last line too, which is erased before anything else is written to a terminal.
    """

    def __init__(self, line: Line | None = None) -> None:
        self.losses = Losses()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._line = line or Line(2)
        self._pending = 0
        self._lock = threading.Lock()
        self._lost: set[int] = set()
        self._status, self._bars, self._bottom = "", dict[int, str](), ""
        self._thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        """True if the queue is so long that no more output should be read."""
        return self._pending > MAX_PENDING

    def put(self, file: int, data: bytes) -> None:
        """Queue `data` for the file descriptor `file`."""
        if not data:
            return
        self._begin()
        with self._lock:
            self._pending += len(data)
        self._queue.put((file, data))

    def show(self, text: str) -> None:
        """Show `text` on the last line of the terminal; remove the line if `text` is empty.

        Standard error must be a terminal. A rank's progress bar takes precedence over the text.
        """
        self._status = text
        self._show()

    def show_bar(self, rank: int, text: str) -> None:
        """Show a rank's redrawn line on the last line of the terminal, unless a lower rank has one; "" removes it."""
        if text:
            self._bars[rank] = text
        else:
            self._bars.pop(rank, None)
        self._show()

    def _show(self) -> None:
        text = self._bars[min(self._bars)] if self._bars else self._status
        if text != self._bottom:
            self._begin()
            self._bottom = text
            self._queue.put(text)

    def settle(self, seconds: float) -> None:
        """Wait until everything queued so far is written, at most `seconds` seconds."""
        written = threading.Event()
        if self._thread is not None:
            self._queue.put(written)
            written.wait(seconds)

    def close(self) -> None:
        """Wait until all is written. Ctrl-C can interrupt the wait, because a reader may be slow without limit."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        if self._thread is None:  # not earlier: workers are forked before there is a thread (except with -v)
            thread = threading.Thread(target=self._run, name="output", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise OSError(f"{error} for the output; allow more processes and threads (ulimit -u)") from None
            self._thread = thread

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, str):
                self._line.show(item)
                continue
            if isinstance(item, threading.Event):
                item.set()
                continue
            file, data = item
            if os.isatty(file):
                self._write(self._line.file, self._line.erase())
            self._write(file, data)
            with self._lock:
                self._pending -= len(data)
        self._write(self._line.file, self._line.erase())

    def _next(self) -> _Item | None:
        """Return the next item to write, or None at the end; draw the last line while no item waits."""
        while True:
            try:
                return self._queue.get(timeout=self._line.due)
            except queue.Empty:
                self._write(self._line.file, self._line.draw())

    def _write(self, file: int, data: bytes) -> None:
        if not data or file in self._lost:
            return
        try:
            write_all(file, data)
        except OSError as error:
            self._lost.add(file)
            self.losses.note(place_of(file), error)


class Sink(Protocol):
    """Takes one stream of one worker."""

    def feed(self, data: bytes) -> None:
        """Take data that the worker wrote."""

    def end(self) -> None:
        """Take note that no more comes."""


class Stream:
    """A sink that writes whole lines of a rank to one of the launcher's own streams.

    Lines that are redrawn in place are written in their final state; with `bars` the last line of the terminal shows
    their states before. With `as_they_are` lines keep all their states. With `prompts` the last line also shows an
    unfinished line, which may be a question to the person at the terminal.
    """

    def __init__(
        self,
        writer: Writer,
        file: int,
        prefix: bytes,
        rank: int = 0,
        *,
        bars: bool = False,
        as_they_are: bool = False,
        prompts: bool = False,
    ) -> None:
        self._writer, self._file, self._rank, self._bars = writer, file, rank, bars
        self._lines = Lines(prefix, redraws=bars or not as_they_are, prompts=prompts)
        self._shown = ""

    def feed(self, data: bytes) -> None:
        self._put(self._lines.feed(data))
        _tell_split(self._lines, self._writer, self._rank)

    def end(self) -> None:
        self._put(self._lines.flush())

    def _put(self, lines: bytes) -> None:
        shown, self._shown = self._shown, self._lines.redrawn if self._bars else ""
        if lines and shown:  # one of the lines is the bar's final state
            self._writer.show_bar(self._rank, "")
        self._writer.put(self._file, lines)
        if self._shown != shown or (lines and shown):
            self._writer.show_bar(self._rank, self._shown)


def _tell_split(lines: Lines, writer: Writer, rank: int) -> None:
    """Print, once for each stream, that a line of this rank was split."""
    if lines.split and not lines.told:
        lines.told = True
        text = f"rank {rank} wrote a line of more than {MAX_LINE >> 20} MiB: it was split"
        writer.put(2, f"ringcast-launch: {text}\n".encode())


class LogFile:
    """A file of the user's for whole lines. After an error it gets no more lines, and `losses` note it."""

    def __init__(self, path: Path, mode: str, losses: Losses) -> None:
        """Open the file without a buffer of ours.

        Raises:
            OSError: the file cannot be opened.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._losses = path, losses
        self._file = path.open(mode, buffering=0)
        self._lost = False

    def write(self, data: bytes) -> None:
        """Write all data, or note the error."""
        if self._lost or not data:
            return
        try:
            write_all(self._file.fileno(), data)
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        """Close the file and note an error; on a network file system a full disk may show only here."""
        try:
            self._file.close()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self._lost = True
        self._losses.note(str(self._path), error)


class File:
    """A sink that writes whole lines to a file; several may share it."""

    def __init__(self, file: LogFile, writer: Writer, rank: int) -> None:
        self._file, self._lines, self._writer, self._rank = file, Lines(), writer, rank

    def feed(self, data: bytes) -> None:
        self._file.write(self._lines.feed(data))
        _tell_split(self._lines, self._writer, self._rank)

    def end(self) -> None:
        self._file.write(self._lines.flush())


class Nothing:
    """A sink that drops its data."""

    def feed(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        pass


class Both:
    """A sink that feeds two."""

    def __init__(self, first: Sink, second: Sink) -> None:
        self._sinks = (first, second)

    def feed(self, data: bytes) -> None:
        for sink in self._sinks:
            sink.feed(data)

    def end(self) -> None:
        for sink in self._sinks:
            sink.end()


class Tail:
    """A sink that keeps the last bytes of a stream."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def feed(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= TAIL:
            self._size -= len(self._chunks.popleft())

    def end(self) -> None:
        pass

    def traceback(self) -> str:
        """Return the last Python traceback in the stream, and the text after it; empty if there is none."""
        text = b"".join(self._chunks)
        at = text.rfind(_TRACEBACK)
        if at < 0 and (alone := _SYNTAX_ERROR.search(text)):  # in the program itself, before its first line runs
            at = alone.start()
        return "" if at < 0 else text[at:].decode("utf-8", "replace")


def parse(spec: str) -> tuple[str, str]:
    """Return the kind of output and its pattern.

    >>> parse("tag"), parse("file=run/%h/rank-%R")
    (('tag', ''), ('file', 'run/%h/rank-%R'))

    Raises:
        ValueError: there is no such kind of output.
    """
    kind, equals, pattern = spec.partition("=")
    if (kind in ("tag", "none") and not equals) or (kind in ("dir", "file") and pattern):
        return kind, pattern
    raise ValueError(f"{spec!r}: must be tag, none, dir=DIRECTORY or file=PATTERN")


def file_name(pattern: str, rank: int, size: int, host: str) -> str:
    """Return the name of a rank's file by a pattern.

    >>> file_name("run/%h/rank-%R", 3, 17, "n1"), file_name("log", 3, 17, "n1")
    ('run/n1/rank-03', 'log.03')
    """
    if size > 1 and "%r" not in pattern and "%R" not in pattern:
        pattern += ".%R"
    padded = str(rank).zfill(len(str(size - 1)))
    return pattern.replace("%r", str(rank)).replace("%R", padded).replace("%h", host)


def coloured(file: int, environment: Mapping[str, str]) -> bool:
    """Return whether prefixes in `file` have colours: on a terminal, unless NO_COLOR (no-color.org) is set."""
    return os.isatty(file) and environment.get("TERM") != "dumb" and not environment.get("NO_COLOR")


def open_sinks(
    spec: str,
    rank: int,
    size: int,
    host: str,
    *,
    writer: Writer,
    environment: Mapping[str, str],
    files: ExitStack,
    mode: str = "wb",
    shown: Container[int] | None = None,
    prompts: bool = False,
) -> tuple[Sink, Sink]:
    """Return the sinks for standard output and standard error of a rank; `files` closes the files that are opened.

    Ranks that are not `shown` (None: all are) write nothing to the launcher's own streams; files get everything.

    Raises:
        OSError: a file cannot be opened.
    """
    kind, pattern = parse(spec)
    if kind == "dir":
        out, err = (file_name(f"{pattern}/rank-%R.{end}", rank, size, host) for end in ("out", "err"))
        logs = [_open(name, files, mode, writer.losses) for name in (out, err)]
        return File(logs[0], writer, rank), File(logs[1], writer, rank)
    if kind == "file":
        both = _open(file_name(pattern, rank, size, host), files, mode, writer.losses)
        return File(both, writer, rank), File(both, writer, rank)
    if shown is not None and rank not in shown:
        return Nothing(), Nothing()
    bars = can_redraw(2, environment)
    colours = coloured(1, environment), coloured(2, environment)
    shown_out, shown_err = (
        Stream(
            writer,
            file,
            _prefix(rank, colours[file - 1]) if kind == "tag" else b"",
            rank,
            bars=bars and os.isatty(file),
            as_they_are=kind == "none" and file == 1,  # the data may be no text
            prompts=prompts,
        )
        for file in (1, 2)
    )
    return shown_out, shown_err


def _prefix(rank: int, colour: bool) -> bytes:
    return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m[{rank}]\x1b[0m ".encode() if colour else f"[{rank}] ".encode()


def _open(name: str, files: ExitStack, mode: str, losses: Losses) -> LogFile:
    return files.enter_context(closing(LogFile(Path(name), mode, losses)))
