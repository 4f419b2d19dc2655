"""Messages between two ranks: send, recv, sendrecv and probe."""

from __future__ import annotations

import sys
from typing import Any, overload

from numpy.typing import NDArray

from ringcast import collectives
from ringcast.collectives.again import UNMADE
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag, Wildcard
from ringcast.errors import FAILURES
from ringcast.requests.predicted import PredictedMessages
from ringcast.requests.types import Scalar
from ringcast.wire.call import site_of


class Messages(PredictedMessages):
    """Calls that move one value from one rank to another."""

    def send(self, value: object, dest: int | None, tag: int = 0, *, timeout: float | None = None) -> None:
        """Send a value to one rank, which receives it by `recv`, `irecv` or `sendrecv`.

        Not collective. Of two messages to the same rank that fit the same receive, the first one is received first. A
        value up to 64 kB is sent at once, as long as less than 1 MB of such messages wait at the receiver; a larger one
        when that receives it. A rank may send to itself, without waiting.

        Cost: one message, or two more for a value that is not sent at once.

        Args:
            value: an array or scalar of any shape and dtype, or an object. Arrays are not copied, also within objects.
            dest: the rank that gets it; None: nothing is sent.
            tag: 0 to 2**32-1; the receive names the same, or ANY_TAG.

        Raises:
            PeerFailed: also if `dest` has left the job.
            CollectiveTimeout: also if ranks wait for each other in a cycle.

        >>> comm.send({"a": 1}, dest=0, tag=7)
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
        if timeout is None and self._send_now(value, dest, tag) is not UNMADE:
            return None
        return self._call(collectives.point_to_point.send(self._group, value, dest, tag), timeout)

    @overload
    def recv(
        self,
        source: Source = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: None = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def recv(
        self,
        source: int | Wildcard = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def recv(
        self,
        source: Source = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar] | None: ...
    def recv(
        self,
        source: Source = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: Any = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return a value that another rank, or this one, has sent to this rank.

        Not collective. Of several messages that fit, it takes the one that has come first.

        Cost: see `send`.

        Args:
            source: the rank that sends the message; ANY_SOURCE: any rank; None: nothing is received.
            tag: the tag of the message; ANY_TAG: any tag.
            out: a writeable C-contiguous array of the message's dtype, with as many items or more: an array is put
                there, without a copy.
            status: is filled with source, tag and size of the message.

        Returns:
            The value that was sent; with `out` an array of its shape in the memory of `out`; None without a source.

        Raises:
            ArgumentError: the message does not fit into `out`: found when it has come, so that the communicator is
                given up.
            PeerFailed: also if the source, or every other rank, has left the job.
            CollectiveTimeout: also if ranks wait for each other in a cycle.

        >>> comm.send(np.arange(3), dest=0)
        >>> comm.recv(out=np.zeros(5, int))
        array([0, 1, 2])
        """
        if timeout is None and (value := self._receive_now(source, tag, out, status)) is not UNMADE:
            return value
        return self._call(collectives.point_to_point.recv(self._group, source, tag, out, status), timeout)

    @overload
    def sendrecv(
        self,
        value: object,
        dest: int | None,
        source: Source,
        tag: int = 0,
        *,
        out: None = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def sendrecv(
        self,
        value: object,
        dest: int | None,
        source: int | Wildcard,
        tag: int = 0,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def sendrecv(
        self,
        value: object,
        dest: int | None,
        source: Source,
        tag: int = 0,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar] | None: ...
    def sendrecv(
        self,
        value: object,
        dest: int | None,
        source: Source,
        tag: int = 0,
        *,
        out: Any = None,
        status: Status | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send `value` to one rank and return the value that arrives from another, at the same time.

        Not collective: only the two ends of a message call it, or `send` and `recv` on the other side. Ranks that wait
        for each other in a cycle get `CollectiveTimeout`.

        Cost: one round, or two messages more where a value is too long to be sent unasked.

        Args:
            value: an array or scalar of any shape and dtype, or an object; ignored if `dest` is None.
            dest: the rank that gets it; None: nothing is sent.
            source: the rank that sends the value; ANY_SOURCE: any rank; None: nothing is received.
            tag: 0 to 2**32-1, the same on both ends of a message.
            out: see `recv`; memory that it shares with `value` is copied first.
            status: see `recv`.

        Returns:
            The value that `source` has sent, as `recv` does; None without a source.

        >>> comm.sendrecv(np.arange(3), dest=0, source=0)
        array([0, 1, 2])
        """
        if timeout is None and (got := self._exchange_now(value, dest, source, tag, out, status)) is not UNMADE:
            return got
        return self._call(
            collectives.point_to_point.sendrecv(self._group, value, dest, source, tag, out, status), timeout
        )

    def probe(self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, timeout: float | None = None) -> Status:
        """Wait for a message that `recv` would take, and leave it there.

        Not collective.

        Args:
            source: a rank, or ANY_SOURCE.
            tag: the tag of the message; ANY_TAG: any tag.

        Returns:
            A Status with its source, its tag and its size in bytes. A `recv` with this source and tag takes the
            message, if nothing else has received it by then.

        >>> comm.send(np.zeros(2), dest=0, tag=3)
        >>> comm.probe()
        Status(source=0, tag=3, count=16)
        >>> comm.recv(0, 3)
        array([0., 0.])
        """
        return self._call(collectives.point_to_point.probe(self._group, source, tag), timeout)

    def iprobe(self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG) -> Status | None:
        """Return the Status of `probe` if the message has come by now, else None; it does not wait.

        Not collective.

        Args:
            source: see `probe`.
            tag: see `probe`.

        >>> comm.iprobe() is None
        True
        """
        self._enter("iprobe")
        site = site_of(sys._getframe().f_back)
        try:
            return collectives.point_to_point.iprobe(self._group, source, tag)
        except FAILURES as error:
            self._raised(error, "iprobe", site)
            raise
