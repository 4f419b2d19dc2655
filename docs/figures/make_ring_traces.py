"""Draw docs/figures/ring-idle.svg: when the ranks of two ring algorithms move data (needs matplotlib: extra `bench`).

The real executor and protocol run on the simulated wire, observed as a job is. After Figure 8 of Träff et al., "A
pipelined algorithm for large, irregular all-gather problems" (2010): one rank contributes everything.

python docs/figures/make_ring_traces.py
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.stage import Choice, Group
from ringcast.monitoring.trace import Totals, TraceRecorder, moving, rounds, totals
from ringcast.monitoring.trace.pairing import Interval

P, NBYTES, NBLOCKS = 8, 10_000_000, 64
ALPHA, BETA = 1e-4, 8 / (100e6 * 1448 / 1514)  # seconds a message and a byte on Ethernet of 100 Mbit/s
IDLE, TRANSFER, INK = "#cfdcea", "#1f4e79", "#333333"


def main() -> None:
    """Write the figure beside this file."""
    mpl.rcParams.update({"svg.hashsalt": "ringcast", "font.family": "sans-serif", "svg.fonttype": "path"})
    figure, panels = plt.subplots(2, 1, figsize=(9.6, 5.2), sharex=True, layout="constrained")
    for axes, title, choice in zip(
        panels, ("Plain ring", "Pipelined ring"), (Choice("ring"), Choice("pipelined_ring", NBLOCKS)), strict=True
    ):
        draw(axes, title, *traced(choice))
    panels[-1].set_xlabel(f"seconds; {P} ranks, rank 0 gives {NBYTES / 1e6:g} MB and the others nothing, 100 Mbit/s")
    figure.savefig(Path(__file__).with_name("ring-idle.svg"), bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def traced(choice: Choice) -> tuple[list[Totals], list[list[Interval]]]:
    """Run the allgatherv; return what each rank did, and when something of it moved, in seconds from the start."""
    wire, endpoints = simulated_endpoints(P, alpha=ALPHA, beta=BETA)
    recorders = [TraceRecorder() for _ in endpoints]
    counts = (NBYTES,) + (0,) * (P - 1)
    steps = [
        collectives.gather.allgatherv(
            Group(endpoint, 1, NETWORKS["tcp"], recorder), np.zeros(count, np.uint8), counts, None, choice
        )
        for endpoint, recorder, count in zip(endpoints, recorders, counts, strict=True)
    ]
    drive_together(wire, endpoints, steps)
    events = [recorder.events for recorder in recorders]
    return totals(events), moving([rounds(mine) for mine in events])


def draw(axes: Axes, title: str, ranks: list[Totals], moved: list[list[Interval]]) -> None:
    """Draw a bar for each rank: dark where something moves, light where it is idle."""
    span, idle = ranks[0].span, sum(one.idle for one in ranks) / sum(one.span for one in ranks)
    for rank, intervals in enumerate(moved):
        axes.broken_barh([(0, span)], (rank - 0.4, 0.8), color=IDLE, lw=0)
        bars = [(first, last - first) for first, last in intervals]
        axes.broken_barh(bars, (rank - 0.4, 0.8), color=TRANSFER, lw=0.2)  # a line, so that no gap shows in between
    axes.set_title(f"{title}: {span:.2f} s, of which ranks are idle for {idle:.0%}", loc="left", color=INK, fontsize=11)
    axes.set_yticks(range(P), [f"rank {rank}" for rank in range(P)], color=INK, fontsize=9)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    main()
