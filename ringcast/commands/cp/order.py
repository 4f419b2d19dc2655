"""Define the messages between `ringcast cp` and its ranks: the order to copy, and rank 0's answers as lines of JSON."""

from __future__ import annotations

import json
import os
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.transfer.options import Options
from ringcast.transfer.records import Failed
from ringcast.transfer.report import CopyReport, Progress
from ringcast.wire.codec import CodecError, parse, plain

Answer: TypeAlias = Progress | CopyReport | Failed


@dataclass(frozen=True, slots=True)
class Order:
    """The files to copy, their destination, and the options; names are bytes, as the system has them.

    Attributes:
        secret: the key by which rank 0 signs its announcements, which other ranks do not get.
        places: on rank 0, the directory for the files of each other rank, which are then the ones that have `sources`;
            (): rank 0 has them.
        connections: that each host makes to a remote source; 0: the files are on hosts.
    """

    sources: tuple[bytes, ...]
    target: bytes
    options: Options
    secret: bytes = b""
    places: tuple[bytes, ...] = ()
    connections: int = 0


def line(answer: Answer) -> str:
    """Return an answer as a line."""
    return json.dumps(plain(answer))


def answer(line: str) -> Answer | None:
    """Return the answer in a line; None if the line holds no answer."""
    try:
        found: Answer = parse(json.loads(line), (Progress, CopyReport, Failed))
    except (CodecError, ValueError, RecursionError):
        return None
    return found


def below_home(target: str) -> str:
    """Return a destination's path on this host: a relative destination is below the home directory, as with scp.

    >>> below_home("/data/")
    '/data/'
    """
    return os.path.join(os.path.expanduser("~"), os.path.expanduser(target))
