"""Run `ringcast explain`: print the table of algorithms, or the messages of one algorithm, round by round."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ringcast._util import output_files, sizes
from ringcast._util.dataclass import dataclass
from ringcast.algorithms import ALGORITHMS, Algorithm, CallFacts, Params, build, catalogue, find
from ringcast.algorithms.cost import choose, legal, predict
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis import diagram, tables
from ringcast.analysis.rounds import Transfer, label, messages
from ringcast.analysis.simulate import simulate
from ringcast.commands import options as call_options
from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.schedules.blocks import baseblock, recv_schedule, send_schedule, skips
from ringcast.schedules.placement import hosts_of
from ringcast.schedules.schedule import Schedule
from ringcast.wire.collective import COLLECTIVES, Parts

_COMMAND = "ringcast explain"
MOST = 1_000_000  # steps of all ranks; their list would be some 100 MB
NETWORK = NETWORKS["tcp"]
_DESCRIPTION = "List all algorithms, or show one: sender, receiver and blocks of each message by round, and the price."
_EPILOG = """\
examples:  ringcast explain --list
           ringcast explain bcast -n 20 --nblocks 8 --root 3 --tables
           ringcast explain allgatherv -n 5 --counts 5,0,3,1,4 --algorithm pipelined_ring
           ringcast explain bcast -n 9 --nblocks 4 --plot rounds.svg

Times are predicted for tcp at 1 Gbit/s; comm.explain tells them for your network."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(argv)
    try:
        _check_plot(options)
        if options.list:
            entries = catalogue.entries(options.collective)
            print(json.dumps(entries, indent=1) if options.json else catalogue.text(entries))
        elif not options.collective:
            raise ValueError("name a collective, or ask for the --list of all algorithms")
        else:
            case = _case(options)
            if options.plot and (problem := _draw(case, options.plot)):
                return refuse(_COMMAND, problem, FAILED)
            print(json.dumps(_to_json(case)) if options.json else "\n".join(_text(case, tables=options.tables)))
    except ValueError as error:
        return refuse(_COMMAND, error)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser(_COMMAND, _DESCRIPTION, _EPILOG)
    add = made.add_argument
    add("collective", nargs="?", choices=list(ALGORITHMS), metavar="COLLECTIVE", help=", ".join(ALGORITHMS))
    call_options.add_to(made)
    add("--algorithm", metavar="NAME", help="instead of the predicted fastest one")
    add("--ranks-per-host", type=int, default=1, metavar="RANKS", help="ranks that share a host's link (default 1)")
    add("--nbytes", metavar="BYTES", help="of the whole buffer, for prices, such as 10k (default: the counts, or 1m)")
    add("--list", action="store_true", help="list all algorithms with paper, rounds, volume and tests")
    add("--json", action="store_true", help="print JSON; of a broadcast with its block schedules")
    add("--plot", type=Path, metavar="IMAGE", help="draw ranks, rounds and messages (needs matplotlib)")
    add("--tables", action="store_true", help="print the block schedules of all ranks as the paper of 2022 does")
    return made


def _check_plot(options: argparse.Namespace) -> None:
    """Refuse a plot that could not be written.

    Raises:
        ValueError: the plot cannot be written; the text says why.
    """
    if options.plot is None:
        return
    if options.list:
        raise ValueError("--plot draws one algorithm; leave out --list")
    if problem := output_files.reason_not(options.plot) or output_files.image_reason_not(options.plot):
        raise ValueError(f"--plot {problem}")


@dataclass(frozen=True)
class _Case:
    """A call, and the schedules of the chosen algorithm."""

    entry: Algorithm
    params: Params
    nbytes: int
    schedules: Sequence[Schedule]
    prices: Sequence[tuple[float, str, int]]  # seconds, algorithm, blocks; the fastest first

    @property
    def messages(self) -> list[Transfer]:
        return messages(self.schedules)


def _case(options: argparse.Namespace) -> _Case:
    """Return the case that the options describe.

    Raises:
        ValueError: there is no such case; the text says why and what is possible.
    """
    call = call_options.params(options)
    if options.ranks_per_host < 1:
        raise ValueError(f"there is no host of {options.ranks_per_host} ranks")
    nbytes = sizes.parse(options.nbytes) if options.nbytes is not None else sum(call.counts) or 1_000_000
    facts = CallFacts(
        size=call.size,
        nbytes=0 if COLLECTIVES[options.collective].parts is Parts.NONE else nbytes,
        root=call.root,
        counts=call.counts,
        distance=call.distance,
        hosts=hosts_of([rank // options.ranks_per_host for rank in range(call.size)]),
    )
    asked = options.algorithm or _with_schedules(options)
    name, n = choose(options.collective, facts, NETWORK, algorithm=asked, nblocks=options.nblocks)
    params = facts.params(n)
    entry = find(options.collective, name)
    if (work := params.size * entry.rounds(params)) > MOST:
        raise ValueError(f"{work:,} steps of all ranks are too many to list; take fewer ranks or blocks")
    schedules = [build(options.collective, name, params, rank) for rank in range(params.size)]
    prices = sorted(
        _prices(options.collective, name, facts, options.nblocks), key=lambda price: (price[0], price[1] != name)
    )
    return _Case(entry, params, facts.nbytes, schedules, prices)


def _with_schedules(options: argparse.Namespace) -> str | None:
    """Return the algorithm to take for the block schedules that the options ask for; None if they ask for none."""
    if options.collective == "bcast" and (options.json or options.tables):
        return "circulant"
    return "circulant_blocks" if options.collective in ("allgatherv", "reduce_scatter") and options.tables else None


def _prices(collective: str, chosen: str, facts: CallFacts, nblocks: int | None) -> Iterator[tuple[float, str, int]]:
    """Yield seconds, name and number of blocks of all algorithms that can do the call."""
    plans, _ = legal(
        collective, lambda name: choose(collective, facts, NETWORK, algorithm=name, nblocks=nblocks), chosen
    )
    for name, n in plans.values():
        yield predict(collective, name, facts.params(n), facts.nbytes, NETWORK), name, n


def _draw(case: _Case, path: Path) -> str:
    """Draw the space-time diagram, and return why it was not written, or "".

    Raises:
        ValueError: the diagram is too large.
    """
    found = diagram.arrange(case.messages, case.params.size, case.schedules[0].parts)
    cut = f" in {case.params.nblocks} blocks" if case.entry.blocks else ""
    name = f"{case.entry.collective}{cut} by {case.entry.name} on {found.size} ranks: {found.rounds} rounds"
    try:
        diagram.draw(path, found, name)
    except OSError as error:
        return f"{path} was not written: {error.strerror or error}"
    return ""


def _text(case: _Case, *, tables: bool) -> Iterator[str]:
    """Yield the lines of the report."""
    entry, params, parts = case.entry, case.params, case.schedules[0].parts
    report = simulate(case.schedules)
    yield f"{entry.collective} by {entry.name} on {params.size} ranks, {params.nblocks} blocks: {entry.source}"
    formulas = f"{entry.rounds_formula} rounds, volume {entry.volume_formula}"
    yield f"{report.rounds} rounds, {report.messages} messages; for equal parts {formulas}"
    yield ""
    for i, together in groupby(case.messages, key=lambda message: message.round):
        yield f"round {i}: {', '.join(f'{m.source}>{m.dest} {label(m.slots, parts)}' for m in together)}"
    if tables:
        yield from ("", _tables(case))
    yield ""
    yield f"predicted for {case.nbytes} bytes in all, over tcp at 1 Gbit/s:"
    width = max(len(name) for _, name, _ in case.prices)
    for seconds, name, n in case.prices:
        mark = "->" if name == entry.name else "  "
        yield f"{mark} {name:{width}} {n:5} blocks {seconds * 1e3:10.3f} ms"


def _tables(case: _Case) -> str:
    """Return the tables of block schedules; their ranks are counted from the root.

    Raises:
        ValueError: the algorithm has none.
    """
    if case.entry.name not in ("circulant", "circulant_blocks") or not case.entry.blocks:
        raise ValueError(f"{case.entry.collective} by {case.entry.name} has no block schedules; use bcast by circulant")
    return tables.table_5() if case.params.size == 9 else tables.table(case.params.size)


def _to_json(case: _Case) -> dict[str, Any]:
    """Return the content of the text as data; for a bcast in blocks the schedules too, by rank."""
    p, root = case.params.size, case.params.root
    found: dict[str, Any] = {
        "collective": case.entry.collective,
        "algorithm": case.entry.name,
        "p": p,
        "nblocks": case.params.nblocks,
        "rounds": simulate(case.schedules).rounds,
        "predicted": [{"algorithm": name, "nblocks": n, "seconds": s} for s, name, n in case.prices],
    }
    if case.entry.collective == "bcast":
        found["messages"] = [[m.round, m.source, m.dest, slot] for m in case.messages for slot in m.slots]
    else:
        found["messages"] = [[m.round, m.source, m.dest, list(m.slots)] for m in case.messages]
    if (case.entry.collective, case.entry.name) == ("bcast", "circulant"):
        virtual = [(rank - root) % p for rank in range(p)]
        found["skips"] = list(skips(p))
        found["baseblock"] = [baseblock(p, r) for r in virtual]
        found["recv"] = [list(recv_schedule(p, r)) for r in virtual]
        found["send"] = [list(send_schedule(p, r)) for r in virtual]
    return found
