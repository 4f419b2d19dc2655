"""A profile as a text for the terminal: the paragraph, the advice, the call sites, and the ranks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringcast._util.printable import printable
from ringcast._util.rank_words import ranks_in_words
from ringcast._util.sizes import readable
from ringcast.profiling.culprit import culprit
from ringcast.profiling.words import place, seconds, share

SITES = 20  # call sites that are shown
RANKS = 32  # ranks that are shown
PHASES = ("late", "moving", "link", "combining", "python", "awaited")
MEANINGS = """\
late: waiting for a rank that has not made the call yet; moving: bytes under way; link: within a call, waiting for the
network or another rank's part of it; combining: copying data, and operators; python: ringcast's own Python; awaited: in
wait(), for requests under way; others waited: for this rank, while its program did something else"""


def table(report: Mapping[str, Any], width: int = 120) -> str:
    """Return the profile as text."""
    lines = [report["summary"], *report["notes"]]
    if report["missing"]:
        lines.insert(1, f"Nothing is known of {ranks_in_words(report['missing'])}.")
    if report["failure"]:
        lines.insert(0, f"The job failed: {report['failure']}")
    lines += [f"* {one['text']} {one['do']}" for one in report["advice"]]
    drawn = io.StringIO()
    console = Console(file=drawn, width=width, no_color=True)
    for line in lines:
        console.print(Text(printable(line)))
    console.print(_sites(report))
    console.print(_ranks(report["ranks"]))
    console.print(MEANINGS)
    return drawn.getvalue()


def _sites(report: Mapping[str, Any]) -> Table:
    sites = report["sites"]
    whole = sum(rank["span"] for rank in report["ranks"])
    more = f" (the first {SITES} of {len(sites)})" if len(sites) > SITES else ""
    drawn = Table(title=f"call sites{more}", title_justify="left", box=None)
    drawn.add_column("call", no_wrap=True)
    phases = [phase for phase in PHASES if any(site[phase] for site in sites)]
    for name in ("calls", "time", "of all", *phases, "sent", "received", "late rank"):
        drawn.add_column(name, justify="right")
    for site in sites[:SITES]:
        found = culprit(report, site)
        late = "" if found is None else str(found[0])
        parts = [share(site[phase], site["time"]) for phase in phases]
        facts = [str(site["calls"]), seconds(site["time"]), share(site["time"], whole), *parts]
        moved = [readable(site[way]) for way in ("bytes_out", "bytes_in")]
        drawn.add_row(*map(_text, [place(site), *facts, *moved, late]))
    return drawn


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    more = f" (the first {RANKS} of {len(ranks)})" if len(ranks) > RANKS else ""
    drawn = Table(title=f"ranks{more}", title_justify="left", box=None)
    for name in ("rank", "host", "time", "program", *PHASES, "others waited", "sent"):
        drawn.add_column(name, justify="right")
    for rank in ranks[:RANKS]:
        parts = [share(rank[phase], rank["span"]) for phase in ("program", *PHASES)]
        facts = [str(rank["rank"]), rank["host"], seconds(rank["span"]), *parts]
        drawn.add_row(*map(_text, [*facts, seconds(rank["blamed"]), readable(rank["sent"])]))
    return drawn


def _text(value: str) -> Text:
    return Text(printable(value))
