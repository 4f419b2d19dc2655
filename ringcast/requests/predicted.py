"""Send and receive small values by prediction: no steps, no task. The engine makes the rest of a call, or all of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ringcast import collectives
from ringcast.collectives.again import UNMADE
from ringcast.collectives.status import ANY_TAG, Status
from ringcast.engine.correspondent import FRAMES, KIND, MOST
from ringcast.engine.open_call import OpenCall
from ringcast.engine.predicted import Predicted, ended
from ringcast.protocol.matching import ANY
from ringcast.requests.buffers import check_buffers
from ringcast.requests.calls import Calls
from ringcast.wire.call import Site, site_of
from ringcast.wire.header import RTS, unpack_fields

if TYPE_CHECKING:
    from ringcast.collectives.self_describing import Offered, Opened
    from ringcast.collectives.stage import Group
    from ringcast.engine.correspondent import Correspondent, Loan
    from ringcast.engine.execute import Steps
    from ringcast.engine.task import Task
    from ringcast.protocol.lane import Lane
    from ringcast.protocol.operations import Operation


class PredictedMessages(Calls):
    """The calls `send`, `recv` and `sendrecv` of a communicator, as far as they can be predicted.

    Each method makes the call of the method that calls it, and returns its result; UNMADE if it needs the general way.
    `_start_send` and `_start_receive` begin a request.
    """

    def _send_now(self, value: Any, dest: Any, tag: Any, name: str = "send", site: Site | None = None) -> Any:
        to = self._correspondent(dest)
        if to is None or not _is_tag(tag):
            return UNMADE
        site, messages = site or site_of(sys._getframe(1).f_back), collectives.point_to_point
        with to.endpoint.gate:
            if to.endpoint.requests:
                self._check_buffers(name, messages.send(self._group, value, dest, tag), site)
            payload, frames = self._encoded(value)
            sent, loan = _put(to, tag, payload, frames)
            if not sent:
                if type(frames) is not list:
                    return UNMADE
                return self._make(name, messages.send(self._group, value, dest, tag, frames, name), None, site)
            record, label = messages.in_records(name, to.peer, None, tag)
            op = to.begin(record, site)
            if loan is not None and not loan.settle():
                return self._settled(to.rest(label), loan, name, site)
            to.endpoint.recorder.done(op)
            to.deliver(self.timeout)
        return None

    def _receive_now(
        self, source: Any, tag: Any, out: Any, status: Any, name: str = "recv", site: Site | None = None
    ) -> Any:
        origin, wanted = self._correspondent(source), ANY if tag is ANY_TAG else tag
        if origin is None or not (tag is ANY_TAG or _is_tag(tag)) or not _can_take(out, status):
            return UNMADE
        site = site or site_of(sys._getframe(1).f_back)
        with origin.endpoint.gate:
            lane = origin.lane(wanted)
            if lane is None:
                return UNMADE
            return self._awaited(origin, lane, (name, None, source, wanted), site, out, status)

    def _exchange_now(self, value: Any, dest: Any, source: Any, tag: Any, out: Any, status: Any) -> Any:
        if not _is_tag(tag) or not _can_take(out, status):
            return UNMADE
        site = site_of(sys._getframe(1).f_back)
        if dest is None:
            return self._receive_now(source, tag, out, status, "sendrecv", site)
        if source is None:
            return self._send_now(value, dest, tag, "sendrecv", site)
        to, origin = self._correspondent(dest), self._correspondent(source)
        if to is None or origin is None:
            return UNMADE
        with to.endpoint.gate:
            if to.endpoint.predicted:  # perhaps the next message is theirs, or they write the value
                return UNMADE
            payload, frames = self._encoded(value)
            sent, loan = _put(to, tag, payload, frames, out)
            if not sent:
                if type(frames) is not list:
                    return UNMADE
                facts = self._group, value, dest, source, tag, out, status, frames
                return self._make("sendrecv", collectives.point_to_point.sendrecv(*facts), None, site)
            call = "sendrecv", to.peer, source, tag
            return self._awaited(origin, origin.lane(tag), call, site, out, status, loan)

    def _start_send(self, value: Any, dest: Any, tag: Any, call: OpenCall) -> Task[None] | None:
        """Send a value in place of the steps of a call; None if it does not go at once."""
        to = self._correspondent(dest)
        payload = None if to is None or not _is_tag(tag) else collectives.self_describing.at_once(value)
        if to is None or payload is None or (lane := to.lane()) is None or not to.put(lane, tag, payload):
            return None
        record, _ = collectives.point_to_point.in_records("send", to.peer, None, tag)
        to.endpoint.recorder.done(to.begin(record, call.site))
        return ended(to.endpoint, call.steps, call.site, None)

    def _start_receive(self, source: Any, tag: Any, out: Any, status: Any, call: OpenCall) -> Task[Any] | None:
        """Begin to receive a value in place of the steps of a call; None if the engine has to know of it at once."""
        origin, wanted = self._correspondent(source), ANY if tag is ANY_TAG else tag
        if origin is None or not (tag is ANY_TAG or _is_tag(tag)) or not _can_take(out, status):
            return None
        if origin.lane(wanted, in_turn=True) is None:
            return None
        return _Receiving(self, origin, (source, wanted), out, status, call).task()

    def _awaited(
        self,
        origin: Correspondent,
        lane: Lane | None,
        call: tuple[str, int | None, int, int],
        site: Site,
        out: Any,
        status: Status | None,
        loan: Loan | None = None,
    ) -> Any:
        """Return the value of the next message, however it comes; `call` is name, destination, source and tag.

        The destination is a rank of the job. What the call has offered is read before it ends.
        """
        group, messages, (name, dest, source, tag) = self._group, collectives.point_to_point, call
        record, label = messages.in_records(name, dest, origin.peer, tag)
        op = origin.begin(record, site)
        try:
            found = None if lane is None else self._next(origin, lane, tag, out)
        except BaseException:  # such as MemoryError: the message stays where it is
            origin.break_off(label, loan)
            raise
        if found is None:
            op = origin.rest(label)
            if loan is not None:
                loan.hand_over(op)
            return self._make(name, messages.received(group, name, op, origin.peer, tag, out, status), None, site)
        if origin.endpoint.profiler is not None:
            self._note(op, origin.peer, tag, *found)
        result = partial(_taken, *found, source, tag, out, status)
        if loan is not None and not loan.settle():
            return self._settled(origin.rest(label), loan, name, site, result)
        origin.endpoint.recorder.done(op)
        place = op.record
        try:
            return result()
        except BaseException as error:  # of unpickling, which runs code of the program, perhaps other calls
            op = origin.rest(label)
            op.site, op.record = site, place
            return self._make(name, messages.failed(group, op, error), None, site)

    def _next(
        self, origin: Correspondent, lane: Lane, tag: int, out: Any, patience: float | None = None
    ) -> tuple[bytes, Opened | Offered] | None:
        """Receive the next message, if it is as predicted."""
        message, pickle = origin.look(lane, tag, patience=patience), self._group.pickle
        if message is None:
            return None
        if message[KIND] == RTS:
            offered = collectives.self_describing.offered(message, out, objects=pickle)
            return None if offered is None or not origin.fetch(lane, offered.memory) else (message, offered)
        opened = collectives.self_describing.opened(message, out, objects=pickle)
        if opened is None:
            return None
        lane.accept(origin.peer)
        return message, opened

    def _note(self, op: Operation, source: int, tag: int, message: bytes, value: Opened | Offered) -> None:
        """Take note, for a profiler, of the message that an operation has received."""
        op.met = source, _tag_of(message, tag)
        if value.known is None:
            collectives.stage.note_object(self._group, op)

    def _settled(
        self, op: Operation, loan: Loan, name: str, site: Site, result: Callable[[], Any] = lambda: None
    ) -> Any:
        """Return the result of a call when what it has offered is read."""
        loan.hand_over(op)
        return self._make(name, collectives.point_to_point.settled(self._group, op, result), None, site)

    def _correspondent(self, rank: Any, group: Group | None = None) -> Correspondent | None:
        """Return another rank, of another group of this rank if one is given, if messages may be predicted.

        Then the general way would find nothing wrong with process and thread. Its lane is there only if nothing is
        wrong with the endpoint either, also after code of the program has run to encode a value.
        """
        group, (process, thread) = group or self._group, self._owner
        if type(rank) is not int or self._closed or os.getpid() != process or threading.get_ident() != thread:
            return None
        return group.correspondents.get(rank) or collectives.point_to_point.correspondent(group, rank)

    def _check_buffers(self, name: str, steps: Steps[Any], site: Site) -> None:
        """Check the memory of a call that is made without its steps; see `check_buffers`."""
        check_buffers(self._group.endpoint, OpenCall(name, site, steps, self._group.context))
        steps.close()

    def _encoded(self, value: Any) -> tuple[bytes | None, Sequence[Any] | None]:
        """Return the payload of a value that goes at once; and its frames, as a list where the engine can use them."""
        describing = collectives.self_describing
        payload = describing.at_once(value)
        if payload is not None or (in_two := describing.in_two(value)) is not None:
            return payload, None if payload is not None else in_two
        if not self._group.pickle:
            return None, None
        frames = describing.SelfDescribing.frames(value, _allow)
        return describing.in_one(frames), frames


class _Receiving:
    """A receive that was begun by prediction: it looks for its message when the program waits for it."""

    def __init__(
        self,
        caller: PredictedMessages,
        origin: Correspondent,
        message: tuple[int, int],
        out: Any,
        status: Status | None,
        call: OpenCall,
    ) -> None:
        record, label = collectives.point_to_point.in_records("recv", None, origin.peer, message[1])
        self._caller, self._origin, self._out, self._status = caller, origin, out, status
        self._source, self._tag = message
        self._replaced = call.steps
        self._op = origin.begin_request(record, call.site)
        self._op.label = label

    def task(self) -> Task[Any]:
        return Predicted(self._origin.endpoint, self._rest(), self._op.site, self._play, self._op)

    def _play(self, patience: float) -> tuple[Any] | Steps[None] | None:
        origin, op, caller = self._origin, self._op, self._caller
        lane = origin.lane(self._tag, in_turn=True)
        found = None if lane is None else caller._next(origin, lane, self._tag, self._out, patience)
        if found is None:
            return None
        self._replaced.close()
        if origin.endpoint.profiler is not None:
            caller._note(op, origin.peer, self._tag, *found)
        origin.endpoint.recorder.done(op)
        try:
            return (_taken(*found, self._source, self._tag, self._out, self._status),)
        except BaseException as error:  # of unpickling, which runs code of the program
            return collectives.point_to_point.failed(caller._group, op, error)

    def _rest(self) -> Steps[Any]:
        """Receive the message in the engine."""
        origin = self._origin.peer, self._tag
        try:
            return (
                yield from collectives.point_to_point.received(
                    self._caller._group, "recv", self._op, *origin, self._out, self._status
                )
            )
        finally:
            self._replaced.close()


def _taken(message: bytes, value: Opened | Offered, source: int, tag: int, out: Any, status: Status | None) -> Any:
    """Return the value of a message that has come, and note in the status whence."""
    if status is not None:
        status.fill(source, _tag_of(message, tag), value.nbytes)
    return value.value(out)


def _tag_of(message: bytes, tag: int) -> int:
    """Return the tag of a message that was received with this one, or with ANY."""
    return unpack_fields(message)[7] if tag == ANY else tag


def _put(
    to: Correspondent, tag: int, payload: bytes | None, frames: Sequence[Any] | None, out: Any = None
) -> tuple[bool, Loan | None]:
    """Send a message at once, or else offer it, but no part of `out`; return whether that was done, and the loan."""
    lane = to.lane()
    if lane is None:
        return False, None
    if payload is not None:
        return to.put(lane, tag, payload), None
    if frames is None or len(frames) != FRAMES or frames[1].nbytes > MOST or (out is not None and _shares(frames, out)):
        return False, None
    loan = to.offer(lane, tag, frames)
    return loan is not None, loan


def _shares(frames: Sequence[Any], out: Any) -> bool:
    data = frames[1]
    return np.may_share_memory(data if type(data) is np.ndarray else np.frombuffer(data, np.uint8), out)


def _allow() -> None:
    """Do nothing: the job takes objects."""


def _is_tag(tag: Any) -> bool:
    return type(tag) is int and not tag >> 32


def _can_take(out: Any, status: Any) -> bool:
    """Return whether `out` is nothing, or memory for an array as it comes, and `status` what it should be."""
    if out is not None and not (type(out) is np.ndarray and out.flags.c_contiguous and out.flags.writeable):
        return False
    return status is None or type(status) is Status
