"""How long a call takes that has a timeout: for its messages, and until what it has sent is delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.transports.base import Arrival, Transport
from ringcast.transports.threads import ThreadHub, ThreadTransport

TIMEOUT, LATE = 10.0, 9.0


class NeverDelivered(ThreadTransport):
    """A transport with a clock of its own, which goes on during a wait; it never gets rid of a message."""

    unsent = (1,)

    def __init__(self, hub: ThreadHub) -> None:
        super().__init__(hub, 0)
        self.now = 0.0
        self.clock = lambda: self.now
        self.late: Callable[[], object] = list  # what happens when it is late

    def poll(self, deadline: float | None) -> Arrival | None:  # type: ignore[override]
        if self.now >= LATE:
            self.late()
            self.late = list
        arrival = super().poll(self.now)
        if arrival is None:
            assert deadline is not None
            self.now = max(self.now, deadline)
        return arrival


CALLS: dict[str, Callable[[Communicator], object]] = {
    "recv": lambda comm: comm.recv(1, timeout=TIMEOUT),
    "wait": lambda comm: comm.irecv(1).wait(TIMEOUT),
}


@pytest.mark.parametrize("call", CALLS)
def test_one_timeout_bounds_the_wait_and_the_delivery(call: str) -> None:
    hub = ThreadHub(2)
    mine = NeverDelivered(hub)
    made: list[Transport] = [mine, hub.transport(1)]
    first, second = (Communicator(Group(endpoint, 3, NETWORKS["threads"])) for endpoint in endpoints(made))
    mine.late = lambda: second.isend("late", 0).wait()
    assert CALLS[call](first) == "late"
    assert LATE < mine.now <= TIMEOUT
    for transport in made:
        transport.close()
