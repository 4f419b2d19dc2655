"""A store of keys and values in a folder, by which ranks meet that no launcher has started."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import quote


class Folder:
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def set(self, key: str, value: bytes) -> None:
        part = self._path / f".part-{os.getpid()}-{time.monotonic_ns()}"
        part.write_bytes(value)
        part.replace(self._file(key))

    def get(self, key: str, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while not self._file(key).exists():
            if time.monotonic() >= end:
                raise TimeoutError(key)
            time.sleep(0.002)
        return self._file(key).read_bytes()

    def _file(self, key: str) -> Path:
        return self._path / quote(key, safe="")
