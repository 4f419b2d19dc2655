"""Rules by which a link between two live ranks is declared dead, from the observations of `link_watch`.

TCP gives up after a quarter of an hour; its state shows a dead link earlier. A link is in doubt while it should answer
and does not: segments are unacknowledged, or probes of a closed window unanswered, or the connection is not there. An
acknowledgement comes from the peer's kernel, however long its program computes or is stopped; so slow is not dead.

After `DOUBT` seconds new connections to the same address are tried. After `STALL` seconds they decide:

* none was made: the link is cut, in one direction or both;
* all were made at once, and what the old one has sent again meanwhile was not answered: it was forgotten on the way
  (by a firewall, an address translation, a lost reset), or packets of its size do not pass any more;
* some were made: the link loses packets, and the old connection may wait for its next retransmission. It is borne until
  `HOPELESS`.

A peer that answers probes of its closed window is alive, so only the first rule applies to it. Where round trips take
seconds, as behind a queue that is full, all of these times are longer by two round trips.

Error rate: with 30 % of the packets lost in both directions a segment and its acknowledgement both arrive with
probability 0.49. TCP sends a lost one 7 times in 8 s, all in vain in 0.9 % of such cases; 10 trials are all made at
once, or all in vain, with probability 0.002.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringcast._util.dataclass import dataclass
from ringcast.procs.timing import TIMING

DOUBT, STALL, HOPELESS = TIMING.link_doubt, TIMING.link_stall, TIMING.link_hopeless
ENOUGH = 6  # trials, without which there is no decision
ROUND_TRIPS = 2  # for which all of this waits longer


@dataclass(slots=True)
class Trial:
    """A new connection to the peer's address."""

    made: bool = False
    smoothly: bool = False  # without any packet sent twice
    error: str = ""


def due(stalled: float, rtt: float) -> bool:
    """Return whether a link that has been `stalled` for so many seconds is to be tried; a round trip takes `rtt`."""
    return stalled >= DOUBT + ROUND_TRIPS * rtt


def verdict(
    stalled: float,
    trials: Sequence[Trial],
    *,
    rtt: float = 0.0,
    closed: bool = False,
    there: bool = True,
    resent: bool = True,
) -> str:
    """Return why a link is dead that has not answered for `stalled` seconds; empty while it is not known to be.

    Args:
        stalled: seconds of this process's own time.
        trials: of new connections, all since the link was in doubt.
        rtt: the longest round trip of this rank's connections.
        closed: the peer's window is closed, so that nothing is under way to be acknowledged.
        there: whether there is a connection at all.
        resent: whether the old connection has sent something again in vain since the first of the trials.
    """
    if stalled < STALL + ROUND_TRIPS * rtt or len(trials) < ENOUGH:
        return ""
    what = f"no acknowledgement for {stalled:.0f} s" if there else f"no connection came up for {stalled:.0f} s"
    if not any(trial.made for trial in trials):
        errors = [trial.error for trial in trials if trial.error]
        return f"{what}, and none of {len(trials)} new connections was made ({errors[-1] if errors else 'no answer'})"
    if closed:
        return ""
    if (resent or stalled >= HOPELESS) and all(trial.smoothly for trial in trials):
        return (
            f"{what}, though new connections are made: it was forgotten on the way, or its packets are too large for it"
        )
    return f"{what}, and few new connections are made" if stalled >= HOPELESS else ""
