"""A deterministic job gives the same bits over every transport, on any hosts, with any constants of the network."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast import MAX, MIN, PROD, SUM, Communicator, ConfigError, Op, UsageError
from ringcast.algorithms import network_file
from ringcast.algorithms.network import FIXED, NETWORKS, Network
from ringcast.bootstrap.in_process import thread_endpoints
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Data, Group, plan
from ringcast.wire.collective import COLLECTIVES
from support.jobs import Job, Jobs
from support.patience import patience
from support.programs import bits

SLOW = Network(alpha=1e-3, beta=1e-7, gamma=1e-9, frame=1e-6, grant=1e-6, link_beta=1e-7, lookahead=1 << 20)
FAST = Network(alpha=1e-6, beta=1e-10, gamma=0, frame=1e-6, ranks_per_cpu=4.0)
PROGRAM = Path(bits.__file__)
EVERYWHERE = [("threads", FIXED), ("threads", SLOW), ("shm", FAST), ("sockets", SLOW), ("tcp", FIXED), ("ipc", FAST)]


def hosts_for(p: int) -> Iterator[tuple[int, ...]]:
    """Yield which ranks share a host: none, blocks of two, every third one."""
    yield ()
    if p > 2:
        yield tuple(rank // 2 for rank in range(p))
        yield tuple(rank % 2 for rank in range(p))


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def deterministic(comm: Communicator, network: Network, hosts: tuple[int, ...]) -> Communicator:
    """Return the same communicator as a job with these constants and hosts has it if it is deterministic."""
    return Communicator(replace(comm._group, network=network, hosts=hosts, deterministic=True, plans={}), 60.0)


def digests(job: Job, network: Network, hosts: tuple[int, ...], sizes: tuple[int, ...]) -> list[dict[str, int]]:
    return job.ask(lambda c: bits.digests(deterministic(c, network, hosts), sizes))


FEW, ALL = (1, 2500), bits.SIZES  # the others take minutes


@pytest.mark.parametrize(
    ("p", "sizes"),
    [(1, FEW), (2, FEW), (3, FEW), (5, FEW), *(pytest.param(p, ALL, marks=pytest.mark.long) for p in (1, 2, 3, 5, 8))],
)
def test_all_transports_hosts_and_constants_give_the_same_bits(jobs: Jobs, p: int, sizes: tuple[int, ...]) -> None:
    want = digests(jobs("threads", p), NETWORKS["threads"], (), sizes)
    for name in want[0]:
        if name.startswith(("allreduce", "iallreduce")):
            assert len({rank[name] for rank in want}) == 1, name
    for (kind, network), hosts in zip(EVERYWHERE, itertools.cycle(hosts_for(p)), strict=False):
        got = digests(jobs(kind, p), network, hosts, sizes)
        differing = {
            name for mine, theirs in zip(got, want, strict=True) for name in theirs if mine[name] != theirs[name]
        }
        assert not differing, (kind, network, hosts)


@pytest.mark.parametrize("kind", ["shm", "sockets"])
def test_messages_of_several_segments_give_the_same_bits(jobs: Jobs, kind: str) -> None:
    def work(c: Communicator) -> list[int]:
        comm = deterministic(c, SLOW, ())
        x, y = bits.values(c.rank, 150_001, "f8"), bits.values(c.rank, 100_001, "D")
        return [bits.digest(result) for result in (comm.allreduce(x), comm.scan(x), comm.allreduce(y, PROD))]

    assert jobs(kind, 3).ask(work) == jobs("threads", 3).ask(work)


@pytest.mark.long
def test_many_ranks_give_the_same_bits(jobs: Jobs) -> None:
    job = jobs("threads", 33)
    want = digests(job, NETWORKS["sockets"], (), (1, 2500))
    for network, hosts in (SLOW, tuple(rank // 8 for rank in range(33))), (FAST, tuple(rank % 4 for rank in range(33))):
        assert digests(job, network, hosts, (1, 2500)) == want


def test_bits_may_differ_without_it(jobs: Jobs) -> None:
    """Else this file would show nothing."""

    def work(c: Communicator) -> set[int]:
        x = bits.values(c.rank, 100_000, "f8")
        constants = NETWORKS["ipc"], NETWORKS["sockets"]
        free = [Communicator(replace(c._group, network=network, plans={}), 60.0) for network in constants]
        return {bits.digest(one.allreduce(x)) for one in free}

    assert all(len(found) == 2 for found in jobs("threads", 4).ask(work))


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8, 13, 33, 64])
def test_reductions_are_planned_by_ranks_and_data_alone(p: int) -> None:
    endpoint = thread_endpoints(p)[0]
    order = Op(lambda a, b: a, name="order")
    combining = [name for name, one in COLLECTIVES.items() if one.combines]
    assert combining == ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"]
    for collective, nbytes in itertools.product(combining, [None, 0, 8, 1000, 1 << 16, 1 << 20, 1 << 26]):
        data = OBJECTS if nbytes is None else Data("float64", (nbytes // 8,), nbytes, 8)
        root = 0 if collective == "reduce" else None
        for op in SUM, order:
            found = set()
            for network, hosts in itertools.product([*NETWORKS.values(), SLOW, FAST], hosts_for(p)):
                group = Group(endpoint, 1, network, hosts=hosts, deterministic=True)
                stage = plan(group, collective, AUTOMATIC, data, root=root, op=op)
                found.add((stage.algorithm, stage.params))
            assert len(found) == 1, (collective, nbytes, op)


@pytest.mark.parametrize(("collective", "how"), [("bcast", {}), ("reduce", {"op": SUM, "exact": True})])
def test_what_no_order_changes_is_planned_for_the_network(collective: str, how: dict[str, Any]) -> None:
    """A broadcast combines nothing, and whole numbers are the same in every order."""
    endpoint = thread_endpoints(8)[0]

    def chosen(network: Network, fixed: bool) -> str:
        group = Group(endpoint, 1, network, deterministic=fixed)
        return str(plan(group, collective, AUTOMATIC, Data("uint8", (1 << 20,), 1 << 20, 1), root=0, **how))

    assert chosen(SLOW, True) == chosen(SLOW, False) != chosen(FAST, True) == chosen(FAST, False)


CUTS = [1, 2, 3, 7, 16, 333, 1000]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "F", "D", "i4"])
@pytest.mark.parametrize("op", [SUM, PROD, MIN, MAX], ids=str)
def test_bits_do_not_depend_on_how_arrays_are_cut(op: Op, dtype: str) -> None:
    """Messages are cut into segments, of another length for each transport, and lie anywhere in its memory."""
    rng = np.random.default_rng(1)
    special = rng.choice([0.0, -0.0, 1.0, 3.3, -7.1], (2, 1000)) if op in (MIN, MAX) else rng.standard_normal((2, 1000))
    pair = (special + (1j * special[::-1] if dtype in "FD" else 0)).astype(dtype)
    whole = np.empty_like(pair[0])
    op.combine(pair[0], pair[1], whole)
    for cut, into, shift in itertools.product(CUTS, (0, 1, None), (0, 1, 8)):
        memory = np.empty(2 * pair[0].nbytes + shift, np.uint8)[shift:]
        copies = memory.view(dtype).reshape(2, -1)
        copies[...] = pair
        out = np.empty_like(whole) if into is None else copies[into]
        for start in range(0, 1000, cut):
            piece = slice(start, start + cut)
            op.combine(copies[0][piece], copies[1][piece], out[piece])
        bare = out.astype(out.dtype)  # without what is in the gaps of long doubles
        assert np.array_equal(np.signbit(bare.real), np.signbit(whole.real)), (cut, into, shift)
        assert np.array_equal(bare, whole), (cut, into, shift)


# How it is asked for.


def launched(*arguments: str, env: dict[str, str] | None = None, program: Path = PROGRAM) -> Any:
    command = [
        sys.executable,
        "-m",
        "ringcast_launcher",
        "-n",
        "3",
        "--output",
        "none",
        *arguments,
        str(program),
        *map(str, FEW),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(120), env={**os.environ, **(env or {})}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.live
def test_jobs_over_all_transports_and_with_a_file_of_constants_print_the_same(tmp_path: Path) -> None:
    fixed = {"RINGCAST_DETERMINISTIC": "1"}
    want = launched("--transport", "shm", env=fixed)
    for transport in "sockets", "tcp", "ipc", "zeromq":
        assert launched("--transport", transport, env=fixed) == want, transport
    file = tmp_path / "network.toml"
    network_file.write(file, replace(SLOW, lookahead=0), "shm")
    assert launched("--transport", "shm", env={**fixed, "RINGCAST_CONFIG": str(file)}) == want
    program = tmp_path / "argument.py"
    program.write_text(
        f"import sys, ringcast; sys.path.insert(0, {str(PROGRAM.parents[2])!r})\n"
        f"from support.programs import bits\nbits.report(ringcast.init(deterministic=True), {FEW})\n"
    )
    assert launched("--transport", "sockets", program=program) == want


def test_threads_take_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(comm: Communicator) -> tuple[bool, str]:
        return comm._group.deterministic, str(comm.explain("allreduce", nbytes=8))

    assert not ringcast.run(chosen, 2, backend="threads")[0][0]
    monkeypatch.setenv("RINGCAST_DETERMINISTIC", "1")
    (fixed, words), _ = ringcast.run(chosen, 2, backend="threads")
    assert fixed
    assert "chosen by the number of ranks and the data alone" in words
    with ringcast.cluster(2, backend="threads") as ranks:
        assert ranks.run(chosen)[0][0]
    monkeypatch.setenv("RINGCAST_DETERMINISTIC", "often")
    for begun in (lambda: ringcast.run(chosen, 2, backend="threads")), (lambda: ringcast.cluster(2, backend="threads")):
        with pytest.raises(ConfigError, match="RINGCAST_DETERMINISTIC='often': must be 0 or 1"):
            begun()


def test_a_world_that_is_there_cannot_become_deterministic() -> None:
    def work(comm: Communicator) -> Communicator:
        assert ringcast.init() is ringcast.init(deterministic=False) is comm
        with pytest.raises(UsageError, match="the world is not; set RINGCAST_DETERMINISTIC=1 before the ranks are"):
            ringcast.init(deterministic=True)
        with pytest.raises(ValueError, match="deterministic='yes': expected True, False or None"):
            ringcast.init(deterministic="yes")
        return comm.allreduce(1)

    assert ringcast.run(work, 2, backend="threads") == [2, 2]


def test_parts_of_a_deterministic_job_are_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_DETERMINISTIC", "1")

    def work(comm: Communicator) -> list[bool]:
        parts = [comm.dup(), comm.split(0), comm.create(range(comm.size)), comm.shrink()]
        return [part._group.deterministic for part in parts if part is not None]

    assert ringcast.run(work, 3, backend="threads") == [[True] * 4] * 3
