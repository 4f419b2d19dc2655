"""Draw docs/figures/collectives/*.svg, the rounds of each collective on few ranks, from the schedules themselves.

python docs/figures/make_drawings.py

A drawing is text: readable on light and on dark ground, and a test says if one is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from pathlib import Path

from ringcast.algorithms import Params, build
from ringcast.analysis.diagram import Arrow, Diagram, arrange
from ringcast.analysis.rounds import label, messages
from ringcast.schedules.neighborhood import of_graph
from ringcast.schedules.schedule import Schedule

RANKS = Params(5)
FOLDER = Path(__file__).with_name("collectives")
LEFT, TOP, DOWN, ARROW = 70, 34, 40, 84  # pixels: margins, between ranks, across an arrow
LETTER, MOST = 7, 11  # pixels of a letter of a label, and letters in one
LIGHT = ("#3366a0", "#c8384a", "#1d7a30", "#8a6a00", "#8e2c77", "#16798f")
DARK = ("#7fb2ec", "#ff8d98", "#74cf86", "#e3bf4a", "#e38fce", "#6fd3e8")


@dataclass(frozen=True)
class Drawing:
    """A collective on some ranks, by an algorithm."""

    collective: str
    algorithm: str
    params: Params = RANKS

    @property
    def schedules(self) -> Sequence[Schedule]:
        return [build(self.collective, self.algorithm, self.params, rank) for rank in range(self.params.size)]


@dataclass(frozen=True)
class Grid:
    """The calls between the neighbours in a grid of two rows and three columns."""

    collective: str = "neighbor"
    destinations: tuple[tuple[int, ...], ...] = ((3, 1), (4, 0, 2), (5, 1), (0, 4), (1, 3, 5), (2, 4))

    @property
    def schedules(self) -> Sequence[Schedule]:
        return [of_graph(rank, self.destinations) for rank in range(len(self.destinations))]


DRAWINGS = (
    Drawing("bcast", "circulant", Params(5, nblocks=3)),
    Drawing("reduce", "circulant", Params(5, nblocks=3)),
    Drawing("allreduce", "circulant"),
    Drawing("reduce_scatter", "circulant"),
    Drawing("scan", "doubling"),
    Drawing("exscan", "two_phase"),
    Drawing("gather", "circulant"),
    Drawing("scatter", "circulant"),
    Drawing("allgather", "circulant"),
    Drawing("alltoall", "linear"),
    Drawing("merge_sorted", "circulant"),
    Drawing("shift", "direct", Params(5, distance=2)),
    Drawing("barrier", "census"),
    Grid(),
)


def main() -> None:
    """Write all drawings."""
    FOLDER.mkdir(exist_ok=True)
    for drawing in DRAWINGS:
        path_of(drawing).write_text(svg(drawing))


def path_of(drawing: Drawing | Grid) -> Path:
    """Return where a drawing is."""
    return FOLDER / f"{drawing.collective}.svg"


def svg(drawing: Drawing | Grid) -> str:
    """Return the text of a drawing."""
    schedules = drawing.schedules
    moved, parts = messages(schedules), schedules[0].parts
    diagram = arrange(moved, len(schedules), parts)
    labels = [_short(label(one.slots, parts), len(one.slots)) for one in moved]
    across = ARROW + 12 + LETTER * max(map(len, labels))
    width, height = LEFT + across * diagram.rounds + 8, TOP + DOWN * diagram.size
    title = f"{drawing.collective} on {diagram.size} ranks in {diagram.rounds} rounds"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>{title}</title>",
        f"<style>{_style()}</style>",
        *_grid(diagram, across, width, height),
        *(line for arrow, text in zip(diagram.arrows, labels, strict=True) for line in _arrow(arrow, text, across)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _short(text: str, pieces: int) -> str:
    """Return a label, or how many pieces it would name."""
    return "" if text == "-" else text if len(text) <= MOST else f"×{pieces}"


def _style() -> str:
    """Return the colours on light and on dark ground."""

    def colours(ink: str, pale: str, grey: str, palette: Sequence[str]) -> str:
        every = "".join(f".c{i}{{color:{colour}}}" for i, colour in enumerate(palette))
        return f"svg>text{{fill:{ink}}}line.pale{{stroke:{pale}}}.none{{color:{grey}}}{every}"

    fixed = "text{font:13px sans-serif}.label{font-weight:bold;font-size:12px}"
    fixed += "g *{fill:currentColor;stroke:currentColor}g text{stroke:none}"
    dark = colours("#dddddd", "#555555", "#aaaaaa", DARK)
    return f"{colours('#333333', '#cccccc', '#777777', LIGHT)}{fixed}@media(prefers-color-scheme:dark){{{dark}}}"


def _grid(diagram: Diagram, across: int, width: int, height: int) -> Iterator[str]:
    """Yield a line for each rank, and one between rounds."""
    for rank in range(diagram.size):
        y = _y(rank)
        yield f'<text x="4" y="{y + 4}">rank {rank}</text>'
        yield f'<line class="pale" x1="{LEFT - 12}" y1="{y}" x2="{width - 4}" y2="{y}"/>'
    for i in range(diagram.rounds + 1):
        x = LEFT + i * across
        yield f'<line class="pale" x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height - 4}" stroke-dasharray="2 4"/>'
        if i < diagram.rounds:
            yield f'<text x="{x + across // 2}" y="16" text-anchor="middle">round {i}</text>'


def _arrow(arrow: Arrow, text: str, across: int) -> Iterator[str]:
    """Yield a message, with what it carries where it arrives."""
    left, top = LEFT + arrow.round * across + 7, _y(arrow.source)
    right, bottom = left + ARROW - 8, _y(arrow.dest)
    length = hypot(right - left, bottom - top)
    dx, dy = (right - left) / length, (bottom - top) / length
    neck = right - 8 * dx, bottom - 8 * dy
    head = [(right, bottom), (neck[0] - 4 * dy, neck[1] + 4 * dx), (neck[0] + 4 * dy, neck[1] - 4 * dx)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in head)
    name = "none" if arrow.colour is None else f"c{arrow.colour % len(LIGHT)}"
    yield f'<g class="{name}"><circle cx="{left}" cy="{top}" r="3"/>'
    yield f'<line x1="{left}" y1="{top}" x2="{neck[0]:.1f}" y2="{neck[1]:.1f}" stroke-width="1.8"/>'
    yield f'<polygon points="{points}"/><text class="label" x="{right + 4}" y="{bottom - 4}">{text}</text></g>'


def _y(rank: int) -> int:
    return TOP + 12 + DOWN * rank


if __name__ == "__main__":
    main()
