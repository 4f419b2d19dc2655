"""The part of a profile that one rank has recorded, as plain data for JSON; `ringcast.profiling.report` joins them."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import zmq

from ringcast import algorithms
from ringcast._util.output_files import write_whole
from ringcast.algorithms.cost import predict
from ringcast.algorithms.network import Network
from ringcast.algorithms.params import Params
from ringcast.analysis.rounds import messages
from ringcast.collectives.stage import StagePlan
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.profiler import Profiler
from ringcast.engine.slot_sizes import slot_sizes
from ringcast.engine.tally import Tally
from ringcast.monitoring.trace import to_json
from ringcast.procs.portable import bound, processors, starved
from ringcast.protocol.compiled import build
from ringcast.schedules.schedule import Schedule
from ringcast.version import __version__
from ringcast.wire.flight import CALL, PROFILE

FORMAT = "ringcast profile part 1"
DRAWN = 24  # call sites of a communicator whose rounds are kept: the ones that took the most time
LARGEST = 100  # ranks of a communicator whose rounds are kept
MOST_MESSAGES = 4000  # of one call
TRACED = 64  # observed calls of a rank that are kept

Part: TypeAlias = dict[str, Any]


def part_of(endpoint: Endpoint, profiler: Profiler, network: Network) -> Part:
    """Return the part that a rank has recorded so far."""
    now = endpoint.transport.clock()
    order = sorted(profiler.tallies, key=lambda tally: tally.blocking + tally.awaited, reverse=True)
    drawn = {tally.number for tally in order[:DRAWN]}
    everyone = range(endpoint.size)
    contexts = {tally.context: profiler.members.get(tally.context) or everyone for tally in profiler.tallies}
    return {
        "format": FORMAT,
        "rank": endpoint.rank,
        "size": endpoint.size,
        "host": socket.gethostname(),
        "boot": _boot(),
        "pid": os.getpid(),
        "cpus": processors(),
        "bound": bound(),
        "starved": _starved(profiler),
        "start": profiler.start,
        "end": profiler.end or now,
        "over": bool(profiler.end),
        "began": time.time() - (now - profiler.start),
        "outside": profiler.outside_until(profiler.end or now),
        "stride": profiler.stride,
        "error": "" if (error := endpoint.unanswered.first) is None else str(error),
        "command": [os.fsencode(each).decode("utf-8", "replace") for each in sys.argv],
        "transport": type(endpoint.transport).__name__.removesuffix("Transport"),
        "protocol": build(),
        "network": {name: getattr(network, name) for name in ("alpha", "beta", "gamma")},
        **machine(),
        "sent": profiler.sent_to,
        # The world has many members, and is the same in all parts.
        "contexts": {str(number): [*members] for number, members in contexts.items() if members is not everyone},
        "tallies": [_tally(endpoint, tally, network, drawn, contexts[tally.context]) for tally in profiler.tallies],
        "moments": profiler.moments,
        "traces": _traces(order),
    }


def machine() -> Part:
    """Return the versions of what runs here, and the system."""
    return {
        "versions": {
            "ringcast": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyzmq": zmq.__version__,
        },
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _boot() -> str:
    """Return a name of the system's run, which has one monotonic clock; "" if there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_part(directory: str, part: Part) -> None:
    """Write a part to the job's directory, whole or not at all.

    Raises:
        OSError: there is no room.
    """
    text = json.dumps(part, separators=(",", ":")).encode()
    write_whole(os.path.join(directory, PROFILE.format(rank=part["rank"])), lambda file: file.write(text))


def _starved(profiler: Profiler) -> float | None:
    """Return for how many seconds of the profile the rank's thread had no processor; None if that is unknown."""
    now = starved(profiler.thread)
    return None if now is None or profiler.starved is None else now - profiler.starved


def _tally(endpoint: Endpoint, tally: Tally, network: Network, drawn: set[int], members: Sequence[int]) -> Part:
    file, line = tally.site
    plan: StagePlan | None = tally.plan
    draws = plan is not None and tally.number in drawn and endpoint.rank == members[0]
    return {
        "file": file.encode("utf-8", "replace").decode(),  # the program may give any text as the name of its code
        "line": line,
        "name": tally.name,
        "context": tally.context,
        **_arguments(tally.call),
        "shared": tally.shared,
        "ends": tally.ends,
        "sources": tally.sources,
        "calls": tally.calls - tally.later,
        "sent": tally.sent,
        "received": tally.received,
        "requests": tally.requests,
        "failed": tally.failed,
        "objects": tally.objects,
        "blocking": tally.blocking,
        "under_way": tally.under_way,
        "awaited": tally.awaited,
        "python": tally.python,
        "before": tally.before,
        "lost": tally.lost,
        "missed": tally.missed,
        "slowest": tally.slowest,
        "histogram": [(i, count) for i, count in enumerate(tally.histogram) if count],
        "nbytes": 0 if plan is None else plan.nbytes,
        "predicted": None if plan is None else _predicted(plan, network),
        "messages": _messages(plan.collective, plan.algorithm, plan.params, plan.nbytes)
        if draws and plan is not None
        else (),
    }


def _arguments(call: bytes) -> Part:
    if len(call) != CALL.size:
        return dict.fromkeys(("collective", "algorithm", "dtype", "op", "shape"), "") | {"root": None, "nblocks": 1}
    *names, root, nblocks = CALL.unpack(call)
    texts = (name.rstrip(b"\0").decode("utf-8", "replace") for name in names)
    arguments: Part = dict(zip(("collective", "algorithm", "dtype", "op", "shape"), texts, strict=True))
    return arguments | {"root": None if root < 0 else root, "nblocks": nblocks}


def _predicted(plan: StagePlan, network: Network) -> float | None:
    if not plan.algorithm or not plan.nbytes:
        return None
    return predict(plan.collective, plan.algorithm, plan.params, plan.nbytes, network)


@lru_cache(maxsize=2 * DRAWN)  # a part is saved again and again, most often with the same plans
def _messages(collective: str, algorithm: str, params: Params, nbytes: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return round, source, destination and bytes of each message of a call; nothing of one that is too large."""
    if not algorithm or params.size > LARGEST:
        return ()
    schedules = [algorithms.build(collective, algorithm, params, rank) for rank in range(params.size)]
    return (*drawn_messages(schedules, slot_sizes(schedules[0], params.counts, nbytes)),)


def drawn_messages(schedules: Sequence[Schedule], sizes: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return round, source, destination and bytes of each message; nothing of too many.

    `sizes` are bytes of the slots of the program's buffer.
    """
    if sum(map(len, schedules)) > MOST_MESSAGES:
        return []
    sizes = [*sizes, *(sizes[slot] for slot in schedules[0].scratch)]
    return [
        (each.round, each.source, each.dest, sum(sizes[slot] for slot in each.slots)) for each in messages(schedules)
    ]


def _traces(order: Sequence[Tally]) -> list[tuple[int, int, list[Any]]]:
    """Return tally, number and events of observed calls, first of call sites that took the most time."""
    traces = [
        (tally.number, number, [to_json(event) for event in events])
        for tally in order
        for number, events in tally.traces.items()
        if events
    ]
    return traces[:TRACED]
