"""The examples in docstrings that need more than a world of one rank."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import ringcast


def check_examples(function: Callable[..., Any], **names: Any) -> None:
    """Run the examples of a function's docstring, which may use `ringcast` and these names."""
    (examples,) = doctest.DocTestFinder().find(function, globs={"ringcast": ringcast, **names})
    told: list[str] = []
    assert doctest.DocTestRunner().run(examples, out=told.append).attempted > 0
    assert not told, "".join(told)
