"""The time limits of failure detection fit together, and a change that breaks a relation is named."""

from __future__ import annotations

import pytest

from ringcast.procs.timing import TIMING, FailureTiming


def test_the_limits_fit_together() -> None:
    assert TIMING.broken() == []


def test_the_limits_that_documents_name() -> None:
    assert (TIMING.watchdog_silence, TIMING.host_silence, TIMING.accusation_patience) == (9.0, 13.0, 5.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"margin": 0.5}, "before their host counts as lost"),
        ({"kill": 2.0}, "before their host counts as lost"),
        ({"beat": 0.0}, "an agent gives up before it counts as hung"),
        ({"cut_off_beats": 9}, "known to be silent when a link to it is dead"),
        ({"link_doubt": 8.0}, "new connections are tried before they decide"),
        ({"report_grace": 0.5}, "the reason for a closed connection"),
        ({"stall": 10.0}, "found hung before it would give up the control plane"),
        ({"control_answer": 7.0}, "known before the control plane's silence"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, float], words: str) -> None:
    changed = FailureTiming()
    vars(changed).update(change)
    assert any(words in each for each in changed.broken())
