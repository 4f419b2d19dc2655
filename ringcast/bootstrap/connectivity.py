"""Connections at the start: a rank connects to its neighbours at the addresses that they advertise.

A firewall that drops packets, an address that is another machine's here, a gateway that does not forward: none of these
gives an error by itself, and a rank would wait for a message that never comes. So `init` waits until each connection to
a neighbour is made, its encryption included.

A neighbour that has failed or left is not waited for: the first call that needs it raises the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ringcast.collectives.stage import Group
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import RendezvousError
from ringcast.schedules.blocks import skips
from ringcast.schedules.scan import census_skips
from ringcast.transports.base import RemoteTransport

GRACE = 3.0  # seconds after a refusal in which a launcher reports that the peer has failed or left: it takes 0.5
_DROPPED = "as if a firewall dropped the packets"
_FIX = "open the ports in the firewalls (RINGCAST_PORTS bounds them) or choose another interface (RINGCAST_IFACE)"


def connect_neighbours(group: Group) -> None:
    """Open the connections that the circulant algorithms use, the census too: at most 4q peers.

    Returns before the connections are made.
    """
    p, rank = group.size, group.rank
    counted = {s for s, _ in census_skips(p)}
    peers = {(rank + sign * s) % p for s in counted.union(skips(p)[:-1]) for sign in (1, -1)} - {rank}
    group.endpoint.transport.connect(sorted(map(group.in_job, peers)))


def reach(endpoint: Endpoint, transport: RemoteTransport, seconds: float, grace: float = GRACE) -> None:
    """Wait until all peers of the transport's `connect` are connected, both ways, have failed, or have left.

    A peer that refuses may have failed or left, and the notice of that may take `grace` seconds.

    Raises:
        RendezvousError: a peer was not reached within `seconds`, or refused the connection; names both ends.
    """
    try:
        _await(endpoint, transport, seconds, grace)
    finally:
        transport.stop_watching()  # later the messages and the control plane show whether it lives


def _await(endpoint: Endpoint, transport: RemoteTransport, seconds: float, grace: float) -> None:
    now = transport.clock()
    deadline = now + seconds
    refused: dict[int, float] = {}  # when that was seen
    while True:
        while endpoint.progress(transport.clock()):  # notices on failed or departed ranks
            pass
        protocol = endpoint.protocol
        unreached = transport.unreached()  # first: it may admit peers that were unheard
        heard_nothing = dict.fromkeys(transport.unheard(), "")
        missing = without({**heard_nothing, **unreached}, {*protocol.failed, *protocol.finished})
        if not missing or protocol.aborted is not None:
            break
        now = transport.clock()
        for peer, why in missing.items():
            if why:
                refused.setdefault(peer, now)
        if lost := overdue(missing, refused, now, deadline, grace):
            away = {peer: unreached[peer] for peer in lost if peer in unreached}
            what = _unreached(transport, away, seconds) if away else _unheard(transport, lost, seconds)
            ends = f"rank {endpoint.rank} at {transport.address}"
            raise RendezvousError(f"{ends} {what}; {_FIX}; ringcast doctor -H looks at all hosts")
        transport.wait_for_news(min([deadline, *(refused[peer] + grace for peer in missing if peer in refused)]))


def without(missing: Mapping[int, str], gone: Collection[int]) -> dict[int, str]:
    """Return the peers that are not reached and still there."""
    return {peer: why for peer, why in missing.items() if peer not in gone}


def overdue(
    missing: Mapping[int, str], refused: Mapping[int, float], now: float, deadline: float, grace: float = GRACE
) -> list[int]:
    """Return the peers that are to be given up: all at the deadline; before, the ones that refused a while ago.

    A peer that refuses may just have left or failed, and the notice of that may be on the way.

    >>> overdue({1: "", 2: "refused", 3: "refused"}, {2: 0.0, 3: 0.9}, now=3.0, deadline=9.0)
    [2]
    """
    if now >= deadline:
        return sorted(missing)
    return sorted(peer for peer in missing if peer in refused and now >= refused[peer] + grace)


def _unreached(transport: RemoteTransport, away: Mapping[int, str], seconds: float) -> str:
    """Return the error text for peers that this rank does not reach; some have refused the connection."""
    peer, *more = away
    others = f" (nor to rank {', '.join(map(str, more))})" if more else ""
    why = away[peer] or f"nothing came back within {seconds:g} s, {_DROPPED}"
    return f"gets no connection to rank {peer} at {transport.address_of(peer)}{others}: {why}"


def _unheard(transport: RemoteTransport, lost: Collection[int], seconds: float) -> str:
    """Return the error text for peers that this rank reaches, but that do not reach this rank."""
    theirs = ", ".join(f"rank {peer} at {transport.address_of(peer)}" for peer in lost)
    whom = "there" if len(lost) == 1 else "one of these at least"
    return f"has reached {theirs}, but gets no connection from {whom}: nothing came within {seconds:g} s, {_DROPPED}"
