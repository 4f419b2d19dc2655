"""Communication errors that the program caught without recovering from them: a job with one of them has failed.

A call that raises invalidates the communicator, so what the ranks compute without it afterwards is not what the program
says. `shrink` and `agree` bring the ranks to a common state again; `ack_failed` says that this rank goes on without
the failed ones. The rules:

1. Of each communicator the first error that a call raised counts; but one that `ack_failed` cannot answer, and that no
   other rank has brought about, takes the place of a PeerFailed: calls go on after that.
2. A `shrink` or `agree` that succeeds answers the errors of its communicator, and of all that were made from it.
3. An `ack_failed` answers a PeerFailed of these communicators, if it acknowledges the rank that this names. It answers
   no other error: those do not come from a rank that is gone.
4. An error that is unanswered when the rank leaves is reported to the control plane, and decides on the exit code.
"""

from __future__ import annotations

from typing import cast

from ringcast._util.safe_text import is_a
from ringcast.errors import FAILURES, blames
from ringcast.wire.call import Site, in_words
from ringcast.wire.error_text import message
from ringcast.wire.unanswered import Kind, Unanswered

LONGEST = 2000  # characters of an error that are kept, and of a place


class UnansweredErrors:
    """The errors of one rank's communicators that nothing has answered yet."""

    def __init__(self) -> None:
        self._first: dict[int, Unanswered] = {}  # by communicator, in the order in which they were raised
        self._parents: dict[int, int] = {}  # of communicators that were made from another one

    @property
    def first(self) -> Unanswered | None:
        """The first one of all; None if there is none."""
        return next(iter(self._first.values()), None)

    def raised(self, context: int, error: BaseException, operation: str, site: Site) -> None:
        """Note that a call of communicator `context` raises `error`; nothing, if that is the caller's own mistake."""
        if not is_a(error, FAILURES):
            return
        place = in_words(operation, site)
        text = message(error).partition("\n")[0]
        new = Unanswered(cast(Kind, type(error).__name__), text[:LONGEST], place[:LONGEST], blames(error))
        known = self._first.get(context)
        if known is None or (known.acknowledgeable and not new.follows):
            self._first[context] = new

    def answered(self, context: int) -> None:
        """Note that a `shrink` or `agree` of a communicator has succeeded."""
        for one in [one for one in [*self._first] if self._is_from(one, context)]:  # other threads may note more
            del self._first[one]

    def acknowledged(self, context: int, ranks: frozenset[int]) -> None:
        """Note that these ranks of the job were acknowledged on a communicator."""
        for one, error in [*self._first.items()]:
            if error.acknowledgeable and ranks.issuperset(error.blames) and self._is_from(one, context):
                del self._first[one]

    def made(self, context: int, parent: int) -> None:
        """Note that a communicator was made from another one."""
        self._parents[context] = parent

    def freed(self, context: int) -> None:
        """Forget a communicator; its children count as made from its parent."""
        if context in self._first or context not in self._parents:
            return
        parent = self._parents.pop(context)
        self._parents.update({child: parent for child, other in self._parents.items() if other == context})

    def _is_from(self, context: int | None, ancestor: int) -> bool:
        while context is not None:
            if context == ancestor:
                return True
            context = self._parents.get(context)
        return False
