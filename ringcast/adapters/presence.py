"""Facts that a rank tells the others before they meet, by which rank 0 chooses how they are to communicate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations

from ringcast._util.dataclass import dataclass
from ringcast.procs import colocation, credentials
from ringcast.procs.credentials import Credentials
from ringcast.procs.libc import reason_not_shared


@dataclass(frozen=True, slots=True)
class Presence:
    """The facts: the number of ranks that this one expects, its system, and its credentials if it can share memory."""

    size: int
    system: str
    who: Credentials | None

    def pack(self) -> bytes:
        """Return the facts as bytes, which `unpack` reads."""
        return json.dumps([self.size, self.system, self.who]).encode()


def own(size: int) -> Presence:
    """Return the facts of this process, as a rank of `size` ones."""
    return Presence(size, colocation.system(), None if reason_not_shared() else credentials.own())


def unpack(data: bytes) -> Presence | None:
    """Return the facts in these bytes; None if there are none.

    >>> unpack(own(4).pack()).size
    4
    """
    try:
        size, system, who = json.loads(data)
        return Presence(int(size), str(system), None if who is None else Credentials(*map(int, who)))
    except (TypeError, ValueError):
        return None


def on_one_system(all_ranks: Sequence[Presence]) -> bool:
    """Return whether all ranks are known to run on one host, with its loopback address in common."""
    return bool(all_ranks[0].system) and len({each.system for each in all_ranks}) == 1


def share_memory(all_ranks: Sequence[Presence]) -> bool:
    """Return whether each rank can share memory with each other one, as far as their credentials show."""
    kinds = {each.who for each in all_ranks}
    pairs = combinations([who for who in kinds if who is not None], 2)
    return on_one_system(all_ranks) and None not in kinds and not any(credentials.reason_not(*pair) for pair in pairs)
