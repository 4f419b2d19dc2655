"""Share the parts of all commands: a parser, values that it checks, and an error for the user with its exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NoReturn, TypeVar

from ringcast._util.safe_text import escaped

FAILED, USAGE = 1, 2  # exit codes: the work could not be done; the arguments are wrong

Value = TypeVar("Value")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors quote arguments with escapes: the terminal must not obey a name of a file."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(status, escaped(message or ""))


def parser(command: str, description: str, epilog: str = "", usage: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command, which prints these texts unchanged and takes no shortened options."""
    return _Parser(
        prog=command,
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return `parse` as the type of an option: the text of its ValueError reaches the user."""

    def parsed(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def refuse(command: str, error: object, code: int = USAGE) -> int:
    """Print an error of a command, with escapes for control characters of foreign names, and return its exit code."""
    print(f"{command}: {escaped(str(error))}", file=sys.stderr)
    return code


@contextmanager
def spoken_by_rank_0(rank: int) -> Iterator[None]:
    """Let only rank 0 print; for help and errors that are the same on all ranks."""
    if rank == 0:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
