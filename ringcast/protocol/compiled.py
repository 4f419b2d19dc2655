"""Load the compiled lane (`_lane.c`), if it is there, is wanted, and is made of the source beside it."""

from __future__ import annotations

import os
import sys
import zlib

from ringcast.config import worker

TYPE_CHECKING = False  # as in `typing`
if TYPE_CHECKING:
    from ringcast.protocol._lane import Lane

ASKED = "RINGCAST_PURE=1"
NOT_INSTALLED = "the compiled part is not installed"
NO_PLATFORM = "the compiled part is not for this platform"
STALE = "the compiled part is older than its source: python hatch_build.py compiles it again"
MACHINES = ("x86_64", "aarch64")
_SOURCE = os.path.join(os.path.dirname(__file__), "_lane.c")  # in a checkout; an installed ringcast has none


def load() -> tuple[type[Lane] | None, str]:
    """Return the compiled lane, and why there is none."""
    if worker.pure():
        return None, ASKED
    try:
        import ringcast.protocol._lane as _lane
    except ModuleNotFoundError:
        there = sys.platform == "linux" and os.uname().machine in MACHINES
        return None, NOT_INSTALLED if there else NO_PLATFORM
    except ImportError as error:
        return None, f"the compiled part cannot be loaded: {error!s:.200}"
    return (None, STALE) if _is_stale(getattr(_lane, "SOURCE", None)) else (_lane.Lane, "")


def _is_stale(made_of: object) -> bool:
    """Return whether the compiled lane was made of another source than the one here; False if none can be read."""
    try:
        with open(_SOURCE, "rb") as source:
            return made_of != zlib.crc32(source.read())
    except OSError:
        return False


Compiled, REASON = load()


def build() -> str:
    """Return "compiled", or "pure Python" with the reason; ranks of both kinds understand each other."""
    return f"pure Python ({REASON})" if REASON else "compiled"
