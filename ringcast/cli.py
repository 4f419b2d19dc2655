"""The command `ringcast`: the version, and where help is; jobs are started by `ringcast-launch`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ringcast.control import version


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; without arguments it prints its help."""
    parser = argparse.ArgumentParser(
        prog="ringcast",
        description="Collective communication for numpy programs over ZeroMQ, without MPI.",
        epilog="Programs are started with: ringcast-launch -n N PROGRAM (see ringcast-launch --help).",
    )
    parser.add_argument("--version", action="version", version=f"ringcast {version()}")
    parser.parse_args(argv)
    parser.print_help()
