"""Endpoint of one rank: the protocol on top of a transport. All blocking happens in `progress`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple
from typing import Protocol as Interface

from ringcast._util.safe_text import class_name, is_a
from ringcast.engine.open_call import OpenCall
from ringcast.engine.recorder import Recorder
from ringcast.engine.signal_gate import Gate
from ringcast.engine.unanswered import UnansweredErrors
from ringcast.errors import (
    MISMATCH,
    JobAborted,
    LinkLost,
    ObjectsRefused,
    PeerFailed,
    Revoked,
    RingcastError,
    UsageError,
)
from ringcast.procs.timing import TIMING
from ringcast.protocol.ballots import Ballot
from ringcast.protocol.counters import by_peer
from ringcast.protocol.machine import Protocol
from ringcast.protocol.operations import Operation, Sink
from ringcast.transports.base import HURRIED, Transport
from ringcast.wire.call import Call, Site
from ringcast.wire.control_messages import NO_FAILURE, Failing, Finished, FromMember, Moving, Revoke, Waiting
from ringcast.wire.error_text import in_a_line
from ringcast.wire.failure import Failure, clean
from ringcast.wire.header import P2P, Kind, call_of, to_itself
from ringcast.wire.reports import REPORTED, StallReport

REPORT_GRACE = TIMING.report_grace
LOOK = 0.1  # seconds after which a rank looks whether what it sent has left


class Exchange(NamedTuple):
    """A send and a receive of a rank at the same time.

    It is over when both are complete, but for a send that is lent by an operation that `lends`; and where rounds
    overlap, when few enough are not (`Operation.slack`).
    """

    operation: Operation
    send_to: int | None
    frames: Sequence[memoryview]
    packed: bool
    recv_from: int | None
    sink: Sink | None
    tag: int | None = None
    posted: bool = False  # the receive was posted with the last exchange, as its `ahead`
    ahead: tuple[int, Sink] | None = None  # the receive of the next round, if it may arrive while this one is under way
    settle: bool = False  # it is over when others have read all that the operation has lent


class Control(Interface):
    """A rank's connection to the control plane; what comes from there are notices in its inbox."""

    def send(self, message: FromMember) -> None:
        """Send a message to the control plane; never blocks."""

    def close(self) -> None:
        """Flush all messages, within a bounded time, and release everything; idempotent."""


class Runnable(Interface):
    """A call under way."""

    site: Site  # its file and line in the program
    blocks: bool  # whether its caller has nothing to do until it is done
    operation: Operation | None  # of its stage under way, or of the last one

    def last_in(self, context: int) -> Operation | None:
        """Return the last stage of the call in a communicator, where the last of all was something else."""

    def advance(self) -> None:
        """Go on as far as possible without waiting."""


class Endpoint:
    """Protocol, transport and control plane of one rank; used by one thread, unless it is `shared`."""

    shared = False  # whether several threads may use it (`ringcast.engine.shared`)

    def __init__(
        self,
        rank: int,
        size: int,
        nonce: int,
        transport: Transport,
        control: Control,
        *,
        lookahead: int = 0,
        continues: bool = False,
        recorder: Recorder | None = None,
        direct: bool = True,
    ) -> None:
        self.rank, self.size = rank, size
        self.direct = direct  # whether messages may be predicted (`ringcast.engine.direct`)
        self.protocol = Protocol(rank, size, nonce, lookahead=lookahead, lenders=transport.lenders, continues=continues)
        self.transport, self.control = transport, control
        self.recorder = recorder or Recorder(rank, size)
        self.protocol.payload = self.recorder.payload
        self.unanswered = UnansweredErrors()
        self.ready: deque[Runnable] = deque()  # calls that can go on
        self.running: Runnable | None = None  # the call whose steps run now
        self.waiting: set[Runnable] = set()  # calls that wait for others
        self.predicted: deque[Runnable] = deque()  # calls that have begun by prediction, in this order
        # While a call runs by prediction, with code of the program in it: hands over what that has lent. Another call
        # within it needs the engine, which awaits that as well.
        self.playing: Callable[[], object] | None = None
        self.arrivals = 0  # messages that this rank has taken, from other ranks and its own process
        self.ended = 0  # how many calls have come to their end, or to an error that is not fully known yet
        self.failures = 0  # how many of them have an error
        self.requests: dict[int, OpenCall] = {}  # calls that the program has not waited for, by the task's identity
        self.profiler: Any = None  # the recorder, if it is one (`ringcast.engine.profiler`)
        self.programs: Any = None  # of calls that run by prediction (`ringcast.engine.direct`)
        self.memory_in_use: Any = None  # by these calls, as `ringcast.requests.buffers` keeps it
        self.background: Any = None  # how they go on by themselves (`ringcast.adapters.background`)
        self.dropped: list[tuple[str, Site]] = []  # calls whose requests the program has dropped
        self.closed = False  # whether this rank leaves, or has left …
        self.unread_fails = True  # a message that no call has taken when all have left fails the job
        self.silent = False  # … and tells the others nothing of calls that are broken off
        self.gate = Gate()  # of the thread that uses this
        self.torn = ""  # why this rank cannot communicate any more: something broke off the engine in the middle
        self._wake = to_itself(Kind.WAKE, nonce)
        self._lost: dict[int, tuple[float, str]] = {}  # peers without a link: when to give them up, and why

    def begin(
        self, context: int, call: Call, record: bytes, *, granted: bool = False, align: int = 1, p2p: bool = False
    ) -> Operation:
        """Begin the next stage of the call whose steps run now; `record` is the call as the flight recorder keeps it.

        Raises:
            RingcastError: see `Protocol.begin`.
        """
        if self.predicted:
            self.hand_over()
        run = self.running
        assert run is not None, "operations are begun by the steps of a call"
        begin, last = self.protocol.begin, run.operation
        if last is not None and (p2p or last.context != context or last.number == P2P):
            last = run.last_in(context)
        try:
            op = begin(context, call, granted=granted, align=align, p2p=p2p, site=run.site, after=last)
        except RingcastError as error:
            if last is None and not p2p and MISMATCH in str(error):
                self._record_unbegun(context, call, record, error)
            self.tell_found()
            raise
        run.operation = op
        op.blocks = run.blocks
        self.recorder.begin(op, record)
        return op

    def hand_over(self) -> None:
        """Go on in the engine with the calls that have begun by prediction."""
        while self.predicted:
            self.predicted.popleft().advance()

    def adopt(self, op: Operation) -> None:
        """Go on with an operation that is recorded, but not begun: the stage of the call whose steps run now."""
        assert self.running is not None, "the rest of a call is a call"
        self.protocol.adopt(op)
        self.running.operation = op

    def _record_unbegun(self, context: int, call: Call, record: bytes, error: RingcastError) -> None:
        """Record a call that comes after a mismatch of others, so that the launcher can name the odd one."""
        assert self.running is not None
        if (op := self.protocol.unbegun(context, call, self.running.site, error)) is not None:
            self.recorder.begin(op, record)
            self.recorder.failed(op, ())

    def begin_ballot(self, ballot: Ballot, record: bytes) -> None:
        """Begin to wait for the decision on a vote: the next stage of the call whose steps run now."""
        self.hand_over()
        run = self.running
        assert run is not None, "ballots are begun by the steps of a call"
        run.operation = ballot
        self.recorder.begin(ballot, record)
        self.protocol.ballot(ballot)

    def number_of_call(self) -> int:
        """Return the number of the call whose steps run now, in its communicator; equal on all ranks."""
        op = None if self.running is None else self.running.operation
        assert op is not None, "its first stage has begun"
        return call_of(op.number)

    def post(self, exchange: Exchange) -> None:
        """Start a send, a receive, or both at once; `pending` of the operation is empty when they are complete.

        The receive is posted first, so that every rank has granted before it waits for a grant: no cycle of waits
        can arise.
        """
        op, send_to, frames, packed, recv_from, sink, tag, posted, ahead, settle = exchange
        protocol = self.protocol
        try:
            if op.ahead is not None:
                protocol.catch_up(op)
            if settle:
                protocol.settle(op)
            if recv_from is not None and sink is not None and not posted:
                protocol.receive(op, recv_from, sink, tag=tag)
            if send_to is not None:
                protocol.send(op, send_to, frames, packed=packed, tag=tag)
            if ahead is not None:
                protocol.receive(op, *ahead, ahead=True)
        except BaseException as error:
            self._tear(error)
            raise
        self.flush()

    def end(self, op: Operation) -> None:
        """End an operation whose transfers are complete.

        Raises:
            RingcastError: a message that this rank does not expect has come, or the operation has failed before.
        """
        self.protocol.end(op)
        error = op.error if op.error is not None else op.lost
        if error is not None:
            raise error
        self.recorder.done(op)

    def fail(self, op: Operation, error: BaseException) -> None:
        """Abort an operation: its peers are refused, and the communicator ends with `error` on all ranks.

        The end of a ballot concerns no other rank, nor does an exchange that has ended as its peer is gone.
        """
        if self.silent or is_a(error, ObjectsRefused):
            return  # all has been said; or nothing is under way, and all ranks refuse alike
        self.recorder.failed(op)
        if isinstance(op, Ballot):
            self.protocol.ballots.end(op)
            return
        if error is op.lost and not op.pending:
            return
        self.protocol.fail(op, error)
        self.flush()
        if is_a(error, PeerFailed):
            if self.protocol.continues or error.peer not in self.protocol.declared:  # else the others give it up too
                self.revoke(op.context, error.cause, error.peer)
        elif not is_a(error, (Revoked, JobAborted)):
            self.revoke(op.context, self.protocol.reason(error))

    def revoke(self, context: int, cause: str, failed: int | None = None) -> None:
        """Notify all ranks that a communicator is revoked, perhaps because a rank `failed`."""
        self.control.send(Revoke(self.rank, context, clean(cause), failed))

    def progress(self, deadline: float | None) -> bool:
        """Wait for one message until `deadline` (transport clock, None: no limit) and act on it; False: none came.

        Every call that can go on then, does. Before the wait is the one place where handlers of signals run in a call.
        What they raise breaks off nothing; anything else that is raised in the middle leaves this rank `torn`.
        """
        if self.playing is not None:
            self.playing()
        if self.predicted:
            self.hand_over()
        if self.ready:  # of a message of this rank to itself
            deadline = self.transport.clock()
        gate = self.gate
        gate.waiter = self
        while gate.pending:
            gate.deliver()
            self.check_open()
            deadline = self.transport.clock()  # what is waited for may have come to its end in a handler
        try:
            arrival = self.transport.poll(self.wakes(deadline) if self._lost else deadline)
            gate.waiter = None
            if arrival is not None:
                self.arrivals += 1
                self.protocol.handle(arrival)
            if self._lost and not self.transport.noticed:  # a notice may explain the loss
                self._give_up()
            if self.protocol.found:
                self.tell_found()
            if self.protocol.outbox or self.protocol.withdrawn:
                self.flush()
        except BaseException as error:
            gate.waiter = None
            self._tear(error)
            raise
        while self.ready:
            self.ready.popleft().advance()
        return arrival is not None

    def check_open(self) -> None:
        """Raise UsageError if the handler of a signal, which came in a call, has left the job."""
        if self.closed:
            self.gate.waiter = None
            raise UsageError(
                f"rank {self.rank}: the handler of a signal has called finalize() in the middle of a call; let it note "
                "the signal only, and call finalize() between calls"
            )

    def wake(self) -> None:
        """End the wait under way, or the next one."""
        self.transport.inject([self._wake])

    def _tear(self, error: BaseException) -> None:
        """Fail towards the others: a message may have been sent by half, and nothing may follow it."""
        if not self.torn:
            self.torn = f"{class_name(type(error))} broke off a message in the middle, so this rank counts as failed"
            self.protocol.outbox.clear()
            self.control.send(Failing(self.rank, replace(Failure.of(error), blames=())))
            self.protocol.withdraw()
            self._take_back()

    def tell_found(self) -> None:
        """Notify the others of invalidated communicators, also of those in which this rank makes no call."""
        if self.protocol.found:
            self.flush()
        for context, peer in self.protocol.found:
            self.revoke(context, self.protocol.failed[peer].cause, peer)
        self.protocol.found.clear()

    def wakes(self, deadline: float | None) -> float | None:
        """Return when `progress` stops waiting: at `deadline`, or earlier, where a peer without a link is given up."""
        if not self._lost:
            return deadline
        first = min(due for due, _ in self._lost.values())
        return first if deadline is None else min(first, deadline)

    def catch_up(self) -> None:
        """Handle the messages that have arrived meanwhile; does not wait."""
        while self.progress(self.transport.clock()):
            pass

    @property
    def undelivered(self) -> bool:
        """Whether the transport still holds messages for ranks that have not left.

        A transport without a thread would go on with it in the next call only, for which others might wait in vain.
        """
        protocol, unsent = self.protocol, self.transport.unsent
        if not unsent or protocol.aborted is not None:
            return False
        return any(peer not in protocol.failed and peer not in protocol.finished for peer in unsent)

    def deliver(self, until: float | None) -> None:
        """Make progress until nothing is `undelivered`, at most until then, on the transport's clock."""
        transport = self.transport
        deadline = inf if until is None else until
        while self.undelivered:
            if transport.clock() >= deadline:
                return
            self.progress(min(deadline, transport.clock() + LOOK))

    def _take_back(self) -> None:
        """End the loans of memory that the protocol has withdrawn, before the call raises: then it may be changed."""
        withdrawn = self.protocol.withdrawn
        while withdrawn:
            self.transport.take_back(withdrawn.pop())

    def flush(self) -> None:
        """Pass the protocol's outgoing messages to the transport."""
        outbox = self.protocol.outbox
        if self.protocol.withdrawn:
            self._take_back()
        if self.torn:
            outbox.clear()
        try:
            while outbox:
                peer, frames, vital, lent = outbox.popleft()
                try:
                    if lent:
                        self.transport.lend(peer, frames, lent)
                    else:
                        self.transport.send(peer, frames)
                except LinkLost as lost:
                    if vital and peer not in self.protocol.failed:
                        # The control plane may know why the peer is gone; its notice is on the way.
                        self._lost.setdefault(peer, (self.transport.clock() + REPORT_GRACE, self._about(lost)))
        except BaseException as error:
            self._tear(error)
            raise

    def _about(self, lost: LinkLost) -> str:
        """Return the cause for which all ranks will count the peer as failed: they are at neither end of the link."""
        return f"the link from rank {self.rank} to rank {lost.peer} is lost: {lost.cause}"

    def probe(self, stalled: Sequence[Operation]) -> None:
        """Probe the peers of stalled operations, which distinguishes a delay from a mismatch."""
        for op in stalled:
            self.recorder.waits(op)
        self.protocol.probe(stalled)
        self.flush()

    def report_stall(self, awaited: Sequence[Operation], *, every: bool, seconds: float, times: int) -> None:
        """Probe the peers of `awaited`, and report for the `times`-th time that the program is stalled.

        It has waited for `seconds` for these operations: for `every` one of them, or for any.
        """
        self.probe(awaited)
        if every or len(awaited) <= REPORTED:  # if any of many would do, the others are not known
            self.tell_stall(self.protocol.report(awaited, every=every, seconds=seconds, times=times))

    def tell_stall(self, report: StallReport) -> None:
        """Send the report of a stalled program to the control plane."""
        self.control.send(Waiting(report))

    def moves(self) -> None:
        """Withdraw the report."""
        self.control.send(Moving(self.rank))

    def _give_up(self) -> None:
        """Count peers without a link as failed, unless a notice has given the reason meanwhile.

        A peer that left properly misses nothing: with `lookahead` it need not await the last completions.
        """
        now = self.transport.clock()
        for peer, (due, cause) in list(self._lost.items()):
            if due <= now:
                del self._lost[peer]
                if peer not in self.protocol.finished:
                    self.protocol.lose(peer, cause)

    def leave(self, error: BaseException | None = None, mistake: RingcastError | None = None) -> None:
        """Report how many messages were sent, so that no rank waits for more, and close everything.

        Ranks that still need this one get the `error` that made it leave. A `mistake` of the program, which shows
        only now, ends the job.

        Raises:
            CollectiveMismatch: a message that came after the last call shows that some call was not the same.
            RingcastError: the `mistake`.
        """
        self.hand_over()
        self.closed = True
        self.gate = self.gate.left()
        if not self.torn:
            self.catch_up()
        protocol = self.protocol
        wrong = protocol.unreported() or mistake
        try:
            if self.torn:
                pass  # all have heard of it
            elif wrong is None:
                why = NO_FAILURE if error is None else Failure.of(error)
                blamed = tuple(sorted({*why.blames, *protocol.blamed}))
                failure, caught = replace(why, blames=blamed), self.unanswered.first
                sent, posted, matched = map(by_peer, (protocol.sent, protocol.posted, protocol.matched))
                posted = posted if self.unread_fails else {}
                self.control.send(Finished(self.rank, sent, posted, matched, failure, caught))
            else:
                self.control.send(Failing(self.rank, Failure(clean(in_a_line(wrong)))))
            self.control.close()
        finally:
            self.silent = True
            self.transport.close(within=HURRIED if protocol.hopeless or self.torn else None)
            protocol.payload = [*protocol.payload]  # the recorder takes its own back
            self.recorder.close()
        if wrong is not None:
            raise wrong
