"""Orders and reports as they travel: each arrives as it was sent, and what is none is refused."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from ringcast.monitoring.progress import ProgressSnapshot
from ringcast.monitoring.rank_state import RankState, States
from ringcast.procs.liveness import Activity
from ringcast.wire.codec import CodecError, parse, plain
from ringcast_launcher.decide.supervisor import Exited, Fence, Fenced, SendSignal, Signalled
from ringcast_launcher.hosts import framing, messages
from ringcast_launcher.hosts.framing import Frames
from ringcast_launcher.hosts.messages import (
    COMMANDS,
    REPORTS,
    AgentHello,
    AskActivity,
    AskProgress,
    AskStacks,
    AskStates,
    Command,
    Finish,
    HoldOutput,
    HostFinished,
    HostLost,
    Input,
    InputTaken,
    JobEnd,
    NodeHello,
    NotStarted,
    Output,
    ProcessActivity,
    ProfilePart,
    Progress,
    Record,
    Stacks,
    Start,
    Started,
    Stop,
    Stopped,
    ranks_of,
)

STATE = RankState(3, 77, "running", "#3 bcast", None, 5, (0, 2), "ranks 0, 2", 0.5, None, 99.6, "a")
EVERY = [
    Start((3, 5), ("python", "a b.py"), {"PATH": "/bin"}, {"RINGCAST_KEY": "k"}, "/home/me", 2),
    Start((), (), {}, {}, "", 0),
    Fence(3),
    SendSignal(15),
    AskActivity(2, 4711),
    HoldOutput(True),
    Input(3, b"\xff"),
    InputTaken(3, 17, closed=False),
    Stop(),
    AskProgress(),
    AskStacks(),
    AskStates(),
    Finish(False),
    JobEnd(3, "it failed", True),
    AgentHello("1.0 (protocol 3)", "3.11.7", "n1.lab", ""),
    NodeHello(1, 4, 2, ("a.py", "-x")),
    Started({3: 100, 5: 101}, {"OMP_NUM_THREADS": "2"}),
    NotStarted("there is none", 127),
    Output(3, 2, b"\xff\x00\n"),
    Exited(3, -9),
    Fenced(3),
    ProcessActivity(3, Activity("RS", 1.5, 1 << 40, False)),
    Stopped(),
    Signalled(2),
    Stacks({3: "File …\n"}),
    States((STATE,)),
    Progress(ProgressSnapshot(2, {"bcast": 2}, 1 << 40, True)),
    Record(3, b"\x00" * 9),
    ProfilePart(3, b"{}"),
    HostFinished(),
]


def travelled(item: Any) -> Any:
    (message,) = Frames(marked=False).feed(framing.encode(plain(item)))
    return parse(message, COMMANDS + REPORTS)


def test_no_report_is_a_command() -> None:
    assert not set(COMMANDS) & set(REPORTS)
    assert not {kind.__name__ for kind in COMMANDS} & {kind.__name__ for kind in REPORTS}


def test_there_is_one_of_every_kind() -> None:
    assert {type(item) for item in EVERY} == {*COMMANDS, *REPORTS}


@pytest.mark.parametrize("item", EVERY, ids=lambda item: type(item).__name__)
def test_what_is_sent_arrives(item: Any) -> None:
    got = travelled(item)
    assert type(got) is type(item)
    assert got == item


def test_each_report_tells_of_its_ranks() -> None:
    told = {type(item).__name__: ranks_of(item) for item in EVERY if not isinstance(item, Command)}
    one = {"Output", "InputTaken", "Exited", "Fenced", "ProcessActivity", "Stacks", "States", "Record", "ProfilePart"}
    assert told == {**{key: set() for key in told}, **{key: {3} for key in one}, "Started": {3, 5}}


def test_nobody_can_report_that_a_host_is_gone() -> None:
    with pytest.raises(CodecError, match="not understood"):
        parse(plain(HostLost("I say so")), REPORTS)


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(messages).failed == 0
