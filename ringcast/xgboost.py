"""XGBoost's distributed training among the ranks of a communicator, which starts it, and ends it if a rank fails."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ringcast._util.optional import how_to_install
from ringcast.boosting.cut import Cut
from ringcast.boosting.leaving import give_up, loaded
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.control.client import ControlClient
from ringcast.errors import UsageError
from ringcast.wire.error_text import in_a_line
from ringcast.wire.transport_kinds import TCP

__all__ = ["network"]

OLDEST = (3, 0)  # the tests ran with 3.2.0; others from here on are admitted untried
NOTICE = 2.0  # seconds in which ringcast hears of a rank whose connections XGBoost has lost


@contextmanager
def network(comm: Communicator) -> Iterator[None]:
    """Let XGBoost train among the ranks of a communicator as long as the context lasts, in this thread.

    Collective: all ranks enter the context, make the same calls of XGBoost there, and leave it. It does the work of
    `xgboost.collective.CommunicatorContext`, and of the tracker, which runs at rank 0. XGBoost's rank is the one of
    `comm`. Its data travel over connections of its own, which are not encrypted.

    Cost: once, the one of `dup`, `allgather`, `bcast` and `free`, and about 0.2 s until XGBoost's tracker runs.

    Args:
        comm: its `timeout`, in whole seconds, is the limit of each wait of XGBoost's; without one, that has its own
            limit of 300 s.

    Raises:
        UsageError: on all ranks: one lacks XGBoost, it is too old, or is not the same version everywhere; a thread has
            a communicator of XGBoost's already; the ranks are threads.
        PeerFailed, Revoked, JobAborted: a rank has failed, or left the context by an error. XGBoost's call ends by an
            error of its own when its connections are cut, and this one takes its place at the end of the context.

    >>> with ringcast.xgboost.network(comm): print(xgboost.collective.get_world_size())
    1
    """
    collective = loaded(comm, "XGBoost", _load)
    if comm.size == 1:
        yield
        return
    control = group_of(comm).endpoint.control
    if not isinstance(control, ControlClient):
        raise UsageError(f"rank {comm.rank}: XGBoost needs ranks that are processes")
    own = comm.dup()
    with Cut(own, control) as cut:
        try:
            with _tracker(own, control, cut) as address, _connected(own, collective, address, cut):
                yield
        except BaseException as error:
            if not (_is_of_network(error) and cut.heard.wait(NOTICE)):
                give_up(own, "XGBoost's network", error)
                raise
            found = error
        else:
            own.free()
            return
        own.barrier()  # raises what was heard; XGBoost's error says only that a connection has ended
        raise found


def _load(rank: int) -> tuple[Any, str]:
    """Return XGBoost's module of collectives, and its version."""
    try:
        import xgboost
        import xgboost.collective as collective
    except Exception as error:  # one of its own, if it lacks a library of the system
        words = f"rank {rank}: XGBoost cannot be imported ({in_a_line(error)}); {how_to_install('xgboost')}"
        raise UsageError(words) from None
    version: str = xgboost.__version__
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"rank {rank}: XGBoost {version} is too old, {oldest} is needed; {how_to_install('xgboost')}")
    if collective.is_distributed():
        raise UsageError(f"rank {rank}: this thread has a communicator of XGBoost's already; leave its context first")
    return collective, version


@contextmanager
def _tracker(comm: Communicator, control: ControlClient, cut: Cut) -> Iterator[dict[str, Any]]:
    """Run XGBoost's tracker at rank 0; yield its address on all ranks."""
    if comm.rank:
        address = comm.bcast()
        cut.tracker = _place(address)
        yield address
        return
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=comm.size, host_ip=_host(control.card.address), sortby="task")
    try:
        tracker.start()
        address = tracker.worker_args()
        cut.tracker = _place(address)
        yield comm.bcast(address)
    finally:
        # It fails if not all ranks have left, and waits if one that has not said who it is does nothing more.
        with suppress(XGBoostError), cut.soon():
            tracker.free()


@contextmanager
def _connected(comm: Communicator, collective: Any, address: dict[str, Any], cut: Cut) -> Iterator[None]:
    """Connect XGBoost's ranks, which it sorts by a text, in the order of the communicator."""
    import xgboost

    about = {"dmlc_task_id": f"{comm.rank:010}", "dmlc_retry": 1}  # all that is called listens already, or never will
    if comm.timeout is not None:
        about["dmlc_timeout"] = math.ceil(comm.timeout)
    with cut.connecting():
        collective.CommunicatorContext(**address, **about).__enter__()
    try:
        yield
    except BaseException:
        # The first error counts, and not that the tracker may be gone by now.
        with xgboost.config_context(verbosity=0), cut.soon():
            for _ in range(2):  # XGBoost keeps its state where its first try was cut
                with suppress(Exception):
                    collective.finalize()
        raise
    collective.finalize()
    comm.barrier()  # the tracker lasts until all have left


def _place(address: dict[str, Any]) -> tuple[str, int]:
    """Return host and port in an address of the tracker."""
    return str(address["dmlc_tracker_uri"]), int(address["dmlc_tracker_port"])


def _host(address: str) -> str:
    """Return the address of this host for the other ranks, by the one of this rank."""
    if not address.startswith(TCP.scheme):
        return "127.0.0.1"  # all ranks share this host
    return address.removeprefix(TCP.scheme).rpartition(":")[0].strip("[]")


def _is_of_network(error: BaseException) -> bool:
    """Return whether an error may be one of XGBoost's connections."""
    from xgboost.core import XGBoostError

    return isinstance(error, XGBoostError) and "collective" in str(error)
