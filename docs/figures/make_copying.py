"""Draw docs/figures/copying.svg: the first table of docs/measure/copying.md (needs matplotlib).

The drawing carries the digest of its table, by which a test tells whether it is out of date.

python docs/figures/make_copying.py
"""

import hashlib
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PAGE, DRAWING = HERE.parent / "measure/copying.md", HERE / "copying.svg"
OURS, OTHERS, INK, PALE = "#4477aa", "#bbbbbb", "#333333", "#dddddd"


def rows(page: str) -> list[tuple[str, float, float]]:
    """Return way, seconds, and what that is of the limit, of each row of the table."""
    found = re.search(r"^\| \| s \| of the limit \|.*\n\|---.*\n((\|.*\n)+)", page, re.MULTILINE)
    assert found is not None
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return [(way, float(seconds), float(ratio)) for way, seconds, ratio, _ in cells]


def digest(page: str) -> str:
    """Return what the drawing of the table carries."""
    return hashlib.sha256(repr(rows(page)).encode()).hexdigest()


def draw(page: str) -> Figure:
    """Draw a bar for each way, and the limit."""
    table = rows(page)
    figure, axes = plt.subplots(figsize=(9.6, 3.2), layout="constrained")
    ways, seconds = [way for way, _, _ in table], [took for _, took, _ in table]
    bars = axes.barh(ways, seconds, color=[OURS if way.startswith("ringcast") else OTHERS for way in ways])
    axes.bar_label(bars, fmt="%.1f", padding=4, color=INK)
    limit = seconds[0] / table[0][2]
    axes.axvline(limit, color=INK, lw=1.2, ls="--", label="limit of the links")
    axes.invert_yaxis()
    axes.set_xlabel("seconds from Enter to the end")
    axes.grid(axis="x", color=PALE, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Write the drawing beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    mpl.rcParams.update({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK})
    page = PAGE.read_text()
    draw(page).savefig(DRAWING, bbox_inches="tight", metadata={"Date": None, "Description": digest(page)})


if __name__ == "__main__":
    main()
