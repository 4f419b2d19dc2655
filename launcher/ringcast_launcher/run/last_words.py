"""Write the flight record of a failed job: a summary for standard error, and the file of --flight-recorder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from ringcast._util.output_files import write_text
from ringcast._util.safe_text import escaped
from ringcast._util.streams import write_all
from ringcast.monitoring import flight_record
from ringcast.monitoring.flight_record import Flights


def last_words(flights: Flights, file: str, lost: Collection[int], raised: Mapping[int, str]) -> str:
    """Return a line for each rank about its last actions, and write the whole record to `file`, if one is given.

    `flight_record.summary` gets the arguments `lost` and `raised`.
    """
    lines = flight_record.summary(flights, lost, raised) if any(flights) else []
    if file:
        text = flight_record.to_json(flights) if file.endswith(".json") else flight_record.text(flights, lost, raised)
        try:
            write_text(file, text)
        except OSError as error:
            lines.append(f"the flight record was not written to {escaped(file)}: {error.strerror}")
    return "".join(f"ringcast-launch: {line}\n" for line in lines)


def say_last(text: str, file: str = "") -> None:
    """Write the last text of a job to `file`, or without a file to standard error.

    Raises:
        OSError: the text cannot be written.
    """
    data = text.encode("utf-8", "replace")
    if file:
        Path(file).write_bytes(data)
    else:
        write_all(2, data)
