"""Buffered sends: they end at once, as the message is copied; the attached memory limits how much may be under way."""

from __future__ import annotations

from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import BSEND_OVERHEAD
from ringcast.mpi.base.contexts import Shared
from ringcast.mpi.base.exceptions import ERR_BUFFER, Exception
from ringcast.mpi.base.sentinels import BUFFER_AUTOMATIC
from ringcast.mpi.data.exporters import exported
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.data.memory import buffer
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.messages import transfers
from ringcast.mpi.messages.transfers import Outgoing
from ringcast.mpi.requests.pending import Pending, await_calls
from ringcast.mpi.unsupported import FLUSHING, Unsupported, lacking
from ringcast.wire.call import NOWHERE

__all__ = ["Attach_buffer", "Detach_buffer", "Flush_buffer", "Iflush_buffer"]


class Attached:
    """Attached memory, and the sends that count as using it: their messages are copied elsewhere."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self._room = None if memory is BUFFER_AUTOMATIC else exported(memory, writes=True)[0].nbytes
        self._sends: list[tuple[Pending, int]] = []

    def reserve(self, nbytes: int) -> None:
        """Check that there is room for one more message."""
        self._sends = [(call, size) for call, size in self._sends if not call.done]
        used = sum(size for _, size in self._sends)
        if self._room is not None and used + nbytes + BSEND_OVERHEAD > self._room:
            text = f"a message of {nbytes} bytes, and {BSEND_OVERHEAD} more, do not fit"
            raise Exception(ERR_BUFFER, f"{text} into the attached buffer of {self._room} bytes, {used} of them in use")

    def keep(self, call: Pending, nbytes: int) -> None:
        """Note a message that was begun."""
        self._sends.append((call, nbytes + BSEND_OVERHEAD))

    def flush(self) -> None:
        """Wait until all messages have been sent.

        Raises:
            Exception: one of them has failed.
        """
        sends, self._sends = self._sends, []
        await_calls([call for call, _ in sends], every=True)
        for call, _ in sends:
            _, error = call.end()
            if error is not None:
                call.fail(error)


_of_process: list[Attached] = []  # at most one
_of_comms: WeakKeyDictionary[Shared, Attached] = WeakKeyDictionary()


def send_buffered(comm: CommHandle, to: Outgoing, data: Bytes) -> Steps[None]:
    """Send a copy of the data.

    Raises:
        Exception: it does not fit into the attached memory, or there is none.
    """
    attached = _of_comms.get(comm._shared) or next(iter(_of_process), None)
    if attached is None:
        raise Exception(ERR_BUFFER, "no buffer is attached for a buffered send; call Attach_buffer before")
    attached.reserve(data.nbytes)
    call = Pending(comm, "Bsend", NOWHERE, lambda: transfers.send(to, data.copy()), None)
    call.start()  # the end of the program waits for it
    attached.keep(call, data.nbytes)
    yield from ()


class BufferedSends(CommHandle):
    """The memory for buffered sends of a communicator."""

    def Attach_buffer(self, buf: Any) -> None:
        """Attach memory for buffered sends on this communicator."""
        if self._shared in _of_comms:
            raise Exception(ERR_BUFFER, "a buffer is attached already; call Detach_buffer before")
        _of_comms[self._shared] = _attached(buf)

    def Detach_buffer(self) -> Any:
        """Detach the memory, and return it when no send that uses it is under way."""
        return _detached(_of_comms.pop(self._shared, None))

    def Flush_buffer(self) -> None:
        """Wait until no send that uses the memory is under way."""
        if self._shared in _of_comms:
            _of_comms[self._shared].flush()

    Iflush_buffer = lacking(FLUSHING)


def Attach_buffer(buf: Any) -> None:
    """Attach memory for buffered sends on communicators that have none of their own."""
    if _of_process:
        raise Exception(ERR_BUFFER, "a buffer is attached already; call Detach_buffer before")
    _of_process.append(_attached(buf))


def Detach_buffer() -> Any:
    """Detach the memory, and return it when no send that uses it is under way."""
    return _detached(_of_process.pop() if _of_process else None)


def Flush_buffer() -> None:
    """Wait until no send that uses the memory is under way."""
    for attached in _of_process:
        attached.flush()


def Iflush_buffer() -> NoReturn:
    """Raise NotImplementedError."""
    raise Unsupported(FLUSHING)


def _attached(buf: Any) -> Attached:
    return Attached(BUFFER_AUTOMATIC if buf is None else buf)


def _detached(attached: Attached | None) -> Any:
    if attached is None:
        return buffer()
    attached.flush()
    return attached.memory
