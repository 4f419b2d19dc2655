"""Run `ringcast`: pass the arguments on to a subcommand; jobs are started by `ringcast-launch`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ringcast._util.near_words import did_you_mean
from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.control import version
from ringcast.protocol.compiled import build

# The module with the function `main` of each subcommand, and its help: modules are imported only when they are called.
_COMMANDS = {
    "bench": ("ringcast.commands.bench.run", "measure collectives, and compare with other libraries"),
    "cp": ("ringcast.commands.cp.command", "copy files to many hosts, each of which passes them on"),
    "explain": ("ringcast.commands.explain", "list the algorithms, or show one round by round"),
    "simulate": ("ringcast.commands.simulate", "compare algorithms on a virtual clock, also on sparse networks"),
    "calibrate": ("ringcast.commands.calibrate.command", "measure the links of a job, for the choice of algorithms"),
    "ps": ("ringcast.commands.ps", "show running jobs, and the state of each of their ranks"),
    "profile": ("ringcast.commands.profile", "print a profile of a job, or compare two"),
    "doctor": (
        "ringcast.commands.doctor.command",
        "check whether a job would run here, or on several hosts, and say what to mend",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; without arguments it prints its help."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _COMMANDS:
        command = import_module(_COMMANDS[arguments[0]][0])
        try:
            code: int = command.main(arguments[1:])
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ENOSPC):
                raise
            if error.errno == errno.ENOSPC:
                refuse(f"ringcast {arguments[0]}", f"the output could not be written: {error.strerror}")
            # The reader has gone, as behind "| head"; Python must not flush to it at its end either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILED
        return code
    if arguments and not arguments[0].startswith("-"):
        return refuse("ringcast", _no_command(arguments))
    made = _parser()
    made.parse_args(arguments)
    made.print_help()
    return 0


def _no_command(arguments: Sequence[str]) -> str:
    """Return the error for a command that does not exist."""
    name = arguments[0]
    scripts = [argument for argument in arguments if argument.endswith(".py")]
    if name in ("run", "launch", "exec") or scripts:
        program = scripts[0] if scripts else "PROGRAM"
        return f"programs are started with ringcast-launch: ringcast-launch -n N {program}"
    return f"there is no command {name}" + (did_you_mean(name, _COMMANDS) or f"; there are {', '.join(_COMMANDS)}")


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the options before a subcommand; the arguments after it are the subcommand's own."""
    lines = "\n".join(f"  {name:10} {help}" for name, (_, help) in _COMMANDS.items())
    made = parser(
        "ringcast",
        "Collective communication for numpy programs, without MPI.",
        f"commands (each has --help):\n{lines}\n\n"
        "Programs are started with: ringcast-launch -n N PROGRAM (see ringcast-launch --help).",
    )
    made.add_argument("--version", action="version", version=f"ringcast {version()}, {build()}")
    made.add_argument("command", nargs="?", help="one of those below")
    return made
