"""Errors that cannot be shown are named nevertheless: their texts never fail, are bounded, and can be sent."""

from __future__ import annotations

import pytest

from ringcast._util.safe_text import LONGEST, class_name, is_a, safe_text
from ringcast.engine.unanswered import UnansweredErrors
from ringcast.errors import PeerFailed, RingcastError, blames
from ringcast.protocol.error_factory import ErrorFactory
from ringcast.wire.codec import decode, encode
from ringcast.wire.error_text import Translation, in_a_line, origin, text_of
from ringcast.wire.failure import MAX_TEXT, Failure
from support.hostile import ERRORS, Hostile


def raised(name: str) -> BaseException:
    try:
        raise ERRORS[name]()
    except BaseException as error:
        return error


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("whole", [False, True])
def test_every_error_has_a_line_and_a_traceback(name: str, whole: bool) -> None:
    error, kind = raised(name), name.split()[0]
    line, text = in_a_line(error), text_of(error, whole=whole)
    assert line.startswith(kind)
    assert kind in text
    assert "test_hostile_errors.py" in text
    for each in (line, text):
        assert len(each) <= 6 * MAX_TEXT  # of a character an escape has up to six
        assert not {"\x1b", "\r", "\0", "\x9b"} & {*each}
    failure = Failure.of(error, whole=whole)
    assert failure.cause.startswith(kind)
    assert kind in failure.traceback
    assert len(encode(failure)) < 3 * MAX_TEXT
    assert decode(encode(failure), (Failure,)) == failure


@pytest.mark.parametrize("name", ERRORS)
def test_peers_get_the_description_of_every_error(name: str) -> None:
    error, errors = raised(name), ErrorFactory(1, 3)
    assert errors.reason(error).startswith(f"rank 1: {name.split()[0]}")
    payload, flags, _ = errors.refusal(error)
    assert name.split()[0] in payload.decode()
    assert not flags
    assert origin(error) is error
    assert blames(error) == ()
    UnansweredErrors().raised(1, error, "bcast", ("prog.py", 1))


def test_texts_that_fail_are_as_python_shows_them() -> None:
    assert in_a_line(raised("ValueError of an argument")) == "ValueError: <exception str() failed>"
    assert text_of(raised("Basic that refuses")).splitlines()[-1].endswith("Basic: <exception str() failed>")
    assert in_a_line(PeerFailed(0, 2, "killed")) == "PeerFailed: rank 0: peer rank 2 failed: killed"


def test_a_translated_error_is_what_it_is_called_in_any_module() -> None:
    odd = type("Exception", (Translation, RuntimeError), {"__module__": None, "__str__": lambda _: 1 // 0})
    assert in_a_line(odd("text")).endswith("Exception: <exception str() failed>")


def test_values_are_shown_within_bounds() -> None:
    assert safe_text(Hostile()) == "<Hostile repr() failed>"
    assert safe_text([Hostile()], str) == "<list str() failed>"
    assert safe_text("a\x1b\udcff") == repr("a\x1b\udcff")
    assert len(safe_text([*range(100_000)])) < LONGEST + 50
    assert class_name(type(raised("Unnamed"))) == "Unnamed"
    assert not is_a(Hostile(), (RingcastError, str))
