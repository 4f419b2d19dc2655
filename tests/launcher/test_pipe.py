"""The channel between launcher and agent: over real pipes, on a clock that the test moves."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator

import pytest

from ringcast_launcher.hosts import pipe
from ringcast_launcher.hosts.agent import PATIENCE
from ringcast_launcher.hosts.framing import MARK, encode
from ringcast_launcher.hosts.pipe import BEAT, HEARD, PipeConnection
from ringcast_launcher.hosts.remote_host import SILENCE

pytestmark = pytest.mark.usefixtures("nothing_left")


@contextlib.contextmanager
def pair(now: float = 0.0) -> Iterator[tuple[PipeConnection, PipeConnection]]:
    """Return the launcher's end and the agent's."""
    up, down = os.pipe(), os.pipe()
    launcher, agent = PipeConnection(up[0], down[1], now, marked=True), PipeConnection(down[0], up[1], now, marks=True)
    try:
        yield launcher, agent
    finally:
        launcher.close()
        agent.close()


def ready(pipe: PipeConnection) -> set[int]:
    poller = select.poll()
    for file, events in pipe.files.items():
        poller.register(file, events)
    return {file for file, _ in poller.poll(0)}


def turn(pipe: PipeConnection, now: float) -> list[object]:
    return pipe.turn(ready(pipe), now)


def test_messages_arrive_in_order_in_both_directions() -> None:
    with pair() as (launcher, agent):
        for i in range(100):
            launcher.send(["order", i])
            agent.send(["report", i])
        assert turn(agent, 0.1) == [["order", i] for i in range(100)]
        assert turn(launcher, 0.1) == [["report", i] for i in range(100)]


def test_who_does_not_read_stops_nobody_and_nothing_is_lost() -> None:
    with pair() as (launcher, agent):
        for i in range(300):
            agent.send([i, bytes(10_000)])
        assert agent.unsent > 2_000_000
        got = []
        while len(got) < 300:
            got += turn(launcher, 0.0)
            turn(agent, 0.0)
        assert [number for number, _ in got] == list(range(300))
        assert agent.unsent == 0


def test_one_turn_takes_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "CHUNK", 100)
    monkeypatch.setattr(pipe, "AT_ONCE", 1000)
    with pair() as (launcher, agent):
        agent.send(bytes(1000))
        for i in range(100):
            agent.send([i, bytes(90)])
        while agent.unsent:
            turn(agent, 0.0)
        got = [turn(launcher, 0.0) for _ in range(12)]
        assert all(len(each) <= 12 for each in got)
        assert sum(map(len, got)) == 101


def test_who_does_not_read_is_sent_no_heap_of_signs_of_life() -> None:
    with pair() as (launcher, agent):
        agent.send(bytes(1 << 20))
        before = agent.unsent
        for second in range(1, 100):
            launcher.send(None)
            turn(agent, float(second))
        assert agent.unsent <= before


def test_two_that_live_are_never_silent_and_hear_signs_of_life_only_inside() -> None:
    with pair() as (launcher, agent):
        for second in range(1, 50):
            assert turn(agent, second * BEAT) == []
            assert turn(launcher, second * BEAT) == []
        assert max(launcher.silent, agent.silent, launcher.unanswered, agent.unanswered) <= 2 * BEAT


def test_silence_is_the_time_in_which_one_could_have_heard() -> None:
    with pair() as (launcher, _):
        for second in range(1, 6):
            turn(launcher, float(second))
        assert launcher.silent == 5.0
        turn(launcher, 1000.0)  # it was stopped
        assert launcher.silent == 5.0 + 2 * BEAT


def test_any_byte_ends_the_silence() -> None:
    with pair() as (launcher, agent):
        for second in range(1, 6):
            turn(launcher, float(second))
        os.write(agent._writing, MARK + encode("a long one")[:3])
        assert turn(launcher, 6.0) == []
        assert launcher.silent == 0.0


def test_who_was_stopped_for_long_goes_on() -> None:
    for first in (0, 1):  # whoever comes first after that
        with pair() as ends:
            for second in range(1, 4):
                for end in ends:
                    turn(end, second * BEAT)
            for round_ in range(20):
                for i in (first, 1 - first):
                    turn(ends[i], 500.0 + round_ * BEAT)
                assert max(end.unanswered for end in ends) < PATIENCE


@pytest.mark.parametrize("commands", [False, True])
@pytest.mark.parametrize("phase", [0.0, 0.25, 0.5, 0.75])
def test_an_agent_that_hears_but_is_not_heard_gives_up_before_the_launcher_does(phase: float, commands: bool) -> None:
    with pair() as (launcher, agent):
        gave_up: dict[str, float] = {}
        step, cut = 0.25, 10.0
        for tick in range(int(60 / step)):
            now = tick * step
            turn(agent, now + phase * step)
            # What it sends after the cut gets lost.
            launcher.turn(ready(launcher) if now < cut else {launcher._writing} & ready(launcher), now)
            if commands and now % 2 == 0:
                launcher.send(["AskActivity", 3, 4])
            if agent.unanswered > PATIENCE:
                gave_up.setdefault("agent", now)
            if launcher.silent > SILENCE:
                gave_up.setdefault("launcher", now)
        assert cut < gave_up["agent"] < gave_up["launcher"] < cut + SILENCE + 2 * BEAT


def test_signs_of_life_go_to_who_gives_some() -> None:
    with pair() as (launcher, agent):
        for second in range(1, 20):
            turn(launcher, second * BEAT)
        heard = os.read(agent._reading, 1 << 16)
        assert 1 <= len(heard) // len(encode(None)) <= HEARD / BEAT


def test_the_end_of_the_other_is_seen_after_its_last_message() -> None:
    with pair() as (launcher, agent):
        agent.send("last")
        agent.close()
        assert turn(launcher, 0.0) == ["last"]
        assert launcher.ended == "it has ended"
        assert (turn(launcher, 1.0), launcher.files) == ([], {})
        launcher.send("nobody is there")
        assert launcher.unsent == 0


@pytest.mark.parametrize("garbage", [b"bash: no such thing", b"\x01\x00\x00\x00\xc1"])
def test_what_makes_no_sense_closes_it_and_is_told(garbage: bytes) -> None:
    with pair() as (launcher, agent):
        os.write(agent._writing, MARK + garbage)
        assert turn(launcher, 0.0) == []
        assert launcher.garbled.startswith("a message ")
        assert (launcher.ended, launcher.files) == (launcher.garbled, {})
        launcher.send("nobody takes that")
        assert launcher.files == {}
        assert turn(agent, 0.0) == []
        assert agent.ended == "it has ended"


def test_what_came_before_the_mark_is_told() -> None:
    up, down = os.pipe(), os.pipe()
    launcher = PipeConnection(up[0], down[1], 0.0, marked=True)
    os.write(up[1], b"\nWelcome \xff!\n")
    turn(launcher, 0.0)
    assert launcher.noise == "Welcome \N{REPLACEMENT CHARACTER}!"
    launcher.close()
    launcher.close()
    for file in (up[1], down[0]):
        os.close(file)
