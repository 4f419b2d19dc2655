"""What is known of a rank that failed: plain data, told by whoever noticed it to everyone else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

LONGEST = 400_000  # bytes of a failure, or of another reason, that ranks tell each other
_CUT = LONGEST // 40  # characters of each of its texts then: JSON writes up to 12 bytes for one


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, and what it was: `host` is empty, and `pid` 0, where that is not known."""

    cause: str
    host: str = ""
    pid: int = 0
    traceback: str = ""  # of the error that ended it, where it could tell

    def encode(self) -> bytes:
        """Return the payload of a FAILED notice: at most `LONGEST` bytes; of longer texts the end tells most."""
        data = json.dumps(asdict(self)).encode()
        if len(data) <= LONGEST:
            return data
        return json.dumps(asdict(replace(self, cause=self.cause[-_CUT:], traceback=self.traceback[-_CUT:]))).encode()

    @classmethod
    def decode(cls, data: bytes) -> Failure:
        """Return what `encode` has told; of anything else the text is the cause."""
        try:
            match json.loads(data):
                case {"cause": str(cause), "host": str(host), "pid": int(pid), "traceback": str(traceback)}:
                    return cls(cause, host, pid, traceback)
        except (ValueError, RecursionError):
            pass
        return cls(data.decode(errors="replace"))


class Broken(Exception):
    """What a peer has sent is against the rules; the text says how. So it counts as failed."""
