"""The gallery has every example, with a command, and its plots are there."""

from __future__ import annotations

import re

from support.places import EXAMPLES, ROOT

PAGE = (ROOT / "docs/use/gallery.md").read_text()


def test_every_example_is_there_with_a_command() -> None:
    shown = re.findall(r"^\$ .*examples/(\w+\.py)", PAGE, re.MULTILINE)
    linked = re.findall(r"\]\(\.\./\.\./examples/(\w+\.py)\)", PAGE)
    assert sorted(shown) == sorted(linked) == sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_every_plot_is_shown_and_small() -> None:
    plots = sorted((ROOT / "docs/figures/gallery").iterdir())
    assert [path.name for path in plots if f"](../figures/gallery/{path.name})" not in PAGE] == []
    assert max(path.stat().st_size for path in plots) < 60_000
