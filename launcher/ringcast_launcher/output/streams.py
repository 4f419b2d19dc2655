"""The output streams of all ranks: each goes to its sink, and its end is kept for the report of a failure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ringcast_launcher.output.output import Both, Sink, Tail, Writer, coloured, open_sinks
from ringcast_launcher.plan.job import Job, JobError, shown_ranks


class Outputs:
    """The output of all ranks; `close` closes the files, even before the end of all streams."""

    def __init__(self, job: Job, hosts: Sequence[str], writer: Writer) -> None:
        """Open the files; `hosts` are the host names of the ranks.

        Raises:
            JobError: a file cannot be opened; none is left open.
        """
        self._sinks: dict[tuple[int, int], Sink] = {}  # by rank and stream
        self._tails = [Tail() for _ in hosts]
        self._files = ExitStack()
        colours = (coloured(1, job.environment), coloured(2, job.environment))
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
                    colours=colours,
                    files=self._files,
                    mode=mode,
                    shown=shown,
                )
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

    def end(self) -> None:
        """End all streams that have not ended, and close the files."""
        for sink in self._sinks.values():
            sink.end()
        self.close()

    def close(self) -> None:
        self._files.close()
