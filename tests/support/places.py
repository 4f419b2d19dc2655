"""Where things lie in this repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
EXAMPLES = ROOT / "examples"
GOLDEN = TESTS / "golden"
SUPPORT = TESTS / "support"


def golden_collectives() -> dict[str, Any]:
    """Return the golden vectors of whole collectives."""
    vectors: dict[str, Any] = json.loads((GOLDEN / "collectives.json").read_text())
    return vectors
