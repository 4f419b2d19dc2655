"""The agent between fakes of the process manager and the launcher: flow of reports, silence, commands, garbage."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Container, Iterator
from math import inf
from typing import ClassVar

import pytest

from ringcast.wire.codec import plain
from ringcast_launcher.decide.supervisor import Fence, SendSignal, Signalled
from ringcast_launcher.hosts.agent import PATIENCE, PENDING, Agent
from ringcast_launcher.hosts.framing import encode
from ringcast_launcher.hosts.messages import Command, Finish, HoldOutput, HostFinished, Output, Report, Stop
from ringcast_launcher.hosts.pipe import PipeConnection

pytestmark = pytest.mark.usefixtures("nothing_left")

CHUNK = 1 << 20
LONG = 1000.0  # seconds that no test takes


class Talkative:
    """A process manager whose workers write without end, unless their output is held."""

    files: ClassVar[dict[int, int]] = {}
    due = 0.0

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.held = False
        self.watchdog = self
        self.signs = 0

    def sign(self) -> None:
        self.signs += 1

    def send(self, command: Command) -> None:
        self.commands.append(command)
        if isinstance(command, HoldOutput):
            self.held = command.held

    def reports(self, ready: Container[int] = ()) -> list[Report]:
        if self.commands and isinstance(self.commands[-1], Finish):
            return [HostFinished()]
        return [] if self.held else [Output(0, 1, bytes(CHUNK))]

    def note_ends(self) -> None:
        pass


class Bench:
    """An agent, and what the launcher would have of it."""

    def __init__(self) -> None:
        (self.reports, reporting), (ordering, self.commands) = os.pipe(), os.pipe()
        self.signals, self._other = socket.socketpair()
        self.signals.setblocking(False)
        self.pipe = PipeConnection(ordering, reporting, 0.0)
        self.local_host = Talkative()
        self.agent = Agent(self.pipe, self.local_host, self.signals.fileno(), "")

    def close(self) -> None:
        self.pipe.close()
        for file in (self.reports, self.commands):
            os.close(file)
        self.signals.close()
        self._other.close()

    def send_signal(self, number: int) -> None:
        self._other.send(bytes([number]))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_launcher_that_does_not_read_makes_the_workers_wait(bench: Bench) -> None:
    bench.local_host.due = inf
    for _ in range(20):
        bench.pipe._next_beat = 0.0  # no turn waits
        bench.agent._turn()
    assert bench.local_host.held
    assert PENDING < bench.pipe.unsent < PENDING + 2 * CHUNK
    while bench.local_host.held:
        os.read(bench.reports, 1 << 16)
        bench.pipe._next_beat = 0.0
        bench.agent._turn()
    assert [command.held for command in bench.local_host.commands if isinstance(command, HoldOutput)] == [True, False]


def test_what_the_launcher_holds_stays_held_when_there_is_room_again(bench: Bench) -> None:
    os.write(bench.commands, encode(plain(HoldOutput(True))))
    for _ in range(20):
        bench.pipe._next_beat = 0.0
        bench.agent._turn()
    assert bench.local_host.held
    assert bench.pipe.unsent < 2 * CHUNK


def test_the_silence_of_a_launcher_that_was_stopped_counts_neither_then_nor_after(bench: Bench) -> None:
    bench.local_host.held = True
    for command in (Stop(), SendSignal(signal.SIGCONT)):
        os.write(bench.commands, encode(plain(command)))
        bench.pipe._next_beat = 0.0
        bench.agent._turn()
        assert not bench.agent._abandoned
        bench.pipe.unanswered = bench.pipe.silent = 2 * PATIENCE
        assert bench.agent._abandoned == isinstance(command, SendSignal)


def test_the_watchdog_is_given_a_sign_of_life_for_each_of_the_launcher_and_while_that_is_stopped(bench: Bench) -> None:
    """Else a watchdog that waits for the agent, which has waited for the launcher, would end the ranks too late."""
    bench.local_host.held = True

    def signs(*came: Command | None) -> int:
        before = bench.local_host.signs
        for one in came:
            os.write(bench.commands, encode(one and plain(one)))
        bench.pipe._next_beat = 0.0
        bench.agent._turn()
        return bench.local_host.signs - before

    assert [signs(None), signs(), signs(HoldOutput(True)), signs(None)] == [1, 0, 0, 1]
    signs(Stop())
    assert [signs(), signs()] == [1, 1]


def test_an_agent_executes_one_command_at_a_time_and_gives_signs_of_life_between_them(bench: Bench) -> None:
    """Many that take a while together, such as to end one rank after the other, do not look like a hang."""
    bench.local_host.held = True
    many = [Fence(rank) for rank in range(5)]
    os.write(bench.commands, b"".join(encode(plain(command)) for command in many))
    os.close(bench.commands)
    bench.commands = os.open(os.devnull, os.O_RDONLY)
    for number, _ in enumerate(many):
        assert not bench.agent._abandoned  # also not by a launcher that has ended since
        assert bench.local_host.commands == many[:number]
        bench.agent._turn()
    assert bench.local_host.commands == many
    assert bench.agent._abandoned


@pytest.mark.parametrize("garbage", [b"what is this?", encode(["Rubbish"]), encode(plain(HostFinished()))])
def test_an_agent_that_is_told_nonsense_ends(bench: Bench, garbage: bytes) -> None:
    os.write(bench.commands, garbage)
    bench.agent.run()
    assert bench.pipe.garbled
    assert bench.local_host.commands == [] or not isinstance(bench.local_host.commands[-1], Finish)


def test_an_agent_that_is_asked_to_end_gives_its_ranks_the_grace_period_and_none_if_asked_twice(bench: Bench) -> None:
    bench.local_host.held = True
    bench.agent._grace = LONG
    bench.send_signal(signal.SIGTERM)
    bench.pipe._next_beat = 0.0
    bench.agent._turn()
    assert bench.local_host.commands == [SendSignal(signal.SIGTERM)]
    assert time.monotonic() + LONG / 2 < bench.agent._end_by
    bench.send_signal(signal.SIGTERM)
    bench.agent.run()
    assert bench.agent.asked == signal.SIGTERM


def test_an_agent_whose_job_has_ended_in_the_grace_period_ends_with_it(bench: Bench) -> None:
    bench.local_host.held = True
    bench.agent._grace = LONG
    bench.send_signal(signal.SIGTERM)
    os.write(bench.commands, encode(plain(Finish(False))))
    bench.agent.run()


def test_other_signals_to_an_agent_are_for_the_ranks_of_all_hosts(bench: Bench) -> None:
    bench.local_host.held = True
    bench.send_signal(signal.SIGUSR2)
    bench.pipe._next_beat = 0.0
    bench.agent._turn()
    assert bench.local_host.commands == []
    assert encode(plain(Signalled(signal.SIGUSR2))) in os.read(bench.reports, 1 << 16)


def test_an_agent_ends_when_all_is_over_or_its_input_is() -> None:
    for last in (encode(plain(Finish(False))), b""):
        bench = Bench()
        os.write(bench.commands, last)
        if not last:
            os.close(bench.commands)
            bench.commands = os.open(os.devnull, os.O_RDONLY)
        bench.local_host.held = True
        bench.agent.run()
        assert not bench.pipe.garbled
        bench.close()
