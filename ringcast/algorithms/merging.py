"""Describe the algorithms that merge sorted runs; their schedules are in `ringcast.schedules.merging`.

p ranks; d = floor(log2 p); s = skips(p); m = bytes of all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import Call, Load, in_a_row, uneven
from ringcast.algorithms.papers import LANG_2025
from ringcast.schedules import merging
from ringcast.schedules.blocks import skips

MERGE = 8  # time of a merge, in times of an addition: 10^7 int64 took 8 ms to add, 66 ms or more to merge


def _merging(load: Load, merged: int, copied: int = 0) -> Load:
    return load._replace(combined=MERGE * merged + copied)


def _circulant(call: Call) -> Load:
    s = skips(call.params.size)
    messages = in_a_row(call, [b - a for a, b in pairwise(s)])
    return _merging(uneven(messages, len(messages)), sum(in_a_row(call, _runs(s))))


def _runs(s: Sequence[int]) -> list[int]:
    """Return the number of parts of each run that a rank merges from two runs; three runs take two merges."""
    last = merging.last_alone(s[-1])
    runs = [s[i] - 1 if i <= last else s[i] for i in range(2 if last > 0 else 1, len(s))]
    three = [s[i] for i in range(1, last) if s[i + 1] % 2 == 0]  # S, and the x and S of another rank
    return runs + three + ([s[last]] if last > 0 else [])  # x, S, and the S of another rank


def _dissemination(call: Call) -> Load:
    p = call.params.size
    d = p.bit_length() - 1
    more = merging.special_rounds(p)
    last = [p - (1 << d)] if p > 1 << d else []
    messages = in_a_row(call, [*(1 << k for k in range(d)), *last])
    beside = in_a_row(call, [more.get(k, 0) for k in range(d)] + [0] * len(last))
    runs = [*(2 << k for k in range(d)), *((1 << k) + n for k, n in more.items() if n), *([p] if last else [])]
    copies = [*(1 << k for k in more), *([p] if more else [])]  # into the partial; the result, from beside it
    load = uneven([a + b for a, b in zip(messages, beside, strict=True)], len(messages) + sum(n > 0 for n in beside))
    return _merging(load, sum(in_a_row(call, runs)), sum(in_a_row(call, copies)))


def _gather_and_merge(call: Call) -> Load:
    """Return the load: all data is merged at most once per round."""
    messages = in_a_row(call, [b - a for a, b in pairwise(skips(call.params.size))])
    return _merging(uneven(messages, len(messages)), call.rounds * call.nbytes)


TESTED = "tests/collectives/test_merge.py"
ALGORITHMS = (
    Algorithm(
        name="circulant",
        collective="merge_sorted",
        build=lambda p, rank: merging.circulant_merging(p.size, rank),
        rounds=log_rounds,
        load=_circulant,
        paper=LANG_2025,
        place="Algorithm 2",
        rounds_formula="q",
        volume_formula="m*(p-1)/p",
    ),
    Algorithm(
        name="dissemination",
        collective="merge_sorted",
        build=lambda p, rank: merging.dissemination(p.size, rank),
        rounds=log_rounds,
        load=_dissemination,
        paper=LANG_2025,
        place="Algorithm 1, repaired",
        rounds_formula="q",
        volume_formula="m*(p-1 + sum(p % 2**k for k in range(d) if p >> k & 1))/p",
    ),
    Algorithm(
        name="allgather",
        collective="merge_sorted",
        build=lambda p, rank: merging.gather_and_merge(p.size, rank),
        rounds=log_rounds,
        load=_gather_and_merge,
        paper=LANG_2025,
        place="Algorithm 0",
        rounds_formula="q",
        volume_formula="m*(p-1)/p",
    ),
)
