"""What is known of a rank that failed: plain data, told by whoever noticed it to everyone else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rank failed, and what it was: `host` is empty, and `pid` 0, where that is not known."""

    cause: str
    host: str = ""
    pid: int = 0
    traceback: str = ""  # of the error that ended it, where it could tell

    def encode(self) -> bytes:
        """Return the payload of a FAILED notice."""
        return json.dumps(asdict(self)).encode()

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
