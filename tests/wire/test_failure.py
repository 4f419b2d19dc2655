"""What is known of a failed rank survives its way through a notice, and whatever else comes is only a cause."""

from hypothesis import given
from hypothesis import strategies as st

from ringcast.wire.failure import Failure


@given(st.builds(Failure, st.text(), st.text(), st.integers(), st.text()))
def test_what_is_known_arrives(failure: Failure) -> None:
    assert Failure.decode(failure.encode()) == failure


@given(st.binary())
def test_anything_else_is_the_cause(data: bytes) -> None:
    failure = Failure.decode(data)
    assert isinstance(failure.cause, str)
    assert (failure.host, failure.pid, failure.traceback) == ("", 0, "")
