"""Functions, arguments and results as bytes; content that recurs is named by a digest, and travels once.

A function is content with all that it refers to (its closure, the object of a method): pickled and named anew in each
call, so that workers have it as it is now. Of arguments, contiguous buffers of LARGE bytes and more are content from
the second time that they come; before, and all the rest, they travel with the task.

Plain pickle is used where it does: it takes a tenth of the time of cloudpickle. Objects of `__main__` travel as
values, as workers have another one.
"""

from __future__ import annotations

import hashlib
import io
import linecache
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cloudpickle

from ringcast.bootstrap.cluster.call import SourcePickler, keeps_large
from ringcast.engine.objects import apart, in_one
from ringcast.pool.decide import Digest
from ringcast.wire.error_text import in_a_line

LARGE = 256 << 10  # bytes of a buffer that is named by a digest
APART = 64 << 10  # bytes of a buffer that is not copied into the pickle
REMEMBERED = 4096  # digests of buffers that have come once
_MAIN = b"__main__"


class Content(NamedTuple):
    """Bytes by their digest: `data` is one run, as `in_one` makes it, or one buffer."""

    digest: Digest
    data: memoryview


class Arguments(NamedTuple):
    """The pickled arguments of a task: `frames` travel with it, and each of `digests` is a buffer of the pickle.

    `digests` has None for a buffer that is the next one of the frames.
    """

    frames: list[memoryview]
    digests: tuple[Digest | None, ...]
    content: tuple[Content, ...]  # that `digests` name


class Pickled(NamedTuple):
    """A pickle, the buffers beside it, and the sources of functions in it that lie in no file, by name."""

    body: bytes
    buffers: list[memoryview]
    sources: dict[str, str]


def pickled(value: Any) -> Pickled:
    """Return the pickle of a value; contiguous buffers of APART bytes and more are beside it, uncopied.

    Raises:
        Exception: it cannot be pickled.
    """
    if not cloudpickle.list_registry_pickle_by_value():
        buffers: list[memoryview] = []
        try:
            body = pickle.dumps(value, 5, buffer_callback=keeps_large(buffers, APART))
        except (pickle.PicklingError, AttributeError, TypeError):
            body = _MAIN  # another attempt, without this error as its context
        if _MAIN not in body:
            return Pickled(body, buffers, {})
    buffers = []
    with io.BytesIO() as file:
        pickler = SourcePickler(file, protocol=5, buffer_callback=keeps_large(buffers, APART))
        pickler.dump(value)
        return Pickled(file.getvalue(), buffers, pickler.sources)


def function_content(fn: Any) -> Content:
    """Return a function, or any other object, as content; `load_function` returns it.

    Raises:
        Exception: it cannot be pickled.
    """
    body, buffers, sources = pickled(fn)
    if not buffers and not sources:
        return _small_content(body)
    run = in_one([memoryview(pickle.dumps((sources, body))), *buffers])
    return Content(digest(run), memoryview(run))


@lru_cache(maxsize=16)  # of submits one by one
def _small_content(body: bytes) -> Content:
    run = in_one([memoryview(pickle.dumps(({}, body)))])
    return Content(digest(run), memoryview(run))


def load_function(data: memoryview) -> Any:
    """Return the function of a content; arrays in it use the memory of the content."""
    head, *buffers = apart(data)
    sources, body = pickle.loads(head)
    learn(sources)
    return pickle.loads(body, buffers=buffers)


def learn(sources: dict[str, str]) -> None:
    """Let tracebacks show lines of functions that lie in no file."""
    for name, source in sources.items():
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name


class Packer:
    """Packs arguments, and remembers which large buffers have come before."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Digest, None] = OrderedDict()

    def pack(self, args: Any) -> Arguments:
        """Return the arguments of a task.

        Raises:
            Exception: they cannot be pickled.
        """
        body, buffers, sources = pickled(args)
        frames, digests, content = [memoryview(pickle.dumps((sources, body)))], list[Digest | None](), list[Content]()
        for buffer in buffers:
            name = digest(buffer) if buffer.nbytes >= LARGE else None
            if name is None or not self._recurs(name):
                frames.append(memoryview(bytes(buffer)))  # the program may change it before it is sent
                digests.append(None)
            else:
                content.append(Content(name, buffer))
                digests.append(name)
        return Arguments(frames, tuple(digests), tuple(content))

    def _recurs(self, name: Digest) -> bool:
        known = name in self._seen
        self._seen[name] = None
        self._seen.move_to_end(name)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return known


def unpack(frames: Sequence[Any], digests: Sequence[Digest | None], found: Callable[[Digest], Any]) -> Any:
    """Return arguments; `found` returns the buffer of a digest.

    Buffers of LARGE bytes and more are read-only, whether they are content or not: the ranks of a host share content.
    """
    head, *rest = frames
    own = iter(rest)
    buffers = [memoryview(next(own) if each is None else found(each)) for each in digests]
    return load(head, [each.toreadonly() if each.nbytes >= LARGE else each for each in buffers])


def load(head: Any, buffers: Sequence[Any]) -> Any:
    """Return the value of a pickle with its sources, as `pack` and `pack_outcome` make it."""
    sources, body = pickle.loads(head)
    learn(sources)
    return pickle.loads(body, buffers=buffers)


def pack_outcome(results: Sequence[Any], error: BaseException | None) -> list[Any]:
    """Return frames of the results of a task, and of its exception; `load` returns both.

    Raises:
        Exception: one of them cannot be pickled.
    """
    body, buffers, sources = pickled((results, error))
    return [pickle.dumps((sources, body)), *buffers]


def refusal(error: BaseException) -> str:
    """Return why an exception is not the same when its pickle is loaded; "" if it is."""
    try:
        body, buffers, _ = pickled(error)
    except BaseException as problem:  # of the program's classes
        return f"when pickled: {in_a_line(problem)}"
    try:
        again = pickle.loads(body, buffers=buffers)
    except BaseException as problem:  # its class takes other arguments
        return unmade(problem)
    return "" if type(again) is type(error) else f"when made anew of its `args` it is of {type(again).__name__}"


def unmade(problem: BaseException) -> str:
    """Return in words that the pickle of an exception could not be loaded."""
    return f"when made anew of its `args`: {in_a_line(problem)}"


def digest(data: Any) -> Digest:
    """Return the name of some bytes.

    >>> len(digest(b"abc"))
    32
    """
    return hashlib.sha256(data).digest()
