"""Orders and reports as they travel: each arrives as it was sent, and what is none is refused."""

from __future__ import annotations

import doctest
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.monitoring.rank_state import State
from ringcast_launcher.decide.supervisor import Exited, Fence, SendSignal, Signalled
from ringcast_launcher.hosts import codec, messages
from ringcast_launcher.hosts.codec import FrameError, Frames
from ringcast_launcher.hosts.messages import (
    AskActivity,
    AskProgress,
    AskStacks,
    AskStates,
    Command,
    Fenced,
    Finish,
    Finished,
    Hello,
    HoldOutput,
    HostLost,
    JobEnd,
    NodeHello,
    NotStarted,
    Output,
    ProcessActivity,
    Progress,
    Record,
    Stacks,
    Start,
    Started,
    States,
    Stop,
    Stopped,
    parse_command,
    parse_report,
    plain,
    ranks_of,
)

STATE = asdict(State(3, 77, "running", "#3 bcast", None, 5, (0, 2), "ranks 0, 2", 0.5, None, 99.6, "a"))
STATE["waiting_for"] = [0, 2]  # as it travels
EVERY = [
    Start((3, 5), ("python", "a b.py"), {"PATH": "/bin"}, {"RINGCAST_KEY": "k"}, "/home/me", 2),
    Start((), (), {}, {}, "", 0),
    Fence(3),
    SendSignal(15),
    AskActivity(2, 4711),
    HoldOutput(True),
    Stop(),
    AskProgress(),
    AskStacks(),
    AskStates(),
    Finish(False),
    JobEnd(3, "it failed", True),
    Hello("1.0 (protocol 3)", "3.11.7", "n1.lab", ""),
    NodeHello(1, 4, 2, ("a.py", "-x")),
    Started({3: 100, 5: 101}, {"OMP_NUM_THREADS": "2"}),
    NotStarted("there is none", 127),
    Output(3, 2, b"\xff\x00\n"),
    Exited(3, -9),
    Fenced(3),
    ProcessActivity(3, "RS", 1.5, 1 << 40, False),
    Stopped(),
    Signalled(2),
    Stacks({3: "File …\n"}),
    States({3: STATE}),
    Progress(2, {"bcast": 2}, 1 << 40, True),
    Record(3, b"\x00" * 9),
    Finished(),
]


def parse(message: Any) -> Any:
    """Return the order or the report; nothing is both."""
    try:
        found = parse_command(message)
    except FrameError:
        return parse_report(message)
    with pytest.raises(FrameError, match="not understood"):
        parse_report(message)
    return found


def travelled(item: Any) -> Any:
    (message,) = Frames(marked=False).feed(codec.encode(plain(item)))
    return parse(message)


def test_no_report_is_an_order() -> None:
    for item in EVERY:
        if not isinstance(item, Command):
            with pytest.raises(FrameError, match="not understood"):
                parse_command(plain(item))


@pytest.mark.parametrize(
    "fields",
    [
        {3: 5},
        {3: {}},
        {2: STATE},
        {3: STATE | {"more": 1}},
        {3: STATE | {"pid": "77"}},
        {3: STATE | {"waiting_for": 7}},
        {3: {name: value for name, value in STATE.items() if name != "cpu"}},
    ],
)
def test_states_that_are_none_are_refused(fields: dict[int, Any]) -> None:
    with pytest.raises(FrameError, match="not understood"):
        parse_report(["States", fields])


def test_there_is_one_of_every_kind() -> None:
    assert {type(item).__name__ for item in EVERY} == messages._KINDS.keys()


@pytest.mark.parametrize("item", EVERY, ids=lambda item: type(item).__name__)
def test_what_is_sent_arrives(item: Any) -> None:
    got = travelled(item)
    assert type(got) is type(item)
    assert got == item


@pytest.mark.parametrize("item", EVERY, ids=lambda item: type(item).__name__)
def test_one_value_too_many_too_few_or_of_another_type_is_refused(item: Any) -> None:
    name, *values = plain(item)
    wrong = [[name, *values, 1], *([[name, *values[:-1]]] if values else [])]
    wrong += [[name, *values[:i], None, *values[i + 1 :]] for i in range(len(values))]
    for message in wrong:
        with pytest.raises(FrameError, match="not understood"):
            parse(message)


@pytest.mark.parametrize(
    "message",
    [None, 7, "Fence", [], [7], ["HostLost", "x"], ["fence", 3], ["FrameError", "x"], {"Fence": 3}, [["Fence"], 3]],
)
def test_what_is_no_order_and_no_report_is_refused(message: Any) -> None:
    with pytest.raises(FrameError, match="not understood"):
        parse(message)


def test_each_report_tells_of_its_ranks() -> None:
    told = {type(item).__name__: ranks_of(item) for item in EVERY if not isinstance(item, Command)}
    one = {"Output", "Exited", "Fenced", "ProcessActivity", "Stacks", "States", "Record"}
    assert told == {**{key: set() for key in told}, **{key: {3} for key in one}, "Started": {3, 5}}


def test_nobody_can_report_that_a_host_is_gone() -> None:
    with pytest.raises(FrameError, match="not understood"):
        parse(plain(HostLost("I say so")))


@given(
    name=st.sampled_from(sorted(messages._KINDS)), values=st.lists(st.integers() | st.text() | st.none(), max_size=6)
)
def test_garbage_is_refused_or_has_the_types_of_its_kind(name: str, values: list[Any]) -> None:
    try:
        item = parse([name, *values])
    except FrameError:
        return
    assert parse(plain(item)) == item


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(messages).failed == 0
