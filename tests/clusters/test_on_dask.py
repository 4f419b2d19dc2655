"""`ringcast.on_dask` on a real cluster of worker processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, UsageError
from support import needs
from support.examples import check_examples
from support.patience import patience
from support.places import ROOT
from support.sources import check_table, write_tree

pytestmark = [
    pytest.mark.long,
    # of Dask, at its end and when a worker dies
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    needs.package("distributed")
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=3,
            threads_per_worker=2,
            processes=True,
            dashboard_address=None,
            local_directory=tmp_path_factory.mktemp("dask"),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def total(comm: Communicator, shift: int) -> tuple[float, int]:
    assert ringcast.init() is comm
    return float(comm.allreduce(np.array(comm.rank + shift))), os.getpid()


@pytest.mark.parametrize("n", [1, 3, 6])
def test_ranks_run_in_the_workers_spread_over_all(client: Any, n: int) -> None:
    results = ringcast.on_dask(client, total, n, args=(1,))
    assert [result for result, _ in results] == [n * (n + 1) / 2] * n
    assert len({pid for _, pid in results}) == min(n, 3)
    assert os.getpid() not in {pid for _, pid in results}
    assert set(client.who_has()) == set()


def test_the_example_of_the_docstring(client: Any) -> None:
    check_examples(ringcast.on_dask, client=client)


@pytest.mark.parametrize("name", ["engines.md", "launching.md"])
def test_the_program_of_the_page_works(name: str, client: Any, tmp_path: Path) -> None:
    page = (ROOT / "docs/use" / name).read_text()
    blocks = re.findall(r"^```text\n(from [^`]*Client.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "page.py").write_text(blocks[0].replace("tcp://scheduler:8786", client.scheduler.address))
    command = [sys.executable, str(tmp_path / "page.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(100), check=False)
    assert done.stdout == f"{blocks[0].split('# ')[1].splitlines()[0]}\n", done.stderr


def test_identifiers_prints_the_right_table(client: Any, tmp_path: Path) -> None:
    def work(comm: Communicator, examples: str, options: Namespace) -> tuple[bool, str]:
        sys.path.append(examples)
        import identifiers

        with redirect_stdout(StringIO()) if comm.rank == 0 else nullcontext(StringIO()) as said:
            return identifiers.count_together(comm, options), said.getvalue()

    write_tree(tmp_path)
    options = Namespace(path=str(tmp_path), top=3, limit=None)
    results = ringcast.on_dask(client, work, 4, args=(str(ROOT / "examples"), options))
    assert [equal for equal, _ in results] == [True] * 4
    check_table(results[0][1], tmp_path, 4)


def test_what_a_rank_raises_is_raised_in_the_client(client: Any) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 2:
            raise ValueError("no data")
        comm.barrier()

    with pytest.raises(RunFailed, match=r"rank 2: ValueError: no data\n(?s:.*)in work"):
        ringcast.on_dask(client, work, 6)


def test_too_few_threads_are_an_error_at_once(client: Any) -> None:
    before = time.monotonic()
    with pytest.raises(UsageError, match=r"7 ranks .* the cluster has 6 \(3 workers\)"):
        ringcast.on_dask(client, total, 7, args=(1,))
    assert time.monotonic() - before < patience(5)
    with pytest.raises(ValueError, match="n=0"):
        ringcast.on_dask(client, total, 0)


def test_a_call_has_a_time_limit(client: Any) -> None:
    longer = patience(2)

    def work(comm: Communicator) -> None:
        if comm.rank:
            comm.barrier()
        else:
            time.sleep(longer)  # this rank leaves after the time limit of the others

    with pytest.raises(RunFailed, match="CollectiveTimeout"):
        ringcast.on_dask(client, work, 3, timeout=0.5)


def test_an_interrupt_of_the_client_ends_the_ranks(client: Any, tmp_path: Path) -> None:
    def work(comm: Communicator, folder: str) -> None:
        (Path(folder) / f"waits-{comm.rank}").touch()
        try:
            comm.sendrecv(None, None, 1 - comm.rank)
        finally:
            (Path(folder) / f"ended-{comm.rank}").touch()

    def interrupt() -> None:
        wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        ringcast.on_dask(client, work, 2, args=(str(tmp_path),))
    watcher.join()
    wait_for(lambda: len(list(tmp_path.glob("ended-*"))) == 2)
    wait_for(lambda: not any(client.processing().values()))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_threads_of_one_process_are_workers_too() -> None:
    needs.package("distributed")
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert ringcast.on_dask(client, total, 4, args=(0,)) == [(6.0, os.getpid())] * 4


def wait_until_there(client: Any, workers: int) -> None:
    """Wait until the scheduler has so many workers; what the client has heard of them may be old."""
    deadline = time.monotonic() + patience(60)
    while len(client.nthreads()) < workers:
        assert time.monotonic() < deadline, client.nthreads()
        time.sleep(0.05)  # a clock tick: what is waited for is the condition above


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_worker_that_dies_ends_the_others_and_is_named(client: Any, victim: int, tmp_path: Path) -> None:
    def work(comm: Communicator, folder: str) -> None:
        if comm.rank == victim:
            os._exit(3)
        try:
            comm.barrier()
        except ringcast.RingcastError:
            (Path(folder) / str(comm.rank)).touch()
            raise

    client.wait_for_workers(3)
    before = time.monotonic()
    with pytest.raises(RunFailed, match=f"rank {victim}: its Dask worker .* is gone") as caught:
        ringcast.on_dask(client, work, 3, args=(str(tmp_path),))
    assert time.monotonic() - before < patience(30)
    assert caught.value.rank == victim
    assert {int(path.name) for path in tmp_path.iterdir()} == {0, 1, 2} - {victim}
    wait_until_there(client, 3)
    assert not any(client.processing().values())  # no task hangs
    assert len(ringcast.on_dask(client, total, 6, args=(0,))) == 6
