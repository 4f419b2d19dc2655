"""Run `ringcast calibrate` on every rank of a launched job; rank 0 reports."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path

from ringcast._util import output_files
from ringcast._util.last_line import ProgressLine
from ringcast.algorithms import network_file
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.bootstrap.world import init, terminal
from ringcast.commands.calibrate import report
from ringcast.commands.calibrate.fit import Sample, fit
from ringcast.commands.calibrate.measure import best_lookahead, local_rate, measure
from ringcast.commands.command_line import FAILED, USAGE, parser, refuse, spoken_by_rank_0
from ringcast.communicator import Communicator
from ringcast.config.worker import from_environment
from ringcast.control import version
from ringcast.errors import ConfigError

_DESCRIPTION = """\
Measure the links between the ranks of a job, and write the constants by which collectives choose their algorithm and
the number of blocks. Takes 5 to 60 seconds; the job should have the machines for itself meanwhile."""
_EXAMPLE = "ringcast-launch -n 4 ringcast calibrate -o network.toml"
_COMMAND = "ringcast calibrate"


def main(argv: Sequence[str]) -> int:
    """Run the command on this rank and return its exit code."""
    try:
        config = from_environment()
        with spoken_by_rank_0(config.rank):
            options = _parser().parse_args(argv)
        if not config.control or config.size < 2:
            raise ConfigError(f"there are no links to measure; run it on 2 ranks or more, as in: {_EXAMPLE}")
        comm = init()
    except ConfigError as error:
        return refuse(_COMMAND, error)
    with comm:
        return _calibrate(comm, options, config.transport)


def _parser() -> argparse.ArgumentParser:
    made = parser(_COMMAND, _DESCRIPTION, f"example: {_EXAMPLE}")
    add = made.add_argument
    add("-o", "--output", type=Path, metavar="FILE", help="write the constants there, for ringcast-launch --config")
    add("--plot", type=Path, metavar="IMAGE", help="draw measured and predicted times (needs matplotlib)")
    return made


def _calibrate(comm: Communicator, options: argparse.Namespace, transport: str) -> int:
    # Rank 0 checks whether the files can be written, and all ranks know the result before they spend their time.
    problem = comm.bcast(_reason_not(options) if comm.rank == 0 else None)
    if problem:
        if comm.rank == 0:
            refuse(_COMMAND, problem)
        return USAGE
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
        # Where no ranks share a host, the rate within hosts is not measured: other jobs get the usual one.
        network = replace(fitted, lookahead=lookahead, local=fitted.local or NETWORKS[transport].local)
        return _report(samples, network, options, transport, where)
    except (ValueError, OSError) as error:  # no fit; the file, or the disk
        return refuse(_COMMAND, error, FAILED)


def _reason_not(options: argparse.Namespace) -> str:
    """Return why the wanted files cannot be written, or ""."""
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
