"""Plot time against bytes, both logarithmic, as the papers do: a panel per collective, a line per system."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast._util.optional import how_to_install
from ringcast._util.output_files import write_whole
from ringcast.commands.bench.cases import title
from ringcast.commands.bench.figures import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 3  # panels side by side
PANEL = 4.2, 3.4  # inches
FORMATS = ("png", "svg", "pdf")
COLOURS = ("#4477aa", "#ee6677", "#228833", "#b8960c", "#aa3377", "#66ccee")
MARKERS = "osD^vP"


def reason_not(path: Path) -> str:
    """Return why no plot could be drawn into `path`, or ""; asked before hours of measuring."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"a plot needs matplotlib, which is not installed: {how_to_install('matplotlib')}"
    if path.suffix.removeprefix(".") not in FORMATS:
        return f"{path} must end with one of .{', .'.join(FORMATS)}"
    return ""


def draw(path: Path, rows: Sequence[Row], heading: str) -> None:
    """Draw the rows that have figures; the file is whole, or as it was before.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(rows)
    across, down = min(ACROSS, len(panels)), ceil(len(panels) / ACROSS)
    figure = Figure(figsize=(PANEL[0] * max(across, 1), PANEL[1] * max(down, 1) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen, with any settings of the user's
    figure.suptitle(heading, fontsize="medium")
    systems = list(dict.fromkeys(_system(row) for row in rows if row.median))
    for i, (name, shown) in enumerate(panels.items()):
        _draw_panel(figure.add_subplot(down, across, i + 1), name, shown, systems)
    write_whole(path, lambda file: figure.savefig(file, dpi=150, format=path.suffix[1:]))


def _panels(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Return the rows of each panel; rows without bytes (barrier) are left out."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        if row.median and row.case.nbytes:
            panels.setdefault(title(row.case), []).append(row)
    return panels


def _system(row: Row) -> str:
    return f"{row.system}, {row.algorithm}" if row.by_hand else row.system


def _draw_panel(axes: Axes, name: str, rows: Sequence[Row], systems: Sequence[str]) -> None:
    for system in dict.fromkeys(map(_system, rows)):
        mine = sorted((row.case.nbytes, row.median or 0.0) for row in rows if _system(row) == system)
        k = systems.index(system)  # the same colour in all panels
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        axes.plot(*zip(*mine, strict=True), label=system, color=colour, marker=marker, markersize=4)
    if limits := sorted({(row.case.nbytes, row.limit) for row in rows if row.limit is not None}):
        axes.plot(*zip(*limits, strict=True), label="limit of the wire", color="#333333", linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds", title=name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
