"""A rank in a flood of messages, of a size in bytes, until one rank is killed: `python shm_flood.py SIZE VICTIM AFTER`.

The victim prints nothing, and is killed by a timer AFTER seconds. All others print the error that they get.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import ringcast


def main(size: int, victim: int, after: float) -> None:
    comm = ringcast.init()
    if comm.rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    mine, number = np.full(size, comm.rank, np.uint8), 0
    try:
        while True:
            requests = [comm.isend(mine, peer) for peer in range(comm.size) if peer != comm.rank]
            for peer in range(comm.size):
                if peer != comm.rank:
                    got = comm.recv(peer)
                    assert got.size == size
                    assert (got == peer).all(), f"message {number} of rank {peer}"
            for request in requests:
                request.wait()
            assert (comm.allreduce(mine) == sum(range(comm.size))).all()
            number += 1
    except (ringcast.PeerFailed, ringcast.Revoked) as error:
        print(f"{comm.rank} {type(error).__name__} {time.monotonic()} {error}", flush=True)
        raise


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
