"""The handle of a communicator: the base of all classes with its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.mpi.base.constants import UNDEFINED
from ringcast.mpi.base.contexts import Peers, Shared
from ringcast.mpi.base.error_classes import ERR_COMM
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.handle import Handle, numbered

INTRA, INTER = UNDEFINED, 0  # beside the kinds of topologies
Class = TypeVar("Class", bound="type[CommHandle]")

_classes: dict[int, type[CommHandle]] = {}


def of_kind(*kinds: int) -> Callable[[Class], Class]:
    """Mark a class as mpi4py's class for communicators of these kinds."""

    def mark(cls: Class) -> Class:
        cls._named = (cls,)
        _classes.update(dict.fromkeys(kinds, cls))
        return cls

    return mark


class CommHandle(Handle):
    """A handle of a communicator."""

    _state: Shared | None
    _named: tuple[type[CommHandle]]  # this class, or its base among mpi4py's classes
    _caller: Communicator
    _group: Group  # of an intercommunicator the local one
    _peers: Peers  # the peers of messages

    def __new__(cls, comm: Any = None) -> Self:
        """Return a null communicator, or another handle of the same one.

        Raises:
            TypeError: it is of another kind than this class.
        """
        self = super().__new__(cls, comm)
        if self._state is not None and not issubclass(_class_of(self._state), cls._named):
            raise TypeError(f"expected a communicator that is a {cls._named[0].__name__}, got a {type(comm).__name__}")
        return self

    @classmethod
    def _of(cls, caller: Communicator) -> Self:
        """Return the MPI communicator for a communicator of ringcast."""
        return cls._of_state(Shared(caller))

    @staticmethod
    def _plain(state: Shared | None) -> Any:
        """Return a communicator of mpi4py's class for its kind."""
        return _class_of(state)._of_state(state)

    @classmethod
    def fromint(cls, arg: int) -> Any:
        """Return a handle of the communicator that has this number."""
        return cls._plain(numbered(arg)) if arg else cls()

    fromhandle = f2py = fromint

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that calls need often, and keep it."""
        if name not in ("_caller", "_group", "_peers"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        value = getattr(self._shared, name[1:])
        setattr(self, name, value)
        return value

    @property
    def _attributes(self) -> dict[int, Any]:
        return self._shared.attributes

    @property
    def _shared(self) -> Shared:
        if self._state is None:
            raise Exception(ERR_COMM, "expected a communicator, got COMM_NULL")
        return self._state

    def _become_null(self) -> None:
        self._state = None
        for name in ("_caller", "_group", "_peers"):
            self.__dict__.pop(name, None)


def class_of_kind(kind: int) -> type[CommHandle]:
    """Return mpi4py's class for communicators of this kind."""
    return _classes[kind]


def _class_of(state: Shared | None) -> type[CommHandle]:
    if state is None:
        return _classes[INTRA]
    if state.remote is not None:
        return _classes[INTER]
    return _classes[INTRA if state.topology is None else state.topology.kind]
