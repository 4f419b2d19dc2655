"""A host of an emulated network loses its link, for good or for a while; or all links are very slow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.workers import start_workers
from support.beds import ENVIRONMENT, PROGRAMS, make_bed, run_ranks, set_link
from support.patience import patience

PAIRS = [("bcast", "allgatherv"), ("allreduce", "reduce_scatter"), ("barrier", "alltoall")]
HEARD = 15.0  # seconds until all know: ten of silence, and what a busy machine adds


def start(bed: Bed, *arguments: str) -> list[subprocess.Popen[str]]:
    """Start a job of calls without end; returns when all ranks make them."""
    command = [sys.executable, str(PROGRAMS / "without_end.py"), *arguments]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    workers = start_workers(bed, command, ENVIRONMENT, **files)
    for worker in workers:
        assert worker.stdout.readline() == "running\n"
    return workers


def ends(workers: list[subprocess.Popen[str]]) -> list[dict[str, Any] | None]:
    """Return what each rank has to say of its end."""
    return [json.loads(worker.communicate(timeout=patience(60))[0]) for worker in workers]


def together(work: Callable[..., None], cases: Sequence[tuple[Any, ...]]) -> None:
    """Do the work for all cases at the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(cases)) as pool:
        for future in [pool.submit(work, *case) for case in cases]:
            future.result()


def lose_link(collective: str, size: int, victim: int) -> None:
    with make_bed("4x100mbit") as bed:
        workers = start(bed, collective, str(size), "0")
        cut = time.monotonic()
        set_link(bed, victim, "down")
        found = ends(workers)
    for rank, end in enumerate(found):
        assert end is not None
        assert end["time"] - cut < patience(HEARD), (rank, end)
        if rank == victim or victim == 0:  # rank 0 has the control plane: without it nobody knows of anybody
            assert end["type"] in ("PeerFailed", "JobAborted", "Revoked"), (rank, end)
        else:
            assert end["type"] in ("PeerFailed", "Revoked"), (rank, end)
            assert f"rank {victim} " in end["text"], (rank, end)
            assert end["peer"] in (victim, None), (rank, end)


def test_all_hear_of_a_host_whose_link_is_cut() -> None:
    lose_link("allreduce", 500_000, 3)


@pytest.mark.long
@pytest.mark.parametrize("collectives", PAIRS)
def test_all_hear_of_any_host_in_any_call(collectives: tuple[str, str]) -> None:
    cases = [(800, 0), (800, 1), (2_000_000, 0), (2_000_000, 2)]  # bytes, and the victim
    together(lose_link, [(collective, *case) for collective in collectives for case in cases])


def cut_and_heal(collective: str, calls: int) -> None:
    with make_bed("4x100mbit") as bed:
        workers = start(bed, collective, "500000", str(calls))
        set_link(bed, 2, "down")
        time.sleep(2.5)  # the time without a link is what is tested
        set_link(bed, 2, "up")
        found = ends(workers)
    assert all(end is None for end in found) or all(end is not None for end in found), found


@pytest.mark.long
@pytest.mark.parametrize("collectives", PAIRS)
def test_any_call_goes_on_when_a_link_comes_back_soon(collectives: tuple[str, str]) -> None:
    together(cut_and_heal, [(collective, 3000 if collective == "barrier" else 60) for collective in collectives])


def use_slow_links(collective: str) -> None:
    with make_bed("4x1mbit") as bed:
        said = run_ranks(bed, "without_end.py", collective, "2000000", "1", timeout=110)
    assert said == ["null\n"] * 4


@pytest.mark.long
def test_a_slow_link_is_not_taken_for_a_dead_one() -> None:
    together(use_slow_links, [("bcast",), ("allgatherv",), ("allreduce",)])
