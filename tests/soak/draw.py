"""Random values, counts, operators and algorithms: drawn from a seed, so that all ranks draw the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from ringcast import LAND, LOR, MAX, MIN, PROD, SUM, Op
from ringcast.algorithms import ALGORITHMS, CallFacts
from ringcast.algorithms.cost import choose
from ringcast.algorithms.network import NETWORKS
from ringcast.ops import BUILT_IN
from ringcast.schedules.placement import Hosts

RECORD = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3", (2,))])
MOVED = ("u1", "?", ">i4", "f8", "D", "S5", "V6", RECORD)
COMBINED = ("i1", "u1", "?", "i4", "u8", ">i4", "f4", "f8", "D")
SORTED = ("u1", "i8", ">i4", "f4")
OPS = {"b": (LAND, LOR, MIN, MAX), "f": (SUM, PROD, MIN, MAX, LAND, LOR), "c": (SUM,)}  # others: all
EXACT = -1, 1, 2  # sums and products of these are exact in every dtype that has no wrap-around
LARGE = 200_000  # items of all ranks together

Array = np.ndarray[Any, Any]


def affine(first: Array, second: Array) -> Array:
    """Return the map x -> a x + b that does one after the other; the last axis is (a, b)."""
    (a, b), (c, d) = np.moveaxis(first, -1, 0), np.moveaxis(second, -1, 0)
    return np.stack([a * c, b * c + d], axis=-1)


AFFINE = Op(affine)  # associative, but not commutative


class Draw:
    """The facts of one call by `size` ranks, some of which share `hosts`."""

    def __init__(self, seed: str, size: int, hosts: Hosts = ()) -> None:
        self.random, self.size, self.hosts = Random(seed), size, hosts

    def coin(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def of(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def rank(self) -> int:
        return self.random.randrange(self.size)

    def length(self) -> int:
        """Return a number of items: often one or none, seldom many."""
        if self.coin(0.02):
            return LARGE // self.size
        return self.of([0, 1, 1, *(self.random.randint(2, 60) for _ in range(9)), 2048, self.random.randint(61, 5000)])

    def shape(self) -> tuple[int, ...]:
        flat = (self.length(),)
        return self.of([(), flat, flat, (self.random.randint(0, 5), self.random.randint(1, 9))])

    def row(self) -> tuple[int, ...]:
        """Return the shape of a row of a longer array."""
        return self.of([(), (), (1,), (3,), (2, 2)])

    def counts(self) -> list[int]:
        """Return numbers of rows: uneven, nearly all with one rank, of all the same, or none at all."""
        n, one = min(self.length(), 2000), self.rank()
        uneven = [self.of([0, 1, self.random.randint(0, n)]) for _ in range(self.size)]
        return self.of([uneven, uneven, [n * (r == one) for r in range(self.size)], [n] * self.size, [0] * self.size])

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.random.getrandbits(64))

    def array(self, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return an array of random bits, in a random layout."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        bits = self.rng().integers(0, 2 if dtype.kind == "b" else 256, count * dtype.itemsize, np.uint8)
        return self.laid_out(bits.view(dtype).reshape(shape))

    def numbers(self, dtype: Any, shape: tuple[int, ...], values: Sequence[int]) -> Array:
        return self.laid_out(self.rng().choice(values, shape).astype(dtype))

    def laid_out(self, array: Array) -> Array:
        """Return the same array in one of the layouts that numpy knows."""
        if not array.ndim:
            return array
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        frozen = array.copy()
        frozen.flags.writeable = False
        return self.of([array, array, np.asfortranarray(array), wide[..., ::2], frozen])

    def operands(self, rows: int | None = None) -> tuple[Op, list[Any]]:
        """Return an operator, and the value of every rank: an array with that many rows, or any array or scalar."""
        shape = self.shape() if rows is None else (rows, *self.row())
        if self.coin(0.2):
            return AFFINE, [self.numbers("i8", (*shape, 2), EXACT) for _ in range(self.size)]
        dtype = self.of(COMBINED)
        kind = np.dtype(dtype).kind
        values = [self.numbers(dtype, shape, (0, 1) if kind == "b" else EXACT) for _ in range(self.size)]
        scalars = shape == () and self.coin()
        return self.of(OPS.get(kind, BUILT_IN)), [value[()] if scalars else value for value in values]

    def thing(self) -> Any:
        """Return a Python object."""
        number, text = self.random.getrandbits(70), "ä" * self.random.randint(0, 3000)
        return self.of([None, True, number, 0.5, text, b"\0" * 5, {"a": [number, (text,)]}, [None, [number]]])

    def how(self, collective: str, *, blocks: bool = False, **facts: Any) -> dict[str, Any]:
        """Return a timeout; and an algorithm's name and a number of blocks, if these are legal for the call.

        `blocks` says whether the call takes such a number; the facts are those of `CallFacts`.
        """
        wanted: dict[str, Any] = {"algorithm": self.of([None, *ALGORITHMS[collective]])}
        if blocks:
            wanted["nblocks"] = self.of([None, self.random.randint(1, 6)])
        timeout = {"timeout": self.of([None, 100, 200.5])}
        with suppress(ValueError):
            choose(
                collective, CallFacts(size=self.size, nbytes=0, hosts=self.hosts, **facts), NETWORKS["tcp"], **wanted
            )
            return wanted | timeout
        return timeout

    def how_to_combine(
        self, collective: str, op: Op, value: Any, *, blocks: bool = False, **facts: Any
    ) -> dict[str, Any]:
        """Return the same for a call with an operator, on values like this one."""
        traits = {"commutative": op.commutative, "elementwise": op.elementwise, "exact": op.exact(value.dtype)}
        return self.how(collective, blocks=blocks, **traits, **facts)
