"""Ranks and tags that programs give."""

from __future__ import annotations

from operator import index
from typing import Any

from ringcast.collectives.stage import Group, check_root


def whole(number: Any) -> int:
    """Return an int that a program gives, perhaps as a float; the fraction is dropped, as in mpi4py.

    Raises:
        TypeError: it is no number.
    """
    return int(number) if isinstance(number, float) else index(number)


def root_of(group: Group, operation: str, root: Any) -> int:
    """Return the root of a collective.

    Raises:
        TypeError: it is no number.
        ArgumentError: it is no rank of the group.
    """
    rank = whole(root)
    check_root(group, operation, rank)
    return rank
