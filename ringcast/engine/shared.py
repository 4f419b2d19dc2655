"""An engine that several threads use, while one of its own makes progress.

One lock, the gate's, guards all of it, sockets included: whoever is in takes the messages that have arrived, and
advances whatever call can go on. A call that has to wait steps out. The engine's thread waits for the transport's file
descriptor, not in the transport, so that no socket is used outside of the lock. Whoever has polled the transport takes
all that has arrived: only then does the descriptor tell of what comes later (`ringcast.transports.base`). Where much
comes, the rest is left to the engine's thread, which another descriptor tells of that. A call that only begins polls
nothing.

An endpoint becomes one of these when a program asks for it (`share`), and is an ordinary one again when the rank
leaves. So a program of one thread pays nothing.

Another thread of the program may make the call for which others wait, so it is not known that the program as a whole
waits, unless it has no other thread. It reports as a program that polls: it lists the operations, which
are probed, and says that the program waits for none of them.
"""

from __future__ import annotations

import select
import threading
from dataclasses import replace
from typing import cast

from ringcast.engine.endpoint import Endpoint
from ringcast.engine.shared_gate import SharedGate, Sleeper
from ringcast.engine.signal_gate import gate_of_this_thread
from ringcast.errors import JobAborted, RingcastError, UsageError
from ringcast.procs.portable import Bell
from ringcast.wire.reports import StallReport

BATCH = 16  # messages after which other threads come first
SLICE = 1.0  # seconds after which the engine's thread looks whether a peer without a link is to be given up


def share(endpoint: Endpoint) -> None:
    """Let several threads use an endpoint from now on, and a thread of its own make progress; idempotent.

    Raises:
        UsageError: a call is under way in this thread, as in the handler of a signal; or an `await` is.
        OSError: the transport has no file descriptor, or the system gives none.
        RuntimeError: the system starts no thread.
    """
    if isinstance(endpoint, SharedEndpoint):
        return
    if endpoint.gate.closed or endpoint.running is not None:
        raise UsageError(
            f"rank {endpoint.rank}: progress_thread() was called while a call is under way; call it before that"
        )
    with gate_of_this_thread():  # the endpoint's own may be that of another thread
        endpoint.hand_over()
    descriptor, ordinary = endpoint.transport.fileno(), endpoint.gate
    _turn_into(SharedEndpoint, endpoint)
    try:
        cast(SharedEndpoint, endpoint).start(descriptor)
    except BaseException:
        endpoint.gate = ordinary
        _turn_into(Endpoint, endpoint)
        raise


def _turn_into(kind: type[Endpoint], endpoint: Endpoint) -> None:
    endpoint.__class__ = kind


class SharedEndpoint(Endpoint):
    """Endpoint of a rank whose threads all make calls. Made by `share`, from an ordinary one."""

    shared = True
    gate: SharedGate

    def start(self, descriptor: int) -> None:
        """Start the engine's thread, which waits for this file descriptor."""
        self._arrivals = 0  # messages since then, without keepalives
        self._told = self.ended  # how many calls had ended when the waiting threads were last woken
        self._reported = False  # whether the control plane has a report of this rank
        self.gate = SharedGate(self._settle)
        self._more = Bell()  # for the thread: something is left to do
        self._thread = threading.Thread(
            target=self._serve, args=(descriptor,), name=f"ringcast-progress-{self.rank}", daemon=True
        )
        try:
            with self.gate:
                self._thread.start()
        except BaseException:
            self._more.close()
            raise

    def progress(self, deadline: float | None) -> bool:
        """Take what has arrived; if that is nothing, wait until something has, which is of use, or until `deadline`.

        Returns whether a message came since this was called. Handlers of signals run here, without the lock.

        Raises:
            JobAborted: something broke off the engine, perhaps in another thread.
            UsageError: another thread finalizes.
        """
        arrivals, gate = self._arrivals, self.gate
        signals, bell = gate.signals(), Sleeper()
        signals.waiter = bell
        try:
            if signals.pending:
                depth = gate.step_out()
                try:
                    while signals.pending:
                        signals.deliver()
                finally:
                    gate.step_in(depth)
                self.check_open()
                deadline = self.transport.clock()  # what is waited for may have come to its end in a handler
            self._go_on()
            if not self._take() and self._arrivals == arrivals:
                self._wait(bell, deadline)
                self._go_on()
        finally:
            signals.waiter = None
        return self._arrivals != arrivals

    @property
    def undelivered(self) -> bool:
        """Nothing that a call has to wait for: the engine's thread passes it on."""
        return False

    def _go_on(self) -> None:
        """Raise the error of all that wait, if there is one."""
        if self.torn:
            raise JobAborted(self.rank, self.torn)
        if self.gate.refusal:
            raise UsageError(self.gate.refusal)

    def _take(self) -> bool:
        """Take what has arrived, and advance what can go on; return whether there was something."""
        protocol, before = self.protocol, self._arrivals
        busy, all_taken, talk, now = bool(self.ready), False, protocol.keepalives, self.transport.clock()
        try:
            for _ in range(BATCH):
                if not super().progress(now):
                    all_taken = True
                    break
                self._arrivals += 1
                busy = True
        finally:
            if not all_taken:
                self._more.ring()
            self._arrivals -= protocol.keepalives - talk
            if self._reported and self._arrivals != before:
                self._reported = False
                self.moves()
            self._tell()
        return busy

    def _tell(self) -> None:
        """Wake the waiting threads, if a wait may be over."""
        if self.ended != self._told or self.torn:
            self._told = self.ended
            self.gate.ring()

    def _settle(self) -> None:
        """Advance the calls that can go on by a message of this rank to itself."""
        try:
            while self.ready:
                self.ready.popleft().advance()
        finally:
            self._tell()

    def _wait(self, bell: Sleeper, deadline: float | None) -> None:
        """Let others in until the bell rings, or until `deadline`."""
        seconds = None if deadline is None else deadline - self.transport.clock()
        if seconds is not None and seconds <= 0:
            return
        gate = self.gate
        gate.bells.append(bell)
        depth = gate.step_out()
        try:
            bell.sleep(seconds)
        finally:
            try:
                gate.step_in(depth)
            finally:
                gate.bells.remove(bell)

    def tell_stall(self, report: StallReport) -> None:
        self._reported = True
        super().tell_stall(report if _no_other_thread() else replace(report, awaited=0))

    def _serve(self, descriptor: int) -> None:
        """Make progress until the rank leaves, or is torn."""
        poller, gate = select.poll(), self.gate
        for each in descriptor, self._more.fileno():
            poller.register(each, select.POLLIN)
        try:
            while not (gate.refusal or self.torn):
                poller.poll(self._serve_once())
        except BaseException as error:  # as no memory for this loop: no thread would make progress any more
            if not gate.refusal:
                with gate:
                    self._tear(error)

    def _serve_once(self) -> int:
        """Take what has arrived; return for how many milliseconds nothing else is to be done."""
        try:
            with self.gate:
                self._more.silence()
                self._take()
                due = self.wakes(None)
        except BaseException:
            if self.torn or self.gate.refusal:
                raise
            return 0  # of an operator of a call, which has failed with it, and whose wait raises it
        return int(1000 * min(SLICE, SLICE if due is None else max(0.0, due - self.transport.clock()))) + 1

    def leave(self, error: BaseException | None = None, mistake: RingcastError | None = None) -> None:
        """End the calls of other threads, and the engine's thread; then leave as `Endpoint.leave` does."""
        gate = self.gate
        if gate.refusal:
            return  # another thread does it
        with gate:
            self.closed = self.silent = True  # to the others these calls end as all do when a rank leaves
            gate.refusal = f"rank {self.rank}: another thread has called finalize(); call it when all calls have ended"
            gate.ring()
            self._more.ring()
            while {*gate.inside} - {threading.get_ident()}:
                self._wait(Sleeper(), None)  # who goes out rings
        self._thread.join()
        self._more.close()
        self.silent = False
        _turn_into(Endpoint, self)
        self.leave(error, mistake)  # as an ordinary endpoint


def _no_other_thread() -> bool:
    """Return whether this thread is the only one of the program, besides ringcast's own."""
    others = (each for each in threading.enumerate() if each is not threading.current_thread())
    return all(each.name.startswith("ringcast-") for each in others)
