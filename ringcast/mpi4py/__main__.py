"""`python -m ringcast.mpi4py ...` is `python ...` for a program that imports mpi4py, and gets ringcast.MPI.

All that Python takes may follow: a script, `-m` and a module, `-c` and a command.
"""

import os
import sys

from ringcast.mpi4py import path

_USAGE = """usage: python -m ringcast.mpi4py (PROGRAM | -m MODULE | -c COMMAND | -) [arguments]
runs a program that imports mpi4py, which gets ringcast.MPI, as one rank; ringcast-launch --as-mpi4py starts more"""


def main() -> None:
    """Become the interpreter that runs the program."""
    arguments = sys.argv[1:]
    match arguments:
        case ["-h" | "--help", *_]:
            print(_USAGE)
            return
        case []:
            sys.exit(_USAGE)
        case ["-n" | "-np", *_]:
            sys.exit(f"python -m ringcast.mpi4py is one rank: ringcast-launch {arguments[0]} N starts more\n{_USAGE}")
    own = len(sys.orig_argv) - len(arguments) - 2  # without -m ringcast.mpi4py
    environment = {**os.environ, "PYTHONPATH": path(os.environ)}
    os.execve(sys.executable, [*sys.orig_argv[:own], *arguments], environment)


main()
