"""Suggest the known word nearest to a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a sentence that names the nearest known word, behind `prefix`; empty if none is near.

    >>> did_you_mean("--timout", ["--timeout", "--np"]), did_you_mean("xyz", ["--timeout"])
    ('; did you mean --timeout?', '')
    """
    from difflib import get_close_matches  # imported only after a mistake

    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
