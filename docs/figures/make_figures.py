"""Draw docs/figures/bcast-rounds.svg from the schedules themselves (needs matplotlib: the extra `bench`).

python docs/figures/make_figures.py
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ringcast.algorithms import Params, build

P, N = 9, 4
COLOURS = ("#4477aa", "#ee6677", "#228833", "#b8960c")
INK, PALE = "#333333", "#dddddd"


def main() -> None:
    """Write the figure beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    figure, axes = plt.subplots(figsize=(9.6, 5.6))
    draw(axes)
    figure.savefig(Path(__file__).with_name("bcast-rounds.svg"), bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def draw(axes: Axes) -> None:
    """Draw ranks as lines, time from left to right, and each message as an arrow in the colour of its block."""
    schedules = [build("bcast", "circulant", Params(P, nblocks=N), rank) for rank in range(P)]
    rounds = len(schedules[0])
    held = [{0: set(range(N))}.get(rank, set()) for rank in range(P)]
    for rank in range(P):
        axes.plot([-0.25, rounds + 0.35], [rank, rank], color=PALE, zorder=0)
        squares(axes, rank, -0.45, held[rank])
    for i in range(rounds):
        axes.text(i + 0.5, -0.75, f"round {i}", ha="center", color=INK)
        axes.axvline(i, color=PALE, linestyle=":", zorder=0)
        for rank, schedule in enumerate(schedules):
            step = schedule[i]
            if step.send_to is not None:
                arrow(axes, i, rank, step.send_to, int(step.send[0]))
        for rank, schedule in enumerate(schedules):
            held[rank] |= {int(block) for block in schedule[i].recv}
    axes.axvline(rounds, color=PALE, linestyle=":", zorder=0)
    for rank in range(P):
        squares(axes, rank, rounds + 0.4, held[rank])
    axes.set_xlim(-1.1, rounds + 1.0)
    axes.set_ylim(P - 0.4, -1.1)
    axes.set_yticks(range(P), [f"rank {rank}" for rank in range(P)])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def arrow(axes: Axes, i: int, source: int, to: int, block: int) -> None:
    """Draw a message of round i; its number stands where it arrives."""
    start, end = (i + 0.08, source), (i + 0.84, to)
    style = {"arrowstyle": "-|>,head_length=0.5,head_width=0.2", "color": COLOURS[block], "lw": 1.6, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**style, "shrinkA": 0}, zorder=2)
    axes.plot(*start, "o", ms=4.5, color=COLOURS[block], zorder=3)
    axes.text(i + 0.9, to, str(block), color=COLOURS[block], va="center", ha="center", fontsize=9, weight="bold")


def squares(axes: Axes, rank: int, x: float, blocks: set[int]) -> None:
    """Draw which blocks a rank holds."""
    for block in range(N):
        colour = COLOURS[block] if block in blocks else "white"
        axes.plot(x + 0.12 * (block - (N - 1) / 2), rank, "s", ms=8, mfc=colour, mec=INK, mew=0.5, clip_on=False)


if __name__ == "__main__":
    main()
