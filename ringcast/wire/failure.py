"""Description of a rank's failure: plain data that the rank which detects it sends to all others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

LONGEST = 400_000  # bytes of an encoded failure, or of another reason
_CUT = LONGEST // 40  # characters of each of its texts then: JSON writes up to 12 bytes for one


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, and where it ran: `host` is empty, and `pid` 0, where that is not known."""

    cause: str
    host: str = ""
    pid: int = 0
    traceback: str = ""  # of the error that ended it, where it could send one

    def encode(self) -> bytes:
        """Return the payload of a FAILED notice: at most `LONGEST` bytes; longer texts lose their beginning."""
        data = json.dumps(asdict(self)).encode()
        if len(data) <= LONGEST:
            return data
        return json.dumps(asdict(replace(self, cause=self.cause[-_CUT:], traceback=self.traceback[-_CUT:]))).encode()

    @classmethod
    def decode(cls, data: bytes) -> Failure:
        """Return the failure that `encode` has written; any other text becomes the cause."""
        try:
            match json.loads(data):
                case {"cause": str(cause), "host": str(host), "pid": int(pid), "traceback": str(traceback)}:
                    return cls(cause, host, pid, traceback)
        except (ValueError, RecursionError):
            pass
        return cls(data.decode(errors="replace"))


class Broken(Exception):
    """A peer violated the protocol, so it counts as failed; the text says how."""
