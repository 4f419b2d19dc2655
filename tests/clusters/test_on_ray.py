"""`ringcast.on_ray` on a real cluster of one node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, UsageError
from support import needs, ray_clusters
from support.examples import check_examples
from support.patience import patience

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),  # Ray takes long to start on a busy machine
    pytest.mark.filterwarnings("default"),  # of Ray
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_clusters.cluster(3, Path(__file__).parent) as started:
        yield started


def total(comm: Communicator, shift: int) -> tuple[float, int]:
    assert ringcast.init() is comm
    return float(comm.allreduce(np.array(comm.rank + shift))), os.getpid()


@pytest.mark.parametrize("n", [1, 3])
def test_every_rank_has_a_process(cluster: Any, n: int) -> None:
    results = ringcast.on_ray(total, n, args=(1,))
    assert [result for result, _ in results] == [n * (n + 1) / 2] * n
    assert len({os.getpid(), *(pid for _, pid in results)}) == n + 1


def test_the_example_of_the_docstring(cluster: Any) -> None:
    check_examples(ringcast.on_ray)


def test_what_a_rank_raises_is_raised_in_the_client(cluster: Any) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 2:
            raise ValueError("no data")
        comm.barrier()

    with pytest.raises(RunFailed, match=r"rank 2: ValueError: no data\n(?s:.*)in work"):
        ringcast.on_ray(work, 3)


def test_too_few_processors_are_an_error_at_once(cluster: Any) -> None:
    before = time.monotonic()
    with pytest.raises(UsageError, match=r"4 ranks .* has 3"):
        ringcast.on_ray(total, 4, args=(1,))
    assert time.monotonic() - before < patience(5)
    with pytest.raises(ValueError, match="n=0"):
        ringcast.on_ray(total, 0)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_ends_the_others_and_is_named(cluster: Any, victim: int, tmp_path: Path) -> None:
    def work(comm: Communicator, folder: str) -> None:
        if comm.rank == victim:
            os._exit(3)
        try:
            comm.barrier()
        except ringcast.RingcastError:
            (Path(folder) / str(comm.rank)).touch()
            raise

    before = time.monotonic()
    with pytest.raises(RunFailed, match=f"rank {victim}: Ray says of its actor") as caught:
        ringcast.on_ray(work, 3, args=(str(tmp_path),))
    assert time.monotonic() - before < patience(100)
    assert caught.value.rank == victim
    assert {int(path.name) for path in tmp_path.iterdir()} == {0, 1, 2} - {victim}
    assert len(ringcast.on_ray(total, 3, args=(0,))) == 3


def test_without_a_cluster_it_is_said_what_to_call() -> None:
    needs.package("ray")
    program = "import ringcast; ringcast.on_ray(print, 1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(100))
    assert "UsageError: on_ray works in a cluster that this program is connected to: call ray.init" in done.stderr
