"""Arrays in memory that the ranks of a host share: the first of them makes it, the others open it through /proc.

All stages are calls of all ranks of the communicator: an error on one host is an error of all ranks, and no rank waits
for one that has none. Such an error is returned, not raised: the communicator stays in use.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ringcast._util.printable import printable
from ringcast._util.safe_text import safe_text
from ringcast.collectives.announce import announce
from ringcast.collectives.split import color_of_host, meet
from ringcast.collectives.stage import AUTOMATIC, NO_DATA, OBJECTS, Data, Group, StagePlan, part, plan, run_stage
from ringcast.engine.datatypes import (
    MOST_DIMENSIONS,
    as_array,
    describe_dtype,
    dtype_name,
    flat,
    order_of,
    parse_dtype,
)
from ringcast.engine.execute import Steps
from ringcast.engine.recorder import encoded
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError, SharedMemoryError
from ringcast.ops import Array
from ringcast.procs import host_memory
from ringcast.procs.host_memory import NOWHERE, HostMemory, Place
from ringcast.wire.call import Call

Result = TypeVar("Result")
_REPORT = 256  # bytes of a rank's report: "" or its host and the error there
_LARGEST = (1 << 63) - 1  # bytes of an array


class Wanted(NamedTuple):
    """The array that a program asks for."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: Array | None = None  # the item that it is filled with; None: zeros
    order: Any = "C"  # of the items in memory, or "F"

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    @property
    def text(self) -> str:
        """The dtype, and the item that it is filled with, for errors and fingerprints."""
        name = dtype_name(self.dtype)
        return name if self.fill is None else f"{name}, filled with {self.fill.item()!r}"

    def array(self, memory: mmap | bytearray) -> Array:
        """Return the array in this memory, which lives as long as the array or a view of it."""
        return np.ndarray(self.shape, self.dtype, memory, order=self.order)


def shared_array(group: Group, shape: Any, dtype: Any, fill: Any) -> Steps[Array | SharedMemoryError]:
    """Return an array that the ranks of this host share; see `Communicator.shared_array`."""
    wanted = _checked(group.endpoint.rank, shape, dtype, fill)
    neighbors = yield from _neighbors(group, "shared_array", wanted)

    def filled(memory: HostMemory) -> Array:
        array = wanted.array(memory.mapped())
        if wanted.fill is not None:
            _own_part(array.reshape(-1), neighbors, group.rank)[...] = wanted.fill
        return array

    return (yield from in_memory(group, "shared_array", neighbors, wanted.nbytes, filled))


def shared_bytes(
    group: Group, name: str, nbytes: int, writeable: bool
) -> Steps[tuple[Array, Array] | SharedMemoryError]:
    """Return bytes that the ranks of this host share, as the program gets them, and as they are filled."""
    wanted = Wanted((nbytes,), np.dtype(np.uint8))
    neighbors = yield from _neighbors(group, name, wanted)

    def mapped(memory: HostMemory) -> tuple[Array, Array]:
        return _view(memory, wanted, writeable), wanted.array(memory.mapped())

    return (yield from in_memory(group, name, neighbors, nbytes, mapped))


def bcast_shared(group: Group, value: Any, root: int, writeable: bool) -> Steps[Array | SharedMemoryError]:
    """Return the root's array in memory that the ranks of this host share; see `Communicator.bcast_shared`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="bcast_shared")
    given = _given(group.endpoint.rank, value) if group.rank == root else None
    wanted = yield from _announced(group, describe, given)
    colors = yield from _colors(group, "bcast_shared")
    firsts = _firsts(colors, root)
    neighbors = [firsts[colors[group.rank]]]  # the first one gets the data
    neighbors += [rank for rank in range(group.size) if colors[rank] == colors[group.rank] and rank not in neighbors]
    is_first = group.rank == neighbors[0]

    def mapped(memory: HostMemory) -> tuple[Array, Array | None]:
        return _view(memory, wanted, writeable), wanted.array(memory.mapped()) if is_first else None

    made = yield from in_memory(group, "bcast_shared", neighbors, wanted.nbytes, mapped)
    if isinstance(made, SharedMemoryError):
        return made
    view, data = made
    if given is not None and data is not None:
        data[...] = given
    if wanted.nbytes and len(firsts) > 1:
        yield from _between_hosts(group, sorted(firsts.values()), root, wanted, data)
    yield from meet(group, "bcast_shared", NO_DATA)
    return view


def in_memory(
    group: Group, name: str, neighbors: Sequence[int], nbytes: int, use: Callable[[HostMemory], Result]
) -> Steps[Result | SharedMemoryError]:
    """Make a memory on each host, and return the result of `use` on it; an error of any rank is returned.

    `neighbors` are the ranks of this host; the first one makes the memory.
    """
    first, problem, result = neighbors[0], "", None
    memory: HostMemory | None = None
    try:
        try:
            if first == group.rank:
                memory = host_memory.make(nbytes, alone=len(neighbors) == 1)
        except OSError as error:
            problem = error.strerror or str(error)
        place = NOWHERE if memory is None else memory.place
        places = yield from exchanged(group, name, np.array(place, np.int64))
        try:
            if first != group.rank and any(places[first]):
                memory = host_memory.open_at(Place(*map(int, places[first])), nbytes)
            if memory is not None:
                result = use(memory)
        except OSError as error:
            problem = error.strerror or str(error)
        reports = yield from exchanged(group, name, _report(problem))
    finally:
        if memory is not None:
            memory.close()
    if (failed := _first_error(group, reports, nbytes)) is not None:
        return failed
    assert result is not None, "no rank has an error"
    return result


def _view(memory: HostMemory, wanted: Wanted, writeable: bool) -> Array:
    """Return the array; without `writeable` the system refuses any write to its memory."""
    view = wanted.array(memory.mapped(writeable=writeable))
    view.flags.writeable = writeable
    return view


def _given(rank: int, value: Any) -> Array:
    array = as_array(value)
    if array is None:
        expected = f"expected a numpy array or scalar without Python objects, got {type(value).__name__}"
        raise ArgumentError(rank, "bcast_shared", "value", expected)
    return array


def _announced(group: Group, describe: StagePlan, given: Array | None) -> Steps[Wanted]:
    """Return the array that the root announces; other ranks are `given` none."""
    record: dict[str, Any] = {}
    if given is not None:
        record = {"dtype": describe_dtype(given.dtype), "shape": given.shape, "order": order_of(given) or "C"}
    record = yield from announce(group, describe, record)
    return Wanted(tuple(record["shape"]), parse_dtype(record["dtype"]), order=record["order"])


def _between_hosts(group: Group, firsts: Sequence[int], root: int, wanted: Wanted, data: Array | None) -> Steps[None]:
    """Broadcast the data among the first ranks of the hosts; on others this stage of the call has no messages."""
    if data is None:
        call = Call("bcast_shared", dtype_name(wanted.dtype), wanted.shape, root=root)
        group.endpoint.end(group.endpoint.begin(group.context, call, encoded(call)))
        return
    ranks = part(group, group.context, tuple(map(group.in_job, firsts)), ())
    line = flat(data)
    stage = plan(ranks, "bcast", AUTOMATIC, Data.of(line), root=firsts.index(root), name="bcast_shared")
    yield from run_stage(ranks, stage, lambda s: ArraySlots(line, s, (line.size,)))


def _neighbors(group: Group, name: str, wanted: Wanted) -> Steps[list[int]]:
    """Return the ranks of this host; all ranks must want the same array."""
    colors = yield from _colors(group, name, Data(wanted.text, wanted.shape))
    return [rank for rank in range(group.size) if colors[rank] == colors[group.rank]]


def _colors(group: Group, name: str, data: Data | None = None) -> Steps[list[int]]:
    """Return the colour of each rank's host; all ranks must make this call with the same `data`."""
    table = yield from exchanged(group, name, np.array([color_of_host()], np.int64), data)
    return [int(color) for color in table[:, 0]]


def _firsts(colors: Sequence[int], root: int) -> dict[int, int]:
    """Return the first rank of each host: the root of its own, and the lowest of others.

    >>> _firsts([7, 7, 8, 8], 1)
    {7: 1, 8: 2}
    """
    firsts = {colors[root]: root}
    for rank, color in enumerate(colors):
        firsts.setdefault(color, rank)
    return firsts


def exchanged(group: Group, name: str, row: Array, data: Data | None = None) -> Steps[Array]:
    """Return the rows of all ranks; `data` has the arguments of the call, on which they must agree."""
    table = np.zeros((group.size, len(row)), row.dtype)
    table[group.rank] = row
    told = Data(row.dtype.name, row.shape) if data is None else data
    stage = plan(group, "allgather", AUTOMATIC, told._replace(nbytes=table.nbytes), name=name)
    yield from run_stage(group, stage, lambda s: ArraySlots(table.reshape(-1), s, (len(row),) * group.size))
    return table


def _own_part(line: Array, neighbors: Sequence[int], rank: int) -> Array:
    """Return the part of the items that this rank fills: so all of a host fill it at once, each in memory near it."""
    place, count = neighbors.index(rank), len(neighbors)
    return line[place * line.size // count : (place + 1) * line.size // count]


def _report(problem: str) -> Array:
    text = f"{socket.gethostname()[:64]}\0{problem}".encode()[:_REPORT] if problem else b""
    return np.frombuffer(text.ljust(_REPORT, b"\0"), np.uint8)


def _first_error(group: Group, reports: Array, nbytes: int) -> SharedMemoryError | None:
    for rank, row in enumerate(reports):
        if row[0]:
            host, _, cause = row.tobytes().rstrip(b"\0").decode(errors="replace").partition("\0")
            named = group.endpoint.rank, group.in_job(rank), printable(host), nbytes, printable(cause)
            return SharedMemoryError(*named)
    return None


def _checked(rank: int, shape: Any, dtype: Any, fill: Any) -> Wanted:
    """Return the array that the arguments describe.

    Raises:
        ArgumentError: there can be no such array.
    """
    kind, inner = _dtype(rank, dtype)
    lengths = _shape(rank, shape) + inner
    wanted = Wanted(lengths, kind, None if fill is None else _item(rank, fill, kind))
    if len(lengths) > MOST_DIMENSIONS or wanted.nbytes > _LARGEST:
        raise _refused(rank, "shape", "expected an array that numpy can have", shape)
    return wanted


def _dtype(rank: int, given: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype of the items, and the shape of each where that is an array itself."""
    try:
        kind = np.dtype(given)
    except Exception:  # of an object of the program, which numpy asks
        raise _refused(rank, "dtype", "expected a dtype", given) from None
    kind, inner = kind.subdtype or (kind, ())
    if not kind.itemsize or as_array(np.empty(0, kind)) is None:
        raise _refused(rank, "dtype", "expected a dtype without Python objects, whose items have bytes", given)
    return kind, inner


def _shape(rank: int, given: Any) -> tuple[int, ...]:
    try:
        lengths = (given,) if isinstance(given, int | np.integer) else tuple(given)
    except Exception:  # as above
        lengths = (-1,)
    if not all(isinstance(length, int | np.integer) and length >= 0 for length in lengths):
        raise _refused(rank, "shape", "expected a length, or one for each dimension, 0 or more", given)
    return tuple(map(int, lengths))


def _item(rank: int, given: Any, kind: np.dtype[Any]) -> Array | None:
    """Return the item that an array is filled with; None if its bytes are zeros, as in new memory."""
    try:
        item = np.full((), given, kind)
    except Exception:  # as above
        raise _refused(rank, "fill", f"expected an item of dtype {dtype_name(kind)}", given) from None
    return item if any(item.tobytes()) else None


def _refused(rank: int, argument: str, expected: str, given: Any) -> ArgumentError:
    return ArgumentError(rank, "shared_array", argument, f"{expected}, got {safe_text(given)}")
