"""Explanation of a call of a collective, without making it: the chosen algorithm, and the others with their price.

Every line comes from `group.plan`, through which the calls themselves choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import safe_text
from ringcast.algorithms import find
from ringcast.algorithms.cost import legal, predict
from ringcast.collectives.announced import RIDE_ALONG
from ringcast.collectives.rows import check_rows, even, rows_of
from ringcast.collectives.shift import whole_distance
from ringcast.collectives.stage import Choice, Data, Group, StagePlan, plan
from ringcast.engine.datatypes import as_array, check_counts, check_op, dtype_name
from ringcast.engine.objects import encode
from ringcast.errors import ArgumentError
from ringcast.ops import Array, Op, counted, counts_booleans
from ringcast.wire.call import OBJECT
from ringcast.wire.collective import COLLECTIVES, Parts

EXPLAINED = tuple(one.name for one in COLLECTIVES.values() if one.chooses)
_VFORMS = tuple(name for name in EXPLAINED if COLLECTIVES[name].parts is Parts.COUNTS)


@dataclass(frozen=True, slots=True)
class Option:
    """One algorithm for a call: number of blocks, rounds in the model, and predicted seconds."""

    algorithm: str
    nblocks: int
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choice for a call of a collective; `str` of it is a table.

    Attributes:
        collective: as it was asked for.
        size: number of ranks.
        nbytes: size of the whole buffer, all parts (of an exchange: the data that one rank sends); 0 for Python
            objects, whose size is not known.
        chosen: the algorithm that the call would use.
        options: all algorithms that could do the call, the chosen first, then the fastest, each with its best number of
            blocks.
        excluded: the other algorithms, and why they cannot.
        remarks: costs that the times leave out.
    """

    collective: str
    size: int
    nbytes: int
    chosen: Option
    options: tuple[Option, ...]
    excluded: dict[str, str]
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max(len("algorithm"), *map(len, (option.algorithm for option in self.options)))
        lines = [
            f"{self.collective} on {self.size} ranks, {self.nbytes} bytes in all",
            f"   {'algorithm':{width}} {'blocks':>7} {'rounds':>7} {'predicted':>12}",
        ]
        for option in self.options:
            mark = "->" if option.algorithm == self.chosen.algorithm else "  "
            figures = f"{option.nblocks:7} {option.rounds:7} {option.seconds * 1e3:9.3f} ms"
            lines.append(f"{mark} {option.algorithm:{width}} {figures}")
        lines += [f"   not {name}: {reason}" for name, reason in self.excluded.items()]
        return "\n".join([*lines, *self.remarks])


@dataclass(frozen=True, slots=True)
class Size:
    """The arguments that give the size of a call's data; see `Communicator.explain`.

    A `dtype` other than the default must equal the array's, if there is one.
    """

    value: Any = None
    nbytes: int | None = None
    counts: Sequence[int] | None = None
    dtype: Any = "float64"


@dataclass(frozen=True, slots=True)
class _Data:
    """The data of a call; `dtype` None stands for Python objects, `counts` are the items of each part of a v-form."""

    dtype: np.dtype[Any] | None
    nbytes: int
    counts: tuple[int, ...] = ()


def explain(group: Group, collective: str, size: Size, op: Op, root: int, distance: int, choice: Choice) -> Explanation:
    """Return the explanation of a call; see `Communicator.explain`."""
    if collective not in EXPLAINED:
        expected = f"expected one of {', '.join(EXPLAINED)}, got {safe_text(collective)}"
        raise ArgumentError(group.endpoint.rank, "explain", "collective", expected)
    data = _data(group, collective, _as_combined(size, op) if COLLECTIVES[collective].combines else size)
    distance = whole_distance(group, distance)
    stage = _plan(group, collective, data, op, root, distance, choice)
    stages, reasons_not = legal(
        stage.collective,
        lambda name: _plan(group, collective, data, op, root, distance, Choice(name, choice.nblocks)),
        stage.algorithm,
        _reason,
    )
    options = [_option(group, one, _buffer(collective, data)) for one in stages.values()]
    options.sort(key=lambda option: (option.algorithm != stage.algorithm, option.seconds))
    fixed = group.deterministic and COLLECTIVES[collective].combines and not op.exact(data.dtype)
    return Explanation(
        collective,
        group.size,
        data.nbytes,
        options[0],
        tuple(options),
        reasons_not,
        _remarks(collective, data, choice, fixed=fixed),
    )


def _as_combined(size: Size, op: Op) -> Size:
    """Return the arguments for the data that the call combines: integers of booleans that it counts."""
    value = counted(op, size.value)
    if not counts_booleans(op) or size.dtype not in (bool, np.dtype(bool), "bool"):
        return replace(size, value=value)
    counts = np.dtype(np.int_)
    nbytes = None if size.nbytes is None else size.nbytes * counts.itemsize
    return replace(size, value=value, nbytes=nbytes, dtype=counts)


def _option(group: Group, stage: StagePlan, nbytes: int) -> Option:
    rounds = find(stage.collective, stage.algorithm).rounds(stage.params)
    seconds = predict(stage.collective, stage.algorithm, stage.params, nbytes, group.network)
    return Option(stage.algorithm, stage.params.nblocks, rounds, seconds)


def _buffer(collective: str, data: _Data) -> int:
    """Return the size of the whole buffer, as the cost model sees it."""
    return data.nbytes * (2 if COLLECTIVES[collective].exchanges else 1)


def _plan(group: Group, collective: str, data: _Data, op: Op, root: int, distance: int, choice: Choice) -> StagePlan:
    """Plan the stage that moves the data, as the collective itself does."""
    facts, dtype = COLLECTIVES[collective], data.dtype
    table = facts.algorithms
    if dtype is None and collective == "allgatherv":
        table = "allgather"  # lists are objects, one for every rank
    if facts.combines and dtype is not None:
        check_op(group.endpoint.rank, collective, op, dtype)
    rides = _rides_along(collective, data, choice)
    moved = Data(
        dtype=OBJECT if dtype is None or rides else dtype_name(dtype),
        nbytes=0 if rides else _buffer(collective, data),
        itemsize=1 if dtype is None else dtype.itemsize,
        counts=data.counts if facts.counts_known else (),
    )
    return plan(
        group,
        table,
        choice,
        moved,
        root=root if facts.rooted else None,
        distance=distance if facts.distance else None,
        op=op if facts.combines else None,
        exact=facts.combines and op.exact(dtype),
        name=collective,
    )


def _reason(error: ValueError) -> str:
    """Return the bare reason why an algorithm is not possible, without the list of others."""
    if not isinstance(error, ArgumentError):
        raise error
    return error.expected.partition(": ")[2].partition("; possible here")[0]


def _rides_along(collective: str, data: _Data, choice: Choice) -> bool:
    """Whether a broadcast puts the data into the descriptor that goes first."""
    return collective == "bcast" and data.nbytes <= RIDE_ALONG and choice.automatic


def _remarks(collective: str, data: _Data, choice: Choice, *, fixed: bool) -> tuple[str, ...]:
    remarks = []
    if fixed:
        remarks.append("deterministic: chosen by the number of ranks and the data alone, not by these times")
    if data.dtype is None:
        remarks.append("Python objects: ranks do not know each other's sizes, so this is the choice for no data")
    if _rides_along(collective, data, choice):
        remarks.append("the data is so small that it rides along in the root's description")
    elif COLLECTIVES[collective].announced:
        remarks.append("before it: the root's description, a few bytes to all ranks")
    return tuple(remarks)


def _data(group: Group, collective: str, size: Size) -> _Data:
    """Return the data of the call, from its arguments or from their sizes."""
    value, nbytes, counts = size.value, size.nbytes, size.counts
    if COLLECTIVES[collective].parts is Parts.NONE:
        return _Data(np.dtype(np.uint8), 0)
    if counts is not None and collective not in _VFORMS:
        raise ArgumentError(
            group.endpoint.rank, collective, "counts", f"expected None: only {', '.join(_VFORMS)} have counts"
        )
    if nbytes is not None and (value is not None or counts is not None):
        raise ArgumentError(
            group.endpoint.rank, collective, "nbytes", "expected None, as a value or counts give the size"
        )
    if value is not None:
        data = _data_of_value(group, collective, value, counts)
        _check_dtype(group, collective, as_array(value), size.dtype)
        return data
    dtype = _dtype(group, collective, size.dtype)
    if counts is not None:
        items = check_counts(group.endpoint.rank, collective, counts, group.size)
        return _Data(dtype, sum(items) * dtype.itemsize, items)
    number = _items(group, collective, nbytes, dtype)
    return _Data(dtype, number * dtype.itemsize, even(number, group.size) if collective in _VFORMS else ())


def _dtype(group: Group, collective: str, dtype: Any) -> np.dtype[Any]:
    try:
        described: np.dtype[Any] = np.dtype(dtype)
    except Exception:  # a TypeError, or an error of the object's own repr, which numpy calls for its message
        raise ArgumentError(
            group.endpoint.rank, collective, "dtype", f"expected a dtype of numpy, got {safe_text(dtype)}"
        ) from None
    raw = as_array(np.empty(0, described))
    if raw is None or raw.dtype != described:  # numpy makes "U", strings of no length, to strings of one character
        expected = f"expected items of a fixed size without Python objects, got {safe_text(described)}"
        raise ArgumentError(group.endpoint.rank, collective, "dtype", f"{expected}; explain objects by a value")
    return described


def _check_dtype(group: Group, collective: str, array: Array | None, dtype: Any) -> None:
    """Refuse a dtype that contradicts the value; the default says nothing."""
    given = None if array is None else array.dtype
    if _dtype(group, collective, dtype) not in (given, np.dtype(Size().dtype)):
        got = "a Python object" if given is None else dtype_name(given)
        raise ArgumentError(
            group.endpoint.rank, collective, "dtype", f"expected the dtype of the value, {got}, got {safe_text(dtype)}"
        )


def _items(group: Group, collective: str, nbytes: Any, dtype: np.dtype[Any]) -> int:
    """Return the number of items in `nbytes`; regular parts must have the same number on each rank."""
    equal = COLLECTIVES[collective].parts is Parts.EQUAL
    unit = dtype.itemsize * (group.size if equal else 1)
    if isinstance(nbytes, int | np.integer) and nbytes >= 0 and nbytes % unit == 0:
        return int(nbytes) // dtype.itemsize
    parts = f", {group.size} equal parts" if equal else ""
    expected = f"expected the size of the whole buffer, a multiple of {unit} (dtype {dtype_name(dtype)}{parts})"
    raise ArgumentError(
        group.endpoint.rank, collective, "nbytes", f"{expected}, or a value or counts; got {safe_text(nbytes)}"
    )


def _data_of_value(group: Group, collective: str, value: Any, counts: Sequence[int] | None) -> _Data:
    array = as_array(value)
    if array is None and collective == "bcast":
        return _Data(np.dtype(np.uint8), sum(map(len, encode(value))))
    if collective in ("allgatherv", "alltoallv") and isinstance(value, list | tuple):
        return _Data(None, 0)
    if collective in _VFORMS and (array is not None or collective != "reduce_scatter"):
        return _data_of_rows(group, collective, rows_of(group, collective, value), counts)
    if array is None:
        return _Data(None, 0)
    facts = COLLECTIVES[collective]
    each = group.size if facts.parts is Parts.EQUAL and not facts.whole else 1
    return _Data(array.dtype, each * array.nbytes)


def _data_of_rows(group: Group, collective: str, array: Array, counts: Sequence[int] | None) -> _Data:
    """Return the data of a v-form from one part of them, or from the whole."""
    whole = COLLECTIVES[collective].whole
    if counts is None and not whole:
        raise ArgumentError(
            group.endpoint.rank, collective, "counts", "expected the counts of all ranks; nothing is exchanged here"
        )
    if counts is None:
        rows = even(len(array), group.size)
    elif whole:
        rows = check_counts(group.endpoint.rank, collective, counts, group.size)
        if sum(rows) != len(array):
            expected = f"expected numbers that add up to the {len(array)} rows of the array, got {sum(rows)}"
            raise ArgumentError(group.endpoint.rank, collective, "counts", expected)
    else:
        rows = check_rows(group, collective, len(array), counts)
    row = int(np.prod(array.shape[1:]))
    return _Data(array.dtype, sum(rows) * row * array.itemsize, tuple(n * row for n in rows))
