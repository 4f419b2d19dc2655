"""Every fault at every place of every algorithm: all ranks end in time, with the right result or the right error.

Ranks die, stop, or lose, delay and repeat a message, and links between two that live are cut, in groups of 5, and of 8
(where every twenty-fourth fault is tried), on the simulated wire; see `faults`.
"""

from __future__ import annotations

import re

import pytest

from support import faults
from support.fault_cases import EVERY, Case
from support.faults import GROUPS, cases, check, lot

SAMPLE = 90  # of so many cases the short tests take one


@pytest.mark.thorough
@pytest.mark.parametrize(("collective", "algorithm"), EVERY)
def test_a_sample_of_all_faults_ends_as_it_should(collective: str, algorithm: str) -> None:
    of_one_size = GROUPS[lot(collective, algorithm) % len(GROUPS)]
    for case in cases(collective, algorithm, [of_one_size]):
        if lot(str(case)) % SAMPLE == 0:
            check(case)


@pytest.mark.long
@pytest.mark.parametrize(("collective", "algorithm"), EVERY)
def test_every_fault_at_every_place_ends_as_it_should(collective: str, algorithm: str) -> None:
    for case in cases(collective, algorithm):
        check(case)


def test_a_rank_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(faults.KNOWN, "stops", 1e6)
    with pytest.raises(AssertionError, match="rank 0 hangs since") as error:
        check(Case("allreduce", "doubling", 5, 1, "leave", "stops", rank=2))
    assert error.value.__notes__ == [
        "to see it again: PYTHONPATH=tests python -m support.faults allreduce:doubling:5:1:leave:stops:2:0:0"
    ]


def test_a_dead_link_of_which_nobody_tells_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults.Accusations, "accuse", lambda *_: None)
    with pytest.raises(AssertionError, match=r"rank \d hangs since"):
        check(Case("allreduce", "doubling", 5, 1, "leave", "cut", rank=2))


def test_wrong_data_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "expected", lambda case: [b"other"] * case.size)
    with pytest.raises(AssertionError, match="rank 0 has wrong data"):
        check(Case("allreduce", "doubling", 5, 1))


def test_a_case_can_be_seen_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["faults.py", "bcast:linear:5:1000:barrier:lost:2:0:0"])
    faults.main()
    assert re.search(r"2 -> \d lost  EAGER", capsys.readouterr().out)
