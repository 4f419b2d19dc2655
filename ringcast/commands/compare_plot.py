"""Plot time against bytes, both logarithmic: a line for each algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringcast._util.output_files import write_whole
from ringcast.commands.bench.plot import COLOURS, MARKERS, PANEL
from ringcast.commands.compare import Row


def draw(path: Path, rows: Sequence[Row], heading: str) -> None:
    """Draw the time by which rows are sorted; rows by formula have hollow markers.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.5 * PANEL[1]), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, with any settings of the user's
    axes = figure.subplots()
    for k, name in enumerate(dict.fromkeys(row.algorithm for row in rows)):
        mine = sorted((row.nbytes, row.order[1], row.by_formula) for row in rows if row.algorithm == name)
        nbytes, seconds, by_formula = zip(*mine, strict=True)
        colour = COLOURS[k % len(COLOURS)]
        marker = MARKERS[(k + k // len(COLOURS)) % len(MARKERS)]  # a repeated colour gets another marker
        axes.plot(nbytes, seconds, label=name, color=colour, marker=marker, markersize=4)
        for point in (i for i, one in enumerate(by_formula) if one):
            axes.plot(nbytes[point], seconds[point], marker=marker, markersize=4, color=colour, markerfacecolor="white")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds", title=heading)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    write_whole(path, lambda file: figure.savefig(file, dpi=150, format=path.suffix[1:]))
