"""A call of the program that makes many others: what people read of these names the call that they know."""

from __future__ import annotations

from types import FrameType

from ringcast.errors import CollectiveTimeout
from ringcast.requests.calls import Calls
from ringcast.wire.call import in_words, site_of


class Inside:
    """Within it, the calls of a communicator, and of those made of it, have the place of the program's call.

    A timeout of one of them names the program's call, and its source, which has no password.
    """

    def __init__(self, caller: Calls, operation: str, source: str, user: FrameType | None) -> None:
        self._caller, self._operation, self._source, self._site = caller, operation, source, site_of(user)

    def __enter__(self) -> None:
        self._caller._place = self._site

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._caller._place = None
        if isinstance(error, CollectiveTimeout):
            _name(error, in_words(f"{self._operation}({self._source!r})", self._site))


def _name(error: CollectiveTimeout, call: str) -> None:
    """Have an error name the program's call, as "read_file('x') at prog.py:4"."""
    who = ", ".join(map(str, error.waiting_for)) or "nobody"
    text = f"did not finish within {error.seconds:g} s; waiting for rank {who}, which may wait for the source"
    if error.cycle:
        text = f"cannot finish: {error}"
    error.args, error.inside = (f"rank {error.rank}: {call} {text} (in {error.where})",), call
