"""Ranks that train with XGBoost, over its own tracker and over ringcast's; one may come to a bad end.

With `models` as argument rank 0 prints the digests of all models; with the name of a case a rank prints a JSON object
with the error that it got, and its time on the machine's clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

import ringcast
import ringcast.xgboost

VICTIM, ROUND = 1, 20
Comm = ringcast.Communicator


class AtRound(xgboost.callback.TrainingCallback):
    """Calls a function with the number of each round."""

    def __init__(self, call: Callable[[int], None]) -> None:
        super().__init__()
        self.call = call

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.call(epoch)
        return False


def train(rank: int, n: int, at_round: Callable[[int], None] = lambda _: None, **parameters: Any) -> xgboost.Booster:
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(1000 + 300 * rank, 8))
    y = x[:, 0] + np.sin(x[:, 1]) * x[:, 2] + rng.normal(size=len(x)) / 3
    return xgboost.train(
        {"nthread": 1, "max_depth": 5, **parameters}, xgboost.DMatrix(x, y), n, callbacks=[AtRound(at_round)]
    )


def digest(booster: xgboost.Booster) -> str:
    return hashlib.md5(bytes(booster.save_raw("json"))).hexdigest()


def models(comm: Comm) -> None:
    """Train over a tracker that the program starts by XGBoost's own words, and over ringcast's."""
    kinds: list[dict[str, Any]] = [
        {},
        {"tree_method": "approx"},
        {"subsample": 0.5, "colsample_bytree": 0.5, "seed": 3},
    ]
    tracker = RabitTracker(n_workers=comm.size, host_ip="127.0.0.1", sortby="task") if comm.rank == 0 else None
    if tracker:
        tracker.start()
    address = comm.bcast(tracker.worker_args() if tracker else None)
    with collective.CommunicatorContext(**address, dmlc_task_id=f"{comm.rank:03}"):
        own = [digest(train(comm.rank, 10, **kind)) for kind in kinds]
    with ringcast.xgboost.network(comm):
        assert (collective.get_rank(), collective.get_world_size()) == (comm.rank, comm.size)
        ours = [digest(train(comm.rank, 10, **kind)) for kind in kinds]
    found = comm.allgather([own, ours])
    if comm.rank == 0:
        print(json.dumps(found))


def end(comm: Comm, how: Callable[[], Any], victim: int = VICTIM) -> None:
    """Train; after some rounds the victim ends."""

    def at_round(number: int) -> None:
        if number == ROUND and comm.rank == victim:
            print(json.dumps({"rank": comm.rank, "ends": time.monotonic()}), flush=True)
            how()

    with ringcast.xgboost.network(comm):
        train(comm.rank, 10**6, at_round)


def fail() -> None:
    raise KeyError("doomed")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def keep(comm: Comm) -> None:
    """Fail on one rank; afterwards connections that the program made in the context are whole."""
    pairs = []
    try:
        with ringcast.xgboost.network(comm):
            with socket.create_server(("127.0.0.1", 0)) as server:
                pairs += [socket.create_connection(server.getsockname()), server.accept()[0]]
            train(comm.rank, 3)
            if comm.rank == VICTIM:
                fail()
            train(comm.rank, 10**6)
    finally:
        pairs[0].sendall(b"whole")
        assert pairs[1].recv(5) == b"whole"


def leave_early(comm: Comm) -> None:
    with ringcast.xgboost.network(comm):
        train(comm.rank, 10 if comm.rank == VICTIM else 20)


def never_come(comm: Comm) -> None:
    """Fail on one rank where XGBoost connects the ranks."""
    if comm.rank == VICTIM:
        collective.CommunicatorContext = lambda **_: fail()  # type: ignore[assignment, misc]
    with ringcast.xgboost.network(comm):
        pass


def twice(comm: Comm) -> None:
    with ringcast.xgboost.network(comm), ringcast.xgboost.network(comm):
        pass


def wrong_parameter(comm: Comm) -> None:
    with ringcast.xgboost.network(comm):
        train(comm.rank, 3, tree_method="none such")


def as_if(comm: Comm, version: str) -> None:
    true, xgboost.__version__ = xgboost.__version__, version
    try:
        with ringcast.xgboost.network(comm):
            pass
    finally:
        xgboost.__version__ = true


def one_without(comm: Comm) -> None:
    """Enter the context with one rank that cannot import XGBoost."""
    true = sys.modules["xgboost"]
    if comm.rank == VICTIM:
        sys.modules["xgboost"] = None  # type: ignore[assignment]
    try:
        with ringcast.xgboost.network(comm):
            pass
    finally:
        sys.modules["xgboost"] = true


CASES: dict[str, Callable[[Comm], None]] = {
    "kill 0": lambda comm: end(comm, kill, 0),
    "kill 1": lambda comm: end(comm, kill, 1),
    "raise": lambda comm: end(comm, fail),
    "keep": keep,
    "leave early": leave_early,
    "never come": never_come,
    "twice": twice,
    "wrong parameter": wrong_parameter,
    "other version": lambda comm: as_if(comm, "3.1.0" if comm.rank == VICTIM else "3.2.0"),
    "too old": lambda comm: as_if(comm, "2.1.4"),
    "one too old": lambda comm: as_if(comm, "2.1.4" if comm.rank == VICTIM else "3.2.0"),
    "one without": one_without,
}


def main() -> None:
    """Be a rank; after a bad end train with what is left."""
    comm = ringcast.init()
    if sys.argv[1] == "models":
        return models(comm)
    context = collective.CommunicatorContext
    try:
        CASES[sys.argv[1]](comm)
    except BaseException as error:
        told = {"rank": comm.rank, "error": type(error).__name__, "text": str(error), "time": time.monotonic()}
        print(json.dumps(told), flush=True)
    collective.CommunicatorContext = context  # type: ignore[misc]
    left = comm.shrink()
    with ringcast.xgboost.network(left):
        train(left.rank, 3)
    print(json.dumps({"rank": comm.rank, "left": left.size}), flush=True)
    return None


if __name__ == "__main__":
    main()
