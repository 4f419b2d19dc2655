"""The failure of a rank, as it is made of an error."""

from ringcast.errors import PeerFailed, Revoked
from ringcast.wire.failure import MAX_TEXT, Failure


def test_a_failure_has_the_text_the_traceback_and_the_ranks_that_its_error_names() -> None:
    try:
        raise PeerFailed(0, 3, "killed")
    except PeerFailed as error:
        failure = Failure.of(error)
    assert failure.cause.startswith("PeerFailed: rank 0: ")
    assert "test_failure.py" in failure.traceback
    assert failure.blames == (3,)
    assert Failure.of(Revoked(0, "why not", 2)).blames == (2,)
    assert Failure.of(KeyError("a")) == Failure("KeyError: 'a'", "KeyError: 'a'\n")


def test_of_long_texts_the_end_is_kept() -> None:
    failure = Failure.of(ValueError("x" * MAX_TEXT + "the end"))
    assert len(failure.cause) == MAX_TEXT
    assert failure.cause.endswith("the end")
    assert failure.clipped(3) == Failure("end", "nd\n")
