"""All hosts as one: `answers` waits for reports, and output does not pile up meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from ringcast_launcher.hosts.all_hosts import MUCH, AllHosts
from ringcast_launcher.hosts.messages import Command, HoldOutput, HostFinished, Output, Report, Stopped

CHUNK = 1 << 18


class Chatty:
    """A host whose worker writes as long as it may, and which answers after so many turns."""

    files: Mapping[int, int] = {}
    due = 0.0

    def __init__(self, turns: int) -> None:
        self.turns, self.held, self.written = turns, False, 0
        self.commands: list[Command] = []

    def send(self, command: Command) -> None:
        self.commands.append(command)
        if isinstance(command, HoldOutput):
            self.held = command.held

    def reports(self, ready: Any = ()) -> list[Report]:
        self.turns -= 1
        said: list[Report] = [Stopped()] if self.turns == 0 else []
        if not self.held:
            self.written += CHUNK
            said.append(Output(0, 1, bytes(CHUNK)))
        return said


def hosts_of(*chatty: Chatty) -> AllHosts:
    return AllHosts(cast(Any, dict(enumerate(chatty))))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_output_waits_while_an_answer_is_waited_for_and_comes_again_after_that(count: int) -> None:
    made = [Chatty(200) for _ in range(count)]
    hosts = hosts_of(*made)
    assert hosts.answers((Stopped,), 60.0) == dict.fromkeys(range(count), Stopped())
    assert all(chatty.commands == [HoldOutput(True)] for chatty in made)
    assert MUCH < sum(chatty.written for chatty in made) <= MUCH + count * CHUNK
    said = hosts.reports()
    assert sum(len(one.data) for _, one in said if isinstance(one, Output)) == sum(c.written for c in made)
    assert all(chatty.commands == [HoldOutput(True), HoldOutput(False)] for chatty in made)


def test_output_that_is_held_by_command_goes_on_waiting() -> None:
    chatty = Chatty(200)
    hosts = hosts_of(chatty)
    hosts.hold(True)
    hosts.answers((HostFinished,), 0.1)
    hosts.reports()
    assert (chatty.commands, chatty.written) == ([HoldOutput(True)], 0)
    hosts.hold(False)
    hosts.reports()
    assert chatty.commands == [HoldOutput(True), HoldOutput(False)]


def test_little_output_never_waits() -> None:
    chatty = Chatty(3)
    hosts_of(chatty).answers((Stopped,), 60.0)
    assert (chatty.commands, chatty.written) == ([], 3 * CHUNK)
