"""Errors keep their text and their facts when they are pickled, as pools and engines do."""

from __future__ import annotations

import pickle

import pytest

from ringcast import errors
from ringcast.errors import RingcastError, Where

SAMPLES: list[RingcastError] = [
    errors.ArgumentError(1, "bcast", "root", "expected 0"),
    errors.LinkLost(3, "connection reset"),
    errors.ObjectsRefused(0, "bcast"),
    errors.PeerFailed(0, 2, "killed", Where("barrier", 1), ranks=(2, 3), host="h1", pid=42, remote_traceback="Trace"),
    errors.RunFailed(1, "no data", "Trace"),
    errors.RunTimeout((1, 2), 5.0, first=2, waits="1 for 2"),
    errors.SourceChanged("s3://b/model.bin", "another version", "h1", 2, (0, 1000)),
    errors.UsageError("as text"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_text_and_facts_survive(error: RingcastError) -> None:
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == error.args
