"""Compute how many sockets and open files a rank needs, and raise the limits on them.

p = ranks. Between hosts a rank is connected with up to 4 ceil(log2 p) neighbours from the start, and with all others at
most; with all ranks of its host it shares memory from the start.
"""

from __future__ import annotations

import errno
import resource

from ringcast.errors import RendezvousError

OTHERS = 100  # open files, and sockets, of a rank that do not lead to peers: the program's own too
# For each peer, at most. Over shared memory: its pipe, its process, and its segment twice, mapped in two parts. Over
# ZeroMQ one less: a socket, which has a file of its own, and a connection each way. Over sockets only the connections;
# a long link has several.
PER_PEER = 4
MOST_CONNECTIONS = 16  # to one peer, …
_MORE = 256  # … and to all peers together, beside the first to each
_FIX = "raise the hard limit (LimitNOFILE= of the service, or /etc/security/limits.conf)"
STRANGERS = 128  # connections beside the members' that may wait at a socket in their handshake, …
CROWD = 512  # … and that may have come in the last moment
SOCKETS = 1023  # ZeroMQ's default limit for a context


def neighbours(p: int) -> int:
    """Return the most neighbours of a rank: 2 ceil(log2 p) in the circulant graph, and as many in the census's graph.

    >>> [neighbours(p) for p in (1, 2, 3, 64, 65)]
    [0, 1, 2, 24, 28]
    """
    return min(p - 1, 4 * (p - 1).bit_length())


def files_needed(peers: int) -> int:
    """Return the number of open files that a rank needs with `peers` connected peers."""
    return PER_PEER * peers + OTHERS


def most_connections(p: int) -> int:
    """Return the most connections that a rank makes to one of its peers.

    >>> [most_connections(p) for p in (1, 2, 17, 36, 65, 300)]
    [16, 16, 16, 8, 5, 1]
    """
    return min(MOST_CONNECTIONS, 1 + _MORE // max(p - 1, 1))


def sockets_needed(p: int) -> int:
    """Return the value for the limit on sockets of a rank's ZeroMQ context."""
    return max(SOCKETS, 2 * p + OTHERS)


def raise_files(p: int) -> None:
    """Raise the soft limit on open files to the number that a rank needs, at most to the hard limit.

    Raises:
        RendezvousError: not even the connections to the neighbours are possible; the text says what to do.
    """
    more = 2 * (p - 1) * (most_connections(p) - 1)
    hard, least = allow_files(files_needed(p - 1) + more + CROWD), files_needed(neighbours(p))
    if hard != resource.RLIM_INFINITY and hard < least:
        raise RendezvousError(f"a rank of {p} may need {least} open files, but only {hard} are allowed; {_FIX}")


def allow_files(wanted: int) -> int:
    """Raise the soft limit on open files to `wanted`, at most to the hard limit; return the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return hard


def why_not_started(error: OSError) -> str:
    """Return why a program could not be started; if our limit on open files is the cause, also what to do.

    >>> why_not_started(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if error.errno != errno.EMFILE:
        return error.strerror or str(error)
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"too many open files: the {allowed} that this process may have are in use; {_FIX}"
