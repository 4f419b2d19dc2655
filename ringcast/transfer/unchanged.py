"""Confirm that a source is the one that was listed, where bytes of a file follow others that were read before.

A server says its version with each answer. A store that fsspec reads says it when a file is opened, maybe in other
words than in a list, and a file that is opened later may be another one. So all hosts open the files that are begun,
and then the first one lists the source again. If this list is as the first one, all bytes so far are of one version; a
change from then on is seen by the hosts that have the file open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.errors import SourceChanged, SourceError
from ringcast.transfer import read_once
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.remote_listing import Listed, listed
from ringcast.transfer.sources.base import Interrupted, Trouble
from ringcast.transfer.sources.opening import name_for_people, needs_fsspec
from ringcast.transfer.sources.packed import Packed
from ringcast.transfer.sources.tries import Wait, tried, watched


@dataclass(frozen=True, slots=True)
class _Opened:
    """Why a rank cannot open the files that are begun; "" if it has."""

    error: str


class Unchanged:
    """The source of a copy, with the identity that it had in the list."""

    def __init__(self, source: str, recursive: bool, identity: bytes, packed: Packed) -> None:
        self._source, self._recursive, self._identity, self._packed = source, recursive, identity, packed

    def confirm(self, comm: Any, begun: Sequence[int]) -> Any:
        """Open files that are begun, and compare the source with the list; return the ranks that are left.

        Raises:
            SourceChanged: it is another one; all ranks raise it.
            SourceError: no rank can open the files, or the first one cannot list the source.
        """
        if not needs_fsspec(self._source):
            return comm
        return read_once.among(comm, lambda comm: self._confirm(comm, begun))[1]

    def _confirm(self, comm: Any, begun: Sequence[int]) -> bool:
        name = brief(name_for_people(self._source))
        errors = [each.error for each in exchanged(comm, _Opened(self._open(comm, begun)))]
        if all(errors):
            raise SourceError(name, errors[0])
        again = announced(comm, 0, Listed, lambda: self._list(comm))
        if again.error:
            raise SourceError(name, brief(again.error))
        if again.identity != self._identity:
            raise SourceChanged(name, "it is not as it was listed")
        return True

    def _open(self, comm: Any, begun: Sequence[int]) -> str:
        try:
            for number in begun:
                wait = Wait()
                watched(comm, wait, partial(tried, wait, partial(self._packed.source, number)))
        except Trouble as trouble:
            return brief(trouble.reason)
        return ""

    def _list(self, comm: Any) -> Listed:
        def step() -> Listed:
            found = listed(self._source, self._recursive)
            if found.error:
                raise Interrupted(found.error)
            return replace(found, manifest=b"")

        try:
            wait = Wait()
            return watched(comm, wait, partial(tried, wait, step))
        except Trouble as trouble:
            return Listed(b"", error=trouble.reason)
