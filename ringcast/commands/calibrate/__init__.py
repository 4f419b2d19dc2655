"""Implement `ringcast calibrate`: measure the links of a job, and fit the constants of the cost model to the times.

`measure` runs collectives in a launched job, `fit` is a pure function of their times, `report` shows times and
predictions side by side, `command` is the command.
"""
