"""Run a program: `python -m mpi4py program.py` is `python program.py`, as an uncaught error ends a job of ringcast."""

import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

import mpi4py

_USAGE = "usage: python -m {} (PROGRAM | -m MODULE | -c COMMAND | -) [arguments]"


def run_command_line(args: Sequence[str] | None = None) -> None:
    """Run the program that the arguments name as Python does; the default is this process's own arguments."""
    sys.argv[:] = sys.argv[1:] if args is None else list(args)
    match sys.argv[:1]:
        case ["-m"]:
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        case ["-c"]:
            _run_text(sys.argv.pop(1), "<string>")
        case ["-"]:
            _run_text(sys.stdin.read(), "<stdin>")
        case [program]:
            sys.path[0] = os.path.dirname(os.path.realpath(program))
            runpy.run_path(program, run_name="__main__")


def _run_text(text: str, name: str) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, name, "exec"), main.__dict__)


def need_program(module: str) -> None:
    """Exit with the usage of `python -m MODULE` unless the command line names a program."""
    match sys.argv[1:]:
        case ["-h" | "--help", *_]:
            print(_USAGE.format(module))
            sys.exit()
        case [] | ["-m" | "-c"]:
            sys.exit(_USAGE.format(module))
        case [option, *_] if option.startswith("-") and option not in ("-m", "-c", "-"):
            sys.exit(f"unknown option: {option}\n{_USAGE.format(module)}")


def main() -> None:
    """Run the program that the command line names."""
    if sys.argv[1:] == ["--version"]:
        print(f"mpi4py {mpi4py.__version__}")
        return
    need_program("mpi4py")
    run_command_line()


if __name__ == "__main__":
    main()
