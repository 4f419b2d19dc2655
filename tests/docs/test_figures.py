"""The drawings of the benchmarks show the tables of the page, as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.places import ROOT

SCRIPT = "docs/figures/make_bench.py"
BENCH = SimpleNamespace(**runpy.run_path(str(ROOT / SCRIPT)))
PAGE = BENCH.PAGE.read_text()
DRAWINGS = [pytest.param(drawing, id=drawing.name) for drawing in (BENCH.ONE_HOST, BENCH.HOSTS)]


@pytest.mark.parametrize("path", sorted((ROOT / "docs/figures").rglob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_has_colours_for_dark_pages(path: Path) -> None:
    assert re.search(r"prefers-color-scheme: ?dark", path.read_text()), "python docs/figures/make_dark.py"


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_a_drawing_is_of_the_table_that_the_page_has(drawing: SimpleNamespace) -> None:
    assert drawing.digest(PAGE) in drawing.path.read_text(), f"python {SCRIPT}"
    assert f"../figures/{drawing.name}" in PAGE


def test_every_cell_counts_but_those_of_systems_without_the_collective() -> None:
    text = "| ranks | | bytes | ringcast | gloo |\n|---|---|---|---|---|\n| 2 | bcast | 10 MB | **1.50** | – |\n"
    text += "| 4 | barrier | 0 | 0.2 | 3 |\n"
    first, second = BENCH.ONE_HOST.rows(text)
    assert first == BENCH.Row(2, "bcast", 10_000_000, None, {"ringcast": 1.5})
    assert second == BENCH.Row(4, "barrier", 0, None, {"ringcast": 0.2, "gloo": 3.0})
    assert BENCH.ONE_HOST.digest(text) != BENCH.ONE_HOST.digest(text.replace("1.50", "1.51"))


def test_a_page_without_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no table with the heading"):
        BENCH.HOSTS.rows("| bytes | ringcast |\n|---|---|\n| 1 kB | 1 |\n")


@pytest.mark.parametrize("name", ["make_copying", "make_read_once"])
def test_a_drawing_is_of_the_table_that_its_page_has(name: str) -> None:
    drawn = SimpleNamespace(**runpy.run_path(str(ROOT / f"docs/figures/{name}.py")))
    page = drawn.PAGE.read_text()
    assert drawn.digest(page) in drawn.DRAWING.read_text(), f"python docs/figures/{name}.py"
    assert f"../figures/{drawn.DRAWING.name}" in page
