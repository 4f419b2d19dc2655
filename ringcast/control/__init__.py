"""The control plane on real sockets: one server a job, one client in each worker.

Messages are `[nonce, number, message]` in msgpack over ZeroMQ ROUTER and DEALER; nothing is ever unpickled. `number`
counts the messages on a connection, so that a lost one is noticed. Client and server only carry messages;
`ringcast.control.membership` decides on them. tcp runs under CURVE: the server's public key belongs to the job's secret
key, and only clients with the pair that is derived from that key are admitted (`ringcast.net.keys`). An ipc socket is
open to its owner only.

The server runs in the launcher's loop, or, where no launcher is, in a process of its own that rank 0 starts with
`python -m ringcast.control`, and that ends with the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast._util.on_demand import on_demand

__all__ = ["PACE", "ControlClient", "ControlServer", "Pace", "main", "new_key", "serve", "version"]

if TYPE_CHECKING:
    from ringcast.control.client import ControlClient
    from ringcast.control.envelope import PACE, Pace, version
    from ringcast.control.process import main, serve
    from ringcast.control.server import ControlServer
    from ringcast.net.keys import new_key
else:
    __getattr__ = on_demand(  # no rank waits for the server, and no launcher for the client
        __name__,
        {
            "ringcast.control.client": ("ControlClient",),
            "ringcast.control.envelope": ("PACE", "Pace", "version"),
            "ringcast.control.process": ("main", "serve"),
            "ringcast.control.server": ("ControlServer",),
            "ringcast.net.keys": ("new_key",),
        },
    )
