"""Draw the plots of docs/use/gallery.md from what the examples compute (needs matplotlib: the extra `bench`).

python docs/figures/make_gallery.py
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ringcast

ROOT = Path(__file__).parents[2]
RANKS = 4


def main() -> None:
    """Write all plots."""
    for name, draw in (("jacobi", plate), ("sgd", losses), ("survive", centres)):
        figure = Figure(figsize=(4.5, 3), layout="constrained")
        draw(figure.add_subplot(), SimpleNamespace(**runpy.run_path(str(ROOT / f"examples/{name}.py"))))
        figure.savefig(Path(__file__).with_name("gallery") / f"{name}.png", dpi=100)


def plate(axes: Axes, example: SimpleNamespace) -> None:
    """Draw the plate after 2000 steps, with the borders between the ranks."""
    points = 60

    def heated(comm: ringcast.Communicator) -> object:
        block = example.Block(comm.cart([0, 0]), points)
        block.run(2000, overlap=True)
        return block.join()

    shown = axes.imshow(ringcast.run(heated, RANKS, backend="threads")[0], cmap="inferno")
    axes.axhline(points / 2 - 0.5, color="white", linestyle=":")
    axes.axvline(points / 2 - 0.5, color="white", linestyle=":")
    axes.set(xticks=[], yticks=[], title="temperature, blocks of four ranks")
    axes.figure.colorbar(shown, ax=axes)


def losses(axes: Axes, example: SimpleNamespace) -> None:
    """Draw the loss of each step."""

    def learnt(comm: ringcast.Communicator) -> list[float]:
        inputs, wanted = example.data()
        mine = slice(comm.rank, None, comm.size)
        found: list[float] = example.learn(inputs[mine], wanted[mine], 100, comm)[1]
        return found

    axes.plot(ringcast.run(learnt, RANKS, backend="threads")[0], color="#4477aa")
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None), title="a network learns on four ranks")


def centres(axes: Axes, example: SimpleNamespace) -> None:
    """Draw some points in the colours of their centres."""
    found = ringcast.run(lambda comm: example.cluster(comm, {})[1], RANKS, backend="threads")[0]
    some = example.points(0, 600)
    nearest = ((some[:, None, :] - found) ** 2).sum(axis=2).argmin(axis=1)
    axes.scatter(*some.T, c=np.array(["#4477aa", "#ee6677", "#228833", "#b8960c", "#aa3377"])[nearest], s=6)
    axes.scatter(*found.T, c="#222222", marker="X", s=90, edgecolors="white")
    axes.set(xticks=[], yticks=[], title="points and the five centres")


if __name__ == "__main__":
    main()
