"""The failure of a rank, as it is made of an error."""

import pytest

import ringcast
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import thread_endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.errors import PeerFailed, Revoked
from ringcast.wire.error_text import Translation
from ringcast.wire.failure import MAX_TEXT, Failure, clean

COMM = Communicator(Group(thread_endpoints(1)[0], 1, NETWORKS["threads"]))


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


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600", "\x1b", "\udcff"])
def test_of_long_texts_the_beginning_and_the_end_are_kept(letter: str) -> None:
    failure = Failure.of(ValueError(letter * MAX_TEXT + "the end"))
    assert failure.cause.startswith("ValueError: ")
    assert failure.traceback.startswith("ValueError: ")
    for text in (failure.cause.rstrip(), failure.traceback.rstrip(), clean(letter * MAX_TEXT + "the end")):
        assert text.endswith("the end")
        assert len(text.encode()) <= MAX_TEXT
    assert failure.clipped(3) == Failure("end", "nd\n")


def test_all_frames_are_there_on_demand() -> None:
    with pytest.raises(ringcast.ArgumentError) as found:
        COMM.bcast(1, root=7)
    assert "inside ringcast" in Failure.of(found.value).traceback
    whole = Failure.of(found.value, whole=True)
    assert "inside ringcast" not in whole.traceback
    assert "ringcast/communicator/" in whole.traceback


def test_a_translated_error_blames_whom_its_cause_blames() -> None:
    class Translated(Translation, RuntimeError):
        pass

    translated = Translated("said in other words")
    assert Failure.of(translated).blames == ()
    translated.__cause__ = PeerFailed(0, 3, "killed")
    assert Failure.of(translated).blames == (3,)
