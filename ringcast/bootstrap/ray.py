"""`ringcast.on_ray`: a function on n ranks in processes of a running Ray cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeVar, overload

from ringcast.bootstrap import hosted
from ringcast.bootstrap.hosted import RankResult, RankSpec, Results
from ringcast.communicator import Communicator
from ringcast.errors import UsageError

Returned = TypeVar("Returned")
LOOK = 1.0  # seconds after which the grace after a failure is looked at again
PLACE = 60.0  # seconds in which the cluster must have n processors free at the same time
BEGIN = 60.0  # seconds in which rank 0 must have begun


@overload
def on_ray(
    fn: Callable[[Communicator], Returned],
    n: int,
    *,
    timeout: float | None = None,
) -> list[Returned]: ...
@overload
def on_ray(
    fn: Callable[..., Returned],
    n: int,
    *,
    args: Sequence[Any],
    timeout: float | None = None,
) -> list[Returned]: ...
def on_ray(
    fn: Callable[..., Any],
    n: int,
    *,
    args: Sequence[Any] = (),
    timeout: float | None = None,
) -> list[Any]:
    """Call `fn(comm, *args)` on n ranks inside a Ray cluster, and return their results by rank.

    Every rank is an actor with a process and a processor of its own, all at the same time; `ray.init` was called
    before. Ranks meet at the node of rank 0 over tcp, encrypted, with a key made for the job.

    Cost: the start of n processes beside the call itself, as long as Ray has none that wait.

    Args:
        fn: any function that cloudpickle can pickle.
        n: number of ranks, 1 to the number of processors of the cluster.
        args: further arguments, the same on all ranks; they are sent to each.
        timeout: seconds, above 0, that a call of the communicator may take before CollectiveTimeout; None: no limit.

    Returns:
        A list of the results of `fn`, by rank.

    Raises:
        RunFailed: some rank raised, or its process died; names the first one, with its traceback.
        UsageError: Ray was not started, has fewer processors than n, or they are not free within 60 s.
        ValueError: n makes no sense.

    >>> ringcast.on_ray(lambda comm: comm.allreduce(comm.rank), 2)  # after ray.init(address="auto")
    [1, 1]
    """
    import ray
    from ray.util import remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    if n < 1:
        raise ValueError(f"n={n}: expected 1 rank or more")
    _check(n)
    job, results, actors = hosted.rank_specs(fn, n, args, timeout), Results(n), []
    group = _reserve(n)
    try:
        strategy = PlacementGroupSchedulingStrategy(group)
        kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy)(_Rank)
        actors = [kind.remote(spec) for spec in job]
        _work(actors, results)
    finally:
        for actor in actors:  # ends the actor, also in the middle of a call
            with contextlib.suppress(Exception):  # what is gone already needs no end
                ray.kill(actor)
        with contextlib.suppress(Exception):  # what is gone already needs no end
            remove_placement_group(group)
    return results.all()


def _check(n: int) -> None:
    import ray

    if not ray.is_initialized():
        raise UsageError("on_ray works in a cluster that this program is connected to: call ray.init before")
    processors = int(ray.cluster_resources().get("CPU", 0))
    if n > processors:
        raise UsageError(
            f"{n} ranks run at the same time, each on a processor of its own, but the Ray cluster has {processors}; "
            "add nodes, or take fewer ranks"
        )


def _reserve(n: int) -> Any:
    """Reserve n CPUs at once, packed on as few nodes as possible."""
    from ray.util import placement_group, remove_placement_group

    group = placement_group([{"CPU": 1}] * n, strategy="PACK")
    try:
        free = group.wait(timeout_seconds=PLACE)
    except BaseException:
        remove_placement_group(group)
        raise
    if not free:
        remove_placement_group(group)
        raise UsageError(f"the Ray cluster had not {n} processors free at the same time within {PLACE:g} s")
    return group


def _work(actors: Sequence[Any], results: Results) -> None:
    import ray

    try:
        control = ray.get(actors[0].host.remote(), timeout=BEGIN)
    except ray.exceptions.RayError as error:
        results.lost(0, _cause(error), time.monotonic())
        return
    running = {actor.work.remote(control): rank for rank, actor in enumerate(actors)}
    while not results.over(time.monotonic()):
        done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK)
        for reference in done:
            rank = running.pop(reference)
            try:
                results.ended(ray.get(reference), time.monotonic())
            except ray.exceptions.RayError as error:
                results.lost(rank, _cause(error), time.monotonic())


def _cause(error: Exception) -> str:
    return f"Ray says of its actor: {str(error).splitlines()[0]}"


class _Rank:
    """An actor: one rank, in a process of its own."""

    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._lifeline: IO[bytes] | None = None

    def host(self) -> str:
        """Start the control plane on this node, and return its address."""
        import ray

        self._lifeline, address = hosted.host(self._spec, ray.util.get_node_ip_address())
        return address

    def work(self, control: str) -> RankResult:
        """Be the rank."""
        return hosted.work(self._spec, control, self._lifeline)
