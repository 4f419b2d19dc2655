"""The groups of ringcast that communicators of MPI use, made with and without a call of all their ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, NoReturn

from ringcast.collectives import recovery
from ringcast.collectives.split import derived, formed
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.mpi.base.abort import abort
from ringcast.mpi.base.exceptions import ERR_OTHER, Exception

MAX_TAG = 2**31 - 1  # of programs; larger ones are this layer's own
_FRESH = 1 << 63  # call numbers from here on are for contexts that no call has made; real calls have lower ones
_NUMBERS = count()
_freed: dict[tuple[int, int], Group] = {}  # by endpoint and context: with calls under way, which retire later


class Peers(NamedTuple):
    """The ranks that messages are sent to and come from: ranks `first` to `first + size - 1` of a group."""

    group: Group
    first: int
    size: int

    @property
    def boundary(self) -> int:
        """Of an intercommunicator the number of ranks of the first side."""
        return self.first or self.size


class Action:
    """The action of an error handler, called with an object of MPI and an error."""

    def __init__(self, act: Callable[[Any, Exception], Any]) -> None:
        self.act = act


def _end(comm: Any, error: Exception) -> NoReturn:
    print(f"ringcast: {error}", file=sys.stderr)
    abort(comm, error.ob_mpi)


no_action, fatal = Action(lambda *_: None), Action(_end)


class Shared:
    """The state that all handles of one communicator share.

    Attributes:
        remote: of an intercommunicator, the peers of its messages.
        attributes: values by key.
        topology: of a communicator with one.
        info: hints, which change nothing.
        errhandler: what to do with errors of its calls.
    """

    def __init__(self, caller: Communicator | None = None, name: str = "", remote: Peers | None = None) -> None:
        self.name, self.remote = name, remote
        self.attributes: dict[int, Any] = {}
        self.topology: Any = None
        self.info: dict[str, str] = {}
        self.errhandler = no_action
        self._caller = caller
        self._inner: Group | None = None
        self._private: Shared | None = None
        self.calls = count()  # of collectives of an intercommunicator, by which their messages are numbered

    @property
    def caller(self) -> Communicator:
        """The communicator of ringcast; of an intercommunicator the local one."""
        if self._caller is None:
            raise Exception(ERR_OTHER, "MPI is not initialized: call MPI.Init() before")
        return self._caller

    @caller.setter
    def caller(self, caller: Communicator) -> None:
        self._caller = caller

    @property
    def group(self) -> Group:
        """The group of `caller`."""
        return group_of(self.caller)

    @property
    def peers(self) -> Peers:
        """The ranks that messages are sent to, and come from."""
        return self.remote or Peers(self.group, 0, self.group.size)

    @property
    def inner(self) -> Group:
        """Another group of all ranks, of both sides, for messages that no receive of the program takes."""
        if self._inner is None:
            group = self.peers.group
            members = map(group.in_job, range(group.size))
            self._inner = formed(group, members, derived(group.context, _FRESH, -1), strict=True)
        return self._inner

    @property
    def private(self) -> Shared:
        """Another communicator of the same ranks, for libraries on top of this layer."""
        if self._private is None:
            group = self.group if self.remote is None else self.remote.group
            other = formed(group, map(group.in_job, range(group.size)), derived(group.context, _FRESH, -2))
            alike = shared(other, self) if self.remote is None else two_sided(other, self.remote.boundary, self)
            self._private = alike
        return self._private

    def groups(self) -> list[Group]:
        """Return the groups of calls and of messages: the same one, except for an intercommunicator."""
        return [self.group] if self.remote is None else [self.group, self.remote.group]

    def retire(self) -> None:
        """End the use of this communicator by this rank, as soon as its calls under way have ended.

        MPI frees collectively, so all ranks have made their last call, and no rank has to wait. A program that frees a
        communicator that was given up has answered its error.
        """
        if self._private is not None:
            self._private.retire()
        endpoint = self.group.endpoint
        for group in (*self.groups(), *([] if self._inner is None else [self._inner])):
            _freed[id(endpoint), group.context] = group
        for key, group in [*_freed.items()]:
            if group.endpoint is endpoint and (endpoint.closed or endpoint.protocol.idle(group.context)):
                del _freed[key]
                endpoint.unanswered.answered(group.context)
                recovery.free(group, by_all=False)


def shared(group: Group, like: Shared, remote: Peers | None = None) -> Shared:
    """Return a communicator of this group with the properties that a new one inherits from another one."""
    made = Shared(Communicator(group, like.caller.timeout), remote=remote)
    made.errhandler = like.errhandler
    return made


def alone(group: Group) -> Group:
    """Return the group of this rank alone; nothing is communicated."""
    rank = group.endpoint.rank
    return formed(group, [rank], derived(group.context, _FRESH, rank))


def fresh(group: Group) -> int:
    """Return the context of a new communicator, which this rank passes on to the others."""
    return derived(group.context, _FRESH + 1 + next(_NUMBERS), group.endpoint.rank)


def two_sided(both: Group, first: int, like: Shared) -> Shared:
    """Return the intercommunicator of the first ranks of a group, so many, and the others."""
    low = both.rank < first
    here, there = (range(first), range(first, both.size)) if low else (range(first, both.size), range(first))
    local = formed(both, map(both.in_job, here), derived(both.context, 0, int(low)))
    return shared(local, like, Peers(both, there.start, len(there)))
