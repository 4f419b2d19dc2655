"""Draw docs/figures/ring-2010.svg: the pipelined ring by the model, in the experiments of its paper (needs matplotlib).

Träff et al., "A pipelined algorithm for large, irregular all-gather problems", 2010: Figure 5 (block sizes, 32
ranks) and Figures 9 and 10 (5,772 and 65,536 ranks). The paper measured; here rounds are exact and a message of m bytes
takes alpha + beta m. It names no alpha and beta: those below are of the magnitude of its machines, alpha with the
handshake of a large message.

python docs/figures/make_2010.py
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ringcast.algorithms import CallFacts, Params
from ringcast.algorithms.cost import choose, predict
from ringcast.algorithms.network import Network
from ringcast.commands.bench.distributions import parts
from ringcast.schedules.ring import ring_rounds

KB = 1024
INFINIBAND = Network(alpha=50e-6, beta=1 / 900e6, gamma=0.0, frame=0.0)
SICORTEX = Network(alpha=5e-6, beta=1 / 1000e6, gamma=0.0, frame=0.0)
BLUE_GENE = Network(alpha=5e-6, beta=1 / 375e6, gamma=0.0, frame=0.0)
SWEEP = (32 * KB, 64 * KB, 128 * KB, 512 * KB, 1024 * KB)
FIXED = 32 * KB
INK, PALE = "#333333", "#dddddd"
BLUES = ("#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
STANDARD, PIPELINED, CIRCULANT = "#333333", "#ee6677", "#228833"


def pipelined_seconds(counts: Sequence[int], block: int, network: Network) -> float:
    """Return the time of the pipelined ring with blocks of `block` bytes: its rounds, each with the largest message."""
    blocks = tuple(-(-m // block) for m in counts)
    return ring_rounds(blocks, max(*blocks, 1)) * (network.alpha + network.beta * min(block, max(counts)))


def standard_seconds(counts: tuple[int, ...], network: Network) -> float:
    """Return the time of the linear ring: p-1 rounds with the largest part."""
    return predict("allgatherv", "ring", Params(len(counts), counts=counts), sum(counts), network)


def circulant_seconds(counts: tuple[int, ...], network: Network) -> float:
    """Return the time of the n-block circulant allgather with its best number of blocks (packing not counted)."""
    p, m = len(counts), sum(counts)
    name, n = choose("allgatherv", CallFacts(size=p, nbytes=m, counts=counts), network, algorithm="circulant_blocks")
    return predict("allgatherv", name, Params(p, nblocks=n, counts=counts), m, network)


def main() -> None:
    """Write the figure beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    figure, axes = plt.subplots(2, 3, figsize=(12.8, 7.2), layout="constrained")
    sweep(axes[0, 0], "Figure 5: spike, 32 ranks", "spike", [2**k for k in range(12, 27)], 1)
    sweep(axes[0, 1], "Figure 5: linearly decreasing, 32 ranks", "decreasing", [2**k for k in range(10, 23)], 32)
    by_base(axes[1, 0], "Figure 9: geometric, 5,772 ranks", 5772, SICORTEX, [2**k for k in range(13)])
    by_base(axes[1, 1], "Figure 10: geometric, 65,536 ranks", 65536, BLUE_GENE, [2**k for k in range(11)])
    by_ranks(axes[1, 2], "Figure 10: geometric, base 64 bytes", 64, BLUE_GENE, [2**k for k in range(10, 17)])
    legend(axes[0, 2])
    figure.savefig(Path(__file__).with_name("ring-2010.svg"), bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def sweep(axes: Axes, title: str, distribution: str, bases: Iterable[int], ranks: int) -> None:
    """Draw the time over the base data size for each size of blocks; the total is `ranks` times the base."""
    data = {c: parts(distribution, ranks * c, 32) for c in bases}
    for block, colour in zip(SWEEP, BLUES, strict=True):
        plot(axes, data, [pipelined_seconds(counts, block, INFINIBAND) for counts in data.values()], colour)
    plot(axes, data, [standard_seconds(counts, INFINIBAND) for counts in data.values()], STANDARD)
    finish(axes, title, "base data size in bytes")


def by_base(axes: Axes, title: str, p: int, network: Network, bases: Iterable[int]) -> None:
    """Draw the time over the base data size c; all ranks together have p c bytes."""
    three(axes, {c: parts("geometric", p * c, p) for c in bases}, network)
    finish(axes, title, "base data size in bytes")


def by_ranks(axes: Axes, title: str, base: int, network: Network, sizes: Iterable[int]) -> None:
    """Draw the time over the number of ranks."""
    three(axes, {p: parts("geometric", p * base, p) for p in sizes}, network)
    finish(axes, title, "ranks")


def three(axes: Axes, data: dict[int, tuple[int, ...]], network: Network) -> None:
    """Draw the linear ring, the pipelined ring and the circulant allgather."""
    plot(axes, data, [standard_seconds(counts, network) for counts in data.values()], STANDARD)
    plot(axes, data, [pipelined_seconds(counts, FIXED, network) for counts in data.values()], PIPELINED)
    plot(axes, data, [circulant_seconds(counts, network) for counts in data.values()], CIRCULANT)


def plot(axes: Axes, data: Iterable[int], seconds: list[float], colour: str) -> None:
    """Draw one line, in milliseconds."""
    axes.plot(list(data), [1e3 * s for s in seconds], "o-", ms=3, lw=1.6, color=colour)


def finish(axes: Axes, title: str, label: str) -> None:
    """Set the scales and the words of a panel."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("predicted ms", color=INK)
    axes.grid(color=PALE, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def legend(axes: Axes) -> None:
    """Explain the lines of all panels."""
    axes.axis("off")
    lines = [(f"pipelined ring, blocks of {b // KB} kB", c) for b, c in zip(SWEEP, BLUES, strict=True)]
    lines += [("linear ring", STANDARD), ("pipelined ring, blocks of 32 kB (below)", PIPELINED)]
    lines += [("n-block circulant allgather, best n", CIRCULANT)]
    handles = [plt.Line2D([], [], color=colour, marker="o", ms=3, lw=1.6) for _, colour in lines]
    axes.legend(handles, [text for text, _ in lines], loc="center left", frameon=False)


if __name__ == "__main__":
    main()
