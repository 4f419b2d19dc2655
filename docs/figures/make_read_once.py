"""Draw docs/figures/read-once.svg: the table of docs/use/read-once.md (needs matplotlib).

The drawing carries the digest of its table, by which a test tells whether it is out of date.

python docs/figures/make_read_once.py
"""

import hashlib
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PAGE, DRAWING = HERE.parent / "use/read-once.md", HERE / "read-once.svg"
OURS, OTHERS, LAST, INK, PALE = "#4477aa", "#bbbbbb", "#888888", "#333333", "#dddddd"
WAYS = {"read_file": OURS, "rank 0 and a broadcast": OTHERS, "each host by itself": LAST}


def rows(page: str) -> list[tuple[str, float, list[float]]]:
    """Return case, limit, and the seconds of each way (0: it fails), of each row of the table."""
    found = re.search(r"^\| case \| limit, s \|.*\n\|---.*\n((\|.*\n)+)", page, re.MULTILINE)
    assert found is not None
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    seconds = [[0.0 if row[at] == "fails" else float(row[at]) for at in (2, 5, 6)] for row in cells]
    return [(row[0], float(row[1]), took) for row, took in zip(cells, seconds, strict=True)]


def digest(page: str) -> str:
    """Return what the drawing of the table carries."""
    return hashlib.sha256(repr(rows(page)).encode()).hexdigest()


def draw(page: str) -> Figure:
    """Draw a group of bars for each case, and a line at its limit."""
    table = rows(page)
    figure, axes = plt.subplots(figsize=(9.6, 3.6), layout="constrained")
    height = 0.8 / len(WAYS)
    for number, (way, color) in enumerate(WAYS.items()):
        places = [case + (number - 1) * height for case in range(len(table))]
        took = [seconds[number] for _, _, seconds in table]
        bars = axes.barh(places, took, height, color=color, label=way)
        axes.bar_label(bars, [f"{each:.1f}" if each else "fails" for each in took], padding=4, color=INK)
    ends = [[case + end for case in range(len(table))] for end in (-0.45, 0.45)]
    axes.vlines([limit for _, limit, _ in table], *ends, INK, "--", lw=1.2, label="limit")
    axes.set_yticks(range(len(table)), [case for case, _, _ in table])
    axes.invert_yaxis()
    axes.set_xlabel("seconds until eight hosts have 10 MB")
    axes.grid(axis="x", color=PALE, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def main() -> None:
    """Write the drawing beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    mpl.rcParams.update({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK})
    page = PAGE.read_text()
    draw(page).savefig(DRAWING, bbox_inches="tight", metadata={"Date": None, "Description": digest(page)})


if __name__ == "__main__":
    main()
