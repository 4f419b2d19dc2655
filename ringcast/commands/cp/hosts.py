"""Copy to many hosts: leave out hosts that cannot be reached, and try them once more at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ringcast.commands.cp.launch import Outcome
from ringcast.transfer.report import CopyReport, RankReport

Run = Callable[[Sequence[str]], Outcome]  # copies to some of the hosts


def copy_to_all(hosts: Sequence[str], run: Run, say: Callable[[str], None]) -> Outcome:
    """Copy to all hosts that can be reached; then once more to the hosts that were unreachable or were lost."""
    first = _copy_to_some(hosts, run)
    if first.report is None:
        return first
    missed = {hosts[each.rank - 1]: each.error for each in first.report.ranks if _is_missed(each)}
    if not missed:
        return first
    say(f"trying once more: {', '.join(missed)}")
    second = _copy_to_some(list(missed), run)
    return Outcome(_after_second(first.report, hosts, missed, second), tried_again=missed)


def _is_missed(report: RankReport) -> bool:
    """Return whether a host was lost or unreachable: its report then has an error but no host name of its own."""
    return bool(report.error) and not report.host


def _copy_to_some(hosts: Sequence[str], run: Run) -> Outcome:
    """Copy to the hosts that can be reached; a host that fails to start is left out of the next attempt."""
    unreachable: dict[str, str] = {}
    while (outcome := run(reached := [host for host in hosts if host not in unreachable])).failed:
        if outcome.started or outcome.failed.keys() <= unreachable.keys():
            break
        unreachable |= outcome.failed
        if unreachable.keys() >= set(hosts):
            return replace(outcome, failed=unreachable)
    if outcome.report is None:
        return replace(outcome, failed={**unreachable, **outcome.failed})
    numbers = {host: number for number, host in enumerate(hosts, 1)}
    ranks = [replace(each, rank=numbers[reached[each.rank - 1]]) for each in outcome.report.ranks]
    ranks += [RankReport(numbers[host], "", error=why) for host, why in unreachable.items()]
    return Outcome(_with_ranks(outcome.report, ranks))


def _after_second(report: CopyReport, hosts: Sequence[str], missed: Mapping[str, str], second: Outcome) -> CopyReport:
    """Return one report of both copies; without a second report the missed hosts get the second copy's errors."""
    numbers = [hosts.index(host) + 1 for host in missed]
    if second.report is None:
        errors = [second.failed.get(host) or second.error or first for host, first in missed.items()]
        again = [RankReport(number, "", error=why) for number, why in zip(numbers, errors, strict=True)]
        sent, travelled, seconds = 0, 0, 0.0
    else:
        again = [replace(each, rank=numbers[each.rank - 1]) for each in second.report.ranks]
        sent, travelled, seconds = second.report.sent, second.report.travelled, second.report.seconds
    ranks = [each for each in report.ranks if each.rank not in numbers] + again
    return replace(
        _with_ranks(report, ranks),
        sent=report.sent + sent,
        travelled=report.travelled + travelled,
        seconds=report.seconds + seconds,
    )


def _with_ranks(report: CopyReport, ranks: list[RankReport]) -> CopyReport:
    return replace(report, ranks=tuple(sorted(ranks, key=lambda each: each.rank)))
