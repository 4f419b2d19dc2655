"""Compression: which pieces travel compressed, and whether that makes a copy faster.

zstd is in Python 3.14, and in the package zstandard for older ones.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType

from ringcast.transfer.options import AUTO

_LEVEL = 1  # the fastest: the processor is shared with hashing and encryption
_WORTH = 0.9  # of the plain length; what stays longer is not worth the time
_SAMPLE = 1 << 18  # bytes


@cache
def zstd() -> ModuleType | None:
    """Return a module with `compress` and `decompress`; None if there is none."""
    for name in "compression.zstd", "zstandard":
        with suppress(ImportError):
            return import_module(name)
    return None


def decompressed(data: memoryview, length: int) -> memoryview | None:
    """Return the plain bytes; None if these are not what a piece of that length was compressed to."""
    module = zstd()
    assert module is not None
    try:
        plain = memoryview(module.decompress(data))
    except Exception:  # of any kind, as bits may have flipped on the way: it will be sent again
        return None
    return plain if len(plain) == length else None


class Compressor:
    """Compresses pieces on the root; `speed` is that of the broadcast, in bytes per second, as soon as it is known."""

    def __init__(self, mode: str, rate: float | None) -> None:
        self._auto, self._rate = mode == AUTO, rate
        self.ratio = 1.0  # of compressed to plain bytes
        self.cost = 0.0  # seconds for a plain byte
        self.speed: float | None = None

    def consider(self, data: memoryview) -> bool:
        """Return whether to compress data that begin like these."""
        if self._auto:
            self._compress(data[:_SAMPLE])
        return self.wins

    @property
    def wins(self) -> bool:
        """Whether a byte is compressed in less time than that saves, as far as is known."""
        if not self._auto:
            return True
        speed = min(self.speed or float("inf"), self._rate or float("inf"))
        unknown = self.speed is None and self._rate is None
        return self.ratio < _WORTH and (unknown or self.cost < (1 - self.ratio) / speed)

    def shortened(self, data: memoryview) -> bytes | None:
        """Return data compressed; None if they travel as they are."""
        if not self.consider(data):
            return None
        packed = self._compress(data)
        return packed if len(packed) < _WORTH * len(data) else None

    def _compress(self, data: memoryview) -> bytes:
        module = zstd()
        assert module is not None
        began = time.monotonic()
        packed: bytes = module.compress(data, _LEVEL)
        self.cost, self.ratio = (time.monotonic() - began) / len(data), len(packed) / len(data)
        return packed
