"""Find the processes of ranks on the server's own host: to watch for their ends, and to end them.

Only processes that were started with the job's number in their environment are ended: others, as the workers of Ray or
the processes of torchrun, belong to programs that may go on without the job.
"""

from __future__ import annotations

import socket

from ringcast.control.server import ControlServer
from ringcast.procs.portable import end_of
from ringcast.procs.process_mark import lives_here
from ringcast.procs.process_tree import has_tags, members


def family(server: ControlServer, nonce: int, rank: int) -> set[int]:
    """Return the processes of a rank, if it is on this host and its process has the job's nonce as a tag."""
    host, pid = server.process(rank)
    here = host == socket.gethostname() and has_tags(pid, [f"RINGCAST_NONCE={nonce}".encode()])
    return members({pid}, ()) if here else set()


def end_of_rank(server: ControlServer, rank: int) -> int | None:
    """Return a file that becomes readable when a rank's process has ended; None if it cannot be watched from here.

    Raises:
        ProcessLookupError: the process has ended.
    """
    _, pid = server.process(rank)
    lives = lives_here(pid, server.mark(rank))
    if lives is False:
        raise ProcessLookupError(f"process {pid} has ended")
    return end_of(pid) if lives else None
