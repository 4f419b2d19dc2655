"""Report a finished job and each of its ranks: `--json-report FILE`, and the last words on the screen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from os.path import basename
from pathlib import Path

from ringcast._util.dataclass import dataclass
from ringcast._util.output_files import write_whole
from ringcast._util.safe_text import escaped
from ringcast_launcher.decide.lost_output import BROKEN_PIPE, Losses
from ringcast_launcher.decide.supervisor import Fate

LONG = 160  # characters; a longer cause is cut where its whole text stands a few lines above
_MISSING = re.compile(r"ModuleNotFoundError: No module named 'mpi4py'|: No module named mpi4py$", re.MULTILINE)  # of -m

_OPTIONS = re.compile("-([^-cmWX]*)(?:([cmWX])(.*))?")  # of Python: letters, and one that takes a value


@dataclass(frozen=True, slots=True)
class RankReport:
    """The end of one rank."""

    rank: int
    host: str
    pid: int
    fate: Fate


@dataclass(frozen=True, slots=True)
class JobReport:
    """The end of a job: the exit code and the cause, with the responsible rank if there is one.

    If hosts prevented the start, `unusable_hosts` has the reason of each.
    """

    exit_code: int
    cause: str = ""
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    traceback: str = ""
    ranks: tuple[RankReport, ...] = ()
    unusable_hosts: Mapping[str, str] = field(default_factory=dict)

    def last_words(self, shown: str = "", argv: Sequence[str] = ()) -> str:
        """Return the text for a person: the traceback of the responsible rank, then one line with the cause.

        `shown` is that rank's own output, to be printed in place of the traceback; `argv` the command of the ranks.
        """
        if self.exit_code == 0 or (self.exit_code == BROKEN_PIPE and self.rank is None):  # no reader is left
            return ""
        who = f"rank {self.rank} ({self.host}, pid {self.pid}) " if self.rank is not None else ""
        cause = self._shortened() if self._stands_in(shown) else self.cause
        above = shown or self.traceback
        lines = [*above.rstrip().splitlines(), *_advice(above, argv), f"ringcast-launch: {escaped(who + cause)}"]
        return "".join(line + "\n" for line in lines)

    def _stands_in(self, text: str) -> bool:
        """Return whether a text contains the whole cause, maybe without the number of the rank."""
        cause = self.cause.removeprefix("failed: ")
        return cause in text or cause.replace(f": rank {self.rank}: ", ": ") in text

    def _shortened(self) -> str:
        return self.cause if len(self.cause) <= LONG else self.cause[:LONG].rpartition(" ")[0] + " …"

    def but_for(self, losses: Losses) -> JobReport:
        """Return the report of the same job with lost output as its cause, if it has no other cause."""
        return self if self.exit_code or not losses.code else replace(self, exit_code=losses.code, cause=losses.cause)

    def write(self, path: Path) -> None:
        """Write the file, in one piece.

        Raises:
            OSError: the file cannot be written.
        """
        ranks = [{"rank": r.rank, "host": r.host, "pid": r.pid, **asdict(r.fate)} for r in self.ranks]
        text = json.dumps({**asdict(self), "ranks": ranks}, indent=2) + "\n"
        write_whole(path, lambda file: file.write(text.encode()))


def _advice(error: str, argv: Sequence[str]) -> list[str]:
    """Return lines of advice on an error that its program cannot know the reason of."""
    if not _MISSING.search(error):
        return []
    ways = "--as-mpi4py (alone: python -m ringcast.mpi4py) puts ringcast in its place"
    ignoring = isolated(argv)
    return [f"ringcast-launch: mpi4py is not installed; {ways}{ignoring and f', but not with python {ignoring}'}"]


def isolated(argv: Sequence[str]) -> str:
    """Return the option by which the Python of a command ignores the environment; "" for none, both if it is not known.

    >>> isolated(["python3", "-uI", "a.py"]), isolated(["python", "a.py", "-E"]), isolated(["./a.sh"])
    ('-I', '', '-I or -E')
    """
    if not argv or not basename(argv[0]).startswith("python"):
        return "-I or -E"
    words = iter(argv[1:])
    for word in words:
        option = _OPTIONS.fullmatch(word)
        if option is None:  # the program
            return ""
        letters, valued, value = option.groups()
        if found := re.search("[IE]", letters):
            return f"-{found[0]}"
        if valued in ("c", "m"):  # the program too
            return ""
        if valued and not value:
            next(words, "")
    return ""
