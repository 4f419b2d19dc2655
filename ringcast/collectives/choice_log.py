"""RINGCAST_DEBUG=info: rank 0 prints the chosen algorithm, the predicted and the measured time of every stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from ringcast.algorithms import find
from ringcast.algorithms.cost import predict
from ringcast.algorithms.network import Network
from ringcast.collectives.stage import StagePlan
from ringcast.wire.call import OBJECT


def stage_log(network: Network, stream: TextIO) -> Callable[[StagePlan, float], None]:
    """Return an observer of stages that writes a line to `stream` when one is over."""

    def log(stage: StagePlan, seconds: float) -> None:
        print(in_words(stage, network, seconds), file=stream)

    return log


def in_words(stage: StagePlan, network: Network, seconds: float) -> str:
    """Return the line for a stage that took `seconds`; the sizes of Python objects are not known to it."""
    name, params = stage.algorithm, stage.params
    size = "objects" if stage.call.dtype == OBJECT else f"{stage.nbytes} bytes"
    if not name:
        return f"ringcast: {stage.call.collective} of {size} on {stage.call.topology}: took {seconds * 1e3:.3f} ms"
    rounds = find(stage.collective, name).rounds(params)
    expected = predict(stage.collective, name, params, stage.nbytes, network)
    what = f"{stage.call.collective} of {size} by {name}, {params.nblocks} blocks, {rounds} rounds"
    return f"ringcast: {what}: predicted {expected * 1e3:.3f} ms, took {seconds * 1e3:.3f} ms"
