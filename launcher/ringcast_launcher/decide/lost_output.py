"""Note output of a job that could not be written: where, why, and the exit code of the job for it.

A reader that closed the pipe (EPIPE, as with `| head`) wants no more: the job is ended with the exit code for SIGPIPE,
141, without a message. Any other error, such as a full disk, is reported, with exit code 1.
"""

from __future__ import annotations

import signal

BROKEN_PIPE = 128 + signal.SIGPIPE
_STREAMS = {1: "standard output", 2: "standard error"}


class Losses:
    """The first loss of each place, noted from several threads."""

    def __init__(self) -> None:
        self._causes: dict[str, str] = {}
        self._unread: set[str] = set()

    def note(self, place: str, error: OSError) -> None:
        """Note that output to this place is lost; if its reader has gone, raise SIGPIPE for the job's loop."""
        if isinstance(error, BrokenPipeError):
            self._unread.add(place)
            signal.raise_signal(signal.SIGPIPE)  # ends the wait of the job's loop; without a loop Python ignores it
        else:
            why = error.strerror or error
            self.note_cause(place, f"{place} cannot be written ({why}); the rest of the output is lost")

    def note_cause(self, place: str, cause: str) -> None:
        """Note a loss with a text of the caller's."""
        self._causes.setdefault(place, cause)

    @property
    def causes(self) -> list[str]:
        """The errors, one line for each place."""
        return list(self._causes.values())

    @property
    def code(self) -> int:
        """The exit code of a job that succeeded otherwise; 0 if nothing was lost."""
        return 1 if self._causes else BROKEN_PIPE if self._unread else 0

    @property
    def unread(self) -> bool:
        """True once a reader of one of the places has gone."""
        return bool(self._unread)

    @property
    def cause(self) -> str:
        """The reason for `code`, in one line; empty if the code is 0."""
        unread = sorted(self._unread)[:1]
        return "; ".join(self.causes) or "".join(f"the reader of {place} has gone" for place in unread)


def place_of(file: int) -> str:
    """Return the name of a file descriptor of ours.

    >>> place_of(1)
    'standard output'
    """
    return _STREAMS.get(file, f"file descriptor {file}")
