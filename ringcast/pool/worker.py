"""A worker of a pool: it runs the tasks that the master sends, one after the other, and sends their outcomes.

Tasks that come together are expected to be quick. Each outcome is sent at once: the next task may take long.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from ringcast._util.safe_text import is_a
from ringcast.bootstrap.world import adopt
from ringcast.communicator import Communicator
from ringcast.engine.objects import APART
from ringcast.errors import JobAborted, PeerFailed, Revoked, SharedMemoryError, blames
from ringcast.pool import groups
from ringcast.pool.decide import Digest
from ringcast.pool.messages import (
    Begin,
    Drop,
    Frames,
    Group,
    Left,
    Outcome,
    Outcomes,
    Part,
    Receive,
    Received,
    Refused,
    Stop,
    TaskFacts,
    Tasks,
)
from ringcast.pool.packing import load_function, pack_outcome, refusal, unpack
from ringcast.wire.error_text import in_a_line, text_of

MASTER = 0
CONSEQUENCES = (PeerFailed, Revoked, JobAborted)  # errors that another rank's error brings about
_this = threading.local()  # `serves`: whether this thread is a worker, or that of the process that was forked


def is_worker() -> bool:
    """Return whether this thread runs tasks of a pool, or did before its process was forked."""
    return getattr(_this, "serves", False)


def serve(comm: Communicator) -> None:
    """Run tasks until the master says that there are no more.

    Raises:
        PeerFailed: the master is gone.
    """
    _this.serves = True
    try:
        _Worker(comm).serve()
    finally:
        _this.serves = False


class _Worker:
    """One rank that runs tasks."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._content: dict[Digest, Any] = {}  # bytes
        self._functions: dict[Digest, Any] = {}  # made of the content
        self._gave_up = False  # a communicator
        self._refused = False  # the initializer raised

    def serve(self) -> None:
        while True:
            message, frames = self._comm.recv(MASTER)
            match message:
                case Tasks() | Group() if self._refused:
                    pass  # the master ends the pool
                case Tasks():
                    self._run_all(message, frames)
                case Group():
                    self._run_with_others(message, frames)
                case Receive():
                    self._receive(message)
                case Drop():
                    self._content.pop(message.digest, None)
                    self._functions.pop(message.digest, None)
                case Begin():
                    self._content |= dict.fromkeys([message.initializer] if message.initializer else [], *frames[:1])
                    if message.initializer:
                        self._initialize(message.initializer)
                case Stop():
                    self._send(Left())
                    return

    def _send(self, message: Any, frames: Frames = ()) -> None:
        send(self._comm, message, frames, MASTER)

    def _initialize(self, digest: Digest) -> None:
        """Call the initializer."""
        try:
            self._function(digest)()
        except BaseException as error:  # of the program's function
            self._refused = True
            self._send(Refused(in_a_line(error), text_of(error)))
        self._functions.pop(digest, None)
        del self._content[digest]

    def _receive(self, order: Receive) -> None:
        content = broadcast(self._comm, (MASTER, *order.workers), order.serial, None)
        if content is not None:
            self._content[order.digest] = content
        self._send(Received(order.digest, content is not None))

    def _run_all(self, order: Tasks, frames: Frames) -> None:
        kept = len(order.content)
        self._content |= zip(order.content, frames[:kept], strict=True)
        rest = iter(frames[kept:])
        for facts, count in zip(order.tasks, order.frames, strict=True):
            self._send_outcome(*self._run(facts, [*islice(rest, count)], None))

    def _run_with_others(self, order: Group, frames: Frames) -> None:
        kept = len(order.content)
        self._content |= zip(order.content, frames[:kept], strict=True)
        comm = groups.members_communicator(self._comm, order.workers, order.serial)
        before = adopt(comm)
        try:
            outcome = self._run(order.task, frames[kept:], comm)
        finally:
            adopt(before)
        self._send_outcome(*outcome)

    def _run(self, facts: TaskFacts, frames: Frames, comm: Communicator | None) -> tuple[Outcome, Frames]:
        """Run a task, with a communicator if it asks for one, and return its outcome."""
        results: list[Any] = []
        error, part = None, Part.function
        start = time.monotonic()
        try:
            fn = self._function(facts.function)
            part = Part.arguments
            given = unpack(frames, facts.digests, self._content.__getitem__)
            part = Part.exception
            if facts.many:
                for args in given:
                    results.append(fn(*args))
            else:
                args, options = given
                results.append(fn(*args, **options) if comm is None else fn(comm, *args, **options))
            if comm is not None:
                groups.meet(comm)
        except BaseException as raised:  # of the program's function, SystemExit too: the outcome has it
            error = raised
        seconds = time.monotonic() - start
        if comm is not None:
            self._end_group(comm, error is None)
        return self._outcome(facts.number, seconds, results, error, part)

    def _end_group(self, comm: Communicator, well: bool) -> None:
        if well:
            groups.retire(comm)
        else:
            groups.give_up(comm, forget=self._gave_up)
            self._gave_up = True

    def _function(self, digest: Digest) -> Callable[..., Any]:
        if digest not in self._functions:
            self._functions[digest] = load_function(memoryview(self._content[digest]))
        return self._functions[digest]  # type: ignore[no-any-return]

    def _outcome(
        self, number: int, seconds: float, results: Sequence[Any], error: BaseException | None, part: Part
    ) -> tuple[Outcome, Frames]:
        """Return an outcome with its frames; `part` is the part of the task in which `error` was raised."""
        rank, facts = self._comm.rank, dict[str, Any]()
        frames: list[Any] = []
        if error is not None:
            facts = {
                "cause": in_a_line(error),
                "traceback": text_of(error),
                "follows": is_a(error, CONSEQUENCES),
                "lost": blames(error)[0] if is_a(error, PeerFailed) else None,
            }
            if part != Part.exception:
                facts["part"] = part
            elif reason := refusal(error):
                facts |= {"part": part, "cause": f"{facts['cause']} ({reason})"}
        if "part" not in facts:
            try:
                frames = pack_outcome(results, error)
            except BaseException as refused:  # of the program's classes
                facts = {"part": Part.result, "cause": in_a_line(refused), "traceback": ""}
                error = refused
        return Outcome(number, rank, seconds, len(frames), error is None, **facts), frames

    def _send_outcome(self, outcome: Outcome, frames: Frames) -> None:
        """Send an outcome, after the output of its task."""
        for stream in sys.stdout, sys.stderr:
            with suppress(OSError, ValueError, AttributeError):  # the function may have closed them
                stream.flush()
        self._send(Outcomes((outcome,)), frames)


def broadcast(comm: Communicator, members: Sequence[int], serial: int, data: Any) -> Any:
    """Return the bytes that the first member gives, in memory that the members of a host share; all members call this.

    None: a member has died. Others may have the bytes nevertheless.
    """
    group = groups.members_communicator(comm, members, serial)
    well = False
    try:
        try:
            got = group.bcast_shared(data)
        except SharedMemoryError:  # no room, or a system without: each has its own
            got = group.bcast(data)
        well = True
        return got
    except (PeerFailed, Revoked):
        return None
    finally:
        if well:
            groups.retire(group)
        else:
            groups.give_up(group, forget=True)


def send(comm: Communicator, message: Any, frames: Frames, dest: int) -> None:
    """Send a message of `ringcast.pool.messages`; large frames are not copied."""
    comm.send(as_value(message, frames), dest)


def as_value(message: Any, frames: Frames) -> Any:
    """Return a message as the value that travels; `recv` returns both."""
    return message, [np.frombuffer(each, np.uint8) if len(each) >= APART else bytes(each) for each in frames]
