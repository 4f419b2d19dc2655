"""The command `ringcast calibrate`, which every rank of a launched job runs; rank 0 reports."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path

from ringcast._util import output_files
from ringcast._util.last_line import ProgressLine
from ringcast.algorithms import network_file
from ringcast.algorithms.cost import NETWORKS, Network
from ringcast.bootstrap.world import init, terminal
from ringcast.commands.calibrate import report
from ringcast.commands.calibrate.fit import Sample, fit
from ringcast.commands.calibrate.measure import best_lookahead, local_rate, measure
from ringcast.communicator import Communicator
from ringcast.config.worker import from_environment
from ringcast.control import version
from ringcast.errors import ConfigError

_DESCRIPTION = """\
Measure the links between the ranks of a job, and write the constants by which collectives choose their algorithm and
the number of blocks. Takes 5 to 60 seconds; the job should have the machines for itself meanwhile."""
_EXAMPLE = "ringcast-launch -n 4 ringcast calibrate -o network.toml"
_USAGE, _FAILED = 2, 1


def main(argv: Sequence[str]) -> int:
    """Run the command on this rank and return its exit code."""
    try:
        config = from_environment()
        options = _options(argv, config.rank)
        if not config.control or config.size < 2:
            raise ConfigError(f"there are no links to measure; run it on 2 ranks or more, as in: {_EXAMPLE}")
        comm = init()
    except ConfigError as error:
        print(f"ringcast calibrate: {error}", file=sys.stderr)
        return _USAGE
    with comm:
        return _calibrate(comm, options, config.transport)


def _options(argv: Sequence[str], rank: int) -> argparse.Namespace:
    """Parse the arguments, which are the same on all ranks: what is wrong with them, or help, is said by rank 0."""
    with ExitStack() as stack:
        if rank > 0:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        return _parser().parse_args(argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringcast calibrate", description=_DESCRIPTION, epilog=f"example: {_EXAMPLE}", allow_abbrev=False
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="FILE", help="write the constants there, for ringcast-launch --config")
    add("--plot", type=Path, metavar="IMAGE", help="draw measured and predicted times (needs matplotlib)")
    return parser


def _calibrate(comm: Communicator, options: argparse.Namespace, transport: str) -> int:
    # Where files can be written is for rank 0 to say, and for all to know before they spend their time.
    problem = comm.bcast(_reason_not(options) if comm.rank == 0 else None)
    if problem:
        if comm.rank == 0:
            print(f"ringcast calibrate: {problem}", file=sys.stderr)
        return _USAGE
    hosts = comm.gather(socket.gethostname())
    with terminal() or nullcontext() as screen:
        line = ProgressLine(None if screen is None else screen.fileno())
        samples = list(measure(comm, lambda case: line.show(f"measuring {case}")))
        local = local_rate(comm)
        lookahead = best_lookahead(comm)
        line.clear()
    if hosts is None:  # not the root
        return 0
    where = f"{transport}, {comm.size} ranks on {', '.join(sorted(set(hosts)))}"
    try:
        fitted = fit(samples, local, comm._group.network.ranks_per_cpu)
        # Where no ranks share a host nothing moves within one; other jobs may have such ranks.
        network = replace(fitted, lookahead=lookahead, local=fitted.local or NETWORKS[transport].local)
        return _report(samples, network, options, transport, where)
    except (ValueError, OSError) as error:  # no fit; the file, or the disk
        print(f"ringcast calibrate: {error}", file=sys.stderr)
        return _FAILED


def _reason_not(options: argparse.Namespace) -> str:
    """Return why what is asked for cannot work, or nothing."""
    for path in filter(None, (options.output, options.plot)):
        if problem := output_files.reason_not(path):
            return problem
    problem = output_files.image_reason_not(options.plot) if options.plot else ""
    return f"--plot {problem}" if problem else ""


def _report(
    samples: Sequence[Sample], network: Network, options: argparse.Namespace, transport: str, where: str
) -> int:
    """Print the table and the constants, and write the files."""
    accuracy = report.accuracy(samples, network)
    remarks = [f"Measured by ringcast calibrate (ringcast {version()}), {date.today()}:", f"{where}; {accuracy}."]
    print(report.table(samples, network))
    print()
    print(network_file.text(network, transport, remarks), end="")
    if options.output:
        network_file.write(options.output, network, transport, remarks)
    if options.plot:
        report.plot(samples, network, options.plot, where)
    return 0
