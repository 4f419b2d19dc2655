"""The drawings of the collectives are of the schedules as they are, and the page has all of them."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from ringcast.algorithms import ALGORITHMS
from support.places import ROOT

SCRIPT = "docs/figures/make_drawings.py"
MADE = SimpleNamespace(**runpy.run_path(str(ROOT / SCRIPT)))
PAGE = (ROOT / "docs/understand/drawings.md").read_text()
DRAWINGS = [pytest.param(drawing, id=drawing.collective) for drawing in MADE.DRAWINGS]


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_a_drawing_is_up_to_date_and_small(drawing: SimpleNamespace) -> None:
    path = MADE.path_of(drawing)
    text = path.read_text()
    assert text == MADE.svg(drawing), f"python {SCRIPT}"
    assert len(text) < 60_000
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert f"](../figures/collectives/{path.name})" in PAGE


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_a_drawing_has_an_arrow_for_each_message(drawing: SimpleNamespace) -> None:
    sent = sum(step.send_to is not None for schedule in drawing.schedules for step in schedule)
    assert MADE.svg(drawing).count("<polygon") == sent


def test_every_collective_is_drawn() -> None:
    drawn = {drawing.collective for drawing in MADE.DRAWINGS}
    assert drawn == {name.removesuffix("v") for name in ALGORITHMS} | {"neighbor"}
    assert {name for name in ALGORITHMS if f"{name.removesuffix('v')}\n" not in PAGE} == set()
