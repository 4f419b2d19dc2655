"""Programs that offer messages, in shared memory: results and counters of the engine, wherever it has to go on."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine import direct
from ringcast.engine.drive import drive
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.program import MOST_COMBINED, MOST_OWN, Program
from support import needs
from support.calls import assert_same
from support.fault_cases import EVERY, Case, call, expected
from support.jobs import shared
from support.patience import patience

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

CONTEXT = 1
NBYTES = 100_000  # of a rank's value: too much to go eagerly
TIMES = 3  # calls, as a call can begin where the one before has ended on other ranks only
RANKS = (2, 3, 4, 5)
WAITS = (0.0, 20e-6, 1e-3)  # seconds of a wait after which a program ends, if nothing has come
ENOUGH = 60.0  # seconds that a job may take


class Job:
    """Ranks on threads, which share memory."""

    def __init__(self, size: int, *, predict: bool) -> None:
        self.endpoints = endpoints(shared(size))
        for endpoint in self.endpoints:
            endpoint.direct = predict

    def run(self, work: Any) -> list[Any]:
        with ThreadPoolExecutor(len(self.endpoints)) as pool:
            futures = [pool.submit(work, endpoint) for endpoint in self.endpoints]
            return [future.result(patience(ENOUGH)) for future in futures]

    @property
    def ledgers(self) -> list[list[list[int]]]:
        """The counters; all that was offered is confirmed."""
        protocols: list[Any] = [endpoint.protocol for endpoint in self.endpoints]
        for a, mine in enumerate(protocols):
            assert not any(mine._ledger.asked)
            assert not mine._sending.transfers
            for b, theirs in enumerate(protocols):
                assert mine._ledger.spent[b] == theirs._ledger.held[a] + theirs._ledger.owed[a]
        return [[[*words] for words in (p.sent, p.posted, p.seen, p.matched)] for p in protocols]

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.transport.close(0.1)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the programs with offers, by how they ended."""
    needs.compiled_part()
    count, run_flat = Counter[str](), direct.run_flat

    def running(endpoint: Endpoint, lane: Any, flat: Program, *others: Any) -> direct.End | None:
        end = run_flat(endpoint, lane, flat, *others)
        if any(move.offers or move.fetches for move in flat.moves):
            count["whole" if end is None else {None: "unsettled", True: "sent", False: "unsent"}[end.sent]] += 1
        return end

    monkeypatch.setattr(direct, "run_flat", running)
    return count


def played(case: Case, *, predict: bool) -> list[list[list[int]]]:
    """Make the call some times, compare its results with numpy's, and return the counters."""
    job = Job(case.size, predict=predict)
    try:

        def work(endpoint: Endpoint) -> list[Any]:
            group = Group(endpoint, CONTEXT, NETWORKS["shm"])
            return [drive(endpoint, call(case, group)) for _ in range(TIMES)]

        for results, right in zip(job.run(work), expected(case), strict=True):
            for result in results:
                np.testing.assert_array_equal(result, right)
        return job.ledgers
    finally:
        job.close()


def cases(name: tuple[str, str]) -> list[Case]:
    return [case for p in RANKS if (case := Case(*name, p, NBYTES)).fits]


def algorithms() -> list[Any]:
    """Return parameters by algorithm: one number of ranks, and in `make test-long` all."""
    found = []
    for name in EVERY:
        todo = cases(name)
        chosen = crc32("-".join(name).encode()) % len(todo) if todo else 0
        found.append(pytest.param(todo[chosen : chosen + 1], id="-".join(name)))
        found.append(pytest.param(todo, id=f"{'-'.join(name)}-all", marks=pytest.mark.long))
    return found


@pytest.mark.parametrize("todo", algorithms())
def test_results_and_counters_are_those_of_the_engine_wherever_a_program_ends(
    todo: list[Case], ends: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in todo:
        engine = played(case, predict=False)
        assert not ends
        for wait in WAITS if len(todo) > 1 else WAITS[crc32(str(case).encode()) % 3 :][:1]:
            monkeypatch.setattr(direct, "PATIENCE", wait)
            assert played(case, predict=True) == engine, f"{case}, waits of {wait} s"
        ends.clear()


SIZES = (8, 65_536, 65_544, 100_000, 300_000, MOST_COMBINED + 8, MOST_OWN, 2 * MOST_OWN)  # bytes of a value


@pytest.mark.parametrize("p", [3, *(pytest.param(p, marks=pytest.mark.long) for p in (1, 2, 4, 5))])
def test_programs_end_in_every_way_and_the_results_are_right(
    p: int, ends: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of all sizes, made again and again; what one has returned is not changed by another one."""
    job = Job(p, predict=True)
    try:
        for wait in WAITS[::2]:
            monkeypatch.setattr(direct, "PATIENCE", wait)
            for results in job.run(calls):
                for result, right, name in results:
                    assert_same(result, right, name)
    finally:
        job.close()
    assert not any(any(ledger) for endpoint in job.endpoints for ledger in [endpoint.protocol._ledger.asked])
    assert p == 1 or ends["whole"]
    assert p == 1 or len(ends) > 1, "no program has ended before its end"


def parts(values: Any, counts: list[int]) -> Any:
    return np.concatenate([values[:count] for count in counts])


def calls(endpoint: Endpoint) -> list[tuple[Any, Any, str]]:
    comm = Communicator(Group(endpoint, CONTEXT, NETWORKS["shm"]), None)
    p, found = comm.size, []
    for size in SIZES:
        values = [np.arange(size // 8, dtype=float) + rank for rank in range(p)]
        mine = values[comm.rank]
        for turn in range(3):
            root, whole = turn % p, sum(values)
            cut = [len(mine) * i // p for i in range(p + 1)]
            counts = [b - a for a, b in pairwise(cut)]
            part = slice(cut[comm.rank], cut[comm.rank + 1])
            spread = [len(mine) // p * (rank % 3) for rank in range(p)]  # some ranks have nothing
            table = values[0][: len(mine) // p * p].reshape(p, -1)
            found += [
                (comm.allreduce(mine), whole, f"allreduce of {size}"),
                (comm.bcast(mine if comm.rank == root else None, root), values[root], f"bcast of {size}"),
                (comm.allgather(mine), np.stack(values), f"allgather of {size}"),
                (comm.allgatherv(values[0][part], counts), values[0], f"allgatherv of {size}"),
                (comm.allgatherv(values[root][: spread[comm.rank]], spread), parts(values[root], spread), "mod3"),
                (comm.reduce_scatter(mine, counts=counts), whole[part], f"reduce_scatter of {size}"),
                (comm.alltoall(table), np.stack([table[comm.rank]] * p), f"alltoall of {size}"),
                (comm.allreduce(mine, out=np.empty_like(mine)), whole, f"allreduce into memory of {size}"),
            ]
            for factor in (2, 3, 4):  # the second of them is made again, whether it has a buffer or not
                sent = factor * values[root]
                given = sent if comm.rank == root else np.empty_like(mine) if (factor + comm.rank) % 2 else None
                found.append((comm.bcast(given, root), sent, f"bcast of {size} again"))
    return found


def test_a_call_that_is_made_again_keeps_no_array_of_the_program(ends: Counter[str]) -> None:
    job = Job(2, predict=True)
    try:
        for left in job.run(arrays_left):
            assert not left
    finally:
        job.close()
    assert ends["whole"] + ends["sent"] + ends["unsent"] + ends["unsettled"]


def arrays_left(endpoint: Endpoint) -> list[str]:
    comm = Communicator(Group(endpoint, CONTEXT, NETWORKS["shm"]), None)
    made: dict[str, Callable[[Any], Any]] = {
        "allreduce": comm.allreduce,
        "reduce": comm.reduce,
        "scan": comm.scan,
        "allgather": comm.allgather,
        "reduce_scatter": comm.reduce_scatter,
        "bcast": comm.bcast,
    }
    given = []
    for name, method in made.items():
        for _ in range(4):
            array = np.ones(40_000)
            method(array)
            given.append((name, weakref.ref(array)))
            del array
    return [name for name, array in given if array() is not None]


# Calls within a program, as a function that numpy calls makes them.


@pytest.mark.parametrize("nbytes", [24, NBYTES, 10 * NBYTES])
@pytest.mark.parametrize("within", ["allreduce", "the same", "sendrecv", "large sendrecv"])
def test_a_call_within_a_program_loses_nothing_of_it(within: str, nbytes: int, ends: Counter[str]) -> None:
    """The ranks combine as often as each other, so all make that call."""
    job = Job(2, predict=True)
    try:
        made = job.run(lambda endpoint: calls_within(endpoint, within, nbytes))
        assert made[0] == made[1] > 0
        assert job.ledgers
    finally:
        job.close()


def calls_within(endpoint: Endpoint, within: str, nbytes: int) -> int:
    """Make calls whose operator makes another one, and return how many those were."""
    comm, other = (Communicator(Group(endpoint, context, NETWORKS["shm"]), patience(ENOUGH)) for context in (1, 2))
    peer, values, made = 1 - comm.rank, np.full(nbytes // 4, 3e38, np.float32), Counter[str]()

    def call(*_: object) -> None:
        if within == "the same":
            with np.errstate(all="ignore"):
                assert np.isinf(other.allreduce(values)).all()
        elif within == "allreduce":
            assert other.allreduce(1) == 2
        else:
            size = 3 if within == "sendrecv" else NBYTES
            assert (other.sendrecv(np.full(size, comm.rank), peer, peer) == peer).all()
        made[within] += 1

    for _ in range(5):
        with np.errstate(all="ignore"):
            assert np.isinf(other.allreduce(values)).all()
        with np.errstate(over="call", call=call):
            assert np.isinf(comm.allreduce(values)).all()
        assert (comm.allreduce(np.ones_like(values)) == 2).all()
    return made[within]
