"""Gives a launcher and its ranks another grace, of GRACE seconds.

Python reads this file at its start, if PYTHONPATH has its folder.
Ranks that have not ended by then, after the failure of another one, are ended without a profile. The limits for the end
of a rank that fails, and for those who wait for its reason, grow as the grace does.
"""

import os

if "GRACE" in os.environ:  # on other hosts it is not, though the path is
    from ringcast.procs.timing import TIMING

    slowness = float(os.environ["GRACE"]) / TIMING.grace
    for name in "grace", "settle", "report_grace", "link_closed":
        setattr(TIMING, name, slowness * getattr(TIMING, name))
