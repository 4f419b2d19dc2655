"""Draw the space-time diagram of a collective: ranks down, rounds across, an arrow for each message.

The content of a message stands at the head of its arrow. The colour shows the first piece of a message: its block where
the buffer has one part (a broadcast), else its part; scratch is grey. `arrange` makes the content, `draw` draws it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast._util.dataclass import dataclass
from ringcast._util.output_files import write_whole
from ringcast.analysis.rounds import Transfer, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELLED = 40  # most ranks and rounds with room for labels
LARGEST = 200  # ranks or rounds; a larger diagram would only be grey
ROOM = 4  # characters of a label
CELL, SMALL_CELL = (0.95, 0.34), (0.35, 0.09)  # inches of a round and a rank, with and without labels
FEW = ("#4477aa", "#ee6677", "#228833", "#b8960c", "#aa3377", "#66ccee")
GREY, PALE, INK = "#777777", "#dddddd", "#333333"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message of a round; `colour` numbers the occurring blocks or parts, None is scratch."""

    round: int
    source: int
    dest: int
    label: str
    colour: int | None


@dataclass(frozen=True, slots=True)
class Diagram:
    """The content of a diagram of `size` ranks."""

    size: int
    rounds: int
    colours: int
    arrows: tuple[Arrow, ...]

    @property
    def labelled(self) -> bool:
        return max(self.size, self.rounds) <= LABELLED


def arrange(moved: Sequence[Transfer], size: int, parts: Sequence[int]) -> Diagram:
    """Return the diagram of messages between `size` ranks, whose buffer consists of `parts`.

    Raises:
        ValueError: the diagram is too large to be drawn.

    >>> arrange([Transfer(0, 0, 2, (3,))], 3, (4,)).arrows
    (Arrow(round=0, source=0, dest=2, label='b3', colour=0),)
    """
    rounds = max((message.round for message in moved), default=-1) + 1
    if max(size, rounds) > LARGEST:
        raise ValueError(f"{size} ranks in {rounds} rounds are too many to be drawn: at most {LARGEST} of each")
    keys = [_key(message.slots, parts) for message in moved]
    known = sorted({key for key in keys if key is not None})
    arrows = tuple(
        Arrow(one.round, one.source, one.dest, _short(one.slots, parts), None if key is None else known.index(key))
        for one, key in zip(moved, keys, strict=True)
    )
    return Diagram(size, rounds, len(known), arrows)


def _key(slots: Sequence[int], parts: Sequence[int]) -> int | None:
    """Return the block or part that gives a message its colour; None: it begins with scratch, or is empty."""
    if not slots or slots[0] >= sum(parts):
        return None
    return slots[0] if len(parts) == 1 else bisect_right(list(accumulate(parts)), slots[0])


def _short(slots: Sequence[int], parts: Sequence[int]) -> str:
    """Return the label of a message, or its number of pieces if the label is too long."""
    text = label(slots, parts)
    return text if len(text) <= ROOM else f"×{len(slots)}"


def draw(path: Path, diagram: Diagram, title: str) -> None:
    """Draw into `path`, in the format of its suffix; the file is whole, or as it was before.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across, down = CELL if diagram.labelled else SMALL_CELL
    inches = max(across * diagram.rounds, 5) + 1, max(down * diagram.size, 1) + 1
    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, with any settings of the user's
    axes = figure.add_subplot(xlabel="round", ylabel="rank")
    axes.set_title(title, fontsize="medium")
    _draw_grid(axes, diagram)
    _draw_arrows(axes, diagram)
    write_whole(path, lambda file: figure.savefig(file, dpi=120, format=path.suffix[1:]))


def _draw_grid(axes: Axes, diagram: Diagram) -> None:
    """Draw a line for each rank, and one between rounds."""
    size, rounds = diagram.size, diagram.rounds
    width = 0.8 if diagram.labelled else 0.3
    axes.hlines(range(size), 0, rounds, color=PALE, linewidth=width, zorder=0)
    axes.vlines(range(rounds + 1), -0.5, size - 0.5, color=PALE, linestyle=":", linewidth=width, zorder=0)
    axes.set(xlim=(-0.1, max(rounds, 1) + 0.1), ylim=(size - 0.4, -0.6))
    every = 1 if diagram.labelled else 10
    axes.set_xticks([i + 0.5 for i in range(0, rounds, every)], [str(i) for i in range(0, rounds, every)])
    axes.set_yticks(range(0, size, every))
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)


def _draw_arrows(axes: Axes, diagram: Diagram) -> None:
    palette = _palette(diagram.colours)
    colours = [GREY if arrow.colour is None else palette[arrow.colour] for arrow in diagram.arrows]
    reach = 0.66 if diagram.labelled else 0.9  # of a round; the label comes behind
    if diagram.arrows:
        start = [arrow.round + 0.06 for arrow in diagram.arrows]
        climb = [arrow.dest - arrow.source for arrow in diagram.arrows]
        axes.quiver(
            start, [arrow.source for arrow in diagram.arrows], [reach - 0.06] * len(start), climb,
            color=colours, angles="xy", scale_units="xy", scale=1, units="inches",
            width=0.02 if diagram.labelled else 0.008, headwidth=5, headlength=7, headaxislength=6,
        )  # fmt: skip
    if diagram.labelled:
        for arrow, colour in zip(diagram.arrows, colours, strict=True):
            where = arrow.round + reach + 0.02, arrow.dest
            axes.text(*where, arrow.label, color=colour, va="center", fontsize=8, weight="bold")


def _palette(n: int) -> Sequence[object]:
    """Return `n` colours, as different from each other as possible."""
    from matplotlib import colormaps

    if n <= len(FEW):
        return FEW
    rainbow = [colormaps["turbo"](0.05 + 0.9 * i / (n - 1)) for i in range(n)]
    return [(0.85 * red, 0.85 * green, 0.85 * blue) for red, green, blue, _ in rainbow]  # its yellow is pale on white
