"""Ways to move frames between ranks: each module has one, and all keep the laws of `conformance`.

* `base`: what a transport is
* `registry`: those between processes, by name
* `threads`: ranks are threads of one process
* `zeromq`: ranks are processes, joined by ipc or tcp
* `simulated`: all ranks in one thread, on a virtual clock, with faults

>>> from ringcast.transports import base
"""

__all__ = [
    "base",
    "conformance",
    "registry",
    "simulated",
    "threads",
    "zeromq",
]
