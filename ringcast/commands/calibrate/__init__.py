"""`ringcast calibrate`: measure the links of a job, and fit the constants of the cost model to what was measured.

`measure` runs collectives in a launched job, `fit` is a pure function of their times, `report` shows both beside each
other, `command` is the command.
"""
