"""ringcast as a backend of `ray.util.collective`, in actors and tasks of a real cluster of one node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringcast.errors import ArgumentError, CollectiveMismatch, CollectiveTimeout, PeerFailed, RendezvousError, Revoked
from support import needs, ray_clusters
from support.patience import patience

SIZE = 3
SOON = 2.0  # seconds until a death is known

of_ray = [
    pytest.mark.live,
    pytest.mark.timeout(240),  # Ray takes long to start on a busy machine
    pytest.mark.filterwarnings("default"),  # of Ray
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    needs.package("ray")
    hook = {
        "worker_process_setup_hook": "ringcast.ray.register",
        "py_executable": shlex.quote(sys.executable),
        "env_vars": {"RINGCAST_START_TIMEOUT": "200"},  # Ray has needed over a minute to start an actor
    }
    with ray_clusters.cluster(4, runtime_env=hook, namespace="tests") as started:
        import ray

        import ringcast.ray  # noqa: F401 (it registers the backend)

        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield started


@pytest.fixture(scope="module")
def processes(cluster: Any) -> list[Any]:
    from support.programs.ray_ranks import Rank

    return [Rank.remote() for _ in range(SIZE)]


@pytest.fixture
def actors(processes: list[Any]) -> Iterator[list[Any]]:
    """Actors in a group of their own; what a test has replaced among them stays replaced."""
    from support.programs.ray_ranks import errors_of, on_all

    on_all(processes, begin)
    yield processes
    errors_of(processes, end)


def begin(rank: int, name: str = "default", size: int = SIZE) -> None:
    from ray.util import collective

    collective.init_collective_group(size, rank, "ringcast", name)


def end(_: int, name: str = "default") -> None:
    from ray.util import collective

    collective.destroy_collective_group(name)


def all_calls(rank: int, kind: str) -> dict[str, list[Any]]:
    """Return the results of all calls, which lie where the operands were."""
    import numpy as np
    from ray.util import collective
    from ray.util.collective.types import ReduceOp

    def made(array: Any) -> Any:
        if kind == "numpy":
            return array.copy()
        import torch

        tensor = torch.from_numpy(array.copy())
        return tensor.bfloat16() if kind == "bfloat16" else tensor

    def strided(array: Any) -> Any:
        return made(np.repeat(array, 2, axis=1))[:, ::2]

    def shown(array: Any) -> Any:
        return array.tolist()

    mine, found = np.arange(6.0).reshape(2, 3) + rank, {}
    for name, op in {
        "sum": ReduceOp.SUM,
        "product": ReduceOp.PRODUCT,
        "min": ReduceOp.MIN,
        "max": ReduceOp.MAX,
    }.items():
        array = strided(mine)
        collective.allreduce(array, op=op)
        found[name] = shown(array)
    array = made(mine)
    collective.reduce(array, 1)
    found["reduce"] = shown(array)
    array = strided(mine)
    collective.broadcast(array, 2)
    found["broadcast"] = shown(array)
    parts = [made(np.zeros((each, 2))) for each in range(SIZE)]  # of rank 0 nothing
    collective.allgather(parts, made(np.full((rank, 2), float(rank))))
    found["allgather"] = [shown(part) for part in parts]
    out = made(np.zeros(rank))
    collective.reducescatter(out, [made(np.full(each, rank + 1.0)) for each in range(SIZE)])
    found["reducescatter"] = shown(out)
    array = made(mine)
    if rank == 0:
        collective.send(array, 1)
    elif rank == 1:
        collective.recv(array, 0)
    found["message"] = shown(array)
    collective.barrier()
    return found


@pytest.mark.parametrize("kind", ["numpy", "torch", "bfloat16"])
class TestCalls:
    pytestmark = of_ray

    def test_results_are_numpys(self, kind: str, actors: list[Any]) -> None:
        from support.programs.ray_ranks import on_all

        if kind != "numpy":
            needs.package("torch")
        mine = [np.arange(6.0).reshape(2, 3) + rank for rank in range(SIZE)]
        for rank, found in enumerate(on_all(actors, all_calls, kind)):
            assert found == {
                "sum": sum(mine).tolist(),
                "product": np.prod(mine, axis=0).tolist(),
                "min": mine[0].tolist(),
                "max": mine[2].tolist(),
                "reduce": (sum(mine) if rank == 1 else mine[rank]).tolist(),
                "broadcast": mine[2].tolist(),
                "allgather": [np.full((each, 2), float(each)).tolist() for each in range(SIZE)],
                "reducescatter": [6.0] * rank,
                "message": mine[0 if rank == 1 else rank].tolist(),
            }


def memory_kind(_: int) -> str:
    from ray.util import collective

    return type(collective.get_group_handle("default")._comm._group.endpoint.transport).__name__


class TestGroups:
    pytestmark = of_ray

    def test_actors_of_one_node_share_memory(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import on_all

        assert on_all(actors, memory_kind) == ["ShmTransport"] * SIZE

    def test_an_actor_is_in_several_groups(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import on_all

        def work(rank: int) -> list[float]:
            from ray.util import collective

            begin(SIZE - 1 - rank, "other")
            mine, theirs = np.array([float(rank)]), np.array([float(rank)])
            collective.broadcast(mine, 0)
            collective.broadcast(theirs, 0, "other")
            sizes = [collective.get_rank("other"), collective.get_collective_group_size("other")]
            end(rank, "other")
            return [mine[0], theirs[0], *sizes]

        assert on_all(actors, work) == [[0.0, 2.0, SIZE - 1 - rank, SIZE] for rank in range(SIZE)]

    def test_a_name_twice_is_an_error(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        for error, _ in errors_of(actors, begin):
            assert isinstance(error, RuntimeError)
            assert "second time" in str(error)

    def test_a_group_that_the_driver_declares(self, processes: list[Any]) -> None:
        from ray.util import collective

        from support.programs.ray_ranks import on_all

        def work(rank: int) -> float:
            array = np.array([rank + 1.0])
            collective.allreduce(array, "declared")
            end(rank, "declared")
            return float(array[0])

        collective.create_collective_group(processes, SIZE, list(range(SIZE)), "ringcast", "declared")
        assert on_all(processes, work) == [6.0] * SIZE

    def test_tasks_are_ranks(self, cluster: Any) -> None:
        import ray

        from support.programs.ray_ranks import task

        def work(rank: int) -> float:
            from ray.util import collective

            begin(rank, "tasks", 2)
            array = np.array([rank + 1.0])
            collective.allreduce(array, "tasks")
            end(rank, "tasks")
            return float(array[0])

        assert ray.get([task.remote(work, rank) for rank in range(2)]) == [3.0] * 2

    def test_threads_of_an_actor_take_turns(self, cluster: Any) -> None:
        import ray

        from support.programs.ray_ranks import Rank

        def work(rank: int) -> float:
            from ray.util import collective

            array = np.array([rank + 1.0])
            collective.allreduce(array, "threads")
            return float(array[0])

        actors = [Rank.options(max_concurrency=2).remote() for _ in range(2)]
        ray.get([actor.do.remote(begin, rank, "threads", 2) for rank, actor in enumerate(actors)])
        for _ in range(5):
            assert ray.get([actor.do.remote(work, rank) for rank, actor in enumerate(actors)]) == [3.0] * 2
        for actor in actors:
            ray.kill(actor)

    def test_nothing_of_a_group_stays_in_the_store(self, actors: list[Any]) -> None:
        from ray.experimental import internal_kv

        keys = internal_kv._internal_kv_list("", namespace="ringcast")
        assert [key for key in keys if not key.endswith(b"/refused")] == []


class TestReadOnly:
    pytestmark = of_ray

    @pytest.mark.parametrize("dtype", ["float64", "float16"])
    def test_arrays_that_are_only_read_may_be_read_only(self, dtype: str, actors: list[Any]) -> None:
        """As those are that `ray.get` gives."""
        from support.programs.ray_ranks import on_all

        def work(rank: int, dtype: str) -> list[Any]:
            import ray
            from ray.util import collective

            mine, out = ray.get(ray.put(np.full(2, rank + 1.0, dtype))), np.zeros(2, dtype)
            assert not mine.flags.writeable
            total = mine.copy() if rank == 1 else mine
            collective.reduce(total, 1)
            collective.reducescatter(out, [mine] * SIZE)
            parts = [np.zeros(2, dtype) for _ in range(SIZE)]
            collective.allgather(parts, mine)
            return [total.tolist(), out.tolist(), [float(part[0]) for part in parts]]

        for rank, found in enumerate(on_all(actors, work, dtype)):
            assert found == [[6.0 if rank == 1 else rank + 1.0] * 2, [6.0] * 2, [1.0, 2.0, 3.0]]


class TestErrors:
    pytestmark = of_ray

    def test_sizes_that_differ_are_an_error_on_all(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from ray.util import collective

            collective.allreduce(np.ones(10 + (rank == 1)))

        found = [error for error, _ in errors_of(actors, work)]
        assert all(isinstance(error, CollectiveMismatch | Revoked) for error in found)
        assert any(isinstance(error, CollectiveMismatch) for error in found)

    def test_a_broadcast_of_another_dtype_is_an_error(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from ray.util import collective

            collective.broadcast(np.ones(3, np.int32 if rank == 1 else np.float32), 0)
            collective.barrier()

        found = [error for error, _ in errors_of(actors, work)]
        assert isinstance(found[1], ArgumentError)
        assert "dtype float32, got a buffer of shape (3,), dtype int32" in str(found[1])
        assert isinstance(found[0], Revoked)
        assert isinstance(found[2], Revoked)

    def test_an_error_of_one_rank_ends_the_call_of_the_others(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from ray.util import collective

            parts = [np.zeros(2) for _ in range(SIZE)]
            collective.allgather(parts, np.zeros(2, np.int32 if rank == 1 else np.float64))

        found = [error for error, _ in errors_of(actors, work)]
        assert isinstance(found[1], TypeError)
        for error in found[0], found[2]:
            assert isinstance(error, Revoked)
            assert "rank 1: TypeError: expected arrays of one dtype, got float64, int32" in str(error)

    def test_an_error_of_any_kind_ends_the_call_of_the_others(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from ray.util import collective

            class Broken(np.ndarray):
                @property
                def dtype(self) -> Any:
                    raise RuntimeError("it has no dtype")

            collective.allreduce(np.ones(3).view(Broken) if rank == 1 else np.ones(3))

        found = [error for error, _ in errors_of(actors, work)]
        assert isinstance(found[1], RuntimeError)
        for error in found[0], found[2]:
            assert isinstance(error, Revoked)
            assert "rank 1: RuntimeError: it has no dtype" in str(error)

    def test_a_message_of_another_size_is_an_error(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from ray.util import collective

            if rank == 0:
                collective.send(np.ones(3), 1)
            elif rank == 1:
                collective.recv(np.ones(4), 0)

        assert errors_of(actors, work)[1][0] is not None

    def test_a_rank_that_does_not_come_is_named(self, processes: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of, on_all

        limit = f"{patience(1):g}"

        def work(rank: int) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RINGCAST_START_TIMEOUT", limit)
                begin(rank, "too small", SIZE + 1)

        on_all(processes, lambda _: None)  # the limit is for processes that have started
        for error, _ in errors_of(processes, work):
            assert isinstance(error, RendezvousError)
            assert f"rank {SIZE} of {SIZE + 1} did not come within {limit} s" in str(error)

    def test_a_call_may_have_a_limit(self, actors: list[Any]) -> None:
        from support.programs.ray_ranks import errors_of

        def work(rank: int) -> None:
            from datetime import timedelta

            from ray.util import collective
            from ray.util.collective.types import BarrierOptions

            options = BarrierOptions()
            options.timeout_ms = timedelta(milliseconds=200)
            if rank == 0:
                collective.get_group_handle("default").barrier(options)

        assert isinstance(errors_of(actors, work)[0][0], CollectiveTimeout)

    @pytest.mark.parametrize("victim", [0, 1])
    def test_an_actor_that_is_killed_is_named_and_the_others_go_on(self, victim: int, processes: list[Any]) -> None:
        import ray

        from support.programs.ray_ranks import Rank, errors_of, on_all

        def work(rank: int) -> None:
            from ray.util import collective

            collective.allreduce(np.ones(10), "doomed")

        on_all(processes, begin, "doomed")
        ready = [actor.attempt.remote(work, rank) for rank, actor in enumerate(processes) if rank != victim]
        assert not ray.wait(ready, timeout=0.5)[0]
        killed = time.time()
        ray.kill(processes[victim])
        for error, when in ray.get(ready):
            assert isinstance(error, PeerFailed)
            assert error.peer == victim
            assert when - killed < patience(SOON)
        survivors = [actor for rank, actor in enumerate(processes) if rank != victim]
        errors_of(survivors, end, "doomed")
        processes[victim] = Rank.remote()
        on_all(processes, begin, "doomed")
        assert [error for error, _ in errors_of(processes, work)] == [None] * SIZE
        errors_of(processes, end, "doomed")


def imported(path: Path | str, before: str = "") -> str:
    """Return the last line of a program that imports the door where `path` has another Ray."""
    program = f"{before}\nimport ringcast.ray"
    env = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=patience(60)
    )
    return done.stderr.splitlines()[-1]


def test_a_ray_without_the_door_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "ray" / "util" / "collective"
    folder.mkdir(parents=True)
    (tmp_path / "ray" / "__init__.py").write_text("__version__ = '2.40.0'")
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    text = imported(tmp_path)
    assert text.startswith(
        "ringcast.errors.UsageError: Ray 2.40.0 takes no collective backends of others; its releases"
    )
    assert "pip install 'ray>=2.56'" in text


def test_without_ray_it_is_said_what_to_install() -> None:
    text = imported("", "import sys; sys.modules['ray'] = None")
    assert text == "ImportError: ringcast.ray is for programs of Ray, which is missing: pip install 'ray>=2.56'"
