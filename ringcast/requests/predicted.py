"""Send and receive small values by prediction: no steps, no task. The engine makes the rest of a call, or all of it."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ringcast import collectives
from ringcast.collectives.again import UNMADE
from ringcast.collectives.status import ANY_TAG, Status
from ringcast.protocol.matching import ANY
from ringcast.requests.calls import Calls
from ringcast.wire.call import Site, site_of
from ringcast.wire.header import unpack_fields

if TYPE_CHECKING:
    from ringcast.collectives.stage import Group
    from ringcast.engine.correspondent import Correspondent
    from ringcast.protocol.lane import Lane


class PredictedMessages(Calls):
    """The calls `send`, `recv` and `sendrecv` of a communicator, as far as they can be predicted.

    Each method makes the call of the method that calls it, and returns its result; UNMADE if it needs the general way.
    """

    def _send_now(self, value: Any, dest: Any, tag: Any, name: str = "send", site: Site | None = None) -> Any:
        to = self._correspondent(dest)
        if to is None or not _is_tag(tag):
            return UNMADE
        site, messages = site or site_of(sys._getframe(1).f_back), collectives.point_to_point
        with to.endpoint.gate:
            payload, frames = self._encoded(value)
            if not (payload is not None and (lane := to.lane()) is not None and to.put(lane, tag, payload)):
                if frames is None:
                    return UNMADE
                return self._make(name, messages.send(self._group, value, dest, tag, frames, name), None, site)
            record, _ = messages.in_records(name, dest, None, tag)
            to.endpoint.recorder.done(to.begin(record, site))
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
            payload, frames = self._encoded(value)
            if not (payload is not None and (lane := to.lane()) is not None and to.put(lane, tag, payload)):
                if frames is None:
                    return UNMADE
                facts = self._group, value, dest, source, tag, out, status, frames
                return self._make("sendrecv", collectives.point_to_point.sendrecv(*facts), None, site)
            return self._awaited(origin, origin.lane(tag), ("sendrecv", dest, source, tag), site, out, status)

    def _awaited(
        self,
        origin: Correspondent,
        lane: Lane | None,
        call: tuple[str, int | None, int, int],
        site: Site,
        out: Any,
        status: Status | None,
    ) -> Any:
        """Return the value of the next message, however it comes; `call` is name, destination, source and tag."""
        group, messages, (name, _, source, tag) = self._group, collectives.point_to_point, call
        record, label = messages.in_records(*call)
        op = origin.begin(record, site)
        message = None if lane is None else origin.look(lane, tag)
        opened = collectives.self_describing.opened
        found = None if message is None else opened(message, out, objects=group.pickle)
        if lane is None or message is None or found is None:
            rest = messages.received(group, name, origin.rest(label), origin.peer, tag, out, status)
            return self._make(name, rest, None, site)
        lane.accept(origin.peer)
        origin.endpoint.recorder.done(op)
        place = op.record
        if status is not None:
            status.fill(source, unpack_fields(message)[7] if tag == ANY else tag, found.nbytes)
        try:
            return found.value(out)
        except BaseException as error:  # of unpickling, which runs code of the program, perhaps other calls
            op = origin.rest(label)
            op.site, op.record = site, place
            return self._make(name, messages.failed(group, op, error), None, site)

    def _correspondent(self, rank: Any, group: Group | None = None) -> Correspondent | None:
        """Return another rank, of another group of this rank if one is given, if messages may be predicted.

        Then the general way would find nothing wrong with process and thread. Its lane is there only if nothing is
        wrong with the endpoint either, also after code of the program has run to encode a value.
        """
        group, (process, thread) = group or self._group, self._owner
        if type(rank) is not int or self._closed or os.getpid() != process or threading.get_ident() != thread:
            return None
        return group.correspondents.get(rank) or collectives.point_to_point.correspondent(group, rank)

    def _encoded(self, value: Any) -> tuple[bytes | None, list[memoryview] | None]:
        """Return the payload of a value that goes at once; and its frames, where these have been made."""
        payload = collectives.self_describing.at_once(value)
        if payload is not None or not self._group.pickle:
            return payload, None
        frames = collectives.self_describing.SelfDescribing.frames(value, _allow)
        return collectives.self_describing.in_one(frames), frames


def _allow() -> None:
    """Do nothing: the job takes objects."""


def _is_tag(tag: Any) -> bool:
    return type(tag) is int and not tag >> 32


def _can_take(out: Any, status: Any) -> bool:
    """Return whether `out` is nothing, or memory for an array as it comes, and `status` what it should be."""
    if out is not None and not (type(out) is np.ndarray and out.flags.c_contiguous and out.flags.writeable):
        return False
    return status is None or type(status) is Status
