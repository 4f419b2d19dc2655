"""The command `ringcast bench`: options, where to measure, and what becomes of the results."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ringcast import networkfile
from ringcast.bench import plan, plot, report, sizes
from ringcast.bench.bed import Bed
from ringcast.bench.bed import parse as parse_bed
from ringcast.bench.cases import COLLECTIVES, OURS, Case, title
from ringcast.bench.constants import calibrate
from ringcast.bench.distributions import DISTRIBUTIONS
from ringcast.bench.figures import MAIN, Row, distrust, judge, write_json
from ringcast.bench.inprocess import Here
from ringcast.bench.onbed import OnBed
from ringcast.bench.peers import PEERS
from ringcast.bench.systems.ringcast_system import RingcastSystem
from ringcast.bench.tune import Place, tune
from ringcast.config import WorkerConfig, from_environment
from ringcast.control import version
from ringcast.errors import ConfigError, RingcastError
from ringcast.events import Event
from ringcast.trace import summary, write_chrome
from ringcast.world import init

DEFAULT = ("bcast", "allgatherv", "allreduce")
SIZES = "1k:1m"
USAGE = 2  # exit code

_DESCRIPTION = "Measure the collectives on the ranks of a job, or on emulated hosts."
_EPILOG = f"""\
Run it in a job:           ringcast-launch -n 4 ringcast bench bcast -m 1k:10m
or on emulated hosts:      ringcast bench --hosts-bed 8x100mbit --peers gloo,openmpi   (needs root)

Sizes are decimal: 1k is 1000 bytes. They are the vector for bcast, reduce and allreduce; the sum of all parts for
allgather, allgatherv, gather and scatter; one rank's whole input for reduce_scatter; one message for latency and
bandwidth. Where items or parts must be whole, sizes are rounded down. Without collectives: {" ".join(DEFAULT)}.

exit code:  1 if ringcast cannot run or has a row without figures (as after a wrong result), {USAGE} for wrong arguments
"""


class Refused(Exception):
    """The command line cannot be followed; the text says why and what to do."""


def main(argv: Sequence[str]) -> int:
    """Run the command with the arguments after `ringcast bench`; returns its exit code.

    In a launched job every rank calls this, and rank 0 speaks.
    """
    config = from_environment()
    with ExitStack() as stack:
        if config.rank > 0:
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
            stack.enter_context(redirect_stderr(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        try:
            options = _parser().parse_args(argv)
            size, rate = _where(options, config)
            wished = _cases(options, size, rate)
            _check_files(options)
        except (Refused, ConfigError) as error:
            print(f"ringcast bench: {error}", file=sys.stderr)
            return USAGE
    return _in_job(options, wished, config, argv) if config.control else _on_bed(options, wished, argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringcast bench",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "collectives",
        nargs="*",
        type=_one_of("collective", COLLECTIVES),
        metavar="COLLECTIVE",
        help=", ".join(COLLECTIVES),
    )
    add(
        "-m",
        dest="sizes",
        type=_checked(sizes.parse_range),
        default=SIZES,
        metavar="MIN:MAX",
        help=f"bytes, by factors of ten, or one size (default {SIZES})",
    )
    add(
        "-i",
        dest="repeat",
        type=_at_least(1),
        metavar="N",
        help=f"timed repetitions (default: {plan.LEAST} to {plan.MOST}, many for small data)",
    )
    add("-x", dest="warmup", type=_at_least(0), metavar="N", help="repetitions before, untimed (default: a tenth)")
    add("-c", dest="check", action="store_true", help="check the results, once per case and untimed")
    add("--algorithm", metavar="NAME", help="of ringcast, instead of the automatic choice")
    add("--nblocks", type=_at_least(1), metavar="N", help="number of blocks, instead of the automatic choice")
    add(
        "--distribution",
        dest="distributions",
        type=_distributions,
        default=("mod3",),
        metavar="NAME,...",
        help=f"of the parts of allgatherv: {', '.join(DISTRIBUTIONS)}, or all (default mod3)",
    )
    add("--tune", action="store_true", help="show the automatic choice beside the best by hand as well")
    add(
        "--hosts-bed",
        dest="bed",
        type=_checked(parse_bed),
        metavar="HOSTSxRATE",
        help="run on emulated hosts, such as 8x100mbit (needs root and iproute2)",
    )
    add(
        "--peers",
        type=_peers,
        default=(),
        metavar="NAME,...",
        help=f"measure these as well, with --hosts-bed: {', '.join(PEERS)}",
    )
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="constants by which ringcast chooses on emulated hosts, in place of measuring them first (20 s)",
    )
    add("--json", type=Path, metavar="FILE", help="write the rows as a list of objects")
    add("--plot", type=Path, metavar="FILE", help="draw time against bytes (.png, .svg or .pdf)")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write the rounds of one more repetition of each case by ringcast, for chrome://tracing or Perfetto",
    )
    return parser  # fmt: skip


def _checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `parse` as argparse wants it: the text of its ValueError reaches the user."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}; known are {', '.join(known)}")
        return text

    return _checked(parse)


def _several(what: str, known: Sequence[str], text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_one_of(what, known), text.split(","))))


def _peers(text: str) -> tuple[str, ...]:
    return _several("peer", tuple(PEERS), text)


def _distributions(text: str) -> tuple[str, ...]:
    return tuple(DISTRIBUTIONS) if text == "all" else _several("distribution", tuple(DISTRIBUTIONS), text)


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number, {least} or more")
        return int(text)

    return _checked(parse)


def _where(options: argparse.Namespace, config: WorkerConfig) -> tuple[int, int | None]:
    """Return the number of ranks and the rate of their links in bit/s."""
    if config.control and options.bed:
        raise Refused("--hosts-bed starts ranks by itself; leave out ringcast-launch, or --hosts-bed")
    if options.peers and not options.bed:
        raise Refused("--peers needs --hosts-bed, such as --hosts-bed 8x100mbit: they are compared on the same links")
    if options.config is not None:
        if not options.bed:
            raise Refused(
                "--config is for --hosts-bed; in a job it is an option of the launcher: ringcast-launch --config"
            )
        networkfile.read(options.config, "tcp")
    if not config.control and not options.bed:
        command = shlex.join(["ringcast", "bench", *(options.collectives or ["bcast"])])
        raise Refused(f"run it in a job: ringcast-launch -n 4 {command}; or on emulated hosts: --hosts-bed 8x100mbit")
    return options.bed or (config.size, None)


def _cases(options: argparse.Namespace, size: int, rate: int | None) -> list[Case]:
    if options.tune and (options.algorithm or options.nblocks):
        raise Refused("--tune tries algorithms and block counts; leave out --algorithm and --nblocks")
    wish = plan.Wish(
        options.collectives or DEFAULT,
        options.sizes,
        options.distributions,
        options.algorithm,
        options.nblocks,
        options.check,
        options.warmup,
        options.repeat,
    )
    try:
        return plan.cases(wish, size, rate)
    except ValueError as error:
        raise Refused(str(error)) from None


def _check_files(options: argparse.Namespace) -> None:
    """Find out before hours of measuring that a result could not be written."""
    for name in "json", "plot", "trace":
        path = getattr(options, name)
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise Refused(f"--{name} {path}: cannot be written")
    if options.plot is not None and (reason := plot.objection(options.plot)):
        raise Refused(f"--plot: {reason}")


def _in_job(options: argparse.Namespace, cases: Sequence[Case], config: WorkerConfig, argv: Sequence[str]) -> int:
    with init() as comm:
        here = Here(comm, RingcastSystem(comm))
        where = f"on {socket.gethostname()}, over {config.transport}"
        return _bench(options, cases, here, where, argv, speaks=comm.rank == 0)


def _on_bed(options: argparse.Namespace, cases: Sequence[Case], argv: Sequence[str]) -> int:
    count, rate = options.bed
    links = f"links of {rate / 1e6:g} Mbit/s each way" if rate else "links of no limited rate"
    try:
        with Bed(count, rate) as bed, TemporaryDirectory(prefix="ringcast-bench-") as folder:
            config, source = options.config, options.config
            if config is None:
                config, source = Path(folder, "network.toml"), "measured just now"
                calibrate(bed, config)
            where = f"on emulated hosts, {links}, over tcp; constants of the network: {source}"
            return _bench(options, cases, OnBed(bed, config), where, argv, speaks=True)
    except RingcastError as error:  # no bed can be made, or no trace
        print(f"ringcast bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _bench(
    options: argparse.Namespace, cases: Sequence[Case], place: Place, where: str, argv: Sequence[str], *, speaks: bool
) -> int:
    """Measure, tell, write; every rank of a job measures, and one `speaks`."""

    def tell(line: str) -> None:
        if speaks:
            print(line, flush=True)

    command = shlex.join(["ringcast", "bench", *argv])
    for line in report.heading(version(), cases[0].size, where, command, datetime.now()):
        tell(line)
    rows = _main_table(place, cases, (OURS, *options.peers), tell)
    if options.tune:
        rows += tune(place, cases, tell)
    rows = distrust(rows)
    if speaks and options.json is not None:
        write_json(options.json, rows)
    if speaks and options.plot is not None:
        plot.draw(options.plot, [row for row in rows if row.table == MAIN], f"{cases[0].size} ranks {where}")
    if options.trace is not None:
        events = _traced(place, cases, tell)
        if speaks:
            write_chrome(options.trace, events)
    return int(any(row.system == OURS and row.problem for row in rows))


def _main_table(place: Place, cases: Sequence[Case], systems: Sequence[str], tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    for row, lines in report.table(judge(one, place.rate) for one in place.measure(systems, cases)):
        rows.append(row)
        for line in lines:
            tell(line)
    for line in report.ending(rows):
        tell(line)
    return rows


def _traced(place: Place, cases: Sequence[Case], tell: Callable[[str], None]) -> list[list[Event]]:
    """Return the events of all cases by rank, one case after the other, and tell how the time of each was spent."""
    everything: list[list[Event]] = [[] for _ in range(cases[0].size)]
    for case, events in zip(cases, place.trace(cases), strict=True):
        tell("")
        tell(f"# {title(case)}, {sizes.label(case.nbytes)}: how each rank spent its time")
        tell(summary(events))
        for mine, more in zip(everything, events, strict=False):
            mine += more
    return everything
