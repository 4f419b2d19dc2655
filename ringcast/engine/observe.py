"""Reports of rounds to an observer: a wrapper around the generator of a schedule, without cost where none observes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringcast.engine.endpoint import Exchange
from ringcast.engine.execute import Result, Steps
from ringcast.events import Observer, RoundEnd, RoundStart
from ringcast.protocol.operations import Sink


class _Stamped:
    """A sink that notes when bytes were last put into it."""

    __slots__ = ("_clock", "_sink", "last", "total")

    def __init__(self, sink: Sink, clock: Callable[[], float]) -> None:
        self._sink, self._clock = sink, clock
        self.total = sink.total
        self.last: float | None = None

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        self._sink.announce(source, tag, sizes)
        self.total = self._sink.total

    def view(self, offset: int, length: int) -> memoryview:
        return self._sink.view(offset, length)

    def placed(self, offset: int, length: int) -> None:
        self._sink.placed(offset, length)  # may combine, which belongs to the arrival
        self.last = self._clock()

    def put(self, offset: int, data: memoryview) -> None:
        self._sink.put(offset, data)
        self.last = self._clock()


class _RoundReporter:
    """Reports the rounds of one operation to an observer."""

    def __init__(self, rank: int, clock: Callable[[], float], observe: Observer) -> None:
        self._rank, self._clock, self._observe = rank, clock, observe
        self._sink: _Stamped | None = None  # of this round, and of the next one
        self._ahead: _Stamped | None = None
        self._begun = 0.0
        self._facts = rank, "", 0, 0

    def begin(self, exchange: Exchange) -> Exchange:
        """Report the start of a round; return what is to be exchanged in its place, to learn when it has arrived."""
        op, now, ready = exchange.operation, self._clock(), None
        if exchange.posted:  # its grant went out when the receive of the round before missed no byte any more
            complete = self._sink.last if self._sink is not None and self._sink.total else None
            ready = self._begun if complete is None else max(self._begun, complete)
            came = self._ahead.last if self._ahead is not None else None
            if came is not None and came < ready:  # it was lent, and copied without a grant
                ready = self._begun
        self._sink = self._ahead if exchange.posted else self._stamped(exchange.sink)
        self._ahead = None if exchange.ahead is None else self._stamped(exchange.ahead[1])
        self._begun, self._facts = now, (self._rank, op.call.collective, op.number, op.round or 0)
        sent = sum(map(len, exchange.frames))
        self._observe(RoundStart(*self._facts, now, exchange.send_to, sent, exchange.recv_from, ready))
        ahead = None if exchange.ahead is None or self._ahead is None else (exchange.ahead[0], self._ahead)
        return exchange._replace(sink=self._sink, ahead=ahead)

    def end(self, time: float) -> None:
        """Report the end of the round, at that time."""
        sink = self._sink
        received, arrived = (sink.total or 0, sink.last) if sink is not None else (0, None)
        self._observe(RoundEnd(*self._facts, time, received, time - self._begun, arrived))

    def _stamped(self, sink: Sink | None) -> _Stamped | None:
        return None if sink is None else _Stamped(sink, self._clock)


def observed(steps: Steps[Result], rank: int, clock: Callable[[], float], observe: Observer) -> Steps[Result]:
    """Run `steps` and report the start and end of every round to `observe`; rounds that overlap end together.

    A round after which the rank waits for the readers of what it has lent ends when that is over.
    """
    watch = _RoundReporter(rank, clock, observe)
    under_way: list[_RoundReporter] = []
    complete, overlaps = 0.0, False  # when the last round was; whether it overlaps with the next one
    while True:
        try:
            exchange = next(steps)
        except StopIteration as stop:
            for each in under_way:
                each.end(complete)
            return stop.value  # type: ignore[no-any-return]  # StopIteration is not generic
        if exchange.settle:
            yield exchange
            complete = clock()
            continue
        if overlaps:
            watch = _RoundReporter(rank, clock, observe)
        else:
            for each in under_way:
                each.end(complete)
            under_way.clear()
        under_way.append(watch)
        yield watch.begin(exchange)
        complete, overlaps = clock(), exchange.operation.slack > 0
