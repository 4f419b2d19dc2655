"""Define the options by which several commands describe a collective call: ranks, blocks, root, counts, distance."""

from __future__ import annotations

import argparse

from ringcast.algorithms import Params, validate
from ringcast.wire.collective import COLLECTIVES

PARTED = tuple(dict.fromkeys(one.algorithms for one in COLLECTIVES.values() if one.counts_known))  # by any counts
MOST_RANKS = 1_000_000  # beyond that lists of ranks fill the memory


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("-n", dest="size", type=int, default=8, metavar="RANKS", help="number of ranks (default 8)")
    add("--nblocks", type=int, metavar="N", help="number of blocks, instead of the best by the model")
    add("--root", type=int, metavar="RANK", help="where there is one (default 0)")
    add("--counts", type=_counts, metavar="N,N,...", help="bytes of each rank's part")
    add("--distance", type=int, metavar="RANKS", help="of a shift (default 1)")


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers, such as 5,0,3") from None


def params(options: argparse.Namespace) -> Params:
    """Return the call that the options describe, in one block.

    Raises:
        ValueError: there is no such call; the message says why.
    """
    name, size = options.collective, options.size
    facts = COLLECTIVES[name]
    if options.root is not None and not facts.rooted:
        raise ValueError(f"{name} has no root; leave out --root")
    if options.counts is not None and name not in PARTED:
        raise ValueError(f"{name} has no --counts; those of {', '.join(PARTED)} may differ")
    if options.distance is not None and not facts.distance:
        raise ValueError(f"{name} has no distance; leave out --distance")
    if size > MOST_RANKS:
        raise ValueError(f"{size} ranks are too many; take {MOST_RANKS:,} or fewer")
    distance = 1 if options.distance is None else options.distance
    call = Params(size, options.root or 0, counts=options.counts or ())
    if reason := validate(call):
        raise ValueError(f"{name}: {reason}")
    return Params(size, call.root, counts=call.counts, distance=distance % size if facts.distance else 0)
