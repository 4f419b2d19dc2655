"""Gives a launcher another grace, of GRACE seconds; Python reads this file at its start, if PYTHONPATH has its folder.

Ranks that have not ended by then, after the failure of another one, are ended without a profile.
"""

import os

if "GRACE" in os.environ:  # on other hosts it is not, though the path is
    from ringcast.procs.timing import TIMING

    TIMING.grace = float(os.environ["GRACE"])
