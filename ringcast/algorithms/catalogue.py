"""Print the table of all algorithms by paper, from the registry.

`ringcast explain --list` prints it, and docs/understand/algorithms.md has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from ringcast.algorithms.algorithm import Algorithm, power_of_two
from ringcast.algorithms.registry import ALGORITHMS, FAMILIES

TESTED = (
    "tests/algorithms/test_every_algorithm.py",
    "tests/collectives/test_collectives.py",
)  # all of them: symbolically, and live
COLUMNS = ("paper", "algorithm", "collective", "rounds", "volume", "tested")


class Entry(TypedDict):
    """One algorithm; `rounds` and `volume` in the letters of `ringcast.algorithms.algorithm.Algorithm`.

    `tested` begins with the file that states the laws of its family; the other files test all algorithms.
    """

    paper: str
    place: str
    collective: str
    algorithm: str
    rounds: str
    volume: str
    needs: list[str]
    tested: list[str]


def entries(collective: str | None = None) -> list[Entry]:
    """Return all algorithms (of a collective), grouped by paper; papers are in the order of the table."""
    every = [entry for named in ALGORITHMS.values() for entry in named.values()]
    papers = list(dict.fromkeys(entry.paper for entry in every))
    laws = {(entry.collective, entry.name): family.TESTED for family in FAMILIES for entry in family.ALGORITHMS}
    every.sort(key=lambda entry: papers.index(entry.paper))
    wanted = [entry for entry in every if collective in (None, entry.collective)]
    return [_entry(entry, laws[entry.collective, entry.name]) for entry in wanted]


def _entry(entry: Algorithm, laws: str) -> Entry:
    return {
        "paper": entry.paper.short,
        "place": entry.place,
        "collective": entry.collective,
        "algorithm": entry.name,
        "rounds": entry.rounds_formula,
        "volume": entry.volume_formula,
        "needs": list(needs(entry)),
        "tested": [laws, *TESTED],
    }


def needs(entry: Algorithm) -> Iterator[str]:
    """Yield an algorithm's needs: of the operator, the counts, and the ranks."""
    for trait in "commutative", "elementwise", "exact", "equal_counts":
        if getattr(entry, trait):
            yield trait.replace("_", " ")
    if entry.fits is power_of_two:
        yield "a power of two ranks"
    if entry.shared:
        yield "as many ranks on each host"


def text(found: Sequence[Entry]) -> str:
    """Return the table in columns."""
    rows = [COLUMNS, *map(_row, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    letters = "p ranks, q = ceil(log2 p), d = floor(log2 p), n blocks, m bytes; more in docs/understand/algorithms.md"
    return "\n".join([*lines, "", letters, f"all of them are tested in {' and '.join(TESTED)} as well"])


def _row(entry: Entry) -> tuple[str, ...]:
    names = entry["paper"], entry["algorithm"], entry["collective"]
    return (*names, entry["rounds"], entry["volume"], entry["tested"][0])


def markdown() -> str:
    """Return the table in Markdown, for docs/understand/algorithms.md."""
    head = [
        "| paper | where | collective | `algorithm=` | rounds | volume | needs | tested |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_line(entry) for entry in entries())])


def _line(entry: Entry) -> str:
    formulas = f"`{entry['rounds']}` | `{entry['volume']}`"
    names = f"{entry['paper']} | {entry['place']} | {entry['collective']} | {entry['algorithm']}"
    return f"| {names} | {formulas} | {', '.join(entry['needs'])} | {entry['tested'][0]} |"
