"""Parse the options of `ringcast bench`, and refuse impossible ones before anything is started."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from ringcast._util import output_files, sizes
from ringcast.algorithms import network_file
from ringcast.commands.bench import plan, plot
from ringcast.commands.bench.bed import TRANSPORT
from ringcast.commands.bench.bed import parse as parse_bed
from ringcast.commands.bench.cases import COLLECTIVES, IRREGULAR, Case
from ringcast.commands.bench.distributions import DISTRIBUTIONS
from ringcast.commands.bench.peers import PEERS
from ringcast.commands.command_line import USAGE, checked, parser
from ringcast.config.worker import WorkerConfig

DEFAULT = ("bcast", "allgatherv", "allreduce")
SIZES = "1k:1m"
COMMAND = "ringcast bench"

_DESCRIPTION = (
    "Measure the collectives on the ranks of a job, on emulated hosts, or beside other libraries on this host."
)
_EPILOG = f"""\
Run it in a job:           ringcast-launch -n 4 ringcast bench bcast -m 1k:10m
or on emulated hosts:      ringcast bench --hosts-bed 8x100mbit --peers gloo,openmpi   (needs root)
or beside others here:     ringcast bench --one-host 4 --peers gloo,openmpi -m 8:10m

Sizes are decimal: 1k is 1000 bytes. They are the vector for bcast, reduce, allreduce, scan, exscan and shift; the sum
of all parts for allgather, allgatherv, gather, scatter and merge_sorted; one rank's whole input for reduce_scatter,
alltoall and alltoallv; one message for latency and bandwidth. Where items or parts must be whole, sizes are rounded
down. Without collectives: {" ".join(DEFAULT)}.

exit code:  1 if ringcast cannot run or has a row without figures (as after a wrong result), or a file was not written;
            {USAGE} for wrong arguments
"""


class Refused(Exception):
    """The command line cannot be followed; the text says why and what to do."""


def understand(argv: Sequence[str], config: WorkerConfig) -> tuple[argparse.Namespace, list[Case]]:
    """Return the parsed arguments, and the cases that they ask for.

    Raises:
        Refused: the arguments cannot be followed.
        ConfigError: the file with the constants of the network is not usable.
    """
    options = _parser().parse_intermixed_args(argv)
    size, rate = _where(options, config)
    return options, _cases(options, size, rate)


def reason_not(options: argparse.Namespace) -> str:
    """Return why a result could not be written, or ""; asked before hours of measuring."""
    paths = {name: path for name in ("json", "plot", "trace") if (path := getattr(options, name)) is not None}
    for name, path in paths.items():
        if problem := output_files.reason_not(path):
            return f"--{name} {problem}"
    if len({path.resolve() for path in paths.values()}) < len(paths):
        return f"--{', --'.join(paths)}: give each a file of its own"
    reason = plot.reason_not(options.plot) if options.plot is not None else ""
    return f"--plot: {reason}" if reason else ""


def _parser() -> argparse.ArgumentParser:
    made = parser(COMMAND, _DESCRIPTION, _EPILOG)
    add = made.add_argument
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
        type=checked(sizes.parse_range),
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
        default=None,
        metavar="NAME,...",
        help=f"of the parts of {' and '.join(IRREGULAR)}: {', '.join(DISTRIBUTIONS)}, or all (default mod3)",
    )
    add("--tune", action="store_true", help="show the automatic choice beside the best by hand as well")
    add(
        "--hosts-bed",
        dest="bed",
        type=checked(parse_bed),
        metavar="HOSTS[xRATE]",
        help="run on emulated hosts, such as 8x100mbit (needs root and iproute2)",
    )
    add(
        "--one-host",
        type=_at_least(1),
        metavar="N",
        help="run N ranks on this host, each system as it is by default there: ringcast by ringcast-launch -n N",
    )
    add(
        "--peers",
        type=_peers,
        default=(),
        metavar="NAME,...",
        help=f"measure these as well, with --hosts-bed or --one-host: {', '.join(PEERS)}",
    )
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="constants by which ringcast chooses on emulated hosts; else it measures them first, for up to a minute; "
        "default: RINGCAST_CONFIG, if that is set",
    )
    add("--json", type=Path, metavar="FILE", help="write the rows as a list of objects")
    add("--plot", type=Path, metavar="FILE", help="draw time against bytes (.png, .svg or .pdf)")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write the rounds of one more repetition of each case by ringcast, for chrome://tracing or Perfetto",
    )
    return made  # fmt: skip


def _one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}; known are {', '.join(known)}")
        return text

    return checked(parse)


def _several(what: str, known: Sequence[str], text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_one_of(what, known), text.split(","))))


def _peers(text: str) -> tuple[str, ...]:
    return _several("peer", tuple(PEERS), text)


def _distributions(text: str) -> tuple[str, ...]:
    return tuple(DISTRIBUTIONS) if "all" in text.split(",") else _several("distribution", tuple(DISTRIBUTIONS), text)


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number, {least} or more")
        return int(text)

    return checked(parse)


def _where(options: argparse.Namespace, config: WorkerConfig) -> tuple[int, int | None]:
    """Return the number of ranks and the rate of their links in bit/s."""
    _check_place(options, config)
    if config.control:
        return config.size, None
    if options.one_host:
        return options.one_host, None
    count, rate = options.bed
    if count < 2:
        raise Refused("--hosts-bed: one host cannot communicate; take 2 or more, such as 8x100mbit")
    if options.config is None and config.file:
        options.config = Path(config.file)
    if options.config is not None:
        network_file.read(options.config, TRANSPORT)
    return count, rate


def _check_place(options: argparse.Namespace, config: WorkerConfig) -> None:
    """Refuse more than one place, or none, and options that do not fit the place."""
    if options.bed and options.one_host:
        raise Refused("--hosts-bed and --one-host are two places; give one of them")
    given = "--hosts-bed" if options.bed else "--one-host" if options.one_host else ""
    if config.control and given:
        raise Refused(f"{given} starts ranks by itself; leave out ringcast-launch, or {given}")
    if options.peers and not given:
        places = "--hosts-bed, such as --hosts-bed 8x100mbit, or --one-host"
        raise Refused(f"--peers needs {places}: they are compared at the same place")
    if options.bed and (strange := [name for name in options.peers if PEERS[name].in_memory]):
        raise Refused(f"--peers {', '.join(strange)}: memory has no links; leave it out, or use --one-host")
    if options.config is not None and not options.bed:
        other = "ringcast-launch --config; with --one-host set RINGCAST_CONFIG"
        raise Refused(f"--config is for --hosts-bed; in a job it is an option of the launcher: {other}")
    if not config.control and not given:
        command = shlex.join(["ringcast", "bench", *(options.collectives or ["bcast"])])
        places = "on emulated hosts: --hosts-bed 8x100mbit; or here: --one-host 4"
        raise Refused(f"run it in a job: ringcast-launch -n 4 {command}; or {places}")


def _cases(options: argparse.Namespace, size: int, rate: int | None) -> list[Case]:
    if options.tune and (options.algorithm or options.nblocks):
        raise Refused("--tune tries algorithms and block counts; leave out --algorithm and --nblocks")
    collectives = options.collectives or DEFAULT
    if options.distributions and not set(IRREGULAR) & set(collectives):
        raise Refused(f"--distribution is for {' and '.join(IRREGULAR)}, which are not among the collectives")
    wish = plan.Wish(
        collectives,
        options.sizes,
        options.distributions or ("mod3",),
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
