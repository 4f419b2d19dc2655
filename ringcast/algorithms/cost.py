"""Predict the time of a collective by the linear cost model, and choose its algorithm.

A round takes alpha, and beta for each byte of its largest message; each combined byte takes gamma, each frame of a
message a little. These times add up, as ranks wait for one another, unless the busiest link is saturated: then its
bytes at its best rate are the lower bound. Ranks choose without communication, so the choice depends only on facts that
all ranks know, and is computed in integers as far as possible, else in IEEE operations that are rounded alike
everywhere.

p ranks; q = ceil(log2 p); m = bytes of the whole buffer (all parts); n blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import TypeVar

from ringcast.algorithms.algorithm import Algorithm
from ringcast.algorithms.load import KNEE, Call, Load
from ringcast.algorithms.network import Network
from ringcast.algorithms.params import CallFacts, Params
from ringcast.algorithms.registry import ALGORITHMS, find, names, table, validate
from ringcast.wire.header import EAGER_LIMIT

# Most bytes of a block: blocks ran best with 40 to 150 kB over TCP, and they travel in segments of 512 kB at most, so
# that larger ones gain little.
MAX_BLOCK = 1 << 19
MOST_BLOCKS = 1000  # the limit for data with fewer items; rounds of empty blocks take time, too
TIE = 1.02  # predictions that differ by a smaller factor count as equal; the model is much less exact
SMALL = 1 << 17  # bytes of a buffer whose blocks cannot delay each other for long


T = TypeVar("T")


def predict(collective: str, algorithm: str, params: Params, nbytes: int, network: Network) -> float:
    """Return the seconds that the collective takes; `nbytes` is the size of the whole buffer, all parts.

    >>> predict("bcast", "circulant", Params(size=8, nblocks=10), 1000, Network(1.0, 0.01, 0.0, 0.0))
    24.0
    """
    return _price(collective, algorithm, params, nbytes, network)[0]


def _price(collective: str, algorithm: str, params: Params, nbytes: int, network: Network) -> tuple[float, float]:
    """Return the predicted seconds, and the seconds of the rounds alone, which decide between equal predictions."""
    rounds, load = _load(collective, algorithm, params, nbytes)
    alpha = network.alpha + network.grant * _granted(params, nbytes, load)
    volume: float = load.volume
    if network.ranks_per_cpu > 1:
        volume = _volume_on_shared_cpus(load, params.size, network.ranks_per_cpu)
    far, near = volume - load.local, load.local
    bytewise = (
        far * network.beta + near * network.local + load.excess * network.beta_long + load.combined * network.gamma
    )
    steps = rounds * alpha + load.frames * network.frame + bytewise
    return max(steps, (load.link - KNEE) * network.link_beta), steps


def _volume_on_shared_cpus(load: Load, size: int, ranks_per_cpu: float) -> float:
    """Return the volume where ranks share processors: a rank without data to send leaves time to the others.

    The network's constants were measured in rounds in which all ranks send.
    """
    return max(load.volume / ranks_per_cpu, (load.work or size * load.volume) / size)


def granted(collective: str, algorithm: str, params: Params, nbytes: int) -> bool:
    """Return whether the rounds are granted: sent when the receiver is ready, and the next one after completion.

    Grants cost two more small messages in each round. Without grants, the receiver would ask for each large message;
    and in a pipeline of blocks, where no rank has to wait before it sends, two blocks would share a link.
    """
    return _granted(params, nbytes, _load(collective, algorithm, params, nbytes)[1])


def _load(collective: str, algorithm: str, params: Params, nbytes: int) -> tuple[int, Load]:
    """Return the number of rounds, and their load."""
    entry = find(collective, algorithm)
    rounds = entry.rounds(params)
    load = entry.load(Call(params, nbytes, rounds))
    return rounds, _sharing(load, entry.leaving(params)) if params.hosts else load


def _sharing(load: Load, messages: int) -> Load:
    """Return the load where `messages` messages share the link of their host."""
    volume = (load.volume - load.local) * messages + load.local
    return load._replace(volume=volume, link=load.link * messages, excess=load.excess * messages)


def _granted(params: Params, nbytes: int, load: Load) -> bool:
    return load.largest > EAGER_LIMIT or (params.nblocks > 1 and nbytes > SMALL)


@lru_cache(maxsize=1024)
def choose(
    collective: str, facts: CallFacts, network: Network, *, algorithm: str | None = None, nblocks: int | None = None
) -> tuple[str, int]:
    """Return the legal algorithm with the shortest predicted time, and its number of blocks.

    Of several with equal predictions, apart from rounding of parts and the like (TIE), it is the first in the table.

    Args:
        collective: as in `ringcast.algorithms.ALGORITHMS`.
        facts: of the call.
        network: constants of the transport.
        algorithm: consider only this one.
        nblocks: consider only algorithms that cut into blocks, and this number of them (1: all algorithms).

    Raises:
        ValueError: there is no such collective, call or algorithm, or no algorithm is legal; the text gives the reason
            and the legal ones.

    >>> choose("allreduce", CallFacts(size=9, nbytes=8), NETWORKS["tcp"])
    ('census', 1)
    >>> choose("allreduce", CallFacts(size=9, nbytes=8, commutative=False, exact=False), NETWORKS["tcp"])
    ('doubling', 1)
    """
    if collective not in ALGORITHMS:
        raise ValueError(f"there is no collective {collective!r}; known are {', '.join(ALGORITHMS)}")
    call, nbytes, itemsize = facts.params(), facts.nbytes, facts.itemsize
    if reason := validate(call):
        raise ValueError(f"{collective}: {reason}")
    if nbytes < 0:
        raise ValueError(f"{collective}: there are no {nbytes} bytes")
    items = nbytes // itemsize
    if nblocks is not None and not 1 <= nblocks <= max(items, MOST_BLOCKS):
        raise ValueError(f"cannot cut {items} items into {nblocks} blocks; use 1 to {max(items, MOST_BLOCKS)}")
    named = table(collective, algorithm)
    reasons_not = {name: _reason_not(entry, facts, call, nblocks) for name, entry in named.items()}
    if algorithm is not None and algorithm not in named:
        raise ValueError(f"{collective} by {algorithm!r}: there is no such algorithm; known are {names(collective)}")
    if algorithm is not None and reasons_not[algorithm]:
        legal = ", ".join(name for name, reason_not in reasons_not.items() if not reason_not) or "none"
        raise ValueError(f"{collective} by {algorithm!r}: {reasons_not[algorithm]}; possible here: {legal}")
    options: list[tuple[tuple[float, float], str, int]] = []
    for name, entry in named.items():
        if not reasons_not[name] and (algorithm == name or (algorithm is None and (facts.hosts or not entry.shared))):
            blocks = nblocks or _nblocks(entry, call, nbytes, itemsize, network)
            options.append((_price(collective, name, call._replace(nblocks=blocks), nbytes, network), name, blocks))
    if not options:
        reasons = "; ".join(f"{name}: {reason_not}" for name, reason_not in reasons_not.items())
        raise ValueError(f"{collective}: no algorithm fits: {reasons}")
    least, _, _ = min(options)
    seconds, steps = least
    factor = TIE if seconds == steps else 1.0  # where the link is the bound, the rounds alone decide
    return next(option[1:] for option in options if option[0] <= (factor * seconds, factor * steps))


def legal(
    collective: str, plan: Callable[[str], T], algorithm: str | None = None, reason: Callable[[ValueError], str] = str
) -> tuple[dict[str, T], dict[str, str]]:
    """Return the plans of the algorithms that can do a call, and the reasons of the algorithms that cannot, by name.

    `plan` gets the name of an algorithm; it is `choose` for this algorithm alone, or a function built on it. It raises
    ValueError, from which `reason` makes a text. `algorithm` is among the algorithms if there is such a one.
    """
    plans: dict[str, T] = {}
    reasons_not: dict[str, str] = {}
    for name in table(collective, algorithm):
        try:
            plans[name] = plan(name)
        except ValueError as error:
            reasons_not[name] = reason(error)
    return plans, reasons_not


def _reason_not(entry: Algorithm, facts: CallFacts, params: Params, nblocks: int | None) -> str:
    """Return why an algorithm is not legal for a call; "" if it is."""
    needs = entry.commutative, entry.elementwise, entry.exact
    properties = facts.commutative, facts.elementwise, facts.exact
    names = "a commutative operator", "an elementwise operator", "an operator that is exact in any order"
    missing = [name for name, need, given in zip(names, needs, properties, strict=True) if need and not given]
    if missing:
        return f"it needs {' and '.join(missing)}"
    if entry.equal_counts and len(set(params.counts)) > 1:
        return "it needs equal counts"
    if nblocks is not None and nblocks > 1 and not entry.blocks:
        return "it does not cut into blocks"
    return entry.fits(params)


def _nblocks(entry: Algorithm, params: Params, nbytes: int, itemsize: int, network: Network) -> int:
    """Return the number of blocks with the shortest predicted time for `entry`, among four candidates.

    The candidates are: one block; the closed form; blocks that keep the wire busy as long as the rest of their round
    takes; blocks of KNEE bytes. A block has at least one element, and at most MAX_BLOCK bytes. `params` is for one
    block.
    """
    if not entry.blocks or network.ranks_per_cpu > 1:  # blocks busy waiting ranks, but processors are busy already
        return 1
    rounds, load = _load(*_key(entry), params, nbytes)
    if not load.volume:
        return 1
    per_byte = max(network.beta + network.beta_long, network.link_beta) + network.gamma
    if load.volume * per_byte <= network.alpha and not _granted(params, nbytes, load):
        return 1  # the round of a second block takes more than it can save
    frames, message = -(-load.frames // rounds), load.largest
    whole = -(-message // frames)  # bytes to cut into blocks
    limit = max(whole // itemsize, 1)
    alpha = network.alpha + network.grant + frames * network.frame
    n = _closed_form(entry, params, nbytes, network.beta / alpha) if alpha > 0 else limit
    hidden = round(message * max(network.link_beta - network.beta, 0.0) / alpha) if alpha > 0 else limit
    least = -(-whole // MAX_BLOCK) if params.size > 2 else 1  # with two ranks there is nothing to pipeline
    candidates = {max(1, min(max(wish, least), limit)) for wish in (1, n, hidden, -(-message // KNEE))}
    return min(sorted(candidates), key=lambda n: _price(*_key(entry), params._replace(nblocks=n), nbytes, network))


def _closed_form(entry: Algorithm, params: Params, nbytes: int, ratio: float) -> int:
    """Return the best n for a + b n rounds of alpha and c + d / n bytes of beta: sqrt(d / b * ratio).

    `ratio` is beta / alpha. On the circulant graph b = 1 and d = (q-1) m. Around a ring it is formula (2) of Träff et
    al. 2010, `ring.block_size`. Sizes are multiplied by `many`, so that rounding to bytes does not count.
    """
    many = 1 + MOST_BLOCKS
    (first, one), (last, most) = (_load(*_key(entry), params._replace(nblocks=n), nbytes * many) for n in (1, many))
    each, spare = (last - first) / MOST_BLOCKS, (one.volume - most.volume) / MOST_BLOCKS
    return round(sqrt(max(spare, 0) / each * ratio + 0.25)) if each > 0 else 1  # as in `best_nblocks`


def _key(entry: Algorithm) -> tuple[str, str]:
    return entry.collective, entry.name
