"""The failure of a rank: plain data that whoever detects it hands to all others."""

from __future__ import annotations

from dataclasses import replace

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import bounded, escaped
from ringcast.errors import blames
from ringcast.wire.codec import Count, Rank
from ringcast.wire.error_text import in_a_line, origin, text_of

MAX_TEXT = 100_000  # bytes of one cause or traceback


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, and where it ran: `host` is empty, and `pid` 0, where that is not known."""

    cause: str
    traceback: str = ""  # of the error that ended it, where it could send one
    blames: tuple[Rank, ...] = ()  # the ranks that the error names as its cause; empty where it arose by itself
    host: str = ""
    pid: Count = 0

    @classmethod
    def of(cls, error: BaseException, *, whole: bool = False) -> Failure:
        """Return the failure of a rank that `error` ends; `whole`: with all frames of its traceback."""
        cause, traceback = in_a_line(error), text_of(error, whole=whole)
        return cls(clean(cause), clean(traceback), tuple(map(int, blames(origin(error)))))

    def at(self, host: str, pid: int) -> Failure:
        """Return the same failure of a rank that ran there."""
        return replace(self, host=host, pid=pid)

    def clipped(self, longest: int) -> Failure:
        """Return the same failure with the ends of its texts: at most so many characters of each."""
        return replace(self, cause=self.cause[-longest:], traceback=self.traceback[-longest:])


def clean(text: str) -> str:
    """Return `text` as it can always be sent and printed: of more than MAX_TEXT bytes its beginning and its end."""
    data = escaped(bounded(text, MAX_TEXT)).encode()
    if len(data) > MAX_TEXT:
        data = data[: MAX_TEXT // 2] + data[-MAX_TEXT // 2 :]
    return data.decode("utf-8", "ignore")


class Broken(Exception):
    """A peer violated the protocol, so it counts as failed; the text says how."""
