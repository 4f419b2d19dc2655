"""The line of the program that makes a call: the first frame outside of torch and ringcast has it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import torch
from typing_extensions import deprecated

import ringcast
from ringcast.wire.call import Site, site_of

_FOLDERS = tuple(f"{Path(str(package.__file__)).parent}/" for package in (torch, ringcast))
_WRAPPER = deprecated.__call__.__code__.co_filename  # some of torch's calls are in it, as reduce_scatter_tensor


class _Inside(dict[str, bool]):
    """Whether a file is one of torch or ringcast, or the one that marks calls of torch as deprecated."""

    def __missing__(self, file: str) -> bool:
        self[file] = inside = file.startswith(_FOLDERS) or file == _WRAPPER
        return inside


_inside = _Inside()


def program_site() -> Site:
    """Return file and line; `NOWHERE` in a thread of torch itself, as in a backward pass."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _inside[frame.f_code.co_filename]:
        frame = frame.f_back
    return site_of(frame)
