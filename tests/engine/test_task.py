"""A task that threads look at without a lock."""

from __future__ import annotations

from typing import Any

from ringcast.engine.execute import Steps
from ringcast.engine.task import Task
from ringcast.wire.call import NOWHERE
from support.jobs import Job


def test_whoever_sees_a_call_done_finds_its_result_or_error() -> None:
    class Watched(Task[Any]):
        """A task that notes what another thread finds that sees it done."""

        found: tuple[Any, BaseException | None] | None = None

        @property
        def done(self) -> bool:
            return self.found is not None

        @done.setter
        def done(self, value: bool) -> None:
            if value:
                self.found = self._result, self.error

    def steps(error: Exception | None) -> Steps[int]:
        if error is not None:
            raise error
        return 3
        yield

    job, wrong = Job("threads", 1), ValueError("wrong")
    for error, found in (None, (3, None)), (wrong, (None, wrong)):
        task = Watched(job.endpoints[0], steps(error), NOWHERE)
        task.advance()
        assert task.found == found
    job.close()
