"""A call of a cluster as it travels: the function by value, with its source lines; large arrays once for all ranks.

cloudpickle leaves out the file of a function that travels by value, so tracebacks could name neither a notebook's cell
nor its line. Here the name stays (`Cell In[3]` for a cell), and lines that lie in no file travel too.

Buffers of `SHARED` bytes and more lie in a file of memory, whose descriptor each rank of this machine gets: the caller
writes them once for all ranks. A rank maps them privately, so its changes stay its own.
"""

from __future__ import annotations

import io
import linecache
import mmap
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from ringcast.procs.portable import nameless_file

SHARED = 1 << 16  # bytes
_ALIGNED = 64  # bytes; arrays are read faster from the beginning of a cache line
Span: TypeAlias = tuple[int, int]  # of a buffer in memory: first byte and length
_NO_FILE = "<dynamic-code>"  # cloudpickle's name for the file of all functions that travel by value


class Call(NamedTuple):
    """`body` travels to each rank; the ranks map memory in which the large buffers lie at their places."""

    body: bytes
    buffers: Sequence[memoryview] = ()
    spans: Sequence[Span] = ()

    @contextmanager
    def memory(self) -> Iterator[int | None]:
        """Return a descriptor of memory with the buffers, None without any; processes that have mapped it keep it."""
        if not self.buffers:
            yield None
            return
        file = nameless_file("ringcast-call")
        try:
            for buffer, (at, size) in zip(self.buffers, self.spans, strict=True):
                done = 0
                while done < size:
                    done += os.pwrite(file, buffer[done:], at + done)
            yield file
        finally:
            os.close(file)


class _Body(NamedTuple):
    pickled: bytes  # function and arguments
    sources: dict[str, str]  # by the name of a file that is none
    spans: Sequence[Span]


def packed(fn: Any, args: Any) -> Call:
    """Return the call of `fn(comm, *args)`.

    Raises:
        Exception: function or arguments cannot be pickled.
    """
    buffers: list[memoryview] = []
    with io.BytesIO() as file:
        pickler = SourcePickler(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=keeps_large(buffers, SHARED))
        pickler.dump((fn, args))
        pickled = file.getvalue()
    spans: list[Span] = []
    size = 0
    for buffer in buffers:
        spans.append((size, buffer.nbytes))
        size += -(-buffer.nbytes // _ALIGNED) * _ALIGNED
    return Call(pickle.dumps(_Body(pickled, pickler.sources, spans)), buffers, spans)


def unpacked(body: bytes, memory: int | None) -> tuple[Any, Any]:
    """Return function and arguments of a call, and close its memory."""
    try:
        call: _Body = pickle.loads(body)
        for name, source in call.sources.items():
            linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
        mapped = memoryview(mmap.mmap(memory, 0, mmap.MAP_PRIVATE) if memory is not None else b"")
        fn, args = pickle.loads(call.pickled, buffers=[mapped[at : at + size] for at, size in call.spans])
        return fn, args
    finally:
        if memory is not None:
            os.close(memory)


def keeps_large(buffers: list[memoryview], least: int) -> Any:
    """Return a function for pickle that keeps buffers of `least` bytes or more; pickle takes the others into itself."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # it is not contiguous
            return True
        if raw.nbytes < least:
            return True
        buffers.append(raw)
        return False

    return keep


class SourcePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, but code keeps the name of its file, and `sources` gets the lines of files that are none."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sources: dict[str, str] = {}

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, CodeType):
            return super().reducer_override(obj)
        name = _shown_name(obj.co_filename)
        if name not in self.sources and not os.path.exists(obj.co_filename):
            self.sources[name] = "".join(linecache.getlines(obj.co_filename))
        make, facts = self.dispatch_table[CodeType](obj)
        return make, tuple(name if fact == _NO_FILE else fact for fact in facts)


def _shown_name(file: str) -> str:
    """Return the name of a file for tracebacks; a notebook's cell has the one that the notebook itself prints."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    try:
        label = shell.compile.format_code_name(file) if shell is not None else None
    except Exception:  # another version of IPython
        return file
    return " ".join(label) if label else file
