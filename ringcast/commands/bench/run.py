"""Run `ringcast bench`: choose the place of measurement, and print and write the results."""

from __future__ import annotations

import argparse
import shlex
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from ringcast._util import sizes
from ringcast.algorithms import network_file
from ringcast.bootstrap.world import init
from ringcast.commands.bench import plot, report
from ringcast.commands.bench.bed import TRANSPORT, Bed
from ringcast.commands.bench.cases import OURS, Case, title
from ringcast.commands.bench.constants import calibrate
from ringcast.commands.bench.figures import MAIN, Row, distrust, judge, write_json
from ringcast.commands.bench.inprocess import Here
from ringcast.commands.bench.onbed import OnBed
from ringcast.commands.bench.onehost import OneHost
from ringcast.commands.bench.options import COMMAND, Refused, reason_not, understand
from ringcast.commands.bench.orchestrate import SideBySide
from ringcast.commands.bench.systems.ringcast_system import RingcastSystem
from ringcast.commands.bench.tune import Runner, tune
from ringcast.commands.command_line import FAILED, USAGE, refuse, spoken_by_rank_0
from ringcast.communicator import Communicator
from ringcast.config.worker import WorkerConfig, from_environment
from ringcast.control import version
from ringcast.errors import ConfigError, RingcastError
from ringcast.events import Event
from ringcast.monitoring.trace import summary, write_chrome
from ringcast.procs.portable import processors


def main(argv: Sequence[str]) -> int:
    """Run the command with the arguments after `ringcast bench`; returns its exit code.

    In a launched job every rank calls this, and rank 0 prints.
    """
    try:
        config = from_environment()
        with spoken_by_rank_0(config.rank):
            try:
                options, cases = understand(argv, config)
            except Refused as error:
                return refuse(COMMAND, error)
        if config.control:
            return _in_job(options, cases, config, argv)
    except ConfigError as error:
        return refuse(COMMAND, error)
    with _ended_by_sigterm():
        return _by_itself(options, cases, config, argv)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, so that no directory is left; in a job the launcher removes them."""

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _in_job(options: argparse.Namespace, cases: Sequence[Case], config: WorkerConfig, argv: Sequence[str]) -> int:
    with init() as comm:
        # Rank 0's host alone writes files; all ranks must know whether it can before any of them begins.
        problem = comm.bcast(reason_not(options) if comm.rank == 0 else None)
        if problem:
            return refuse(COMMAND, problem) if comm.rank == 0 else USAGE
        where = _description(comm, config)
        if comm.rank == 0:
            _say(_heading(cases, where, argv))
        return _bench(options, cases, Here(comm, RingcastSystem(comm)), where, speaks=comm.rank == 0)


def _description(comm: Communicator, config: WorkerConfig) -> str:
    """Return a description of the ranks' hosts and of the constants of their choice; only rank 0 uses it."""
    hosts = comm.gather(socket.gethostname()) or ()
    constants = config.file or "the transport's defaults"
    return f"on {', '.join(sorted(set(hosts)))}, over {config.medium}; constants of the network: {constants}"


def _by_itself(options: argparse.Namespace, cases: Sequence[Case], config: WorkerConfig, argv: Sequence[str]) -> int:
    """Start the ranks of all systems from here, and measure."""
    if problem := reason_not(options):
        return refuse(COMMAND, problem)
    try:
        with TemporaryDirectory(prefix="ringcast-bench-") as folder:
            if options.one_host:
                return _on_one_host(options, cases, config, argv, Path(folder))
            return _on_bed(options, cases, config, argv, Path(folder))
    except RingcastError as error:  # no bed or no trace can be made, so there is no table
        return refuse(COMMAND, error, FAILED)
    except KeyboardInterrupt:
        return 130


def _on_one_host(
    options: argparse.Namespace, cases: Sequence[Case], config: WorkerConfig, argv: Sequence[str], folder: Path
) -> int:
    constants = config.file or "the transport's defaults"
    where = f"on this host, {processors()} processors; constants of the network: {constants}"
    _say(_heading(cases, where, argv))
    return _bench(options, cases, SideBySide(OneHost(options.one_host, folder)), where, speaks=True)


def _on_bed(
    options: argparse.Namespace, cases: Sequence[Case], config: WorkerConfig, argv: Sequence[str], folder: Path
) -> int:
    count, rate = options.bed
    links = f"links of {rate / 1e6:g} Mbit/s each way" if rate else "links of no limited rate"
    with Bed(count, rate) as bed:
        source = options.config or "measured just now"
        medium = replace(config, transport=TRANSPORT).medium
        where = f"on emulated hosts, {links}, over {medium}; constants of the network: {source}"
        _say(_heading(cases, where, argv))
        file = options.config or folder / "network.toml"
        if options.config is None:
            _say(["# measuring the links, which takes up to a minute"])
            calibrate(bed, file)
            _say(report.constants(network_file.read(file, TRANSPORT)))
        return _bench(options, cases, SideBySide(OnBed(bed, file)), where, speaks=True)


def _heading(cases: Sequence[Case], where: str, argv: Sequence[str]) -> list[str]:
    return report.heading(version(), cases[0].size, where, shlex.join(["ringcast", "bench", *argv]), datetime.now())


def _say(lines: Sequence[str]) -> None:
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:  # the reader has gone, which ends every command in the same way
        raise
    except OSError as error:
        raise RingcastError(f"the table cannot be written: {error.strerror}") from None


def _bench(options: argparse.Namespace, cases: Sequence[Case], place: Runner, where: str, *, speaks: bool) -> int:
    """Measure, print and write; every rank of a job measures, and only one `speaks`."""

    def tell(line: str) -> None:
        if speaks:
            _say([line])

    rows = _main_table(place, cases, (OURS, *options.peers), tell)
    if options.tune:
        rows += tune(place, cases, tell)
    rows = distrust(rows)
    failed = any(row.system == OURS and row.problem for row in rows)
    if speaks and options.json is not None:
        failed |= not _written(options.json, lambda: write_json(options.json, rows))
    if speaks and options.plot is not None:
        shown, heading = [row for row in rows if row.table == MAIN], f"{cases[0].size} ranks {where}"
        failed |= not _written(options.plot, lambda: plot.draw(options.plot, shown, heading))
    if options.trace is not None:
        events = _traced(place, cases, tell)
        if speaks:
            failed |= not _written(options.trace, lambda: write_chrome(options.trace, events))
    return int(failed)


def _written(path: Path, write: Callable[[], None]) -> bool:
    """Write a file; print an error if this fails, as other files may still be written."""
    try:
        write()
    except OSError as error:
        refuse(COMMAND, f"{path} was not written: {error.strerror or error}", 1)
        return False
    return True


def _main_table(place: Runner, cases: Sequence[Case], systems: Sequence[str], tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    for row, lines in report.table(judge(one, place.rate) for one in place.measure(systems, cases)):
        rows.append(row)
        for line in lines:
            tell(line)
    for line in (*report.comparison(rows), *report.ending(rows)):
        tell(line)
    return rows


def _traced(place: Runner, cases: Sequence[Case], tell: Callable[[str], None]) -> list[list[Event]]:
    """Return the events of all cases by rank, one case after the other, and print how the time of each was spent."""
    everything: list[list[Event]] = [[] for _ in range(cases[0].size)]
    for case, events in zip(cases, place.trace(cases), strict=True):
        tell("")
        tell(f"# {title(case)}, {sizes.label(case.nbytes)}: how each rank spent its time")
        tell(summary(events))
        for mine, more in zip(everything, events, strict=False):
            mine += more
    return everything
