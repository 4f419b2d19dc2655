"""Shared arrays on emulated hosts: one on each, and data that reach each host once."""

from __future__ import annotations

import pytest

from support.fleets import Fleet

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

PROGRAM = """
import numpy as np
import ringcast

comm = ringcast.init()
near = comm.split_by_host()
counts = comm.shared_array(comm.size, int)
near.barrier()
counts[comm.rank] = comm.rank + 1
near.barrier()
assert (counts == [rank + 1 if rank in near.members else 0 for rank in range(comm.size)]).all(), counts

comm.bcast(np.arange(1000))
table = comm.bcast_shared(np.arange(1_000_000) if comm.rank == 3 else None, 3)
assert (table == np.arange(1_000_000)).all() and not table.flags.writeable
part = comm.split(comm.rank % 2)
assert part.bcast_shared(np.full(5, comm.rank))[0] == comm.rank % 2
errors = []
try:
    comm.shared_array(1 << 50)
except ringcast.SharedMemoryError as error:
    errors.append((error.peer, error.nbytes))
assert comm.allgather(errors) == [[(0, 1 << 53)]] * comm.size
print("right")
"""


def test_each_host_has_one_array_and_gets_the_data_once(hosts: Fleet) -> None:
    before = [hosts.bed.carried(host)[1] for host in range(3)]
    done = hosts.launch("-H", "h0:3,h1:3,h2:2", "--output", "none", hosts.program(PROGRAM))
    assert (done.returncode, done.stdout) == (0, "right\n" * 8), done.stdout + done.stderr
    received = [hosts.bed.carried(host)[1] - before[host] for host in range(3)]
    assert all(8_000_000 < received[host] < 12_000_000 for host in (0, 2)), received  # the root is on h1
