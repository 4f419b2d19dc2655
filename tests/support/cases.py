"""Many small cases of one law as one test: for thousands of them pytest would take longer than the law."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

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
