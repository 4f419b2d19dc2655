"""Move frames between ranks: each module or room has one way to do so, and all keep the contract of `base`.

* `base`: the contract of a transport
* `registry`: the transports between processes, by name
* `memory`: ranks are processes of one host, joined by shared memory
* `sockets`: ranks are processes, joined by stream sockets, encrypted
* `threads`: ranks are threads of one process
* `zeromq`: ranks are processes, joined by ipc or tcp
* `simulated`: all ranks in one thread, on a virtual clock, with faults

>>> from ringcast.transports import base
"""

from ringcast.wire import transport_kinds as registry  # by its public name

__all__ = [
    "base",
    "registry",
    "simulated",
    "threads",
    "zeromq",
]
