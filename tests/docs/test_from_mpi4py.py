"""The page for users of mpi4py: its table names calls that exist, and all collectives."""

from __future__ import annotations

import re

import pytest

import ringcast
from docs.test_readme import blocks_of
from ringcast.wire.collective import COLLECTIVES
from support.places import ROOT

PAGE = ROOT / "docs/use/from-mpi4py.md"
OWNERS = {
    "ringcast": ringcast,
    "comm": ringcast.Communicator,
    "grid": ringcast.Grid,
    "status": ringcast.Status,
    "request": ringcast.Persistent,
}
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith(("| `", "| –"))]
RIGHT = [row.strip("|").split(" | ")[-1] for row in ROWS]


@pytest.mark.parametrize("owner", OWNERS)
def test_every_call_of_the_right_column_exists(owner: str) -> None:
    named = {name for cell in RIGHT for name in re.findall(rf"\b{owner}\.(\w+)", cell)}
    assert named
    assert {name for name in named if not hasattr(OWNERS[owner], name)} == set()


def test_every_collective_is_in_the_right_column() -> None:
    text = " ".join(RIGHT)
    assert {name for name in COLLECTIVES if not re.search(rf"\b{name}\b", text)} == set()


def test_the_programs_of_mpi4py_are_python_and_each_has_its_counterpart() -> None:
    names = []
    for block in blocks_of(PAGE):
        if block.language == "text" and (name := re.match(r"# (\w+)_mpi\.py\n", block.text)):
            compile(block.text, name[0], "exec")
            names.append(name[1])
    written = {name[1] for block in blocks_of(PAGE) if (name := re.match(r"# (\w+)\.py\n", block.text))}
    assert len(names) == 3
    assert set(names) <= written
