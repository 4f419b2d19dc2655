"""The build of ringcast that the tests run on, and the marks of those that only one of the two can pass."""

from __future__ import annotations

import pytest

from ringcast.version import build

COMPILED = build() == "compiled"

replaces_a_method = pytest.mark.skipif(
    COMPILED, reason="it replaces a method of a compiled class, whose compiled callers do not look for another one"
)
derives_a_class = pytest.mark.skipif(
    COMPILED, reason="it derives a class from a compiled one, which Python does not allow"
)
