"""Decide the verdict on a job: its exit code, and the rank to name. Pure, over the fates of all ranks.

A job that goes on after failures (`continues`) has succeeded if some rank has outlived the failures: it finished,
exited with 0 and without an unanswered error, and knew of the failures when it finished. A rank that left before a
failure has not outlived it: no rank did the work of the failed ranks. A failure that follows from another one need not
be outlived, as it is the same failure. All ranks that finished have to be well.

A worker that failed only because of others names the ranks that it blames. So the root cause of several failures is
decided at the end, when all of them are known: the blame is followed to its end.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import field, replace

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.errors import CollectiveMismatch, PeerFailed, Revoked
from ringcast.procs.portable import signal_name
from ringcast.wire.control_messages import NO_FAILURE
from ringcast.wire.failure import Failure
from ringcast.wire.unanswered import Unanswered

EVERY_CALL = "every rank has to make every collective call, and every message needs a send and a recv"
_DIFFERS = re.compile(r" differs?: mine ")  # in the text of a mismatch if both calls are known


@dataclass(frozen=True, slots=True)
class Verdict:
    """All workers have ended. `rank` is the rank to name; None where the cause lies outside of the workers."""

    code: int
    rank: int | None = None
    how: str = ""
    traceback: str = ""
    witness: int | None = None  # the rank that raised it, if another one is named


@dataclass(slots=True)
class Worker:
    """The state of one rank: the fate of its process, and its own reports."""

    status: int | None = None
    joined: bool = False
    too_late: bool = False
    finished: bool = False
    caught: Unanswered | None = None
    lost: str = ""  # the reason of other ranks that could not reach this one, and count it as failed
    outlived: frozenset[int] = frozenset()  # failed ranks that it, or the launcher, knew of when it finished
    report: Failure = NO_FAILURE  # its own, with the ranks that it blames
    settle_by: float | None = None
    fenced: bool = False  # whether its fence was asked for, or its end was under way already
    to_declare: Failure | None = None  # once it is fenced


@dataclass(slots=True)
class Past:
    """The events of a job so far."""

    workers: list[Worker]
    continues: bool  # the other ranks go on without the failed ones
    started: bool = False
    failed: dict[int, str] = field(default_factory=dict)  # ranks that failed by themselves, in order, and how
    caught: list[int] = field(default_factory=list)  # ranks that caught an error and did not answer it, in order
    ended: set[int] = field(default_factory=set)  # ranks that were alive when the launcher began to end them
    passed_on: set[int] = field(default_factory=set)  # signals

    def verdict(self, *, ended: bool) -> Verdict:
        """Return the verdict after the end of all ranks; `ended`: the launcher ended the job because of a failure."""
        if not ended and self._well():
            return Verdict(0)
        # Where ranks go on without the failed ones, a failure alone is not the cause of the job's end.
        first = [*self.caught, *self.failed] if self.continues else [*self.failed, *self.caught]
        found = self._judge(self._lowest_alike(first[0]))
        return found if ended or found.rank is None else replace(found, how=found.how + self._why_not_well(found.rank))

    def causes(self, rank: int) -> set[int]:
        """Return the failed ranks that a failed rank blames."""
        return self._blamed_by(rank) & self.failed.keys() - {rank}

    def described(self, status: int) -> str:
        """Return in words how a process ended."""
        passed_on = -status in self.passed_on
        return f"{describe(status)}, passed on by the launcher" if passed_on else describe(status)

    def _lowest_alike(self, rank: int) -> int:
        """Return the lowest rank with the same own error as `rank`, because chance decides which of them comes first.

        After a mismatch, a rank that knows the other rank's whole call is preferred.
        """
        mine = self._own_error(rank)
        alike = [other for other in self.failed if mine and self._own_error(other) == mine]
        return min(alike, key=lambda other: (not self._knows_both(other), other), default=rank)

    def _knows_both(self, rank: int) -> bool:
        return _DIFFERS.search(self.workers[rank].report.cause) is not None

    def _own_error(self, rank: int) -> tuple[object, ...]:
        """Return the kind and the place of a rank's error that blames no other rank; empty if there is none."""
        worker = self.workers[rank]
        report = worker.report
        if rank not in self.failed or self._blamed_by(rank):
            return ()
        if not report.cause:  # before init it had no peers; a rank that joined too late was refused
            return () if worker.joined or worker.too_late else (worker.status,)
        kind = report.cause.partition(":")[0]
        if kind == CollectiveMismatch.__name__:  # both ranks raise it, each in its own call
            return kind, worker.status
        return kind, worker.status, *(line for line in report.traceback.splitlines() if line.startswith('  File "'))

    def _well(self) -> bool:
        if self.caught:
            return False
        finished = [worker for rank, worker in enumerate(self.workers) if worker.finished and rank not in self.failed]
        as_wished = len(finished) == sum(worker.finished for worker in self.workers)
        return not self.failed or (as_wished and any(self._roots <= worker.outlived for worker in finished))

    @property
    def _roots(self) -> set[int]:
        """The failed ranks that blame no other failed rank; all failed ranks, if each blames another."""
        roots = {rank for rank in self.failed if not self.causes(rank)}
        return roots or set(self.failed)

    def _why_not_well(self, rank: int) -> str:
        """Return why a failed rank makes a job fail although the others were to go on; empty if it needs no words."""
        finished = {other for other, worker in enumerate(self.workers) if worker.finished}
        if not self.continues or rank not in self.failed or not finished.isdisjoint(self.failed):
            return ""
        for other in self.caught:
            if (caught := self._only_caught(other)) is not None:
                return f"; rank {other} went on without an answer to it: {caught.kind} {caught.how}"
        return "; no rank that finished has outlived it" if finished else ""

    def _judge(self, rank: int, seen: frozenset[int] = frozenset()) -> Verdict:
        """Return the verdict on a failed rank, or on the rank that it rightly blames."""
        report, seen = self.workers[rank].report, seen | {rank}
        blamed = self._blamed_by(rank)
        if (link := self.workers[rank].lost) and report.blames:  # its source may be at neither end of the link
            return Verdict(1, rank, f"failed: {link}", report.traceback)
        if self._told_of_itself(rank, blamed):
            return self._own_failure(rank)
        for other in (*self.failed, *self.caught):
            if other in blamed and other not in seen:
                return self._judge(other, seen)
        if (caught := self._only_caught(rank)) is not None and caught.kind != PeerFailed.__name__:
            return self._own_failure(rank)  # the rank needed no rank that had left
        for other in sorted(blamed):
            worker = self.workers[other]
            # A rank that had finished, and was ended by us while it closed its sockets, would have exited with 0.
            left = worker.status == 0 or (worker.finished and other in self.ended)
            if left and other not in self.failed and other not in seen:
                how = "without joining" if not worker.joined else f"while rank {rank} still communicated with it"
                if caught is not None:
                    how += f" (PeerFailed {caught.how})"
                elif worker.joined:
                    how += f"; {EVERY_CALL}"
                return Verdict(
                    1, other, f"exited with code 0 {how}", report.traceback, rank if report.traceback else None
                )
        return self._own_failure(rank)

    def _told_of_itself(self, rank: int, blamed: Collection[int]) -> bool:
        """Return whether a rank heard from a rank which blames it that it counts as failed itself.

        The other ranks may notify it of a lost link before they notify the control plane, and it may have ended then.
        """
        caught = self._only_caught(rank)
        kind = self.workers[rank].report.cause.partition(":")[0] if caught is None else caught.kind
        return kind == Revoked.__name__ and any(rank in self._blamed_by(other) for other in blamed)

    def _blamed_by(self, rank: int) -> set[int]:
        worker = self.workers[rank]
        known, caught = range(len(self.workers)), self._only_caught(rank)
        blamed = {other for other in (worker.report.blames if caught is None else caught.blames) if other in known}
        if (worker.joined or worker.too_late) and not self.started:
            # It could not have started without the ranks that never joined.
            blamed |= {other for other, w in enumerate(self.workers) if w.status == 0 and not w.joined}
        return blamed

    def _only_caught(self, rank: int) -> Unanswered | None:
        """Return the unanswered error that a rank caught, if the rank has not failed otherwise as well."""
        return None if rank in self.failed else self.workers[rank].caught

    def _own_failure(self, rank: int) -> Verdict:
        worker = self.workers[rank]
        if (caught := self._only_caught(rank)) is not None:
            return Verdict(1, rank, f"failed: {caught}")
        status, report = worker.status, worker.report
        told = rank in self.ended or not status  # its own report counts, not the way in which it was ended later
        how = self.failed[rank] if told or status is None else self.described(status)
        if report.cause and (told or status == 1):  # with code 1 Python ends after an uncaught error
            how = report.cause.partition("\n")[0]
        code = 1 if told or status is None else exit_code(status)
        return Verdict(code, rank, f"failed: {how}", report.traceback)


def missed(failure: Failure) -> str:
    """Return a line about a rank without which the others go on.

    >>> missed(Failure("PeerFailed: rank 1: peer rank 3 failed", blames=(3,)))
    'has ended because of rank 3: it did not catch PeerFailed'
    >>> missed(Failure("exit code 3", blames=(3,)))
    'failed: exit code 3'
    """
    ended = failure.cause.startswith(("exit code ", "killed by "))  # as `describe` says of an end without an error
    if ended or not failure.blames:
        return f"failed: {failure.cause}"
    kind = failure.cause.partition(":")[0]
    return f"has ended because of {ranks_in_words(failure.blames)}: it did not catch {kind}"


def describe(status: int) -> str:
    """Return in words how a process ended.

    >>> describe(3), describe(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    return f"exit code {status}" if status >= 0 else f"killed by {signal_name(-status)}"


def exit_code(status: int) -> int:
    """Return the exit code by which a shell reports the end of a process: its own, or 128 + signal.

    >>> exit_code(3), exit_code(-9)
    (3, 137)
    """
    return status if status >= 0 else 128 - status
