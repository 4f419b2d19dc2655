"""The causes by which survivors know of the death of a rank."""

from __future__ import annotations

from support.patience import slowness


def names(text: str, cause: str) -> bool:
    """Return whether a survivor's error names the cause of a death, as the launcher reports it.

    A rank that has lost a connection waits for this report for less than a second. Where the machine is slow, the
    report may come later, and the error names the lost link.
    """
    return cause in text or (slowness() > 1 and " is lost: " in text)
