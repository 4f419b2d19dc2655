"""Run `ringcast simulate`: compare algorithms of a collective on a virtual clock."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ringcast._util import output_files
from ringcast._util.last_line import ProgressLine
from ringcast._util.sizes import label, parse_range
from ringcast._util.slow_work import told_if_slow
from ringcast.algorithms import ALGORITHMS
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis.topologies import FULL, KINDS
from ringcast.commands import options as call_options
from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.commands.compare import ComparedCase, Row, compare
from ringcast.config.worker import can_redraw
from ringcast.wire.collective import COLLECTIVES, Parts

_COMMAND = "ringcast simulate"
MODEL = NETWORKS["tcp"]
DRAWN = "100:100m"  # bytes, unless others are asked for
_DESCRIPTION = "Compare the algorithms of a collective in the linear model: a message takes alpha + beta * bytes."
_EPILOG = """\
examples:  ringcast simulate bcast -n 1024 --nbytes 10m
           ringcast simulate allgather -n 64 --network mesh:8x8 --algorithm ring,mesh,hypercube
           ringcast simulate bcast -n 100000 --nblocks 100
           ringcast simulate allreduce -n 36 --network ring --plot allreduce.png

On a network that is not full, messages have routes over links. Congestion is the most messages that any link has in
any round; crossings are the links that all messages take together; hops are those of the longest route. A round then
takes alpha, and beta for each byte that passes its busiest link, in however many hops (cut-through).

What is too large to be simulated rank by rank is given by formula: rounds, and seconds in the model.

exit code:  1 if the plot cannot be written, 2 for what cannot be done
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(argv)
    try:
        cases = list(_cases(options))
        if problem := _reason_not(options):
            raise ValueError(problem)
        found = _compared(cases, options.algorithm)
    except ValueError as error:
        return refuse(_COMMAND, error)
    print(json.dumps(_to_json(found), indent=1) if options.json else "\n\n".join(_text(*one) for one in found))
    if options.profile and (problem := _profile(options.profile, *found[0])):
        return refuse(_COMMAND, f"--profile: {problem}", FAILED)
    if options.plot is None:
        return 0
    from ringcast.commands.compare_plot import draw

    # Formulas assume a link between every two ranks: beside times on another network they would mislead.
    rows = [row for case, rows in found for row in rows if case.network == FULL or row.traffic is not None]
    try:
        draw(options.plot, rows, _heading(cases[0]))
    except OSError as error:
        return refuse(_COMMAND, f"--plot: {error}", FAILED)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser(_COMMAND, _DESCRIPTION, _EPILOG)
    add = made.add_argument
    add("collective", choices=list(ALGORITHMS), metavar="COLLECTIVE", help=", ".join(ALGORITHMS))
    call_options.add_to(made)
    add("--algorithm", type=_names, default=(), metavar="NAME,...", help="only these (default: all that can do it)")
    add(
        "--nbytes",
        metavar="MIN:MAX",
        help="of the whole buffer, by factors of ten, or one size, such as 10k "
        f"(default: the counts, or 1m; with --plot {DRAWN})",
    )
    add("--alpha", type=float, default=MODEL.alpha, metavar="SECONDS", help=f"per message (default {MODEL.alpha:g})")
    add("--beta", type=float, default=MODEL.beta, metavar="SECONDS", help=f"per byte (default {MODEL.beta:.3g})")
    add("--network", default=FULL, metavar="NETWORK", help=f"{KINDS} (A rows or modules of B ranks; default {FULL})")
    add("--json", action="store_true", help="print JSON")
    add(
        "--profile",
        metavar="FILE",
        help="write the profile of the fastest algorithm for the first size, as ringcast-launch --profile does "
        "(*.html, *.json, - for a table on standard error); all ranks are simulated one by one",
    )
    add("--plot", type=Path, metavar="FILE", help="draw time against bytes (.png, .svg or .pdf)")
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.split(",")))


def _cases(options: argparse.Namespace) -> Iterator[ComparedCase]:
    """Yield a case for each size of data.

    Raises:
        ValueError: the options make no sense.
    """
    for name in "alpha", "beta":
        if not 0 <= getattr(options, name) < float("inf"):
            raise ValueError(f"--{name} must be a number of seconds, 0 or more, not {getattr(options, name)}")
    params = call_options.params(options)
    for nbytes in _sizes(options):
        case = ComparedCase(options.collective, params, nbytes, options.nblocks)
        yield replace(case, alpha=options.alpha, beta=options.beta, network=options.network)


def _sizes(options: argparse.Namespace) -> Sequence[int]:
    if COLLECTIVES[options.collective].parts is Parts.NONE:
        return (0,)
    if options.nbytes is not None:
        return parse_range(options.nbytes)
    if options.plot is not None:
        return parse_range(DRAWN)
    return (sum(options.counts) if options.counts else 1_000_000,)


def _reason_not(options: argparse.Namespace) -> str:
    """Return why the plot cannot be drawn, or ""; asked before minutes of simulation."""
    if options.profile:
        from ringcast.profiling import files

        if problem := files.reason_not(options.profile):
            return f"--profile: {problem}"
        if options.network != FULL:
            return f"--profile needs a link between every two ranks; leave out --network {options.network}"
    if options.plot is None:
        return ""
    if COLLECTIVES[options.collective].parts is Parts.NONE:
        return f"--plot draws time against bytes, but a {options.collective} has no bytes; leave it out"
    from ringcast.commands.bench.plot import reason_not

    reason = output_files.reason_not(options.plot) or reason_not(options.plot)
    return f"--plot: {reason}" if reason else ""


def _profile(path: str, case: ComparedCase, rows: Sequence[Row]) -> str:
    """Write the profile of the fastest algorithm; return why not, or ""."""
    from ringcast.profiling import files
    from ringcast.profiling.simulated import simulated

    best = rows[0]
    params = case.params._replace(nblocks=best.nblocks)
    line = ProgressLine(2 if can_redraw(2) else None)
    with told_if_slow(line.show, f"making the profile of {params.size:,} ranks"):
        made = simulated(case.collective, best.algorithm, params, case.nbytes, case.model, ["ringcast", *sys.argv[1:]])
    try:
        files.publish(path, made)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _compared(cases: Sequence[ComparedCase], names: Sequence[str]) -> list[tuple[ComparedCase, list[Row]]]:
    """Compare the algorithms for each case; on a terminal, show the algorithm that is being simulated."""
    line = ProgressLine(2 if can_redraw(2) else None)
    try:
        return [(case, compare(case, names, lambda name: line.show(f"simulating {name}"))) for case in cases]
    finally:
        line.clear()


def _heading(case: ComparedCase) -> str:
    on = "" if case.network == FULL else f", network {case.network}"
    return f"{case.collective} on {case.params.size} ranks{on}, alpha {case.alpha:g} s, beta {case.beta:.3g} s per byte"


def _text(case: ComparedCase, rows: Sequence[Row]) -> str:
    """Return a table: a line for each algorithm."""
    head = ["algorithm", "blocks", "rounds", "seconds", "messages", "volume"]
    if case.network != FULL:
        head += ["congestion", "crossings", "hops", f"seconds on {case.network}"]
    table = [head, *(_cells(row, len(head)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in table]
    notes = [""] + ["  by formula" if row.by_formula else "" for row in rows]
    title = f"{_heading(case)}: {label(case.nbytes)} bytes in all"
    return "\n".join([title, *(line + note for line, note in zip(lines, notes, strict=True))])


def _cells(row: Row, columns: int) -> list[str]:
    """Return the cells of a line; a dash stands for an unknown value."""
    found: list[Any] = [row.algorithm, row.nblocks, row.rounds, f"{row.seconds:.6g}", row.messages, row.volume]
    if row.traffic is not None:
        found += [row.traffic.congestion, row.traffic.crossings, row.traffic.hops, f"{row.traffic.time:.6g}"]
    found += [None] * (columns - len(found))
    return ["-" if cell is None else str(cell) for cell in found]


def _to_json(found: Sequence[tuple[ComparedCase, Sequence[Row]]]) -> dict[str, Any]:
    """Return the content of the tables as data."""
    case = found[0][0]
    return {
        "collective": case.collective,
        "p": case.params.size,
        "root": case.params.root,
        "network": case.network,
        "alpha": case.alpha,
        "beta": case.beta,
        "rows": [asdict(row) | {"by_formula": row.by_formula} for _, rows in found for row in rows],
    }
