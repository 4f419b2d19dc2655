"""The agent of a host between a crew and a launcher that are not there: what it does with what comes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Container, Iterator
from math import inf
from typing import ClassVar

import pytest

from ringcast_launcher.decide.supervisor import Fence, Send
from ringcast_launcher.hosts.agent import PATIENCE, PENDING, Agent
from ringcast_launcher.hosts.codec import encode
from ringcast_launcher.hosts.messages import Finish, Finished, Hold, Order, Output, Report, Stop, plain
from ringcast_launcher.hosts.pipe import Channel

pytestmark = pytest.mark.usefixtures("nothing_left")

CHUNK = 1 << 20


class Talkative:
    """A crew whose workers write without end, unless nobody reads."""

    files: ClassVar[dict[int, int]] = {}
    due = 0.0

    def __init__(self) -> None:
        self.ordered: list[Order] = []
        self.held = False
        self.guardian = self
        self.signs = 0

    def sign(self) -> None:
        self.signs += 1

    def order(self, order: Order) -> None:
        self.ordered.append(order)
        if isinstance(order, Hold):
            self.held = order.held

    def reports(self, ready: Container[int] = ()) -> list[Report]:
        if self.ordered and isinstance(self.ordered[-1], Finish):
            return [Finished()]
        return [] if self.held else [Output(0, 1, bytes(CHUNK))]

    def note_ends(self) -> None:
        pass


class Bench:
    """An agent, and what the launcher would have of it."""

    def __init__(self) -> None:
        (self.reports, reporting), (ordering, self.orders) = os.pipe(), os.pipe()
        self.signals, self._other = socket.socketpair()
        self.signals.setblocking(False)
        self.channel = Channel(ordering, reporting, 0.0)
        self.crew = Talkative()
        self.agent = Agent(self.channel, self.crew, self.signals.fileno(), "")  # type: ignore[arg-type]

    def close(self) -> None:
        self.channel.close()
        for file in (self.reports, self.orders):
            os.close(file)
        self.signals.close()
        self._other.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_launcher_that_does_not_read_makes_the_workers_wait(bench: Bench) -> None:
    bench.crew.due = inf
    for _ in range(20):
        bench.channel._next_beat = 0.0  # no turn waits
        bench.agent._turn()
    assert bench.crew.held
    assert PENDING < bench.channel.unsent < PENDING + 2 * CHUNK
    while bench.crew.held:
        os.read(bench.reports, 1 << 16)
        bench.channel._next_beat = 0.0
        bench.agent._turn()
    assert [order.held for order in bench.crew.ordered if isinstance(order, Hold)] == [True, False]


def test_what_the_launcher_holds_stays_held_when_there_is_room_again(bench: Bench) -> None:
    os.write(bench.orders, encode(plain(Hold(True))))
    for _ in range(20):
        bench.channel._next_beat = 0.0
        bench.agent._turn()
    assert bench.crew.held
    assert bench.channel.unsent < 2 * CHUNK


def test_the_silence_of_a_launcher_that_was_stopped_counts_neither_then_nor_after(bench: Bench) -> None:
    bench.crew.held = True
    for order in (Stop(), Send(signal.SIGCONT)):
        os.write(bench.orders, encode(plain(order)))
        bench.channel._next_beat = 0.0
        bench.agent._turn()
        assert not bench.agent._abandoned
        bench.channel.unanswered = bench.channel.silent = 2 * PATIENCE
        assert bench.agent._abandoned == isinstance(order, Send)


def test_the_guardian_is_given_a_sign_of_life_for_each_of_the_launcher_and_while_that_is_stopped(bench: Bench) -> None:
    """Else a guardian that waits for the agent, which has waited for the launcher, would end the ranks too late."""
    bench.crew.held = True

    def signs(*came: Order | None) -> int:
        before = bench.crew.signs
        for one in came:
            os.write(bench.orders, encode(one and plain(one)))
        bench.channel._next_beat = 0.0
        bench.agent._turn()
        return bench.crew.signs - before

    assert [signs(None), signs(), signs(Hold(True)), signs(None)] == [1, 0, 0, 1]
    signs(Stop())
    assert [signs(), signs()] == [1, 1]


def test_an_agent_obeys_one_order_at_a_time_and_gives_signs_of_life_between_them(bench: Bench) -> None:
    """Many that take a while together, such as to end one rank after the other, are no standing still."""
    bench.crew.held = True
    many = [Fence(rank) for rank in range(5)]
    os.write(bench.orders, b"".join(encode(plain(order)) for order in many))
    os.close(bench.orders)
    bench.orders = os.open(os.devnull, os.O_RDONLY)
    for number, _ in enumerate(many):
        assert not bench.agent._abandoned  # also not by a launcher that has ended since
        assert bench.crew.ordered == many[:number]
        bench.agent._turn()
    assert bench.crew.ordered == many
    assert bench.agent._abandoned


@pytest.mark.parametrize("garbage", [b"what is this?", encode(["Rubbish"]), encode(plain(Finished()))])
def test_an_agent_that_is_told_nonsense_ends(bench: Bench, garbage: bytes) -> None:
    os.write(bench.orders, garbage)
    bench.agent.run()
    assert bench.channel.garbled
    assert bench.crew.ordered == [] or not isinstance(bench.crew.ordered[-1], Finish)


def test_an_agent_ends_when_all_is_over_or_its_input_is() -> None:
    for last in (encode(plain(Finish(False))), b""):
        bench = Bench()
        os.write(bench.orders, last)
        if not last:
            os.close(bench.orders)
            bench.orders = os.open(os.devnull, os.O_RDONLY)
        bench.crew.held = True
        bench.agent.run()
        assert not bench.channel.garbled
        bench.close()
