"""The crews of several hosts as one: answers are waited for, and output does not pile up meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from ringcast_launcher.hosts.all_hosts import MUCH, Crews
from ringcast_launcher.hosts.messages import Finished, Hold, Order, Output, Report, Stopped

CHUNK = 1 << 18


class Chatty:
    """A crew whose worker writes as long as it may, and which answers after so many turns."""

    files: Mapping[int, int] = {}
    due = 0.0

    def __init__(self, turns: int) -> None:
        self.turns, self.held, self.written = turns, False, 0
        self.orders: list[Order] = []

    def order(self, order: Order) -> None:
        self.orders.append(order)
        if isinstance(order, Hold):
            self.held = order.held

    def reports(self, ready: Any = ()) -> list[Report]:
        self.turns -= 1
        said: list[Report] = [Stopped()] if self.turns == 0 else []
        if not self.held:
            self.written += CHUNK
            said.append(Output(0, 1, bytes(CHUNK)))
        return said


def crews(*chatty: Chatty) -> Crews:
    return Crews(cast(Any, dict(enumerate(chatty))))


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_output_waits_while_an_answer_is_waited_for_and_comes_again_after_that(hosts: int) -> None:
    made = [Chatty(200) for _ in range(hosts)]
    all_hosts = crews(*made)
    assert all_hosts.answers((Stopped,), 60.0) == dict.fromkeys(range(hosts), Stopped())
    assert all(chatty.orders == [Hold(True)] for chatty in made)
    assert MUCH < sum(chatty.written for chatty in made) <= MUCH + hosts * CHUNK
    said = all_hosts.reports()
    assert sum(len(one.data) for _, one in said if isinstance(one, Output)) == sum(c.written for c in made)
    assert all(chatty.orders == [Hold(True), Hold(False)] for chatty in made)


def test_output_that_waits_by_order_goes_on_waiting() -> None:
    chatty = Chatty(200)
    all_hosts = crews(chatty)
    all_hosts.hold(True)
    all_hosts.answers((Finished,), 0.1)
    all_hosts.reports()
    assert (chatty.orders, chatty.written) == ([Hold(True)], 0)
    all_hosts.hold(False)
    all_hosts.reports()
    assert chatty.orders == [Hold(True), Hold(False)]


def test_little_output_never_waits() -> None:
    chatty = Chatty(3)
    crews(chatty).answers((Stopped,), 60.0)
    assert (chatty.orders, chatty.written) == ([], 3 * CHUNK)
