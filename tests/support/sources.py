"""Sources in which examples/identifiers.py has to find certain numbers, and the table that it has to print."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def write_tree(folder: Path) -> None:
    """Write sources of very different sizes, with known names; some are no Python, and one is not ours to count."""
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "foreign.py").write_text("foreign = 1\n")
    (folder / "empty.py").write_text("")
    (folder / "bracket.py").write_text("lost = (\n")
    (folder / "bytes.py").write_bytes(b"lost = '\xff'\n")
    (folder / "umlaut.py").write_text("größe = größe\n")
    for n in range(1, 12):
        (folder / f"f{n}.py").write_text("if True:\n    def common(self): common.rare\n" * n**2)


def check_table(text: str, folder: Path, ranks: int) -> None:
    """Check what was printed of the tree in a folder, with --top 3."""
    squares = sum(k * k for k in range(1, 12))
    lines = first_columns(text, 2)
    assert lines["common", f"{2 * squares:,}"] == 1
    assert lines["rare", str(squares)] == 1
    assert lines["größe", "2"] == 1
    size = sum(file.stat().st_size for file in folder.glob("*.py"))
    assert first_columns(text, 5)["all", "15", f"{size:,}", f"{3 * squares + 2:,}", "2"] == 1
    assert sum(files_of(text, rank) for rank in range(ranks)) == 15
    assert text.endswith("equal to the one-process count\n")


def first_columns(text: str, words: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(line.split()[:words]) for line in text.splitlines())


def files_of(text: str, rank: int) -> int:
    """Return the number of files that a rank had, from its line of the table."""
    (files,) = (line.split()[1] for line in text.splitlines() if line.split()[:1] == [str(rank)])
    return int(files)
