"""Every mistake of the table has the output that was last read and approved, in 30 lines at most.

After a change of words: `python -m support.mistakes` in `tests/`, and read the difference.
"""

from __future__ import annotations

import pytest

from support.mistakes import MISTAKES, Mistake, make, part, parts

MOST = 30  # lines


@pytest.mark.parametrize(
    ("mistake", "n"), [pytest.param(m, n, id=f"{m.name}-{n}" if n else m.name) for m in MISTAKES for n in m.sizes]
)
def test_what_is_printed(mistake: Mistake, n: int, nothing_left: None) -> None:
    seen, printed = make(mistake, n)
    golden = parts()[mistake.name]
    assert golden.startswith(part(mistake))
    assert str(seen) in golden, f"{seen}\n\nof\n\n{printed}"
    assert printed.count("\n") <= MOST, printed


def test_the_file_has_the_mistakes_of_the_table() -> None:
    assert list(parts()) == [mistake.name for mistake in MISTAKES]
