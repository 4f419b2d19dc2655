"""One rank of a job whose ranks talk: `python small_messages.py SEED ITEMS`; it prints which share was predicted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

import ringcast
from support.conversations import assert_same, talk

MANY = 10_000  # messages of a sender that runs ahead


def run_ahead(comm: ringcast.Communicator) -> None:
    """Rank 0 sends to the last rank, which begins to receive when the first messages have used up the credit."""
    tags = [Random(number).randrange(3) for number in range(MANY)]
    if comm.rank == 0:
        for number, tag in enumerate(tags):
            comm.send(np.array([number, tag]), comm.size - 1, tag)
        comm.send("end", comm.size - 1, 9)
    if comm.rank == comm.size - 1:
        comm.probe(0, 0)
        _receive(comm, tags)
        assert comm.recv(0, 9) == "end"


def _receive(comm: ringcast.Communicator, tags: Sequence[int]) -> None:
    for number, tag in enumerate(tags):
        got: Any = comm.recv(0, tag if number % 2 else ringcast.ANY_TAG)
        assert_same(got, np.array([number, tag]))


def main() -> None:
    seed, items = map(int, sys.argv[1:])
    comm = ringcast.init()
    talk(comm, seed, items)
    if comm.size > 1:
        run_ahead(comm)
    endpoint = comm._group.endpoint
    print(round(1 - endpoint.arrivals / max(sum(endpoint.protocol.seen), 1), 2))


if __name__ == "__main__":
    main()
