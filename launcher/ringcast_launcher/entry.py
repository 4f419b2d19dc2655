"""Start `ringcast-launch`: Ctrl-C ends it with one line already while its modules are imported."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT


def main(last_words: str = "") -> None:
    """Run the command and exit with its code; `last_words` is a file for the text at the end of a failed job."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    gc.disable()
    from ringcast_launcher import cli

    gc.freeze()  # nothing imported is garbage: neither a collection nor the end of the process has to look for it
    gc.enable()

    if signal.getsignal(signal.SIGINT) == _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(last_words=last_words)


def _end(_number: int, _frame: FrameType | None) -> None:
    """End at once: nothing is started yet, and an exception would print a traceback from the middle of an import."""
    os.write(2, b"ringcast-launch: ended by SIGINT\n")
    os._exit(_INTERRUPTED)
