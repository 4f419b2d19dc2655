"""Ranks that train with LightGBM over a communicator, one of which comes to a bad end, or makes a mistake.

The argument names it. A rank prints a JSON object with the error that it got, and its time on the machine's clock.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np

import ringcast
import ringcast.lightgbm

VICTIM, ROUND = 1, 20
Comm = ringcast.Communicator


def train(
    comm: Comm, network: dict[str, Any], at_round: Callable[[int], None] = lambda _: None, n: int = 10**9
) -> None:
    parameters = {"verbose": -1, "num_threads": 1, "num_leaves": 7, **network}
    rng = np.random.default_rng(comm.rank)
    x = rng.normal(size=(500, 5))
    rows = lightgbm.Dataset(x, x[:, 0] + np.sin(x[:, 1]), params=parameters)
    lightgbm.train(parameters, rows, n, callbacks=[lambda env: at_round(env.iteration)])


def end(comm: Comm, how: Callable[[], Any]) -> None:
    """Train; after some rounds the victim ends."""

    def at_round(number: int) -> None:
        if number == ROUND and comm.rank == VICTIM:
            print(json.dumps({"rank": comm.rank, "ends": time.monotonic()}), flush=True)
            how()

    with ringcast.lightgbm.network(comm) as network:
        train(comm, network, at_round)


def fail() -> None:
    raise KeyError("doomed")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # in one of the next calls


def on_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt("by the timer")


def leave_early(comm: Comm) -> None:
    """Train, one rank for fewer rounds, as after an early stop by its own rows."""
    with ringcast.lightgbm.network(comm) as network:
        train(comm, network, n=5 + 5 * (comm.rank != VICTIM))


def alone(comm: Comm) -> None:
    with ringcast.lightgbm.network(comm):
        train(comm, {})


def with_own_sockets(comm: Comm) -> None:
    with ringcast.lightgbm.network(comm) as network:
        train(comm, {**network, "machines": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"})


def twice(comm: Comm) -> None:
    with ringcast.lightgbm.network(comm), ringcast.lightgbm.network(comm):
        pass


def other_version(comm: Comm) -> None:
    as_if(comm, "4.6.0" if comm.rank == VICTIM else "4.7.0")


def too_old(comm: Comm) -> None:
    as_if(comm, "3.3.5")


def one_too_old(comm: Comm) -> None:
    as_if(comm, "3.3.5" if comm.rank == VICTIM else "4.7.0")


def one_without(comm: Comm) -> None:
    """Enter the context with one rank that cannot import LightGBM."""
    true = sys.modules["lightgbm"]
    if comm.rank == VICTIM:
        sys.modules["lightgbm"] = None  # type: ignore[assignment]
    try:
        with ringcast.lightgbm.network(comm):
            pass
    finally:
        sys.modules["lightgbm"] = true


def as_if(comm: Comm, version: str) -> None:
    """Enter the context with a LightGBM that says that it has this version."""
    true, lightgbm.__version__ = lightgbm.__version__, version
    try:
        with ringcast.lightgbm.network(comm):
            pass
    finally:
        lightgbm.__version__ = true


CASES: dict[str, Callable[[Comm], None]] = {
    "kill": lambda comm: end(comm, kill),
    "raise": lambda comm: end(comm, fail),
    "interrupt": lambda comm: end(comm, interrupt),
    "leave early": leave_early,
    "alone": alone,
    "own sockets": with_own_sockets,
    "twice": twice,
    "other version": other_version,
    "too old": too_old,
    "one too old": one_too_old,
    "one without": one_without,
}


def main() -> None:
    """Be a rank; afterwards train with what is left, where all ranks live."""
    signal.signal(signal.SIGALRM, on_interrupt)
    comm = ringcast.init()
    try:
        CASES[sys.argv[1]](comm)
    except BaseException as error:
        told = {"rank": comm.rank, "error": type(error).__name__, "text": str(error), "time": time.monotonic()}
        print(json.dumps(told), flush=True)
    left = comm.shrink()
    with ringcast.lightgbm.network(left) as network:
        train(left, network, n=3)
    print(json.dumps({"rank": comm.rank, "left": left.size}), flush=True)


if __name__ == "__main__":
    main()
