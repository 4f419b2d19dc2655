"""What the launcher tells of a job beside its workers' output: for others while it runs, and when it has failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ringcast import flight
from ringcast.outfile import write_text


def live(states: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of what the ranks are doing now."""
    from ringcast.livestate import from_plain, table  # needs psutil, for which no job waits

    return "".join(line + "\n" for line in table([from_plain(state) for state in states]))


def last_words(directory: str, size: int, file: str, lost: Collection[int]) -> str:
    """Return a line for each rank of what it did last, and write the whole record to `file`, if there is one."""
    flights = flight.read(directory, range(size))
    lines = flight.summary(flights, lost) if any(flights) else []
    if file:
        text = flight.to_json(flights) if file.endswith(".json") else flight.text(flights, lost)
        try:
            write_text(file, text)
        except OSError as error:
            lines.append(f"the flight record was not written to {file}: {error.strerror}")
    return "".join(f"ringcast-launch: {line}\n" for line in lines)
