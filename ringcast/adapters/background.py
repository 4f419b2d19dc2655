"""The calls of a rank go on while its program does something else, as soon as that is needed.

A rank whose program waits for each call is fastest without a thread. A host library promises more: a call goes on
whether the program waits or not, any thread may make calls, and futures come true by themselves. So a rank gets the
engine's thread (`Communicator.progress_thread`) when the first of these is seen: a call that the program leaves alone
for `PATIENCE`, a call of another thread, or a future.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.shared import SharedEndpoint, share
from ringcast.errors import UsageError
from ringcast.wire.control_messages import Revoke, notice_frames

PATIENCE = 0.02  # seconds
IDLE = 50  # looks without a call after which there are no more
UNLIMITED = timedelta(0)  # of a wait that has no limit of its own, as torch says it
GRACE = 1.0  # seconds that calls have to end when their group is left


class Awaited(Protocol):
    """A call that has begun."""

    comm: Communicator
    begun: float  # when, on `monotonic`

    def wait(self, timeout: timedelta) -> bool:
        """Wait until it has ended; raise the error that has ended it. `UNLIMITED`: as long as its group allows."""
        ...

    def poll(self) -> bool:
        """Return whether it has ended; if it has just ended, hand over its result."""
        ...


class Background:
    """How the calls of one rank go on. One for each endpoint: see `background_of`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._thread = threading.get_ident()  # which may call as long as it is the only one
        self._calling = threading.RLock()  # held by a call of the only thread
        self._called = 0.0  # when the last of these ended, on `monotonic`
        self._watching = False
        self._watcher: threading.Thread | None = None  # the last one
        self._over = threading.Event()  # the program has left the job
        self._left_alone: dict[int, Awaited] = {}
        self._futures: _Futures | None = None

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let this thread make a call."""
        if self._endpoint.shared:
            yield
            return
        if threading.get_ident() != self._thread:
            self.go_on()
            yield
            return
        with self._calling:
            try:
                yield
            finally:
                self._called = monotonic()

    def go_on(self) -> None:
        """Have calls go on by themselves from now on; idempotent, and for any thread.

        In another thread than the only one it waits until that is in no call.
        """
        with self._calling:
            if not self._endpoint.closed:
                share(self._endpoint)

    def watch(self, call: Awaited) -> None:
        """Keep a call until it has ended, whether the program keeps it or not; then have it hand over its result."""
        if not self._endpoint.shared:  # else the thread below does it
            self._poll_oldest()
        self._left_alone[id(call)] = call
        if not self._watching:
            self._watching = True
            self._watcher = threading.Thread(target=self._look_after, name="ringcast-watch", daemon=True)
            self._watcher.start()

    def _poll_oldest(self) -> None:
        """Poll two calls: more than come, so that those do not pile up which the program does not wait for."""
        for key, call in [*islice(self._left_alone.items(), 2)]:
            if not call.poll():
                self._left_alone.pop(key, None)
                self._left_alone[key] = call  # behind all others

    def ended(self, call: Awaited) -> None:
        """Forget a call."""
        self._left_alone.pop(id(call), None)

    def when_ended(self, call: Awaited) -> None:
        """Poll a call as soon as it has ended, in a thread for all of these."""
        self.go_on()
        if self._futures is None:
            endpoint = self._endpoint
            assert isinstance(endpoint, SharedEndpoint)
            self._futures = _Futures(endpoint)
        self._futures.add(call)

    def leave(self, comm: Communicator) -> None:
        """End the use of a communicator by this rank, when the calls that were left alone have had time to end.

        Those that have not ended by then are broken off on all ranks; so is one in which another thread waits.
        """
        if comm.closed:
            return
        self._come_in(comm)
        self._let_calls_end(comm)
        with self.call():
            try:
                comm.finalize()
            except UsageError as left:  # a call that has not ended yet
                comm.__exit__(None, left, None)
        self._wait_for(self._calls_of(comm))  # which raise now
        group = group_of(comm)
        group.endpoint.unanswered.answered(group.context)  # the program has left what had failed
        if self._endpoint.closed:
            self._end_threads()

    def _end_threads(self) -> None:
        """Wait for the threads, which end now: Python, as it ends, would break them off within the host library."""
        self._over.set()
        threads = [self._watcher]
        if self._futures is not None:
            self._futures.put(None)
            threads.append(self._futures.thread)
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join(GRACE)

    def _come_in(self, comm: Communicator) -> None:
        """Have the only thread come out of a call, if another one leaves the communicator of that."""
        while not self._calling.acquire(timeout=PATIENCE):
            if (where := _under_way(comm)) is not None:
                self._break_off_for_leaving(comm, where)
                self._calling.acquire()
                break
        try:
            if threading.get_ident() != self._thread:
                self.go_on()
        finally:
            self._calling.release()

    def _let_calls_end(self, comm: Communicator) -> None:
        calls = self._calls_of(comm)
        if not calls:
            return
        late = threading.Timer(GRACE, lambda: self._break_off_for_leaving(comm, _under_way(comm) or "a call"))
        late.name, late.daemon = "ringcast-leave", True
        late.start()
        try:
            self._wait_for(calls)
        finally:
            late.cancel()
            late.join()

    def _calls_of(self, comm: Communicator) -> list[Awaited]:
        return [call for call in [*self._left_alone.values()] if call.comm is comm]

    def _wait_for(self, calls: Iterable[Awaited]) -> None:
        for call in calls:
            with suppress(Exception):  # of a call that nothing has waited for
                call.wait(UNLIMITED)

    def _break_off_for_leaving(self, comm: Communicator, where: str) -> None:
        self.break_off(comm, f"rank {comm.rank} left the group while {where} was under way")

    def break_off(self, comm: Communicator, cause: str) -> None:
        """End all calls of a communicator, on all ranks, also while another thread is in one of them."""
        group = group_of(comm)
        endpoint, notice = group.endpoint, Revoke(group.endpoint.rank, group.context, cause)
        endpoint.transport.inject(notice_frames(notice, endpoint.protocol.nonce))
        endpoint.control.send(notice)

    def _look_after(self) -> None:
        """Go on in the background when a call was left alone for `PATIENCE`, and poll such calls from then on.

        It ends when there was no call for long.
        """
        try:
            self._look_until_idle()
        except BaseException:  # as no memory for another thread: the next call tries it again
            self._watching = False
            raise

    def _look_until_idle(self) -> None:
        idle = 0
        while not self._endpoint.closed:
            self._over.wait(PATIENCE)
            calls = [*self._left_alone.values()]
            old = [call for call in calls if monotonic() - max(call.begun, self._called) > PATIENCE]
            if self._endpoint.shared:
                for call in old:
                    call.poll()
            elif old:
                self._go_on_unless_called()
            idle = 0 if calls else idle + 1
            if idle > IDLE:
                self._watching = False
                if not self._left_alone or self._watching:  # else one came before it saw that this thread ends
                    return
                self._watching = True

    def _go_on_unless_called(self) -> None:
        """Go on in the background, unless the only thread is in a call: in that all calls make progress."""
        if self._calling.acquire(blocking=False):
            try:
                with suppress(UsageError):  # of a call that the program makes of the job itself: the next look is soon
                    self.go_on()
            finally:
                self._calling.release()


class _Futures:
    """A thread that polls calls, whenever some call of the rank has ended."""

    def __init__(self, endpoint: SharedEndpoint) -> None:
        self._endpoint = endpoint
        self._rung: SimpleQueue[None] = SimpleQueue()
        self.put: Callable[[None], None] = self._rung.put  # rung by the engine, as a bell of the gate
        self._calls: dict[int, Awaited] = {}
        with endpoint.gate:
            endpoint.gate.bells.append(self)
        self.thread = threading.Thread(target=self._serve, name="ringcast-futures", daemon=True)
        self.thread.start()

    def add(self, call: Awaited) -> None:
        self._calls[id(call)] = call
        self.put(None)

    def _serve(self) -> None:
        while self._calls or not self._endpoint.closed:
            self._rung.get()
            while not self._rung.empty():
                self._rung.get()
            for call in [*self._calls.values()]:
                if call.poll():
                    self._calls.pop(id(call), None)


def _under_way(comm: Communicator) -> str | None:
    """Return a call of this communicator that waits for others, in words; for any thread."""
    group = group_of(comm)
    for run in [*group.endpoint.waiting]:
        if (op := run.operation) is not None and op.context == group.context:
            return str(op.where)
    return None


def background_of(comm: Communicator) -> Background:
    """Return how the calls of this rank go on; the same one for all communicators of one job."""
    endpoint = group_of(comm).endpoint
    if endpoint.background is None:
        endpoint.background = Background(endpoint)
    found: Background = endpoint.background
    return found
