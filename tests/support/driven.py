"""Run a call on an endpoint whose messages the test delivers."""

from __future__ import annotations

from collections.abc import Generator

from ringcast.engine.drive import deadlines
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Result, Steps
from ringcast.engine.task import begin


def driven(endpoint: Endpoint, steps: Steps[Result]) -> Generator[float, object, Result]:
    """Run `steps` as `drive` does, but yield the deadline of each wait, until which the test makes progress."""
    task = begin(endpoint, steps)
    yield from deadlines(endpoint, [task], None)
    return task.result
