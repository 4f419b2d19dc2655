"""Gives a launcher another grace, of GRACE seconds; Python reads this file at its start, if PYTHONPATH has its folder.

Ranks that have not ended by then, after the failure of another one, are ended without a profile.
"""

import os

from ringcast.procs.timing import TIMING

TIMING.grace = float(os.environ["GRACE"])
