"""Actors of Ray that do what a test gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

Function = Callable[..., Any]


@ray.remote(num_cpus=0)
class Rank:
    """A process."""

    def do(self, function: Function, *args: Any) -> Any:
        """Return what the function does."""
        return function(*args)

    def attempt(self, function: Function, *args: Any) -> tuple[BaseException | None, float]:
        """Return the error that ends the function, and when; for both it passes through Ray whole."""
        try:
            function(*args)
        except Exception as error:
            return error, time.time()
        return None, time.time()


@ray.remote(num_cpus=0)
def task(function: Function, *args: Any) -> Any:
    """Return what the function does, in a task."""
    return function(*args)


def on_all(actors: Sequence[Any], function: Function, *args: Any) -> list[Any]:
    """Return by rank what `function(rank, *args)` gives on these actors."""
    return list(ray.get([actor.do.remote(function, rank, *args) for rank, actor in enumerate(actors)]))


def errors_of(actors: Sequence[Any], function: Function, *args: Any) -> list[Any]:
    """Return by rank the error of `function(rank, *args)`, and when it came."""
    return list(ray.get([actor.attempt.remote(function, rank, *args) for rank, actor in enumerate(actors)]))
