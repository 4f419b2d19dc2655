"""Run `ringcast-launch`: read the command line, refuse jobs that cannot work, and run the job."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ringcast._util.near_words import did_you_mean
from ringcast._util.output_files import reason_not
from ringcast._util.safe_text import escaped
from ringcast._util.streams import write_all
from ringcast.commands.command_line import checked, parser
from ringcast.config.worker import AUTO, CURVE, NONE, WISHES
from ringcast.control import version
from ringcast.errors import ConfigError, RendezvousError
from ringcast.procs.timing import TIMING
from ringcast.protocol.compiled import build
from ringcast.wire.transport_kinds import KINDS
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.decide.lost_output import BROKEN_PIPE
from ringcast_launcher.job_of_options import by_options, job_of
from ringcast_launcher.output import output
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import (
    STALL,
    USAGE,
    JobError,
)
from ringcast_launcher.run.attempts import run
from ringcast_launcher.run.last_words import say_last
from ringcast_launcher.system.signals import accept_all

LEAST_STALL, MOST_STALL = 4.0, 86400.0  # seconds; ranks are looked at after three without a sign of life
_DESCRIPTION = """\
Start N ranks of a program, on this machine or on several hosts, watch them, and end them together."""


_EPILOG = """\
PROGRAM is a script (*.py, run by this Python), or any program on PATH; `python` is this Python. Options come before
PROGRAM; all arguments after it are its own.

output:     tag: "[rank] " before every line (default); none: lines without a prefix; dir=D: D/rank-R.out and .err;
            file=PATTERN: both streams of a rank, with %r the rank, %R the rank with leading zeros, %h the host
exit code:  of the first rank that failed (128 + signal if it was killed), 1 if a rank left while others needed it,
            or an error of communication was caught and not answered (by shrink, agree or ack_failed),
            0 with --on-failure continue, if a rank outlived the failures, and all ranks that finished exited with 0,
            1 if output could not be written, 141 if its reader has gone, which ends the job,
            124 after --timeout, 130 after Ctrl-C (129 SIGHUP, 131 SIGQUIT, 143 SIGTERM),
            2 for wrong arguments, 127 if there is no such program, 126 if it cannot be run

examples:   ringcast-launch -n 4 examples/identifiers.py
            ringcast-launch -H node1:4,node2:4 examples/identifiers.py
            ringcast-launch --nnodes 2 --node-rank K --rdzv-endpoint node0:29500 -N 4 examples/identifiers.py
"""


def main(argv: Sequence[str] | None = None, last_words: str = "") -> None:
    """Run the command and exit with its code."""
    _occupy_closed_streams()
    accept_all()
    sys.exit(command(sys.argv[1:] if argv is None else argv, os.environ, last_words))


def command(argv: Sequence[str], environment: Mapping[str, str], last_words: str = "") -> int:
    """Run the job that the command line asks for and return the exit code.

    The cause of a failure goes to the file `last_words`; to standard error if there is none.
    """
    made, valued = _parser()
    ours, program = split(argv, valued)
    options, unknown = made.parse_known_args(ours)
    if problem := _no_option(unknown, made):
        made.exit(USAGE, f"ringcast-launch: {problem}\n")
    report = _run(options, program, environment, last_words)
    if options.json_report is not None and not options.node_rank:  # node 0 writes it for all nodes
        try:
            report.write(options.json_report)
        except OSError as error:
            _complain(f"--json-report {options.json_report}: {error.strerror}")
            return report.exit_code or 1
    return report.exit_code


def _run(
    options: argparse.Namespace, program: Sequence[str], environment: Mapping[str, str], last_words: str
) -> JobReport:
    try:
        job = replace(job_of(options, program, environment), last_words=last_words)
        if options.dry_run:
            from ringcast_launcher.dry_run import describe

            write_all(1, "".join(f"{line}\n" for line in describe(job)).encode("utf-8", "surrogateescape"))
            return JobReport(0)
        if job.rendezvous is not None and job.rendezvous.node > 0:
            from ringcast_launcher.nodes import node_agent  # the launcher on node 0 does not need it

            return node_agent.serve(job, job.rendezvous)
        return run(job)
    except JobError as error:
        text = by_options(str(error), options)
        if text:
            _complain(text, last_words)
        return JobReport(error.code, text, unusable_hosts=dict(error.hosts))
    except BrokenPipeError:  # all readers of the output have gone
        return JobReport(BROKEN_PIPE, "the reader of the output has gone")
    except (RendezvousError, ConfigError, OSError) as error:  # no room for a directory, a socket or the output
        text = by_options(str(error), options)
        _complain(text, last_words)
        return JobReport(1, text)
    except KeyboardInterrupt:  # before the first worker started, or while the last output waited for a reader
        _complain(text := "ended by SIGINT", last_words)
        return JobReport(130, text)


def _occupy_closed_streams() -> None:
    """Reserve the numbers of closed standard streams: else another file could get a number, and our output with it."""
    for file in 0, 1, 2:
        try:
            os.fstat(file)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number; a write to it is an error


def _complain(text: str, last_words: str = "") -> None:
    """Print an error; do nothing if the stream cannot be written, because the exit code shows the failure too."""
    with suppress(OSError):
        say_last(f"ringcast-launch: {escaped(text)}\n", last_words)


def split(argv: Sequence[str], valued: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return our options, and the program with its arguments; `valued` are the options that take a value.

    >>> split(["-n", "4", "prog.py", "-n", "7"], frozenset(["-n", "-m"]))
    (['-n', '4'], ['prog.py', '-n', '7'])
    """
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "--":
            return list(argv[:at]), list(argv[at + 1 :])
        if argv[at] == "-m":  # as with Python itself, the rest is the module's
            return [*argv[: at + 1]], list(argv[at + 1 :])
        at += 2 if argv[at] in valued else 1
    return list(argv[:at]), list(argv[at:])


def _no_option(unknown: Sequence[str], made: argparse.ArgumentParser) -> str:
    """Return an error text if an option does not exist; empty if all exist."""
    if not unknown:
        return ""
    name = unknown[0].partition("=")[0]
    known = [option for option in made.format_help().replace(",", " ").split() if option.startswith("-")]
    meant = did_you_mean(name, known) or "; ringcast-launch --help lists all"
    return f"there is no option {name}{meant}"


def _parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """Return the parser of our own options, and the options that take a value."""
    made = parser(
        "ringcast-launch",
        _DESCRIPTION,
        _EPILOG,
        usage="ringcast-launch (-n N | -H HOSTS | --hostfile FILE | --nnodes N ...) [options] (PROGRAM | -m MODULE) "
        "[arguments]",
    )
    add = made.add_argument
    valued = [
        add("-n", "-np", "--np", dest="size", type=int, metavar="N",
            help="number of ranks (default, with hosts or in a Slurm allocation: as many as slots)"),
        add("-H", "--host", dest="hosts", action="append", metavar="HOST:SLOTS,...",
            help="run on these hosts, reached by ssh, with SLOTS ranks on each (default 1)"),
        add("--hostfile", metavar="FILE", help="the same from a file with lines such as: host slots=4"),
        add("-N", "--nproc-per-node", dest="per_node", type=int, metavar="K",
            help="ranks on each host (with --nnodes: default 1)"),
        add("--nnodes", type=int, metavar="N",
            help="the same command runs on N nodes, without ssh; with --node-rank and --rdzv-endpoint"),
        add("--node-rank", type=int, metavar="K", help="number of this node, from 0; node 0 runs the job"),
        add("--rdzv-endpoint", metavar="HOST:PORT", help="address of node 0, where the nodes meet (default port "
            f"{node_rendezvous.PORT})"),
        add("--placement", choices=("block", "cyclic"),
            help="fill one host after the other (default), or deal the ranks round"),
        add("--rsh-agent", metavar="COMMAND", help="use this instead of ssh or srun: it takes a host and a "
            "command; srun: for hosts of -H that are nodes of this Slurm allocation"),
        add("-x", dest="exports", action="append", default=[], metavar="VAR[=VALUE]", help="set a variable of the "
            "workers, or make sure that it is set (FOO* for several); here they inherit the environment anyway"),
        add("--wdir", metavar="DIR", help="run the workers there; PROGRAM is looked up from there as well"),
        add("--output", type=checked(_output), default="tag", metavar="HOW", help="tag, none, dir=DIR or file=PATTERN"),
        add("--stdin", type=_stdin, metavar="RANK", help="this rank gets the launcher's standard input; none: no rank "
            "does (default: rank 0, unless the input is a terminal)"),
        add("--debug", type=int, metavar="RANK", help="run this rank, of this host, in Python's debugger"),
        add("--ranks-filter", default="", metavar="RANKS",
            help="show the output of these ranks only, as 0,2-3; failures of all ranks are reported"),
        add("--timeout", type=_seconds, metavar="S", help="end the job after S seconds, with exit code 124"),
        add("--grace", type=_seconds, metavar="S",
            help="seconds that the ranks have to end, or to save their state, after SIGTERM or Ctrl-C to the launcher "
            f"(default: {TIMING.preempted:g} after SIGTERM, {TIMING.interrupted:g} else); a second signal ends them"),
        add("--stall-timeout", type=_stall, metavar="S", default=STALL,
            help="seconds after which a rank that gives no sign of life and does nothing has failed (default 8); more "
            "for native code that waits and holds the interpreter"),
        add("--start-timeout", type=_seconds, metavar="S",
            help="seconds that the hosts and their workers may take to start, and then the ranks to join "
            "after the first one (default 60)"),
        add("--transport", choices=(*WISHES, *KINDS), default=AUTO,
            help="auto: shm within a host, sockets between hosts; zeromq: ipc and tcp in the same way; sockets, tcp: "
            "between all ranks, on one host over loopback"),
        add("--security", choices=(CURVE, NONE),
            help="of sockets, tcp: curve: encrypted, for members of the job only (default); none: neither"),
        add("--iface", metavar="WHICH", help="listen at this interface: a name, a network as 10.0.0.0/8, or ^docker,lo "
            "for all but these (default: the one that leads to the other hosts; on one machine loopback)"),
        add("--port-range", metavar="FIRST-LAST", help="use only these ports for the job"),
        add("--json-report", type=_new_file, metavar="FILE",
            help="write the results of the job and of each rank there at the end"),
        add("--on-failure", choices=("abort", "continue", "restart"), default="abort",
            help="when a rank fails, end the others (default), let them go on, or start the whole job afresh"),
        add("--max-restarts", type=int, metavar="N", help="most restarts, with --on-failure restart (default 3)"),
        add("--config", metavar="FILE", help="file of ringcast calibrate with the constants of the network"),
        add("--flight-recorder", metavar="FILE", help="if the job fails, write the last actions of all ranks there "
            "(*.json: as JSON)"),
        add("--profile", metavar="FILE", help="record where the time of each rank goes, and write a report there: "
            "*.html a page, *.json the numbers; - prints a table on standard error"),
    ]  # fmt: skip
    add("-m", dest="module", action="store_true", help="PROGRAM is a module, run as python -m MODULE")
    add("--as-mpi4py", action="store_true", help="give ringcast.MPI to a program that imports mpi4py")
    add("--dry-run", action="store_true", help="print the ranks, their hosts and the commands, without starting them")
    words = made.add_mutually_exclusive_group()
    words.add_argument("-v", "--verbose", action="store_true", help="print each step")
    words.add_argument("-q", "--quiet", action="store_true", help="print errors only: no notes, warnings, status line")
    add("--version", action="version", version=f"ringcast-launch {version()}, {build()}")
    return made, frozenset(name for action in valued for name in action.option_strings)


def _stdin(text: str) -> str:
    if text != NONE and not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a rank, or {NONE}")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds, more than 0")
    return seconds


def _stall(text: str) -> float:
    seconds = _seconds(text)
    if not LEAST_STALL <= seconds <= MOST_STALL:
        raise argparse.ArgumentTypeError(f"{text!r}: must be from {LEAST_STALL:g} to {MOST_STALL:g} seconds")
    return seconds


def _new_file(text: str) -> Path:
    path = Path(text)
    if reason := reason_not(path):
        raise argparse.ArgumentTypeError(reason)
    return path


def _output(text: str) -> str:
    output.parse(text)
    return text
