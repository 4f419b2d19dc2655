"""Join two transports: shared memory to the ranks of this host, sockets to others, and one place to wait for both."""

from __future__ import annotations

import select
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack

from ringcast.transports.base import (
    LINGER,
    TURNS,
    Arrival,
    CompiledLane,
    Frame,
    Lanes,
    MemoryArrival,
    RemoteTransport,
)
from ringcast.transports.memory.transport import ShmTransport

SLICE = 1.0  # seconds after which a wait looks at its deadline again


class RoutedTransport:
    """One rank's transports; fulfils `RemoteTransport`. Ranks that `near` has not met are reached by `far`."""

    def __init__(self, near: ShmTransport, far: RemoteTransport) -> None:
        self._near, self._far, self.clock = near, far, far.clock
        self._both = select.epoll()
        for each in near, far:
            self._both.register(each.fileno(), select.EPOLLIN)
        self._turns = 0  # polls since `far` came first
        self._notice: MemoryArrival | None = None  # of the control plane; it waits for messages of this host
        self._before = 0  # messages of this host that were taken while the notice waited

    @property
    def unsent(self) -> Collection[int]:
        far, near = self._far.unsent, self._near.unsent
        return {*far, *near} if far and near else far or near

    @property
    def lenders(self) -> Collection[int]:
        return self._near.lenders

    @property
    def lanes(self) -> Lanes | None:
        if self._far.lanes is None:
            return None
        self._near.drop_unread()
        return self

    def attach(self, compiled: CompiledLane) -> bool:  # noqa: ARG002 (it knows no sockets)
        return False

    def put(self, peer: int, frame: Frame) -> bool:
        return self._lanes_to(peer).put(peer, frame)

    def head(self, peer: int, patience: float) -> memoryview | None:
        return None if self.noticed else self._lanes_to(peer).head(peer, patience)

    def release(self, peer: int) -> None:
        self._lanes_to(peer).release(peer)

    def _lanes_to(self, peer: int) -> Lanes:
        lanes = self._near if peer in self._near.lenders else self._far.lanes
        assert lanes is not None, "asked for by `lanes`"
        return lanes

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        (self._near if peer in self._near.lenders else self._far).send(peer, frames)

    def lend(self, peer: int, frames: Sequence[Frame], memory: Sequence[memoryview]) -> None:
        self._near.lend(peer, frames, memory)

    def take_back(self, memory: Sequence[memoryview]) -> None:
        self._near.take_back(memory)

    def connect(self, peers: Sequence[int]) -> None:
        self._far.connect([peer for peer in peers if peer not in self._near.lenders])

    def poll(self, deadline: float | None) -> Arrival | None:
        past, unsent = self.clock(), bool(self.unsent)
        # While a notice waits, `far` comes first every other time.
        self._turns = 0 if self._turns == TURNS or (self._turns and self.noticed) else self._turns + 1
        if not self._turns and (arrival := self._from_far(past)) is not None:
            return arrival
        arrival = self._near.poll(past) or self._from_far(past)
        left = SLICE if deadline is None else min(deadline - self.clock(), SLICE)
        served = unsent and not self.unsent  # the caller may have waited for this
        if arrival is not None or served or left <= 0 or not self._both.poll(left):
            return arrival
        return self._near.poll(past) or self._from_far(past)

    def _from_far(self, past: float) -> Arrival | None:
        """Return the next message of another host; or a notice, when the messages that came from this host are taken.

        A rank may have sent one of them, and then caused the notice, between two looks of this one.
        """
        arrival = self._notice or self._far.poll(past)
        self._notice = None
        if isinstance(arrival, MemoryArrival):
            if self._before < TURNS and (message := self._near.poll(past)) is not None:
                self._before += 1
                self._notice = arrival
                return message
            self._before = 0
        return arrival

    def inject(self, frames: Sequence[bytes]) -> None:
        self._far.inject(frames)  # not into `near`: `wait_for_news` waits for `far` only

    @property
    def noticed(self) -> bool:
        return self._notice is not None or self._far.noticed or self._near.noticed

    def fileno(self) -> int:
        return self._both.fileno()

    def close(self, within: float | None = None) -> None:
        """Close both. A rank of this host that reads nothing can use half of the time; the rest is for other hosts."""
        seconds = LINGER if within is None else within
        end = self.clock() + seconds
        with ExitStack() as parts:
            parts.callback(self._both.close)
            parts.callback(lambda: self._far.close(max(0.0, end - self.clock())))
            self._near.close(seconds / 2)

    # The part of the contract that only sockets have.

    @property
    def address(self) -> str:
        return self._far.address

    @property
    def strangers(self) -> int:
        return self._far.strangers

    def address_of(self, peer: int) -> str:
        return self._far.address_of(peer)

    def links(self) -> Mapping[int, str]:
        return self._far.links()

    def unreached(self) -> Mapping[int, str]:
        return self._far.unreached()

    def unheard(self) -> Collection[int]:
        return self._far.unheard()

    def wait_for_news(self, deadline: float) -> None:
        self._far.wait_for_news(deadline)

    def stop_watching(self) -> None:
        self._far.stop_watching()
