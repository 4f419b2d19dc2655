"""A copy leaves out hosts that cannot be reached and tries them once more: all combinations for three hosts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ringcast.commands.cp.hosts import copy_to_all
from ringcast.commands.cp.launch import Outcome
from ringcast.transfer.report import CopyReport, RankReport

HOSTS = ("a", "b", "c")
FATES = ("right", "lost", "full", "unreachable")  # what becomes of a host in a copy


def copied(first: Sequence[str], second: Sequence[str]) -> tuple[Outcome, list[Sequence[str]], list[str]]:
    """Copy with these fates of the hosts, before and after the message of a second try; also return what was run."""
    runs: list[Sequence[str]] = []
    said: list[str] = []

    def run(hosts: Sequence[str]) -> Outcome:
        runs.append(hosts)
        fates = dict(zip(HOSTS, second if said else first, strict=True))
        if away := {host: f"{host} is away" for host in hosts if fates[host] == "unreachable"}:
            return Outcome(failed=away, started=False)
        if all(fates[host] == "full" for host in hosts):
            return Outcome(failed=dict.fromkeys(hosts, "full"))
        ranks = tuple(told(number, host, fates[host]) for number, host in enumerate(hosts, 1))
        return Outcome(CopyReport(1, 10, 10, 10, 1.0, ranks))

    return copy_to_all(HOSTS, run, said.append), runs, said


def told(rank: int, host: str, fate: str) -> RankReport:
    if fate == "lost":
        return RankReport(rank, "", error="lost")
    return RankReport(rank, f"machine {host}", 10, error="full" if fate == "full" else "")


def test_every_host_is_told_what_became_of_it_at_last() -> None:
    for first, second in product(product(FATES, repeat=3), repeat=2):
        outcome, runs, said = copied(first, second)
        assert len(runs) <= 4, "a host that is away is not asked again and again"
        if not {"right", "lost"} & set(first):  # nothing was copied
            assert outcome.report is None
            assert outcome.failed == {
                host: f"{host} is away" if fate == "unreachable" else "full"
                for host, fate in zip(HOSTS, first, strict=True)
            }
            assert not said
            continue
        assert outcome.report is not None
        again = [host for host, fate in zip(HOSTS, first, strict=True) if fate in ("lost", "unreachable")]
        assert said == ([f"trying once more: {', '.join(again)}"] if again else [])
        assert list(outcome.tried_again) == again
        last = [two if host in again else one for host, one, two in zip(HOSTS, first, second, strict=True)]
        expected = [
            {"right": "", "unreachable": f"{host} is away"}.get(fate, fate)
            for host, fate in zip(HOSTS, last, strict=True)
        ]
        assert [(each.rank, each.error) for each in outcome.report.ranks] == list(enumerate(expected, 1))
        assert outcome.ok == (set(last) == {"right"})
