"""The record of chunks that have arrived: whatever was remembered is known again."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ringcast.transfer.arrived import Arrived

IDENTITY = bytes(range(32))
ITEM = 40  # bytes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path, os.O_RDONLY)
    yield opened
    os.close(opened)


@contextmanager
def room(nbytes: int) -> Iterator[None]:
    """Let files have at most so many bytes: as on a full disk, the write of more has a part of them written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def items(*chunks: int) -> dict[int, bytes]:
    return {chunk: bytes([chunk]) * 32 for chunk in chunks}


@pytest.mark.parametrize("fits", [0, 1, 39, 40, 41, 79, 80])
def test_what_comes_after_a_full_disk_is_found_again(folder: int, fits: int) -> None:
    with closing(Arrived(folder, "memory://a", IDENTITY)) as arrived:
        arrived.add(items(1))
        with room(len(IDENTITY) + ITEM + fits):
            arrived.add(items(2, 3))
        arrived.add(items(4, 5))
    with closing(Arrived(folder, "memory://a", IDENTITY)) as again:
        assert again.known == items(1, *(2, 3)[: fits // ITEM], 4, 5)
