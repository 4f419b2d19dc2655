"""The codec: every message arrives as it was sent, and what is none, or has a wrong field, is refused."""

from __future__ import annotations

import doctest
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.monitoring.rank_state import States
from ringcast.wire import codec
from ringcast.wire.codec import CodecError, decode, encode, parse, plain
from ringcast.wire.control_messages import NOTICES, TO_SERVER, TO_WORKER
from ringcast.wire.failure import Failure
from ringcast.wire.reports import Deadlock
from ringcast.wire.unanswered import Unanswered
from ringcast.wire.votes import AGREE, Vote
from ringcast_launcher.hosts.messages import COMMANDS, REPORTS

KINDS = tuple(dict.fromkeys((*TO_SERVER, *TO_WORKER, *COMMANDS, *REPORTS, Failure, Unanswered, States)))
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 64) - 1),
    float: st.floats(allow_nan=False) | st.integers(0, 9),
    str: st.text(),
    bytes: st.binary(),
    bool: st.booleans(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return the values that an annotation allows; written anew, as the codec is what is tested."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{field.name: values(hints[field.name]) for field in fields(hint)})
    if origin is Annotated:
        return st.integers(args[1].low, args[1].high)
    if origin in (Union, UnionType):
        return st.none() | values(next(arg for arg in args if arg is not NoneType))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is not None:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    return SIMPLE[hint]


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(codec).failed == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=8)
def test_what_is_sent_arrives(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(values(kind))
    assert decode(encode(message), (Vote, kind)) == message
    assert type(decode(encode(message), (Vote, kind))) is kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=8)
def test_one_value_too_many_too_few_or_of_a_type_that_no_field_has_is_refused(
    kind: type[Any], data: st.DataObject
) -> None:
    name, *said = plain(data.draw(values(kind)))
    wrong = [[name, *said, 1], *([[name, *said[:-1]]] if said else [])]
    wrong += [
        [name, *said[:i], other, *said[i + 1 :]] for i in range(len(said)) for other in (msgpack.Timestamp(1), [[]])
    ]
    for message in wrong:
        with pytest.raises(CodecError, match="not understood"):
            parse(message, (kind,))


@pytest.mark.parametrize(
    "message",
    [None, 7, "Vote", [], [7], [None], ["vote", 0, 1, 1, AGREE, 0, []], {"Vote": 3}, [["Vote"], 3], ["Failure", "x"]],
)
def test_what_is_none_of_the_expected_is_refused(message: Any) -> None:
    with pytest.raises(CodecError, match="not understood"):
        parse(message, TO_SERVER)


@pytest.mark.parametrize("place", range(1, 7))
@pytest.mark.parametrize("value", ["x", -1, 1 << 64, True, 0.5, None, b"", {}, [-1], [True], [[]]])
def test_bounds_and_types_of_a_vote(place: int, value: Any) -> None:
    """Name, rank, context, number, verb, flag, acknowledged."""
    said = plain(Vote(0, 1, 1, AGREE, 0, (2,)))
    said[place] = value
    if (place, value) == (5, -1):  # a flag may be negative
        assert parse(said, TO_SERVER).flag == -1
        return
    with pytest.raises(CodecError, match="not understood"):
        parse(said, TO_SERVER)


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data, NOTICES)


@pytest.mark.parametrize("data", [b"\x91" * 5000 + b"\xc0", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x81\x90\x01", b""])
def test_what_is_no_msgpack_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError, match="cannot be read"):
        decode(data, NOTICES)


def test_a_message_that_is_cut_off_is_refused_wherever_that_is() -> None:
    data = encode(Deadlock(0, 1, 2, 3.5, (0, 1), ("a", "b")))
    for length in range(len(data)):
        with pytest.raises(CodecError):
            decode(data[:length], NOTICES)
