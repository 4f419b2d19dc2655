"""Messages that a probe has matched; nothing else receives them."""

from __future__ import annotations

from typing import Any, Self

from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import ANY_SOURCE, ANY_TAG
from ringcast.mpi.base.exceptions import ERR_REQUEST, Exception
from ringcast.mpi.handles.handle import Handle, forget, predefined
from ringcast.mpi.handles.status import Status
from ringcast.mpi.messages.transfers import Taken
from ringcast.mpi.requests.request import Request

__all__ = ["MESSAGE_NO_PROC", "MESSAGE_NULL", "Message"]


class Matched:
    """A message that was matched on a communicator, until its receive begins."""

    def __init__(self, comm: Any, taken: Taken | None) -> None:
        self.comm, self._taken = comm, taken

    def use(self) -> Taken:
        """Return the message, once."""
        taken, self._taken = self._taken, None
        if taken is None:
            raise Exception(ERR_REQUEST, "a receive of a message that was received before")
        return taken


class Message(Handle):
    """A message that was matched; null when its receive has begun."""

    _state: Matched | None

    @classmethod
    def Probe(cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Self:
        """Wait for a message and match it."""
        return cls(comm.Mprobe(source, tag, status))

    @classmethod
    def Iprobe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Self | None:
        """Match a message that has come; None if there is none."""
        found = comm.Improbe(source, tag, status)
        return None if found is None else cls(found)

    probe, iprobe = Probe, Iprobe

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive the message in a buffer."""
        self._comm._mrecv(self, buf, status)

    def Irecv(self, buf: Any) -> Request:
        """Begin to receive the message in a buffer."""
        return self._comm._imrecv(self, buf)  # type: ignore[no-any-return]

    def recv(self, status: Status | None = None) -> Any:
        """Receive the message as an object."""
        return self._comm._mrecv_object(self, status)

    def irecv(self) -> Request:
        """Begin to receive the message as an object."""
        return self._comm._imrecv_object(self)  # type: ignore[no-any-return]

    @property
    def _comm(self) -> Any:
        if self._state is None:
            raise Exception(ERR_REQUEST, "a receive of a null message")
        return self._state.comm

    def _taken(self) -> Taken:
        assert self._state is not None
        return self._state.use()

    def _received(self, steps: Steps[Any]) -> Steps[Any]:
        """Become null, as the receive begins; return its steps."""
        if self is not MESSAGE_NO_PROC:
            forget(self._state)
            self._state = None
        return steps


MESSAGE_NULL = predefined(Message(), "MESSAGE_NULL")
MESSAGE_NO_PROC = predefined(Message._of_state(Matched(None, None)), "MESSAGE_NO_PROC")


def matched(comm: Any, steps: Steps[Taken | None]) -> Steps[Message | None]:
    """Return the message that these steps match on a communicator."""
    taken = yield from steps
    return None if taken is None else Message._of_state(Matched(comm, taken))
