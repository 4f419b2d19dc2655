"""`ringcast.profile`: record where the time of a block goes, on all ranks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import numpy as np

from ringcast._util.last_line import ProgressLine
from ringcast._util.slow_work import told_if_slow
from ringcast.bootstrap.world import init
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.config.worker import can_redraw
from ringcast.profiling import files
from ringcast.profiling.attach import attach, begin_block, detach
from ringcast.wire.error_text import in_a_line


class Profile:
    """A profile, which is empty until its block is over; a notebook shows its page.

    Attributes:
        report: the numbers (docs/operate/profile.md); None while the block runs, and on other ranks than 0.
    """

    def __init__(self) -> None:
        self.report: dict[str, Any] | None = None

    def __str__(self) -> str:
        if self.report is None:
            return "there is no profile yet, or on this rank"
        from ringcast.profiling.table import table

        return table(self.report)

    def __repr__(self) -> str:
        return f"<Profile: {'empty' if self.report is None else self.report['summary']}>"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the profile: a page (*.html), or the numbers (*.json); "-": as a table on standard error.

        Raises:
            OSError: it cannot be written.
            ValueError: there is no profile, or the file has another name.
        """
        if self.report is None:
            raise ValueError(str(self))
        path = os.fspath(path)
        check(path)
        files.write(path, self.report)

    def _repr_html_(self) -> str:
        if self.report is None:
            return escape(str(self))
        from ringcast.profiling import page

        # A frame of its own, so that the page and the notebook do not change each other's looks.
        style = "width:100%;height:70vh;border:1px solid #8888"
        text = escape(page.render(self.report))
        return f'<iframe title="profile" sandbox="allow-scripts" style="{style}" srcdoc="{text}"></iframe>'


@contextmanager
def profile(path: str | os.PathLike[str] = "") -> Iterator[Profile]:
    """Record where the time of a block goes, on all ranks of the job.

    At its end rank 0 writes the profile, and says on standard error where it is.

    All ranks enter and leave the block together. For a whole job there is `ringcast-launch --profile FILE`, which
    records the block too. After an error in the block, on any rank, rank 0 writes its own part, as far as it has come.

    Cost: about a fifth of the time of the smallest calls, and less of others; at the end one gatherv.

    Args:
        path: the file, *.html or *.json; "-": a table on standard error; "": none is written.

    Yields:
        A `Profile`, which has the numbers on rank 0 when the block is over.

    Raises:
        UsageError: the profile of another block is under way already.
        ValueError: the file cannot be written, or has another name; found on rank 0 before the block.
        OSError: the file cannot be written.

    >>> with ringcast.profile() as profile:
    ...     total = comm.allreduce(np.ones(10))
    >>> [site["name"] for site in profile.report["sites"]]
    ['allreduce']
    """
    comm, made, owner = init(), Profile(), os.getpid()
    group = group_of(comm)
    if comm.rank == 0 and path:
        check(os.fspath(path))
    end_block = begin_block(group)
    failure = "not over"
    try:
        yield made
        failure = ""
    except BaseException as error:
        failure = in_a_line(error)
        raise
    finally:
        if os.getpid() == owner:  # not in a fork
            _finish(made, comm, end_block(), failure, os.fspath(path))


def begin(comm: Communicator) -> None:
    """Begin to profile a rank, for a cluster."""
    attach(group_of(comm))


def end(comm: Communicator) -> dict[str, Any]:
    """End the profile of a rank, for a cluster, and return its part."""
    return detach(group_of(comm))


def show(made: Profile) -> None:
    """Show a profile in the cell of a notebook, if there is one."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from IPython.display import display

        display(made)  # type: ignore[no-untyped-call]  # IPython's


def check(path: str) -> None:
    """Raise ValueError unless a profile can be written there."""
    if problem := files.reason_not(path):
        raise ValueError(f"profile: {problem}")


def report_of(parts: Sequence[Mapping[str, Any]], size: int, failure: str = "") -> dict[str, Any]:
    """Return the report that follows from the parts of ranks."""
    from ringcast.profiling.report import report

    line = ProgressLine(2 if can_redraw(2) else None)
    with told_if_slow(line.show, f"making the profile of {size:,} ranks"):
        return report([json.loads(json.dumps(part)) for part in parts], size, failure=failure)


def _finish(made: Profile, comm: Communicator, part: Mapping[str, Any], failure: str, path: str) -> None:
    """Fill and write a profile on rank 0: of all ranks, or of this one where a rank has failed."""
    parts: list[Any] = [part]
    try:
        if not failure:
            parts = _gathered(comm, part)
    except BaseException as error:  # as of another rank that has left the block by an error
        failure = in_a_line(error)
        raise
    finally:
        if comm.rank == 0:
            made.report = report_of(parts, comm.size, failure)
            if path:
                files.publish(path, made.report)


def _gathered(comm: Communicator, part: Mapping[str, Any]) -> list[Any]:
    """Return all parts on rank 0, none on other ranks; as bytes, so that a job without pickles has profiles too."""
    mine = np.frombuffer(json.dumps(part).encode(), np.uint8)
    counts = comm.gather(np.array([len(mine)]), 0)
    found = comm.gatherv(mine, root=0)
    if counts is None or found is None:
        return []
    ends = np.cumsum(counts)
    return [json.loads(found[end - n : end].tobytes()) for end, n in zip(ends, np.ravel(counts), strict=True)]
