"""Draw docs/figures/bench-host.svg and bench-hosts.svg: the tables of docs/measure/benchmarks.md (needs matplotlib).

After a measurement change the tables, and run this again. A drawing carries the digest of its table, by which a test
tells whether it is out of date.

python docs/figures/make_bench.py
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PAGE = HERE.parent / "measure/benchmarks.md"
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6}
OURS = "ringcast"
STYLES = {  # colours and markers that differ for everybody
    OURS: ("#4477aa", "o"),
    "openmpi": ("#ee6677", "s"),
    "mpich": ("#228833", "D"),
    "impi": ("#b8960c", "^"),
    "gloo": ("#aa3377", "v"),
}
INK, PALE = "#333333", "#dddddd"


@dataclass(frozen=True)
class Row:
    """A row of a table: times in ms by system, for the systems that have the collective."""

    ranks: int
    collective: str
    nbytes: int
    limit: float | None
    times: dict[str, float]


@dataclass(frozen=True)
class Drawing:
    """A drawing, and the table that it shows: the one whose heading begins so."""

    name: str
    heading: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return HERE / self.name

    def rows(self, page: str) -> list[Row]:
        """Return the rows of its table."""
        for table in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
            heading, _, *lines = (cells(line) for line in table.splitlines())
            if tuple(heading[: len(self.heading)]) == self.heading:
                return [row(dict(zip(heading, line, strict=True))) for line in lines]
        raise ValueError(f"{PAGE.name} has no table with the heading | {' | '.join(self.heading)} |")

    def digest(self, page: str) -> str:
        """Return what a drawing of the table carries."""
        return hashlib.sha256(repr(self.rows(page)).encode()).hexdigest()


ONE_HOST = Drawing("bench-host.svg", ("ranks", "", "bytes", OURS))
HOSTS = Drawing("bench-hosts.svg", ("", "bytes", "limit", OURS))


def cells(line: str) -> list[str]:
    """Return the cells of a line, without the marks of what is bold."""
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def row(named: dict[str, str]) -> Row:
    """Return a row by the names of its columns; what has none of the others is a system."""
    ranks, collective = int(named.pop("ranks", "0")), named.pop("")
    number, unit = [*named.pop("bytes").split(), "B"][:2]
    limit = named.pop("limit", None)
    times = {system: float(ms) for system, ms in named.items() if ms != "–"}
    return Row(ranks, collective, int(number) * UNITS[unit], float(limit) if limit else None, times)


def main() -> None:
    """Write the drawings beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    mpl.rcParams.update({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK})
    page = PAGE.read_text()
    for drawing, draw in (ONE_HOST, one_host), (HOSTS, hosts):
        figure = draw(drawing.rows(page))
        metadata = {"Date": None, "Description": drawing.digest(page)}
        figure.savefig(drawing.path, bbox_inches="tight", metadata=metadata)
        plt.close(figure)


def one_host(rows: Sequence[Row]) -> Figure:
    """Draw a column for each number of ranks: large data over bytes, and below the smallest calls."""
    sizes = sorted({row.ranks for row in rows})
    large = [row for row in rows if row.nbytes >= UNITS["MB"]]
    kinds = list(dict.fromkeys(row.collective for row in large))
    figure, panels = plt.subplots(
        len(kinds) + 1, len(sizes), figsize=(9.6, 8.4), sharey="row", layout="constrained", squeeze=False
    )
    for ranks, column in zip(sizes, panels.T, strict=True):
        for kind, axes in zip(kinds, column, strict=False):
            over_bytes(axes, [row for row in large if (row.ranks, row.collective) == (ranks, kind)])
        side_by_side(column[-1], [row for row in rows if row.ranks == ranks and row.nbytes < UNITS["MB"]])
        column[0].set_title(f"{ranks} ranks", color=INK, fontsize=11)
    for kind, axes in zip([*kinds, "small data"], panels[:, 0], strict=True):
        axes.set_ylabel(f"{kind}, ms")
    legend(figure, rows)
    return figure


def hosts(rows: Sequence[Row]) -> Figure:
    """Draw a panel for each collective, with the limit."""
    kinds = list(dict.fromkeys(row.collective for row in rows))
    figure, panels = plt.subplots(1, len(kinds), figsize=(9.6, 3.6), sharey=True, layout="constrained")
    for kind, axes in zip(kinds, panels, strict=True):
        over_bytes(axes, [row for row in rows if row.collective == kind])
        axes.set_title(kind, color=INK, fontsize=11)
    panels[0].set_ylabel("ms")
    legend(figure, rows)
    return figure


def over_bytes(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw a line for each system; ours is the thick one."""
    sizes = [row.nbytes for row in rows]
    if all(row.limit is not None for row in rows):
        axes.plot(sizes, [row.limit for row in rows], color=INK, lw=1.2, ls="--")
    for system, (colour, marker) in STYLES.items():
        shown = [row for row in rows if system in row.times]
        width, size, order = (2.6, 6, 3) if system == OURS else (1.1, 4.5, 2)
        x, y = [row.nbytes for row in shown], [row.times[system] for row in shown]
        axes.plot(x, y, color=colour, marker=marker, lw=width, ms=size, zorder=order)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [in_words(nbytes) for nbytes in sizes])
    finish(axes)


def side_by_side(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw a mark for each system where there is no size to go along."""
    for i, row in enumerate(rows):
        for j, (system, (colour, marker)) in enumerate(STYLES.items()):
            if system in row.times:
                x = i + 0.14 * (j - (len(STYLES) - 1) / 2)
                axes.plot(x, row.times[system], color=colour, marker=marker, ms=8 if system == OURS else 5.5)
    axes.set(yscale="log", xlim=(-0.5, len(rows) - 0.5))
    names = [f"{row.collective}, {in_words(row.nbytes)}" if row.nbytes else row.collective for row in rows]
    axes.set_xticks(range(len(rows)), names)
    finish(axes)


def in_words(nbytes: int) -> str:
    """Return a size as the table has it."""
    unit = next(unit for unit in reversed(UNITS) if nbytes >= UNITS[unit])
    return f"{nbytes // UNITS[unit]} {unit}"


def finish(axes: Axes) -> None:
    """Set what all panels have alike."""
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(color=PALE, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def legend(figure: Figure, rows: Sequence[Row]) -> None:
    """Explain lines and marks above all panels."""
    there = {system for row in rows for system in row.times}
    lines = [
        plt.Line2D([], [], color=colour, marker=marker, lw=2.6 if system == OURS else 1.1, ms=5, label=system)
        for system, (colour, marker) in STYLES.items()
        if system in there
    ]
    if any(row.limit is not None for row in rows):
        lines += [plt.Line2D([], [], color=INK, lw=1.2, ls="--", label="limit of the links")]
    figure.legend(handles=lines, loc="outside upper center", ncols=len(lines), frameon=False)


if __name__ == "__main__":
    main()
