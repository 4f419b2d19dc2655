"""Judge schedules without data and processes.

* `postconditions`, `lockstep`, `verify`: whether a schedule reaches the postcondition of its collective, symbolically
* `simulate`, `rounds`, `topologies`: its time on a virtual clock, round by round, also on sparse networks
* `bounds`, `tables`, `diagram`: lower bounds, the tables of the papers, space-time diagrams

>>> from ringcast.analysis import verify
"""

__all__ = [
    "bounds",
    "diagram",
    "lockstep",
    "postconditions",
    "rounds",
    "simulate",
    "tables",
    "topologies",
    "verify",
]
