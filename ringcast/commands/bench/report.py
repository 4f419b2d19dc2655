"""Write the text of the benchmark: lines that begin with # are descriptions, the others are rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import escaped
from ringcast._util.sizes import label
from ringcast.algorithms import network_file
from ringcast.algorithms.network import Network
from ringcast.collectives.announced import RIDE_ALONG
from ringcast.commands.bench.bed import TRANSPORT
from ringcast.commands.bench.cases import IRREGULAR, OURS, title
from ringcast.commands.bench.figures import AROUND, Row

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; the width is enough for the title and usual cells."""

    title: str
    width: int
    text: Callable[[Row], str]


NAMES = (Column("# bytes", 10, lambda row: label(row.case.nbytes)), Column("system", 10, lambda row: row.system))
TIMES = (
    Column("median_us", 13, lambda row: microseconds(row.median)),
    Column("min_us", 13, lambda row: microseconds(row.least)),
)
COLLECTIVE = (
    Column("x_limit", 9, lambda row: UNKNOWN if row.times_limit is None else f"{row.times_limit:.3f}"),
    Column("rounds", 8, lambda row: known(row.rounds)),
    Column("algorithm", 23, lambda row: row.algorithm or UNKNOWN),
    Column("n", 6, lambda row: known(row.nblocks)),
)
BANDWIDTH = (Column("MB/s", 11, lambda row: megabytes_per_second(row)),)
COMPARED, MEDIAN, RATIO = 23, 12, 8  # widths of the columns of `comparison`
REPETITIONS = (Column("reps", 6, lambda row: str(row.repetitions)),)


def columns(collective: str) -> tuple[Column, ...]:
    """Return the columns of a collective's table beside size and system."""
    shown = {"latency": (), "bandwidth": BANDWIDTH}.get(collective, COLLECTIVE)
    return (*TIMES, *shown, *REPETITIONS)


def microseconds(seconds: float | None) -> str:
    """Return a time with four digits at least and no more than a tenth of a microsecond.

    >>> microseconds(0.83612345), microseconds(12.345e-6)
    ('836123', '12.3')
    """
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def milliseconds(seconds: float | None) -> str:
    """Return a time to a tenth of a microsecond below a millisecond, else to ten microseconds.

    >>> milliseconds(0.83612345), milliseconds(12.345e-6)
    ('836.12', '0.0123')
    """
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e3:.4f}" if seconds < 1e-3 else f"{seconds * 1e3:.2f}"


def megabytes_per_second(row: Row) -> str:
    """Return the bandwidth of a row of `bandwidth`, by its median; decimal megabytes."""
    return f"{row.case.nbytes / row.median / 1e6:.1f}" if row.median else UNKNOWN


def known(number: int | None) -> str:
    """Return a number, or the sign for an unknown one."""
    return UNKNOWN if number is None else str(number)


def heading(version: str, size: int, place: str, command: str, when: datetime) -> list[str]:
    """Return the first lines: version, place and command of the measurement, and the meaning of the columns."""
    return [
        f"# ringcast bench {version}, {when.astimezone().isoformat(timespec='seconds')}",
        f"# {size} rank{'s' * (size != 1)} {place}",
        f"# {command}",
        "# median_us, min_us: microseconds of the slowest rank, over the repetitions (reps);",
        "# x_limit: median / least time that the links allow, but for what they let pass at once (64 kB); n: blocks",
        "# bcast and scatter of ringcast first send a description of the data, whose rounds are not counted;",
        f"# up to {RIDE_ALONG // 1000} kB of a bcast travel in it, unless algorithm or n are prescribed;",
        "# merge_sorted of ringcast first tells all ranks the lengths, whose rounds are not counted either",
    ]


def constants(network: Network) -> list[str]:
    """Return the constants of the network in the form of a configuration file, behind #."""
    return [f"# {line}".rstrip() for line in network_file.text(network, TRANSPORT).splitlines()]


def table(rows: Iterator[Row]) -> Iterator[tuple[Row, list[str]]]:
    """Yield each row with its lines: the row's own, after a title where another table begins."""
    current = ""
    for row in rows:
        lines = []
        if current != title(row.case):
            current = title(row.case)
            lines = ["", *_title(row)]
        yield row, [*lines, line(row)]


def _title(row: Row) -> list[str]:
    name = row.case.collective
    what = {
        **{one: f"{one}, {row.case.distribution} parts" for one in IRREGULAR},
        "shift": "shift: from each rank to the next",
        "latency": "latency: from rank 0 to rank 1, half of the way there and back",
        "bandwidth": "bandwidth: messages from rank 0 to rank 1 in a row, time of one",
    }.get(name, name)
    titles = "".join(column.title.rjust(column.width) for column in columns(name))
    left = "".join(column.title.ljust(column.width) for column in NAMES)
    return [f"# {what}", left + titles]


def line(row: Row) -> str:
    """Return the row as a line; a sentence where there are no credible figures."""
    left = "".join(column.text(row).ljust(column.width) for column in NAMES)
    if row.problem:
        return f"{left}{escaped(row.problem)}"
    return left + "".join(column.text(row).rjust(column.width) for column in columns(row.case.collective))


def comparison(rows: Sequence[Row]) -> list[str]:
    """Return a table with a line for each case: ringcast beside its peers, in milliseconds; none without peers."""
    systems = tuple(dict.fromkeys(row.system for row in rows))
    if len(systems) < 2:
        return []
    cases = {(row.case.nbytes, title(row.case)): row.limit for row in rows}
    medians = {(row.case.nbytes, title(row.case), row.system): row.median for row in rows}
    limited = any(cases.values())
    names = "# bytes".ljust(10) + "collective".ljust(COMPARED) + "limit".rjust(MEDIAN) * limited
    lines = [
        "",
        "# side by side: medians in ms; ratio: ringcast to the best of its peers",
        names + "".join(system.rjust(MEDIAN) for system in systems) + "ratio".rjust(RATIO),
    ]
    for (nbytes, name), limit in cases.items():
        mine, *others = [medians.get((nbytes, name, system)) for system in systems]
        figures = [limit, mine, *others] if limited else [mine, *others]
        best = min(filter(None, others), default=None)
        ratio = f"{mine / best:.2f}" if mine and best else UNKNOWN
        left = label(nbytes).ljust(10) + name.ljust(COMPARED)
        lines.append(left + "".join(milliseconds(each).rjust(MEDIAN) for each in figures) + ratio.rjust(RATIO))
    return lines


def ending(rows: Sequence[Row]) -> list[str]:
    """Return the last lines: versions, commands that started the systems, and systems without credible figures."""
    versions = {row.system: row.version for row in rows if row.version and row.system != OURS}
    commands = {row.system: row.command for row in rows if row.command}
    caught = dict.fromkeys(row.system for row in rows if row.problem.startswith(AROUND))
    return [
        *(f"# {system}: {version}" for system, version in versions.items()),
        *(f"# {system} was started by: {command}" for system, command in commands.items()),
        *(f"# {system} {AROUND}: do not believe its rows above either; no file gets its times" for system in caught),
    ]


def choices(automatic: Row, by_hand: Sequence[Row]) -> str:
    """Return a line of the table of `choices_title`: the automatic choice beside the best one by hand."""
    best = min((row for row in by_hand if row.median), key=lambda row: row.median or 0.0, default=None)
    left = label(automatic.case.nbytes).ljust(10)
    if best is None or not automatic.median or not best.median:
        return f"{left}{escaped(automatic.problem) or 'nothing to choose by hand'}"
    fields = [_choice(automatic), _choice(best), f"{automatic.median / best.median:.3f}".rjust(8)]
    return left + "".join(fields)


def choices_title(row: Row) -> list[str]:
    """Return the lines above a table of `choices`."""
    half = "algorithm".rjust(23) + "n".rjust(6)
    return [
        "",
        f"# {title(row.case)}: the automatic choice, and the best of those by hand",
        f"{'# bytes'.ljust(10)}{'automatic_us'.rjust(13)}{half}{'by_hand_us'.rjust(13)}{half}{'ratio'.rjust(8)}",
    ]


def _choice(row: Row) -> str:
    time, n = microseconds(row.median), known(row.nblocks)
    return f"{time.rjust(13)}{(row.algorithm or UNKNOWN).rjust(23)}{n.rjust(6)}"
