"""Print the findings as a table, coloured on a terminal; equal findings of several hosts are one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from rich.console import Console
from rich.table import Table

from ringcast._util.safe_text import escaped
from ringcast.commands.doctor.finding import Finding, Verdict

EVERYWHERE = "all"
_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}
Row = tuple[str, Finding]  # hosts, finding


def rows(found: Sequence[tuple[str, Finding]], hosts: Sequence[str]) -> list[Row]:
    """Return the findings of all hosts, grouped by check; equal ones are joined.

    >>> from ringcast.commands.doctor.finding import ok
    >>> rows([("a", ok("x", "1")), ("a", ok("y", "2")), ("b", ok("x", "1")), ("b", ok("y", "3"))], ["a", "b"])[0]
    ('all', Finding(check='x', verdict=<Verdict.OK: 'ok'>, text='1', fix=''))
    """
    whose: dict[Finding, list[str]] = {}
    for host, finding in found:
        whose.setdefault(finding, []).append(host)
    checks = list(dict.fromkeys(finding.check for _, finding in found))
    ordered = sorted(whose, key=lambda finding: checks.index(finding.check))
    return [(_names(whose[finding], hosts), finding) for finding in ordered]


def _names(some: Sequence[str], hosts: Sequence[str]) -> str:
    return EVERYWHERE if "" in some or (len(hosts) > 1 and set(some) >= set(hosts)) else ",".join(some)


def verdict(found: Sequence[tuple[str, Finding]]) -> str:
    """Return the last line."""
    failed, warned = (sum(finding.verdict is v for _, finding in found) for v in (Verdict.FAIL, Verdict.WARN))
    if failed:
        return f"a job would fail: {failed} failed, {warned} to look at"
    return f"a job would run, with {warned} to look at" if warned else "a job would run"


def show(found: Sequence[tuple[str, Finding]], hosts: Sequence[str], file: TextIO) -> None:
    """Print the table, and the verdict."""
    table = rows([(host, _printable(finding)) for host, finding in found], hosts)
    if file.isatty():
        _coloured(table, len(hosts) > 1, file)
    else:
        _plain(table, len(hosts) > 1, file)
    print(f"\n{verdict(found)}", file=file)


def _printable(finding: Finding) -> Finding:
    """Return a finding with escapes for control characters, as it may come from another host."""
    return replace(finding, check=escaped(finding.check), text=escaped(finding.text), fix=escaped(finding.fix))


def _plain(table: Sequence[Row], many: bool, file: TextIO) -> None:
    checks = max(len(finding.check) for _, finding in table)
    names = max(len(name) for name, _ in table)
    for name, finding in table:
        where = f"{name:{names}}  " if many else ""
        start = f"{finding.verdict:4}  {finding.check:{checks}}  {where}"
        print(f"{start}{finding.text}", file=file)
        if finding.fix:
            print(f"{'':{len(start)}}-> {finding.fix}", file=file)


def _coloured(table: Sequence[Row], many: bool, file: TextIO) -> None:
    columns = ["", "check", *(["host"] if many else []), "found", "what to do"]
    drawn = Table(*columns, box=None, pad_edge=False)
    for name, finding in table:
        colour = _COLOURS[finding.verdict]
        drawn.add_row(
            f"[{colour}]{finding.verdict}[/]",
            *(_literally(text) for text in (finding.check, *([name] if many else []), finding.text, finding.fix)),
        )
    Console(file=file).print(drawn)


def _literally(text: str) -> str:
    return text.replace("[", r"\[")  # rich would read text in brackets as a style
