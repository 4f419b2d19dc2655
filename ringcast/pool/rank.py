"""One rank of a pool's job: `-m ringcast.pool.rank FOLDER`. Rank 0 is the master, and runs no tasks."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from ringcast.bootstrap.world import finalize, init
from ringcast.communicator import Communicator
from ringcast.errors import PeerFailed
from ringcast.pool.link import Link
from ringcast.pool.master import Master
from ringcast.pool.messages import Ready
from ringcast.pool.worker import serve

SOCKET = "caller"  # its name in the folder


def main(folder: Path) -> None:
    """Join the job, and be its master or a worker."""
    comm = init()
    comm.timeout = None  # no worker's wait for tasks is too long
    link = None
    if comm.rank == 0:
        link = Link(_connected(folder))
    # Functions may need modules beside the caller's script.
    sys.path[:], retries = comm.bcast(None if link is None else link.receive()[0][0])
    hosts = comm.allgather(os.uname().nodename)
    if link is None:
        try:
            serve(comm)
        except PeerFailed:
            comm.ack_failed()
    else:
        _be_master(comm, link, hosts, retries)
    finalize()


def _connected(folder: Path) -> socket.socket:
    """Return a connection to the caller, which removes the folder then."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(folder / SOCKET))
    except OSError:  # the caller was killed
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return connection


def _be_master(comm: Communicator, link: Link, hosts: list[str], retries: int) -> None:
    """Serve the caller to the end; if it is killed, have the launcher end the job, as workers may run for ever."""
    comm.progress_thread()
    link.send(Ready({rank: host for rank, host in enumerate(hosts) if rank}))
    master = Master(comm, dict(enumerate(hosts)), retries, link.outgoing)
    try:
        while not master.stopped:
            master.take(link.receive())
    except EOFError:
        os.kill(os.getppid(), signal.SIGTERM)
        return
    master.join()
    link.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
