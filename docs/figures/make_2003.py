"""Draw docs/figures/fractional-2003.svg: Figure 3 of the fractional-tree paper, and what came after (needs matplotlib).

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003: how many times as fast as
the better of linear pipeline and pipelined binary tree, over k/t. Lines are the formulas of `ringcast.analysis.bounds`;
dots are schedules that the simulator has run.

python docs/figures/make_2003.py
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ringcast.analysis import bounds
from ringcast.analysis.simulate import simulate, simulate_bcast
from ringcast.schedules.fractional import fractional_tree

COLOURS = {64: "#4477aa", 1024: "#228833", 16384: "#ee6677"}
# k/t of what is simulated. More takes minutes: larger data means more packets, and each is followed rank by rank.
DOTS = {p: [2**e for e in range(4, 13, 2)] for p in (64, 1024)}
INK, PALE = "#333333", "#dddddd"


def main() -> None:
    """Write the figure beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    figure, axes = plt.subplots(figsize=(9.0, 4.6), layout="constrained")
    for p, points in bounds.figure_3().items():
        ratios = [point.ratio for point in points]
        axes.plot(ratios, [point.fractional for point in points], color=COLOURS[p], lw=1.8)
        axes.plot(ratios, [point.circulant for point in points], color=COLOURS[p], lw=1.4, ls="--")
    for p, ratios in DOTS.items():
        for ratio in ratios:
            for seconds in tree_seconds(p, ratio), circulant_seconds(p, ratio):
                axes.plot([ratio], [bounds.simple_time(p, ratio, 1) / seconds], "o", ms=4, color=COLOURS[p])
    finish(axes)
    figure.savefig(Path(__file__).with_name("fractional-2003.svg"), bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def circulant_seconds(p: int, ratio: float) -> float:
    """Return what the simulator says of the circulant broadcast with its best number of blocks."""
    n = bounds.pipeline_packets((p - 1).bit_length() - 1, ratio, 1)
    return simulate_bcast(p, n, n, alpha=1.0, beta=ratio / n).time  # a byte stands for a block


def tree_seconds(p: int, ratio: float) -> float:
    """Return what the simulator says of the fractional tree with the best r and s by formula (7)."""
    r = bounds.best_run(p, ratio, 1)
    s = bounds.best_packets(p, ratio, 1, r)
    schedules = [fractional_tree(p, rank, nblocks=s, run=r) for rank in range(p)]
    return simulate(schedules, alpha=1.0, beta=ratio / s).time


def finish(axes: Axes) -> None:
    """Set the scales and the words."""
    axes.set_xscale("log", base=2)
    axes.set_ylim(0.95, 2.05)
    axes.set_xlabel("k/t: length of the data, in units that take as long as a start-up", color=INK)
    axes.set_ylabel("times as fast", color=INK)
    axes.set_title(
        "Against the better of linear pipeline and pipelined binary tree", loc="left", color=INK, fontsize=11
    )
    lines = [plt.Line2D([], [], color=colour, lw=1.8, label=f"{p} ranks") for p, colour in COLOURS.items()]
    lines += [plt.Line2D([], [], color=INK, lw=1.8, label="fractional tree")]
    lines += [plt.Line2D([], [], color=INK, lw=1.4, ls="--", label="n-block circulant schedule")]
    lines += [plt.Line2D([], [], color=INK, ls="", marker="o", ms=4, label="simulated")]
    axes.legend(handles=lines, frameon=False, fontsize=9)
    axes.grid(color=PALE, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
