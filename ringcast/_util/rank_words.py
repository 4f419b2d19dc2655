"""Name ranks in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def ranks_in_words(ranks: Iterable[int], most: int = 10) -> str:
    """Return the ranks in words, at most `most` of them by number.

    >>> ranks_in_words([2]), ranks_in_words([0, 3]), ranks_in_words(range(12))
    ('rank 2', 'ranks 0, 3', 'ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    known = list(ranks)
    text = ", ".join(map(str, known[:most])) + (f" and {len(known) - most} more" if len(known) > most else "")
    return f"rank {text}" if len(known) == 1 else f"ranks {text}"
