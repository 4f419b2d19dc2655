"""Compute the number of blocks by the rules of thumb of 2022, beside the number of ringcast's model.

Träff, "(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022, section 3: a broadcast
cuts into blocks of F sqrt(m / q) bytes, an irregular allgather into sqrt(m q) / G blocks, F and G found by experiment.
Both are n = sqrt(m q) / constant. The model has n = sqrt((q-1) beta m / alpha) (`best_nblocks`): so F
and G are measurements of sqrt(alpha / beta), and F = 80 says that a message costs as much time as 6400 bytes.

p ranks; q = ceil(log2 p); m = bytes of the whole buffer; n blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt
from types import MappingProxyType

from ringcast.algorithms.network import Network

# The paper's choices for its cluster of 36 nodes with Omni-Path, for each MPI library.
F: Mapping[str, float] = MappingProxyType({"mpich 3.3": 80.0, "OpenMPI 4.0.5": 100.0, "IntelMPI 2019.9": 120.0})
G: Mapping[str, float] = MappingProxyType({"IntelMPI 2019.9": 40.0})


def block_size_by_f(size: int, nbytes: int, f: float) -> float:
    """Return F sqrt(m / q), the bytes of a block of a broadcast; with one rank the whole buffer.

    >>> block_size_by_f(36, 6_000_000, f=80)
    80000.0
    """
    return f * sqrt(nbytes / _q(size)) if size > 1 else float(nbytes)


def nblocks_by_f(size: int, nbytes: int, f: float) -> int:
    """Return the number of blocks of that size, at least one.

    >>> nblocks_by_f(36, 6_000_000, f=80), nblocks_by_f(36, 0, f=80)
    (75, 1)
    """
    return max(1, ceil(nbytes / block_size_by_f(size, nbytes, f))) if nbytes else 1


def nblocks_by_g(size: int, nbytes: int, g: float) -> int:
    """Return sqrt(m q) / G, the number of blocks of each part of an irregular allgather, at least one.

    >>> nblocks_by_g(36, 6_000_000, g=40)
    150
    """
    return max(1, round(sqrt(nbytes * _q(size)) / g))


def constant(network: Network) -> float:
    """Return the F and G of this network by the model: sqrt(alpha / beta), in roots of bytes.

    >>> constant(Network(alpha=6.4e-6, beta=1e-9, gamma=0.0, frame=0.0))
    80.0
    """
    return sqrt((network.alpha + network.grant + network.frame) / network.beta)


def best_nblocks(size: int, nbytes: int, network: Network, *, limit: int, contributors: int = 1) -> int:
    """Return the best n for m = `nbytes` on the circulant graph: sqrt((q-1) beta m / alpha), in 1..limit.

    A quarter more under the root makes rounding exact: n is best for n (n-1) <= (q-1) beta m / alpha <= n (n+1).
    Each round's message has a frame of each contributor, and needs a grant; both add to alpha.

    >>> best_nblocks(8, 1000, Network(1.0, 0.01, 0.0, 0.0), limit=100)
    4
    """
    q = (size - 1).bit_length()
    alpha = network.alpha + network.grant + contributors * network.frame
    n = round(sqrt(max(q - 1, 0) * network.beta * nbytes / alpha + 0.25)) if alpha > 0 else limit
    return max(1, min(n, limit))


def beside_the_model(size: int, nbytes: int, network: Network) -> dict[str, int]:
    """Return the number of blocks by every constant of the paper, by the network's own, and by the model.

    >>> beside_the_model(36, 6_000_000, Network(alpha=6.4e-6, beta=1e-9, gamma=0.0, frame=0.0))
    {'F=80': 75, 'F=100': 60, 'F=120': 50, 'G=40': 150, 'F of this network': 75, 'model': 68}
    """
    counts = {f"F={f:g}": nblocks_by_f(size, nbytes, f) for f in F.values()}
    counts |= {f"G={g:g}": nblocks_by_g(size, nbytes, g) for g in G.values()}
    counts["F of this network"] = nblocks_by_f(size, nbytes, constant(network))
    return counts | {"model": best_nblocks(size, nbytes, network, limit=max(nbytes, 1))}


def _q(size: int) -> int:
    return (size - 1).bit_length()
