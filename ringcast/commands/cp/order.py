"""Order: what the command tells the ranks that copy, and what the first of them tells the command."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from ringcast._util.dataclass import dataclass
from ringcast.transfer.options import Options

PROGRESS, REPORT, ERROR = "progress", "report", "error"  # of a line that the rank with the files prints


@dataclass(frozen=True, slots=True)
class Order:
    """The files to copy, their destination, and the options."""

    sources: list[str]
    target: str
    options: Options

    def encode(self) -> str:
        return json.dumps(asdict(self))  # names that are no text have escapes of their own, which JSON keeps

    @classmethod
    def decode(cls, text: str) -> Order:
        fields = json.loads(text)
        return cls(fields["sources"], fields["target"], Options(**fields["options"]))


def below_home(target: str) -> str:
    """Return a destination as this host has it: a relative one is below the home directory, as with scp.

    >>> below_home("/data/")
    '/data/'
    """
    return os.path.join(os.path.expanduser("~"), os.path.expanduser(target))
