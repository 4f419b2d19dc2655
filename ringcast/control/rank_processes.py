"""Find the processes of ranks on the server's own host: to watch for their ends, and to end them.

Only processes that were started with the job's number in their environment are ended: others, as the workers of Ray or
the processes of torchrun, belong to programs that may go on without the job. These are watched where the rank's card
identifies its process, as the cards of ranks that share memory do.
"""

from __future__ import annotations

import os
import socket

from ringcast.control.server import ControlServer
from ringcast.procs import colocation
from ringcast.procs.credentials import own
from ringcast.procs.portable import end_of
from ringcast.procs.process_tree import has_tags, members
from ringcast.procs.procfs import lives
from ringcast.transports.memory.segment import SegmentCard, parse
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.transport_kinds import SHM


def family(server: ControlServer, nonce: int, rank: int) -> set[int]:
    """Return the processes of a rank, if it is on this host and its process has the job's nonce as a tag."""
    host, pid = server.process(rank)
    here = host == socket.gethostname() and has_tags(pid, [f"RINGCAST_NONCE={nonce}".encode()])
    return members({pid}, ()) if here else set()


def end_of_rank(server: ControlServer, nonce: int, rank: int) -> int | None:
    """Return a file that becomes readable when a rank's process has ended; None if it cannot be watched from here.

    Raises:
        ProcessLookupError: the process has ended.
    """
    if family(server, nonce, rank):
        return end_of(server.process(rank)[1])
    card = _segment_here(server.card(rank))
    if card is None:
        return None
    end = end_of(card.pid)
    if lives(card.pid, card.started):  # else the number may mean another process by now
        return end
    if end is not None:
        os.close(end)
    raise ProcessLookupError(f"process {card.pid} has ended")


def _segment_here(card: EndpointCard) -> SegmentCard | None:
    """Return the segment of a rank whose process numbers mean the same here; None if they do not, or it has none."""
    if card.address.startswith(SHM.scheme):
        system, text = card.host.partition(" ")[0], card.address.removeprefix(SHM.scheme)
    else:
        system, _, text = card.memory.partition(" ")
    segment = parse(text) if system and system in (colocation.kernel(), colocation.system()) else None
    return segment if segment is not None and segment.who.pid_namespace == own().pid_namespace else None
