"""Pass the output streams of all ranks to their sinks, and keep the end of each for the report of a failure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf

from ringcast_launcher.decide.equal_errors import Said, only_stopped, told_once
from ringcast_launcher.decide.verdict import Verdict
from ringcast_launcher.output.held_errors import HeldErrors
from ringcast_launcher.output.output import Both, Sink, Stream, Tail, Writer, open_sinks, parse
from ringcast_launcher.plan.job import Job, JobError, shown_ranks
from ringcast_launcher.plan.ranklist import compact


class Outputs:
    """The output of all ranks. Errors that end a program are held back, so that equal ones can be shown once.

    `close` closes the files, even before the end of all streams, and passes held text on.
    """

    def __init__(self, job: Job, hosts: Sequence[str], writer: Writer) -> None:
        """Open the files; `hosts` are the host names of the ranks.

        Raises:
            JobError: a file cannot be opened; none is left open.
        """
        self._writer = writer
        self._sinks: dict[tuple[int, int], Sink] = {}  # by rank and stream
        self._tails = [Tail() for _ in hosts]
        self._held: dict[int, HeldErrors] = {}
        self._tagged = parse(job.output)[0] == "tag"
        self._files = ExitStack()
        shown = shown_ranks(job)
        mode = "ab" if job.settings.restart else "wb"
        try:
            for rank, host in enumerate(hosts):
                out, err = open_sinks(
                    job.output,
                    rank,
                    job.size,
                    host,
                    writer=writer,
                    environment=job.environment,
                    files=self._files,
                    mode=mode,
                    shown=shown,
                    prompts=rank == job.stdin and os.isatty(0),
                )
                if isinstance(err, Stream):
                    err = self._held[rank] = HeldErrors(err)
                self._sinks[rank, 1], self._sinks[rank, 2] = out, Both(err, self._tails[rank])
        except OSError as error:
            self._files.close()
            raise JobError(f"--output {job.output}: {error}") from error

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """Take output of a rank, from its standard output (1) or error (2); empty data means the end of the stream."""
        if data:
            self._sinks[rank, stream].feed(data)
        elif (sink := self._sinks.pop((rank, stream), None)) is not None:
            sink.end()

    def traceback(self, rank: int) -> str:
        """Return the traceback at the end of a rank's standard error; empty if there is none."""
        return self._tails[rank].traceback()

    @property
    def due(self) -> float:
        """The time at which `release` has something to do."""
        return min((held.due for held in self._held.values()), default=inf)

    def release(self, now: float = inf) -> None:
        """Show errors that were held back until `now`, by default all; ranks that were only stopped share a line."""
        due = {rank: held for rank, held in self._held.items() if held.due <= now}
        stopped = {rank: text for rank, held in due.items() if only_stopped(text := held.text)}
        for rank, held in due.items():
            if rank in stopped:
                held.drop()
            else:
                held.release()
        for said in told_once(stopped, None)[0]:
            self._writer.put(2, os.fsencode(self._lines(said)))

    def last_errors(self, verdict: Verdict) -> tuple[str, str]:
        """Return the errors that are still held back, equal ones once; and apart the error that is the cause.

        If a witness raised the cause, the witness's traceback replaces the text that it wrote.
        """
        texts = {rank: text for rank, held in self._held.items() if (text := held.text)}
        raised = verdict.rank if verdict.witness is None else verdict.witness
        if raised is not None and verdict.traceback and (raised == verdict.witness or raised not in texts):
            texts[raised] = verdict.traceback
        others, named = told_once(texts, raised)
        for held in self._held.values():
            held.drop()
        return "".join(map(self._lines, others)), "" if named is None else self._lines(named)

    def _lines(self, said: Said) -> str:
        prefix = f"[{compact(said.ranks)}] " if self._tagged else ""
        return "".join(f"{prefix}{line}\n" for line in said.text.splitlines())

    def end(self) -> None:
        """End all streams that have not ended, and close the files; errors are still held back."""
        for sink in self._sinks.values():
            sink.end()
        self._files.close()

    def close(self) -> None:
        self.release()
        self._files.close()
