"""Traces: the rounds of all ranks, their times, and the share of time with a transfer under way.

An observer gets the events of a rank (`ringcast.events`); live jobs, the simulated wire and the simulator give the
same ones. `events_by_rank` is everywhere a sequence with the events of rank 0, 1, …, each in the order in which they
happened. All of this costs time and memory in proportion to the number of events.
"""

from ringcast.monitoring.trace.chrome import write_chrome
from ringcast.monitoring.trace.pairing import Round, TracedMessage, messages, moving, rounds
from ringcast.monitoring.trace.record import TraceRecorder, align, from_json, shifted, to_json
from ringcast.monitoring.trace.times import Totals, summary, totals

__all__ = [
    "Round",
    "Totals",
    "TraceRecorder",
    "TracedMessage",
    "align",
    "from_json",
    "messages",
    "moving",
    "rounds",
    "shifted",
    "summary",
    "to_json",
    "totals",
    "write_chrome",
]
