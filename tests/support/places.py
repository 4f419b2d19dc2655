"""Paths of this repository, the line of a shell that runs Python, and golden vectors."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
EXAMPLES = ROOT / "examples"
GOLDEN = TESTS / "golden"
SUPPORT = TESTS / "support"


def python(*arguments: str | Path) -> str:
    """Return the line of a shell that runs this interpreter; its path may have spaces, as may those of files."""
    return shlex.join([sys.executable, *map(str, arguments)])


def golden_collectives() -> dict[str, Any]:
    """Return the golden vectors of whole collectives."""
    vectors: dict[str, Any] = json.loads((GOLDEN / "collectives.json").read_text())
    return vectors
