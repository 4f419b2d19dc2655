"""Run `ringcast profile`: print a profile that was written as JSON, or compare two."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringcast._util.printable import printable
from ringcast.commands.command_line import parser, refuse
from ringcast.profiling.compare import Change, compared
from ringcast.profiling.files import read
from ringcast.profiling.table import table
from ringcast.profiling.words import seconds, share

_COMMAND = "ringcast profile"
_DESCRIPTION = """\
Print a profile of ringcast-launch --profile FILE.json. Of two profiles, print by call site how the time of a call has
changed: the median of a call on a rank, before and after. "within noise" is a difference within
three times what the calls of one run differ among themselves, or below 5 %."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 2 if a file is no profile."""
    made = parser(_COMMAND, _DESCRIPTION)
    made.add_argument("before", metavar="FILE.json", help="a profile")
    made.add_argument("after", metavar="AFTER.json", nargs="?", help="another one, to compare it with")
    made.add_argument("--json", action="store_true", help="print JSON")
    options = made.parse_args(argv)
    try:
        before = read(options.before)
        after = None if options.after is None else read(options.after)
    except OSError as error:
        return refuse(_COMMAND, f"{error.filename}: {error.strerror}")
    except ValueError as error:
        return refuse(_COMMAND, str(error))
    if after is None:
        print(json.dumps(before) if options.json else table(before), end="\n" if options.json else "")
        return 0
    changes = compared(before, after)
    if options.json:
        print(json.dumps([asdict(change) for change in changes], indent=1))
        return 0
    print(f"the job took {seconds(before['span'])} before, {seconds(after['span'])} after")
    Console(file=sys.stdout, width=120).print(_table(changes))
    return 0


def _table(changes: Sequence[Change]) -> Table:
    drawn = Table(box=None)
    drawn.add_column("call")
    for name in ("before", "after", "change", "", "all calls and ranks"):
        drawn.add_column(name, justify="right")
    for one in changes:
        times = ("-" if time is None else seconds(time) for time in (one.before, one.after))
        change = "" if one.change is None else f"{'+' if one.change >= 0 else '-'}{share(abs(one.change), 1)}"
        sign = "+" if one.seconds >= 0 else "-"
        row = [f"{one.name}:{one.line}", *times, change, one.verdict, f"{sign}{seconds(abs(one.seconds))}"]
        drawn.add_row(*(Text(printable(text)) for text in row))
    return drawn
