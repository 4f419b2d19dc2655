"""Add colours for dark pages to the drawings of docs/figures that matplotlib has written; run it after the others.

python docs/figures/make_dark.py

A browser takes them where its user prefers dark pages. They replace ink, paper and grid; the colours of lines stay.
"""

from __future__ import annotations

from pathlib import Path

PLAIN = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'  # as matplotlib writes it
INK, PAPER, GRID = "#d8dee9", "#1e2129", "#4b5263"
DARK = {
    "svg": f"fill: {INK}",  # of letters without a colour
    '[style*="fill: #ffffff"]': f"fill: {PAPER} !important",
    '[style*="fill: #333333"]': f"fill: {INK} !important",
    '[style*="stroke: #333333"], [style*="stroke: #000000"]': f"stroke: {INK} !important",
    '[style*="stroke: #dddddd"]': f"stroke: {GRID} !important",
}


def with_dark(svg: str) -> str:
    """Return a drawing with colours for dark pages, which it may have already."""
    rules = " ".join(f"{what} {{{style}}}" for what, style in DARK.items())
    both = PLAIN.replace("</style>", f"\n@media (prefers-color-scheme: dark) {{{rules}}}\n</style>")
    return svg.replace(PLAIN, both)


def main() -> None:
    """Rewrite the drawings beside this file."""
    for path in Path(__file__).parent.glob("*.svg"):
        path.write_text(with_dark(path.read_text()))


if __name__ == "__main__":
    main()
