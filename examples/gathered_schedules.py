"""Every rank computes its own block schedule, and an allgather gives all of them to everybody.

An irregular allgather needs the schedules of all ranks. This way to get them is from Träff, "(Poly)logarithmic time
construction of round-optimal n-block broadcast schedules", 2022, section 2.4: O(log p) a rank, q rounds. ringcast
itself computes the whole table on every rank, without a message; the program does both, and tells the times.

ringcast-launch -n 5 examples/gathered_schedules.py
"""

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

import ringcast
from ringcast.schedules.blocks import recv_schedule, schedule_tables, send_schedule
from ringcast.schedules.conditions import check_conditions


def gathered_tables(comm: ringcast.Communicator) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the receive and send blocks of all ranks, as arrays [round, rank]; one allgather of 2q bytes a rank."""
    p, r = comm.size, comm.rank
    mine = np.array([recv_schedule(p, r), send_schedule(p, r)], np.int8)
    recv, send = np.moveaxis(comm.allgather(mine), 0, -1)
    return recv, send


def main() -> None:
    with ringcast.init() as comm:
        gathered_tables(comm)  # the first call also opens connections
        comm.barrier()
        start = perf_counter()
        recv, send = gathered_tables(comm)
        gathered = perf_counter() - start
        schedule_tables.cache_clear()
        start = perf_counter()
        tables = schedule_tables(comm.size)
        computed = perf_counter() - start
        check_conditions(comm.size, recv, send)
        np.testing.assert_array_equal((recv, send), tables)
        if comm.rank == 0:
            print(f"gathered in {gathered * 1e6:.0f} µs, computed by each rank in {computed * 1e6:.0f} µs")
            print(f"the same schedules of {comm.size} ranks")


if __name__ == "__main__":
    main()
