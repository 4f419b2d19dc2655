"""The forms of the calls that do not block are written from those that do."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from support.places import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs/scripts/make_calls.py"))


@pytest.mark.parametrize("target", SCRIPT["TARGETS"], ids=lambda target: target.path.name)
def test_what_is_written_is_what_the_script_writes(target: Any) -> None:
    assert target.path.read_text() == SCRIPT["text_of"](target), "run docs/scripts/make_calls.py"
