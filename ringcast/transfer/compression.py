"""Compress pieces by zstd, and decide which pieces travel compressed.

zstd is in Python 3.14, and in the package zstandard for older ones.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from math import inf
from types import ModuleType

from ringcast.transfer.options import AUTO

_WINDOW_LOG = 23  # of bytes: twice as long as a piece, at least
_LEVEL = 1  # the fastest: the processor is shared with hashing and encryption
_WORTH = 0.9  # of the plain length; a piece that stays longer is not worth the time
_SAMPLE = 1 << 18  # bytes
_LONG = 2 << 20  # bytes of a message, from which on its time shows the speed and not the latency
_PROBE = 4  # the number of the piece that is sent plain in any case: the speed is known only after long messages


@cache
def zstd() -> ModuleType | None:
    """Return a module with `compress` and `decompress`; None if there is none."""
    for name in "compression.zstd", "zstandard":
        with suppress(ImportError):
            return import_module(name)
    return None


def decompressed(data: memoryview, length: int) -> memoryview | None:
    """Return the plain bytes; None unless `data` decompress to exactly `length` bytes.

    Memory is bounded by `length` and a window of 8 MB, even if the data would become longer.
    """
    module = zstd()
    assert module is not None
    try:
        of_python = hasattr(module, "DecompressionParameter")
        plain = (_plain_of_python if of_python else _plain)(module, data, length)
    except Exception:  # of any kind, as bits may have flipped on the way: the piece will be sent again
        return None
    return memoryview(plain) if len(plain) == length else None


def _plain(module: ModuleType, data: memoryview, length: int) -> bytes:
    """Return at most one byte more than `length`, by the package zstandard."""
    stream = module.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(data)
    found: bytes = stream.read(length + 1)
    return found


def _plain_of_python(module: ModuleType, data: memoryview, length: int) -> bytes:
    """Return at most one byte more than `length`, by the library of Python 3.14."""
    options = {module.DecompressionParameter.window_log_max: _WINDOW_LOG}
    found: bytes = module.ZstdDecompressor(options=options).decompress(data, max_length=length + 1)
    return found


class Compressor:
    """Compresses pieces on the root.

    Attributes:
        ratio: compressed bytes divided by plain bytes, of the data that were compressed last.
        cost: seconds to compress one plain byte.
        speed: of the broadcasts, in bytes per second; None while it is not known.
    """

    def __init__(self, mode: str, rate: float | None) -> None:
        self._auto, self._rate = mode == AUTO, rate
        self.ratio, self.cost = 1.0, inf
        self.speed: float | None = None
        self._pieces = 0
        self._sent, self._seconds = 0, 0.0  # of long messages

    @property
    def wins(self) -> bool:
        """Whether compression saves more time than it takes, by measured ratio, cost and speed; with ZSTD always."""
        if not self._auto:
            return True
        speed = min(self.speed or inf, self._rate or inf)
        return self.ratio < _WORTH and (speed == inf or self.cost < (1 - self.ratio) / speed)

    def consider(self, data: memoryview) -> bool:
        """Return whether to compress; with AUTO a sample from the beginning of `data` decides."""
        if self._auto:
            packed, cost = _compressed(data[:_SAMPLE])
            self.ratio = len(packed) / len(data[:_SAMPLE])
            self.cost = min(self.cost, cost)  # other threads may have had the processor meanwhile
        return self.wins

    def shortened(self, data: memoryview) -> bytes | None:
        """Return the data compressed; None if the piece travels plain."""
        self._pieces += 1
        probe = self._auto and self._pieces == _PROBE
        if not self.consider(data) or probe:
            return None
        packed, self.cost = _compressed(data)
        self.ratio = len(packed) / len(data)
        return packed if self.ratio < _WORTH else None

    def sent(self, nbytes: int, seconds: float) -> None:
        """Count a long message and its time towards `speed`."""
        if nbytes >= _LONG:
            self._sent, self._seconds = self._sent + nbytes, self._seconds + seconds
            self.speed = self._sent / max(self._seconds, 1e-9)


def _compressed(data: memoryview) -> tuple[bytes, float]:
    """Return the data compressed, and the seconds per byte of `data`."""
    module = zstd()
    assert module is not None
    began = time.monotonic()
    packed: bytes = module.compress(data, _LEVEL)
    return packed, (time.monotonic() - began) / len(data)
