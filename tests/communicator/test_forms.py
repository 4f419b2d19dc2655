"""The forms of the calls that do not block are written from those that do."""

from __future__ import annotations

import runpy

import pytest

from support.places import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs/scripts/make_calls.py"))


@pytest.mark.parametrize("target", SCRIPT["TARGETS"], ids=lambda target: target.path.name)
def test_what_is_written_is_what_the_script_writes(target: object) -> None:
    advice = "run docs/scripts/make_calls.py"
    assert target.path.read_text() == SCRIPT["text_of"](target), advice  # type: ignore[attr-defined]  # the script's own
