"""Many small cases of one law as one test, and cases that only `make test-long` tries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of these values of an argument (tuples, for several arguments), in one test.

    It is written as `pytest.mark.parametrize`, below the parameters whose cases stay tests of their own. An error names
    its case.
    """
    arguments = [name.strip() for name in names.split(",")]
    rows = [value if len(arguments) > 1 else (value,) for value in values]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**given: Any) -> None:
            for row in rows:
                case = dict(zip(arguments, row, strict=True))
                try:
                    test(**given, **case)
                except BaseException as error:
                    error.add_note(f"for {', '.join(f'{name} = {value!r}' for name, value in case.items())}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest reads it
        return run

    return decorate


def long_but(few: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values of a parameter, of which `make test` tries a few, and `make test-long` the others."""
    return [value if value in few else pytest.param(value, marks=pytest.mark.long) for value in values]


def crossed(kinds: Sequence[str], sizes: Sequence[Any]) -> list[Any]:
    """Return all pairs of a kind of job and a size.

    `make test` tries the first kind in all sizes, and each other kind in one size; `make test-long` tries all pairs.
    """
    of_kind = {kind: sizes[-number % len(sizes)] for number, kind in enumerate(kinds)}
    return [
        pytest.param(kind, size, marks=[pytest.mark.long] * (kind != kinds[0] and size != of_kind[kind]))
        for kind in kinds
        for size in sizes
    ]
