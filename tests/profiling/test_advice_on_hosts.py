"""Advice on real jobs: links of emulated hosts that are slow, or all alike, and ranks that share a processor.

Other programs of this machine may take its processors at any time, and the profile says so: here that is no fault.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.beds import set_rate, slow_way
from support.fleets import Fleet, fleet

pytestmark = pytest.mark.live

RATE, SLOW = "100mbit", "10mbit"
NETWORK = """
transport = "sockets"

[network]
alpha = 0.0005
beta = 8.5e-07
gamma = 0
frame = 0.0001
grant = 0.001
beta_long = 0
local = 2e-10
link_beta = 8.5e-07
lookahead = 0
"""
MOVES = """
import sys
import numpy as np, ringcast
comm = ringcast.init()
value = np.ones((comm.size, int(sys.argv[2]) // comm.size))
for _ in range(5):
    getattr(comm, sys.argv[1])(value)
"""
BOUND = """
import os, sys, time
import numpy as np, ringcast
comm = ringcast.init()
for _ in range(5):
    end = time.monotonic() + 0.4
    while sys.argv[1] == "computes" and time.monotonic() < end:
        pass
    time.sleep(max(0.0, end - time.monotonic()))
    comm.barrier()
"""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four hosts of the same rate."""
    with fleet(f"4x{RATE}", tmp_path_factory.mktemp("links")) as made:
        yield made


@pytest.fixture
def slow_host(links: Fleet) -> Iterator[Fleet]:
    """Four hosts; the link of h2 is slow."""
    set_rate(links.bed, 2, SLOW)
    yield links
    set_rate(links.bed, 2, RATE)


@pytest.fixture
def slow_link(links: Fleet) -> Iterator[Fleet]:
    """Four hosts; messages from h1 to h2 are slow."""
    slow_way(links.bed, 1, 2, SLOW, RATE)
    yield links
    set_rate(links.bed, 1, RATE)


@pytest.fixture
def slow_all(links: Fleet) -> Iterator[Fleet]:
    """Four hosts that all have slow links."""
    for host in range(4):
        set_rate(links.bed, host, SLOW)
    yield links
    for host in range(4):
        set_rate(links.bed, host, RATE)


def advice(
    made: Fleet, program: str, *arguments: str, where: tuple[str, ...] = ("-H", "h0,h1,h2,h3")
) -> dict[str, Any]:
    """Run a program under --profile, and return the advice by rule, without that on processors that others take."""
    file = made.folder / "p.json"
    done = made.launch(*where, "--profile", str(file), made.program(program), *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["advice"]
    return {one["rule"]: one for one in found if "though there are enough for all ranks" not in one["text"]}


@pytest.mark.parametrize("call", ["allreduce", "alltoall", "bcast"])
def test_a_host_with_a_slow_link_is_named_alone(call: str, slow_host: Fleet) -> None:
    """The slow link makes ranks late in each call; their program is not to blame."""
    found = advice(slow_host, MOVES, call, "100000")
    assert [*found] == ["slow host"]
    assert found["slow host"]["text"].startswith("Bytes to and from host h2 move at ")
    assert found["slow host"]["rank"] == 2


@pytest.mark.parametrize("call", ["allreduce", "alltoall", "bcast"])
def test_a_slow_link_between_two_hosts_is_named_alone(call: str, slow_link: Fleet) -> None:
    found = advice(slow_link, MOVES, call, "200000")
    assert [*found] == ["slow link"]
    assert found["slow link"]["text"].startswith("Bytes from host h1 to h2 move at ")


@pytest.mark.parametrize("call", ["allreduce", "alltoall", "bcast"])
def test_of_links_that_are_all_alike_none_is_named(call: str, links: Fleet) -> None:
    """The rate of 100 Mbit/s is not that of the cost model, which may be said."""
    assert advice(links, MOVES, call, "200000").keys() <= {"prediction"}


def test_a_network_that_is_slower_than_the_model_is_found_until_it_is_measured(slow_all: Fleet) -> None:
    assert [*advice(slow_all, MOVES, "allreduce", "100000")] == ["prediction"]
    (slow_all.folder / "network.toml").write_text(NETWORK)
    measured = "--config", str(slow_all.folder / "network.toml")
    assert not advice(slow_all, MOVES, "allreduce", "100000", where=("-H", "h0,h1,h2,h3", *measured))


def test_ranks_that_share_a_processor_are_named_if_they_need_it(tmp_path: Path, links: Fleet) -> None:
    first = min(os.sched_getaffinity(0))
    bound = f"import os\nos.sched_setaffinity(0, {{{first}}})\n{BOUND}"
    found = advice(links, bound, "computes", where=("-n", "2"))
    assert found["processors"]["text"].startswith("2 ranks share processor of host h0: ")
    assert not advice(links, bound, "sleeps", where=("-n", "2"))
