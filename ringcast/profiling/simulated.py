"""The profile of a collective that is simulated: the ranks' parts, from the events of the virtual clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ringcast.algorithms import build
from ringcast.algorithms.cost import predict
from ringcast.algorithms.network import Network
from ringcast.algorithms.params import Params
from ringcast.analysis.simulate import simulate
from ringcast.engine.slot_sizes import slot_sizes
from ringcast.events import Event, RoundEnd
from ringcast.monitoring.trace import to_json
from ringcast.profiling.part import LARGEST, Part, drawn_messages, machine
from ringcast.profiling.report import report
from ringcast.wire.header import STAGES

WORLD = 1  # number of the communicator


def simulated(
    collective: str, algorithm: str, params: Params, nbytes: int, network: Network, command: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the profile of one call on ranks that all begin at time 0; O(1) per step and slot that is moved."""
    schedules = [build(collective, algorithm, params, rank) for rank in range(params.size)]
    sizes = slot_sizes(schedules[0], params.counts, nbytes)
    events: list[list[Event]] = [[] for _ in schedules]
    simulate(
        schedules,
        sizes,
        alpha=network.alpha,
        beta=network.beta,
        observer=lambda event: events[event.rank].append(event),
        operation=collective,
    )
    span = max((event.time for mine in events for event in mine), default=0.0)
    messages = drawn_messages(schedules, sizes) if params.size <= LARGEST else []
    call = {
        "file": "",
        "line": 0,
        "name": collective,
        "context": WORLD,
        "collective": collective,
        "algorithm": algorithm,
        "dtype": "",
        "op": "",
        "shape": f"{nbytes} bytes",
        "root": params.root,
        "nblocks": params.nblocks,
        "shared": False,
        "ends": None,
        "sources": [],
        "calls": 1,
        "requests": 0,
        "failed": 0,
        "objects": 0,
        "under_way": 0.0,
        "awaited": 0.0,
        "python": 0.0,
        "lost": 0.0,
        "missed": [],
        "before": 0.0,
        "nbytes": nbytes,
        "predicted": predict(collective, algorithm, params, nbytes, network),
    }
    parts = [_part(rank, params.size, mine, span, network, call) for rank, mine in enumerate(events)]
    parts[0]["tallies"][0]["messages"] = messages
    return report(parts, params.size, command=command)


def _part(rank: int, size: int, events: Sequence[Event], span: float, network: Network, call: Part) -> Part:
    end = max((event.time for event in events), default=0.0)
    sent = [0] * size
    for event in events:
        if not isinstance(event, RoundEnd) and event.send_to is not None:
            sent[event.send_to] += event.sent
    bucket = int(end * 1e9).bit_length()
    received = sum(event.received for event in events if isinstance(event, RoundEnd))
    moved = {"sent": sum(sent), "received": received}
    own = {**moved, "blocking": end, "slowest": (end, STAGES, 0.0), "histogram": [(bucket, 1)]}
    return {
        "rank": rank,
        "size": size,
        "host": "simulated",
        "pid": 0,
        "cpus": size,
        "bound": [],
        "starved": 0.0,
        "start": 0.0,
        "end": span,
        "over": True,
        "began": time.time(),
        "outside": span - end,
        "stride": 1,
        "error": "",
        "command": [],
        "transport": "simulated",
        "protocol": "",
        "network": {name: getattr(network, name) for name in ("alpha", "beta", "gamma")},
        **machine(),
        "sent": [(peer, nbytes) for peer, nbytes in enumerate(sent) if nbytes],
        "contexts": {},
        "tallies": [{**call, **own, "messages": []}],
        "moments": [(0, STAGES, 0, 0.0, end, 0.0)],
        "traces": [(0, STAGES, [to_json(event) for event in events])],
    }
